"""Convert formats, gating and skipping of AccelForge's components to `sparse:`.

They are given at a component, or in `sparse_optimizations: {targets: [...]}` under its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from polymodel.importers.accelforge.unsupported_keys import leave_rest
from polymodel.importers.tables import KeyedTable, Reading, flat
from polymodel.spec.faults import YamlNode

if TYPE_CHECKING:
    from polymodel.importers.accelforge.components import WrittenComponent

KEYS = ("representation_format", "action_optimization", "compute_optimization")
_FORMATS = {
    "bitmask": "B", "b": "B", "csr": "CP", "coord_list": "CP", "coo": "CP", "cp": "CP", "rle": "RLE",
    "uop": "UOP", "u": "U", "uncompressed": "U",
}  # fmt: skip
_WIDTHS = {"B": "cbits", "CP": "cbits", "RLE": "rbits"}
_KINDS = {"gating": "gate", "skipping": "skip", "position_skipping": "skip", "spatial_skipping": "skip"}


def targets_of(reading: Reading, node: YamlNode | None) -> dict[str, list[YamlNode]]:
    """Return the section by the names of components."""
    result: dict[str, list[YamlNode]] = {}
    if node is None:
        return result
    table = KeyedTable(reading, node, "sparse_optimizations")
    for one in table.items("targets"):
        name = one.entry("target")
        if name is None:
            message = "a target has a name"
            reading.fault(one, message, "add `target: COMPONENT`", table.path, code="missing-key")
        else:
            result.setdefault(str(name.value.scalar), []).append(one)
    leave_rest(table)
    return result


def sparse_of(reading: Reading, part: WrittenComponent) -> dict[str, object]:
    """Return `sparse:` of the component; empty if it has none."""
    formats: dict[str, object] = {}
    actions: list[dict[str, object]] = []
    tables = [
        part.table,
        *(KeyedTable(reading, n, f"sparse_optimizations.{part.name}", part.name) for n in part.sparse),
    ]
    for table in tables:
        for node in table.items("representation_format"):
            formats |= _format(
                reading, part, KeyedTable(reading, node, table.below("representation_format"), part.name)
            )
        for key in ("action_optimization", "compute_optimization"):
            for node in table.items(key):
                inner = KeyedTable(reading, node, table.below(key), part.name)
                actions += _action(reading, inner, key == "compute_optimization")
        if table is not part.table:
            table.take("target")
            leave_rest(table)
    result: dict[str, object] = {}
    if formats:
        result["format"] = formats
    if actions:
        result["actions"] = actions
    if result and part.kind == "Memory":
        result["dense_outputs"] = "Outputs"  # there an output moves unless an action on it stops it
    return result


def _format(reading: Reading, part: WrittenComponent, table: KeyedTable) -> dict[str, object]:
    """Return the format of one tensor, which is compressed along its last rank if its values are."""
    tensor = table.text("name")
    words = [table.text("format")] if "format" in table else []
    width = _width(table)
    for node in table.items("ranks"):
        inner = KeyedTable(reading, node, table.below("ranks"), part.name)
        words.append(inner.text("format"))
        width = _width(inner) if "metadata_word_bits" in inner else width
        for key in ("flattened_rank_ids", "uop_payload_word_bits", "payload_word_bits"):
            inner.take(key)
        leave_rest(inner)
    for key in ("metadata_storage_width", "uop_payload_word_bits", "metadata_storage_depth"):
        table.take(key)
    leave_rest(table)
    unknown = [w for w in words if w.lower() not in _FORMATS]
    ranks = next((e.access_of(tensor).ranks for e in part.einsums.each() if tensor in e.tensors), None)
    if unknown or ranks is None or not words:
        why = (
            f"the format {unknown[0]} is not known"
            if unknown
            else f"{tensor or 'what it names'} is not a tensor here"
        )
        reading.leave(
            table.node, "representation_format", why, "write `sparse: {format: ...}`", table.path,
            owner=part.name, changes="sparse counts and capacity", refused=part.einsums.given,
        )  # fmt: skip
        return {}
    last = _FORMATS[words[-1].lower()]
    inner_rank: object = {"format": last, _WIDTHS[last]: width} if width and last in _WIDTHS else last
    if len(ranks) > 1 or len(words) > 1:
        what = f"{tensor} is compressed along its last rank as {last}; other ranks have no metadata here"
        reading.note(table.node, what, "say the format of each rank (docs/sparse/formats.md)", table.path)
    around = {r: {"format": "U", "pbits": 0} for r in ranks[:-1]}
    return {tensor: {"rank-order": list(ranks), **around, ranks[-1]: inner_rank}}


def _width(table: KeyedTable) -> int | None:
    node = table.take("metadata_word_bits")
    value = node.scalar if node is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _action(reading: Reading, table: KeyedTable, compute: bool) -> Iterable[dict[str, object]]:
    word = table.text("kind").lower().replace("-", "_")
    target, leaders = table.text("target"), _names(table.take("condition_on"))
    leave_rest(table)
    if word not in _KINDS:
        what = f"{word or 'nothing'} is not an optimization"
        reading.fault(table.node, what, "gating or skipping", table.path, code="unknown-choice")
        return
    if word not in ("gating", "skipping"):
        reading.note(table.node, f"{word} is counted as skipping", "", table.path)
    on = leaders or ([] if compute else [target])
    said = {"on": on[0] if len(on) == 1 else on} if on else {}
    yield {_KINDS[word]: "compute" if compute else target, **said}


def _names(node: YamlNode | None) -> Sequence[str]:
    return [] if node is None else [str(n.scalar) for n in flat(node) if n.scalar is not None]
