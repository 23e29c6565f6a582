"""Convert one component of AccelForge: sizes, fanouts, prices, value widths.

Prices in polymodel are per bit of a tensor's values in the workload. A component that has values of other
widths, counts values instead of bits, or takes several actions for each is priced so that every value costs
the same as in AccelForge. Where its tensors would need several prices, it is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from polymodel.architecture.hierarchy import KINDS
from polymodel.importers.accelforge.einsums import Einsums
from polymodel.importers.accelforge.fanouts import rule_at, spatial_of
from polymodel.importers.accelforge.latency import LARGEST, plain_number, total_latency
from polymodel.importers.accelforge.older import sorted_actions, widths_of
from polymodel.importers.accelforge.sparse import sparse_of
from polymodel.importers.accelforge.tolls import directions_of, keep_of, narrowed, tolls_of
from polymodel.importers.accelforge.unsupported_keys import leave_rest
from polymodel.importers.accelforge.values import NoValue, Scope
from polymodel.importers.tables import KeyedTable, Reading, lifted
from polymodel.spec.faults import TextFault, YamlNode
from polymodel.spec.numbers import Value

Written = tuple[str, dict[str, object]]
_ACTION = ("energy", "latency", "throughput", "bits_per_action", "energy_scale")


@dataclass(frozen=True)
class WrittenComponent:
    """A component as it is written. `kept`: component name -> what that component keeps. `above`: the outer
    memories. `instances`: how many of its instances form one memory. `sparse`: what another section specifies
    for it."""

    table: KeyedTable
    scope: Scope
    einsums: Einsums
    kept: Mapping[str, str] = field(default_factory=dict)
    above: tuple[str, ...] = ()
    instances: int = 1
    sparse: tuple[YamlNode, ...] = ()

    @property
    def name(self) -> str:
        return self.table.owner

    @property
    def kind(self) -> str:
        return "Container" if self.table.node.tag == "Fanout" else self.table.node.tag

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that polymodel has for this kind of component."""
        rules = next((r for kind, r in KINDS.items() if kind == self.kind.lower()), None)
        return () if rules is None else (*rules.actions, *rules.sparse)

    def number(
        self, reading: Reading, node: YamlNode, what: str, default: Value | None = None
    ) -> Value | None:
        """Return a number that is the same for every Einsum; 0 for Einsums that have no tensor in the
        component."""
        found: set[Value] = set()
        lacking = ""
        for einsum in self.einsums.each():
            try:
                found.add(replace(self.scope, view=self.einsums.view(einsum), known={}).number(node.scalar))
            except (NoValue, TextFault) as fault:
                lacking = fault.word if isinstance(fault, NoValue) else fault.message
        most = math.inf if what in ("size", "throughput_scale") else LARGEST
        if any(not is_amount(v, most) for v in found):
            why, remedy = f"{max(found, key=abs)} is not an amount", "write a number, 0 or more"
            self.leave(reading, node, what, why, remedy, changes=_changed(what), refused=what not in _FREE)
            return default
        positive = {v for v in found if v}
        if len(positive) == 1:
            return positive.pop()
        if found == {0}:
            return 0
        if found:
            changes = "capacity" if what == "size" else "energy and latency"
            why, remedy = (
                f"it differs among Einsums ({', '.join(map(str, sorted(found)))})",
                "write one number",
            )
            self.leave(reading, node, what, why, remedy, changes=changes, refused=True)
            return default
        why = f"{lacking or 'what it needs'} has no value here"
        self.leave(
            reading, node, what, why, "write the number", changes=_changed(what), refused=what not in _FREE
        )
        return default

    def worked(self, text: object) -> Value:
        """Return a number that is the same for every Einsum and does not depend on a component. Raises
        NoValue."""
        found: set[Value] = set()
        lacking: NoValue | None = None
        for einsum in self.einsums.each():
            try:
                found.add(replace(self.scope, view=self.einsums.view(einsum), known={}).number(text))
            except NoValue as fault:
                lacking = lacking or fault
        if len(found) == 1:
            return found.pop()
        raise lacking or NoValue(f"{text}, which differs among Einsums,")

    def leave(
        self,
        reading: Reading,
        node: YamlNode,
        key: str,
        why: str,
        remedy: str,
        changes: str = "",
        refused: bool = False,
    ) -> None:
        reading.leave(
            node, key, why, remedy, self.table.path, owner=self.name, changes=changes, refused=refused
        )

    def set_text(self, reading: Reading, node: YamlNode) -> str:
        """Return a set expression with conditions resolved, `Above` expanded, and `.tensors` added to names
        of memories."""
        texts = []
        for einsum in self.einsums.each():
            view = self.einsums.view(einsum, lambda name: self.kept.get(name, ""))
            scope = replace(self.scope, view=view, known={})
            try:
                texts.append(scope.chosen(str(node.scalar)))
            except (NoValue, TextFault) as fault:
                word = fault.word if isinstance(fault, NoValue) else fault.message
                what = f"{word} has no value in a condition"
                reading.fault(node, what, "write the set", self.table.path, code="missing-value")
                return "Nothing"
        text = texts[0]
        if len(set(texts)) > 1:
            why, remedy = "its condition chooses other sets in other Einsums", "write one set"
            self.leave(reading, node, "tensors", why, remedy, "counts", True)
        above = " | ".join(f"{n}.tensors" for n in self.above if n)
        text = re.sub(r"\bAbove\b", f"({above})" if above else "Nothing", text)
        for name in self.kept:
            text = re.sub(rf"(?<![\w.]){re.escape(name)}\b(?!\s*\.)", f"{name}.tensors", text)
        return text

    def variables(self, text: str) -> set[str] | None:
        """Return the rank variables of a set, which must be the same in all Einsums that have them; None if
        it is not such a set."""
        result: set[str] = set()
        without: set[str] = set()
        for einsum in self.einsums.each():
            try:
                members = self.einsums.variables(einsum, text, lambda name: self.kept.get(name, ""))
            except TextFault:
                return None
            result |= members
            without |= set(einsum.rank_variables) - members
        return None if result & without else result

    def tensors(self, text: str) -> dict[tuple[str, str], int]:
        """Return a map from (Einsum, tensor) of a set to the bits of its values. An output of one Einsum may
        be an input of the next."""
        result: dict[tuple[str, str], int] = {}
        for einsum in self.einsums.each():
            try:
                members = self.einsums.members(einsum, text, lambda name: self.kept.get(name, ""))
            except TextFault:
                continue
            result.update(((einsum.name, t), einsum.access_of(t).bits_per_value) for t in members)
        return result


_FREE = (
    "energy",
    "leak_power",
    "area",
    "throughput",
    "throughput_scale",
    "latency",
    "latency_scale",
    "energy_scale",
    "area_scale",
    "leak_power_scale",
)


def _changed(what: str) -> str:
    return "capacity" if what == "size" else "counts" if what == "fanout" else "energy and latency"


@dataclass(frozen=True)
class ActionPrices:
    """The prices of one action as it is written: joules, actions per second, bits of one action; for a hop
    also its delay."""

    energy: float | None = None
    throughput: float | None = None
    bits: float | None = None
    known: bool = True
    delay: float = 0.0

    @classmethod
    def of(
        cls, reading: Reading, action: KeyedTable, worked: Callable[[object], Value], hop: bool = False
    ) -> ActionPrices:
        """Return the prices of one entry of `actions:`. `worked` returns the value of a text."""

        def number(key: str) -> float | None:
            node = action.take(key)
            if node is None or node.scalar is None:
                return None
            try:
                value = worked(node.scalar)
                most = math.inf if key == "throughput" else LARGEST
                why = "" if is_amount(value, most) else f"{value} is not an amount"
            except NoValue as lacking:
                why = f"{lacking.word} has no value here"
            if not why:
                return float(value)
            remedy, changes = "write the number", "energy and latency"
            reading.leave(node, key, why, remedy, action.path, owner=action.owner, changes=changes)
            return None

        energy, throughput, latency = number("energy"), number("throughput"), number("latency")
        bits, scale = number("bits_per_action"), number("energy_scale")
        values = number("values_per_action")
        if energy is not None and scale is not None:
            energy *= scale
        if throughput is None and latency is not None:
            throughput = float(1 / Fraction(str(latency))) if latency > 1 / LARGEST else math.inf
        elif latency and not hop:
            why, remedy = "an action has a throughput besides", "write `fill_drain_latency:` of the component"
            node = action.node
            reading.leave(node, "latency", why, remedy, action.path, owner=action.owner, changes="latency")
        if values is not None:
            action.seen.add("values_per_action")
        delay = latency if hop and action.node.entry("throughput") is not None else None
        return cls(energy, throughput, bits, energy is not None, delay or 0.0)


def component_of(reading: Reading, part: WrittenComponent, explore: dict[str, object]) -> Iterator[Written]:
    """Yield the component, or the two components that replace a toll with several directions."""
    table = part.table
    table.take("name")
    if not part.name:
        reading.fault(table.node, "a component has a name", "add `name:`", table.path, code="missing-key")
        return
    if part.kind == "Toll" and len(groups := _widths(reading, part)) > 1:
        what = f"{part.name} has values of several widths: it is one toll for each"
        reading.note(table.node, what, "latencies of these are not added", table.path)
        for number, tensors_of_one in enumerate(groups):
            yield from component_of(reading, narrowed(part, tensors_of_one, number), explore)
        return
    fields: dict[str, object] = {"name": part.name}
    keep, tensors = _tensors(reading, part, explore)
    factor = _factor(reading, part, keep)
    if part.kind == "Memory":
        _size(reading, part, fields, factor, keep)
    if part.instances == 1:
        spatial = spatial_of(reading, part, explore)
        if spatial:
            fields["spatial"] = spatial
    else:
        table.take("spatial")
    _read_first(reading, part, fields)
    sparse = sparse_of(reading, part) if part.kind in ("Memory", "Compute") else {}
    if sparse:
        fields["sparse"] = sparse
    ports = table.take("separate_read_write_ports")
    if ports is not None and ports.scalar in (True, "True") and part.kind in ("Memory", "Toll"):
        fields["ports"] = "separate"
    if tensors and part.kind in ("Memory", "Toll"):
        fields["tensors"] = tensors
    scales = _scales(reading, part)
    for key in ("leak_power", "area"):
        node = table.take(key)
        value = part.number(reading, node, key) if node is not None and node.scalar is not None else None
        if value:
            fields[key] = float(value) * scales[f"{key}_scale"]
    model = table.text("component_class")
    actions = _actions(reading, part, factor, scales, model)
    widths_of(reading, table)
    latency = table.take("total_latency")
    if latency is not None:
        total_latency(reading, part, latency, fields, actions)
    directions = directions_of(reading, part) if part.kind == "Toll" else []
    _enabled(reading, part, explore)
    for key in ("component_class", "extra_attributes_for_component_model", "n_parallel_instances"):
        table.take(key)
    leave_rest(table)
    if part.kind == "Toll":
        yield from tolls_of(reading, part, fields, actions, directions)
        return
    if actions and part.kind != "Container":
        fields["actions"] = list(actions.values())
    yield part.kind, fields


def _tensors(
    reading: Reading, part: WrittenComponent, explore: dict[str, object]
) -> tuple[str, dict[str, object]]:
    """Return the set of tensors of the component, and the content of its `tensors:`. Constraints on a search
    go to `explore`."""
    table = part.table.table("tensors")
    if table is None:
        return "All", {}
    result: dict[str, object] = {}
    for key in ("keep", "may_keep"):
        node = table.take(key)
        if node is not None and node.scalar is not None:
            result[key] = part.set_text(reading, node)
    once = table.take("no_refetch_from_above")
    if once is not None and once.scalar is not None and part.kind == "Memory":
        rule_at(explore, "memories", part.name)["no_refetch"] = part.set_text(reading, once)
    leave_rest(table)
    texts = [f"({result[k]})" for k in ("keep", "may_keep") if k in result]
    return " | ".join(texts) or "All", result


@dataclass(frozen=True)
class ValueScale:
    """How a value of the workload is represented in a component. `bits`: its bits here over those in the
    workload. `actions`: number of actions for each value. `values`: values of one action, None where actions
    are counted by bits. `width`: bits of a value in the workload, None where tensors differ."""

    bits: Fraction = Fraction(1)
    actions: Fraction = Fraction(1)
    values: Fraction | None = None
    width: int | None = None


def _factor(reading: Reading, part: WrittenComponent, keep: str) -> ValueScale:
    table = part.table
    widths = part.tensors(keep)
    ratios, alike = _ratios(reading, part, widths)
    scale_node = table.take("actions_scale")
    scale = part.number(reading, scale_node, "actions_scale", 1) if scale_node is not None else 1
    values = _values(reading, part, widths)
    bits = set(widths.values())
    if len(set(ratios.values())) > 1 or (values is not None and len(bits) > 1):
        why = "its tensors have values of several widths here, and one price per bit serves all of them"
        key = "values_per_action" if len(set(ratios.values())) <= 1 else "bits_per_value"
        part.leave(
            reading,
            alike or table.node,
            key,
            why,
            "write one component per tensor",
            "counts of actions",
            True,
        )
    ratio = min(ratios.values(), default=Fraction(1))
    width = bits.pop() if len(bits) == 1 else None
    return ValueScale(ratio or Fraction(1), Fraction(str(scale or 1)), values, width)


def _ratios(
    reading: Reading, part: WrittenComponent, widths: Mapping[tuple[str, str], int]
) -> tuple[dict[tuple[str, str], Fraction], YamlNode | None]:
    """Return the bits of a value in the component over those in the workload, for each of its tensors."""
    given = part.table.take("bits_per_value")
    scaled = part.table.take("bits_per_value_scale")
    result: dict[tuple[str, str], Fraction] = {}
    for node, absolute in ((given, True), (scaled, False)):
        for entry in (node.entries if node is not None else None) or ():
            members = part.tensors(entry.key)
            concerned = [t for t in members if t in widths and t not in result]
            if not concerned:
                continue
            value = part.number(reading, entry.value, "bits_per_value")
            for tensor in concerned if value else ():
                bits = Fraction(str(value))
                result[tensor] = bits / widths[tensor] if absolute else bits
    return {t: result.get(t, Fraction(1)) for t in widths}, given or scaled


def _widths(reading: Reading, part: WrittenComponent) -> list[list[str]]:
    """Return the tensors of a component in groups that can share one price per bit."""
    widths = part.tensors(keep_of(part.table.node))
    ratios, _ = _ratios(reading, part, widths)
    counted = part.table.node.entry("values_per_action") is not None
    result: dict[tuple[Fraction, int], set[str]] = {}
    for (einsum, tensor), ratio in ratios.items():
        bits = widths[einsum, tensor] if counted else 0
        result.setdefault((ratio, bits), set()).add(tensor)
    return [sorted(names) for names in result.values()]


def _values(
    reading: Reading, part: WrittenComponent, widths: Mapping[tuple[str, str], int]
) -> Fraction | None:
    """Return the values of one action, which must be the same for all tensors; None where actions are counted
    by bits."""
    node = part.table.take("values_per_action")
    if node is None:
        return None
    result: set[Fraction] = set()
    for entry in node.entries or ():
        if set(part.tensors(entry.key)) & set(widths):
            result.add(Fraction(str(part.number(reading, entry.value, "values_per_action", 1) or 1)))
    if node.entries is None:
        result.add(Fraction(str(part.number(reading, node, "values_per_action", 1) or 1)))
    if len(result) > 1:
        why, remedy = "it differs among the tensors", "write one component per tensor"
        part.leave(reading, node, "values_per_action", why, remedy, "counts of actions", True)
    return max(result) if result else None


def _size(
    reading: Reading, part: WrittenComponent, fields: dict[str, object], factor: ValueScale, keep: str
) -> None:
    node = part.table.take("size")
    if node is None or node.scalar is None:
        return
    value = part.number(reading, node, "size")
    if value is None or value == math.inf:
        return
    if value == 0:
        why, remedy = (
            "a memory here has a size; without one it is unbounded",
            "leave it out, or let it keep Nothing",
        )
        part.leave(reading, node, "size", why, remedy, "" if keep == "(Nothing)" else "capacity")
        return
    bits = Fraction(str(value)) / factor.bits if value < 10**15 or factor.bits != 1 else Fraction(int(value))
    fields["size"] = int(bits * part.instances)


def _read_first(reading: Reading, part: WrittenComponent, fields: dict[str, object]) -> None:
    """Convert the key that says whether outputs are read before the first partial sum exists."""
    node = part.table.take("skip_initial_output_write")
    if node is None or node.scalar not in (False, "False", "false", 0):
        return
    if part.kind == "Memory":
        fields["read_first"] = True
        what = f"first partial sums in {part.name} count as read there and written below, wherever they go"
        reading.note(node, what, "there each memory says it of its own reads and writes", part.table.path)
    elif part.kind == "Compute":
        why, remedy = "tolls here pass what memories read and write", "write `read_first: true` of a memory"
        part.leave(reading, node, "skip_initial_output_write", why, remedy, "what tolls pass at first")


def _scales(reading: Reading, part: WrittenComponent) -> dict[str, float]:
    result: dict[str, float] = {}
    keys = ("energy_scale", "leak_power_scale", "area_scale", "throughput_scale", "latency_scale")
    for key in keys:
        node = part.table.take(key)
        value = part.number(reading, node, key) if node is not None else None
        result[key] = 1.0 if value is None else float(value)
    for key in ("leak_power_scale", "area_scale", "throughput_scale"):
        result[key] *= part.instances
    parallel = part.table.take("n_parallel_instances")
    if parallel is not None:
        value = part.number(reading, parallel, "n_parallel_instances", 1) or 1
        for key in ("leak_power_scale", "area_scale", "throughput_scale"):
            result[key] *= float(value)
    return result


def _actions(
    reading: Reading, part: WrittenComponent, factor: ValueScale, scales: Mapping[str, float], model: str
) -> dict[str, dict[str, object]]:
    """Return actions by name, priced per bit, per whole action where the file counts actions, or per
    operation."""
    result: dict[str, dict[str, object]] = {}
    free = model == "Dummy"
    given = part.table.take("bits_per_action")
    moved = part.number(reading, given, "bits_per_action") if given is not None else None
    for node in sorted_actions(reading, part.table.items("actions"), part.actions, part.table):
        node = lifted(node, ("arguments", "attributes"), _ACTION)
        table = KeyedTable(reading, node, f"{part.table.path}.actions", part.name)
        name = table.text("name")
        name = table.text("op_kind") or name
        prices = ActionPrices.of(reading, table, part.worked)
        if prices.bits is None and moved:
            prices = replace(prices, bits=float(moved))
        table.take("extra_attributes_for_component_model")
        leave_rest(table)
        one: dict[str, object] = {"name": name}
        compute = part.kind == "Compute"
        speed = scales["throughput_scale"] / (scales["latency_scale"] or 1)
        if prices.energy is None and not free:
            reading.note(
                node, f"no energy is given for {name} of {part.name}: it is free", _PRICE, table.path
            )
        energy = prices.energy
        if free:
            energy = energy or 0.0
        if energy is not None:
            energy *= scales["energy_scale"] * float(factor.actions)
        throughput = None if prices.throughput is None else prices.throughput * speed / float(factor.actions)
        each = Fraction(1) if compute else _bits_of_action(prices, factor)
        if not compute and prices_by_action(each, prices, factor):
            one["bits_per_action"] = int(each)
        elif not compute and each.denominator != 1 and prices.bits is not None:
            what = f"an action of {part.name} moves {float(each):g} bits: it is priced by the bit"
            reading.note(node, what, "", table.path)
        if energy is not None:
            one["energy"] = energy if "bits_per_action" in one else energy / float(each)
        if throughput is not None and throughput != math.inf:
            one["throughput"] = plain_number(throughput * float(each))
        result[name] = one
    if not result and not free and part.kind != "Container":
        what = f"no actions are given for {part.name}: they are free"
        reading.note(part.table.node, what, _PRICE, part.table.path)
    return result


_PRICE = "add `energy:` and `throughput:` to its actions, or name an `energy_model:` (docs/energy_models.md)"


def _bits_of_action(prices: ActionPrices, factor: ValueScale) -> Fraction:
    """Return the bits of the workload's values that one action moves."""
    if factor.values is not None and factor.width is not None:
        return factor.values * factor.width
    bits = Fraction(1) if prices.bits in (None, 0, math.inf) else Fraction(str(prices.bits))
    return bits / factor.bits


def prices_by_action(each: Fraction, prices: ActionPrices, factor: ValueScale) -> bool:
    """Return whether whole actions, of several bits, are counted."""
    counted = factor.values is not None or prices.bits not in (None, 0, 1, math.inf)
    return counted and each.denominator == 1 and each > 1


def is_amount(value: Value, most: float) -> bool:
    """Return whether a number is at least 0 and finite; infinity is accepted only where there is no limit."""
    return 0 <= value <= LARGEST or value == most


def _enabled(reading: Reading, part: WrittenComponent, explore: dict[str, object]) -> None:
    """Return the Einsums that a unit executes. For a search this is a constraint; a mapping specifies it
    itself."""
    node = part.table.take("enabled")
    if node is None:
        return
    for einsum in part.einsums.each() if part.einsums.given and part.kind == "Compute" else ():
        scope = replace(part.scope, view=part.einsums.view(einsum), known={})
        try:
            if scope.number(node.scalar):
                units = explore.setdefault("compute", {})
                assert isinstance(units, dict)
                units.setdefault(einsum.name, part.name)
        except NoValue as lacking:
            why, remedy = f"{lacking.word} has no value here", "write `compute:` in `explore:`"
            part.leave(reading, node, "enabled", why, remedy)
            return
