"""Convert `sparse_optimizations:` of Timeloop (formats, gating, skipping) into `sparse:` of components."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from polymodel.importers.timeloop.parts import TimeloopLevel
from polymodel.importers.timeloop.problem import EinsumShape
from polymodel.importers.timeloop.reading import Fields, TimeloopReading, name_and_count
from polymodel.spec.faults import YamlNode, suggestion

_FORMATS = {"u": "U", "uop": "UOP", "cp": "CP", "b": "B", "rle": "RLE", "ub": "B"}
_KINDS = {"gating": "gate", "skipping": "skip", "gate": "gate", "skip": "skip"}
# Suffixes for the instance, or the position in a compressed fiber, that is skipped: counted as skipping.
_PLACES = r"^(spatial|position)[-_]"
# The parameters of formats for the file's widths: of metadata, of payloads.
_METADATA = {"CP": "cbits", "B": "cbits", "RLE": "rbits"}
_PAYLOAD = {"U": "pbits", "CP": "pbits", "B": "pbits", "RLE": "pbits", "UOP": "obits"}
Format = str | dict[str, object]


def sparse_of(
    reading: TimeloopReading,
    node: YamlNode | None,
    parts: Sequence[TimeloopLevel],
    shape: EinsumShape,
    mapped: bool,
) -> dict[str, dict[str, object]]:
    """Return component -> `sparse:` section, from the list of targets and from entries at the components.

    `mapped`: whether there is a mapping, so that omissions change counts of this spec.
    """
    result: dict[str, dict[str, object]] = {}
    given: list[tuple[str, Fields]] = []
    for part in parts:
        if part.sparse is not None:
            given.append((part.name, Fields(reading, part.sparse, f"architecture.{part.name}")))
    if node is not None:
        fields = Fields(reading, node, "sparse_optimizations")
        fields.ignore("version")
        for target in fields.each("targets"):
            title = target.need("target", "name", example="target: Buffer")
            if title is None:
                continue
            name, _ = name_and_count(str(title.scalar))
            if name not in {p.name for p in parts}:
                remedy = suggestion(name, [p.name for p in parts], "levels")
                reading.fault(title, f"there is no level {name}", remedy, target.path, code="unknown-name")
            given.append((name, target))
    units = {p.name for p in parts if p.kind == "compute"}
    for name, target in given:
        section = _section(reading, target, shape, name in units, mapped)
        if section:
            result[name] = _both(reading, target, result.get(name), section)
    # In Timeloop an output moves regardless of what was computed, unless an action on it specifies otherwise.
    for part in parts if result else ():
        if part.kind == "memory":
            result.setdefault(part.name, {})["dense_outputs"] = "Outputs"
    return result


def _both(
    reading: TimeloopReading, target: Fields, first: dict[str, object] | None, section: dict[str, object]
) -> dict[str, object]:
    """Merge two entries for one level, which must not give one tensor two formats."""
    result = dict(first or {})
    for key, value in section.items():
        known = result.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            for tensor in sorted(known.keys() & value.keys()):
                what = f"the format of {tensor} is given twice"
                reading.fault(target.node, what, "keep it once", target.path, code="duplicate-name")
            result[key] = {**known, **value}
        elif isinstance(known, list) and isinstance(value, list):
            result[key] = [*known, *value]
        else:
            result[key] = value
    return result


def _section(
    reading: TimeloopReading, target: Fields, shape: EinsumShape, computes: bool, mapped: bool
) -> dict[str, object]:
    result: dict[str, object] = {}
    formats = _formats(reading, target.fields("representation_format"), shape, mapped)
    if formats and not computes:
        result["format"] = formats
    elif formats:
        what = "a compute unit stores nothing, so formats are not converted there"
        reading.leave(target.node, what, "say formats of the storages", target.path)
    actions: list[dict[str, object]] = []
    for fields in target.each("action_optimization"):
        actions += _actions(reading, fields, shape)
    for fields in target.each("compute_optimization"):
        kind = _kind(reading, fields)
        if kind is not None and computes:
            actions.append({kind: "compute"})
        elif kind is not None:
            what = "compute_optimization is converted at the compute unit only"
            remedy = "set it as the target"
            reading.leave(
                fields.node, what, remedy, fields.path, key="compute_optimization", changes="sparse counts"
            )
    if actions:
        result["actions"] = actions
    return result


def _kind(reading: TimeloopReading, fields: Fields) -> str | None:
    written = fields.text("type").lower()
    word = re.sub(_PLACES, "", written)
    if word in _KINDS and word != written:
        what = f"{written} is counted as {word}: of a tensor without conditions, where it is zero itself"
        reading.note(fields.node, what, "", fields.path)
    if word in _KINDS:
        return _KINDS[word]
    message = f"an optimization of type {word or '(none)'}"
    reading.fault(fields.node, message, "gating or skipping", fields.path, code="unknown-choice")
    return None


def _actions(reading: TimeloopReading, fields: Fields, shape: EinsumShape) -> list[dict[str, object]]:
    kind = _kind(reading, fields)
    result: list[dict[str, object]] = []
    for option in fields.each("options") or ([fields] if "target" in fields else []):
        targets = _tensors(reading, option, shape, "target")
        leaders = _tensors(reading, option, shape, "condition_on") or targets[:1]
        if kind is None or not targets or not leaders:
            continue
        for tensor in targets:
            result.append({kind: tensor, "on": leaders[0] if len(leaders) == 1 else leaders})
    return result


def _tensors(reading: TimeloopReading, option: Fields, shape: EinsumShape, key: str) -> list[str]:
    option_node = option.need(key, example=f"{key}: A")
    result = []
    for word, node in option.words(key) or () if option_node is not None else ():
        if word not in shape.tensors:
            remedy = suggestion(word, shape.tensors, "data spaces")
            reading.fault(node, f"there is no data space {word}", remedy, option.path, code="unknown-name")
        else:
            result.append(shape.tensors[word])
    return result


def _formats(
    reading: TimeloopReading, fields: Fields | None, shape: EinsumShape, mapped: bool
) -> dict[str, object]:
    result: dict[str, object] = {}
    if fields is None:
        return result
    spaces = {s.theirs: s for s in shape.spaces}
    for inner in fields.each("data_spaces"):
        title = inner.need("name", example="name: A")
        if title is None:
            continue
        name = str(title.scalar)
        if name not in spaces:
            remedy = suggestion(name, spaces, "data spaces")
            reading.fault(title, f"there is no data space {name}", remedy, inner.path, code="unknown-name")
            continue
        ranks = inner.each("ranks")
        words = [r.text("format").lower() for r in ranks]
        flat = any("flattened_rankids" in r or "flattened_rank_ids" in r for r in ranks)
        strange = [w for w in words if w not in _FORMATS]
        if strange:
            what = f"the format of {name} is left out: {strange[0]} for {len(spaces[name].ranks)} ranks"
            reading.whole(inner.node)
            # Without a mapping nothing is counted: the omission is reported, and the import continues.
            reading.leave(
                inner.node,
                what,
                "give one format per rank, or write `format:` yourself (docs/sparse/formats.md)",
                inner.path,
                key="representation_format" if mapped else "",
                changes="sparse counts and capacity",
            )
            continue
        given = [_with_widths(_FORMATS[w], r, r is ranks[-1]) for w, r in zip(words, ranks, strict=True)]
        named = [rank for rank, _ in spaces[name].ranks]
        if flat or len(words) != len(named):
            given = _stand_in(reading, inner, name, given or ["U"], len(named), flat)
        result[spaces[name].name] = _by_rank(named, given)
    return result


def _with_widths(name: str, rank: Fields, last: bool) -> Format:
    """Return the format of a rank with the widths that the file gives. Payloads of the last rank are
    values."""
    metadata, payload = (_width(rank, f"{what}_word_bits") for what in ("metadata", "payload"))
    result: dict[str, object] = {"format": name}
    if metadata is not None and name in _METADATA:
        result[_METADATA[name]] = metadata
    if payload is not None and not last:
        result[_PAYLOAD[name]] = payload
    return result if len(result) > 1 else name


def _width(rank: Fields, key: str) -> int | None:
    value = rank.amount(key, least=0)
    return None if value is None else int(value)


def _by_rank(ranks: Sequence[str], formats: Sequence[Format]) -> object:
    """Return a list of names, or, if there are widths, a table of ranks."""
    if all(isinstance(f, str) for f in formats):
        return list(formats)
    return {"rank-order": list(ranks), **dict(zip(ranks, formats, strict=True))}


def _stand_in(
    reading: TimeloopReading, given: Fields, name: str, formats: Sequence[Format], ranks: int, flat: bool
) -> list[Format]:
    """Return formats of the tensor's ranks if the file has formats of its loops, or of several ranks as one.

    In Timeloop a rank of a format is a loop of more than one iteration in the tile, or all of the loops that
    are flattened. Whether values are compressed is the same here, and so are counts of data; metadata differ,
    except for ranks of one value. Ranks without a format of their own have no metadata.
    """
    own = formats if len(formats) < ranks and not flat else formats[-1:]
    around: list[Format] = [{"format": "U", "pbits": 0}] * (ranks - len(own))
    result = [*around, *own]
    reading.whole(given.node)
    kind = "flattened loops" if flat else "loops"
    shown = ", ".join(str(f["format"]) if isinstance(f, dict) else f for f in result)
    what = f"{len(formats)} formats of {kind} stand at {name} of {ranks} ranks: {shown} are taken"
    remedy = "say the format of each rank (docs/sparse/formats.md) where metadata count"
    reading.leave(given.node, what, remedy, given.path, changes="bits of metadata")
    return result


def actions_where_stored(
    reading: TimeloopReading,
    sparse: dict[str, dict[str, object]],
    parts: Sequence[TimeloopLevel],
    kept: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, object]]:
    """Return the sections, with each action on a tensor that bypasses its level moved to the next outer level
    that keeps it.

    In Timeloop, what is not read because of the leader is not sent through the bypassed level either.
    """
    memories = [p for p in parts if p.kind == "memory"]
    for at, part in enumerate(memories):
        section = sparse.get(part.name, {})
        actions = section.get("actions")
        for action in list(actions) if isinstance(actions, list) else ():
            target = action.get("skip", action.get("gate"))
            holder = next((p for p in memories[at::-1] if target in kept.get(p.name, ())), part)
            if holder is part or not isinstance(actions, list):
                continue
            actions.remove(action)
            outer = sparse.setdefault(holder.name, {}).setdefault("actions", [])
            if isinstance(outer, list):
                outer.append(action)
            what = f"{target} bypasses {part.name}: the action on it is taken at {holder.name}"
            reading.note(part.node, what, "", f"sparse_optimizations.{part.name}")
        if actions == []:
            del section["actions"]
    return {name: section for name, section in sparse.items() if section}
