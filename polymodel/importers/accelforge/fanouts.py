"""Convert fanouts of AccelForge to dimensions; constraints on a search go to `explore:`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from polymodel.importers.accelforge.unsupported_keys import leave_rest
from polymodel.importers.tables import KeyedTable, Reading

if TYPE_CHECKING:
    from polymodel.importers.accelforge.components import WrittenComponent

_RELATIONS = ("==", "<=", ">=", "<", ">")


def spatial_of(
    reading: Reading, part: WrittenComponent, explore: dict[str, object]
) -> list[dict[str, object]]:
    result: list[dict[str, object]] = []
    for j, node in enumerate(part.table.items("spatial")):
        table = KeyedTable(reading, node, f"{part.table.path}.spatial[{j}]", part.name)
        fields: dict[str, object] = {"name": table.text("name")}
        fanout_node, scale_node = table.take("fanout"), table.take("usage_scale")
        fanout = part.number(reading, fanout_node, "fanout", 1) if fanout_node is not None else 1
        scale = part.number(reading, scale_node, "usage_scale", 1) if scale_node is not None else 1
        fields["fanout"] = int(fanout or 1)
        if scale and scale != 1:
            fields["fanout"] = max(int(Fraction(str(fanout or 1)) / Fraction(str(scale))), 1)
            what = f"each iteration takes {scale} of the {fanout} instances: {fields['fanout']} are left"
            reading.note(node, what, "leakage and area count those that are left", table.path)
        for key in ("may_reuse", "reuse"):
            value = table.take(key)
            if value is not None and value.scalar is not None:
                fields["may_reuse"] = part.set_text(reading, value)
                if key == "reuse":
                    rule = rule_at(explore, "fanouts", part.name, str(fields["name"]))
                    rule["must_reuse"] = fields["may_reuse"]
        bounds = _loop_bounds(reading, part, table)
        if bounds:
            rule_at(explore, "fanouts", part.name, str(fields["name"]))["factors"] = bounds
        usage = table.take("min_usage")
        least = part.number(reading, usage, "min_usage") if usage is not None else None
        if least:
            rules = explore.setdefault("min_utilisation", {})
            assert isinstance(rules, dict)
            share = float(least) if least < 1 else "max"
            rules.setdefault(part.name, {})[str(fields["name"])] = share
        leave_rest(table)
        result.append(fields)
    return result


def rule_at(explore: dict[str, object], *path: str) -> dict[str, object]:
    """Return the table of an exploration rule at a location, and create it if it is missing."""
    result = explore
    for name in path:
        inner = result.setdefault(name, {})
        assert isinstance(inner, dict)
        result = inner
    return result


def _loop_bounds(reading: Reading, part: WrittenComponent, spatial: KeyedTable) -> dict[str, str]:
    """Return rank variable -> factor over a fanout, from `loop_bounds`: sets of rank variables and a
    number."""
    result: dict[str, str] = {}
    for node in spatial.items("loop_bounds"):
        table = KeyedTable(reading, node, f"{spatial.path}.loop_bounds", part.name)
        expression, operator, value = (table.take(k) for k in ("expression", "operator", "value"))
        number = part.number(reading, value, "value") if value is not None else None
        relation = str(operator.scalar) if operator is not None else ""
        variables = part.variables(str(expression.scalar)) if expression is not None else None
        if number is None or relation not in _RELATIONS or variables is None or result.keys() & variables:
            why = "here a factor of each rank variable is bounded, alike in all Einsums that have it"
            part.leave(reading, node, "loop_bounds", why, "write `factors:` of the fanout in `explore:`")
            continue
        shift = {"<": -1, ">": 1}.get(relation, 0)
        sign = {"==": "=", "<": "<=", ">": ">="}.get(relation, relation)
        result |= {v: f"{sign} {int(number) + shift}" for v in sorted(variables)}
    return result
