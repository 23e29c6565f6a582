"""Footprints of formats and the layout of CISS: fibertree's bits, CISS by definition, the paper's golden.

The footprints' cases name tensors of the kernels' files: where the file beside it has the tensor, all is
counted from its nonzeros; otherwise the bits come from the counts per level that the case gives, and of CISS
only what these determine is compared. The paper's facts hold a small tensor with its lanes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polymodel.sparse.formats import (
    CISS,
    PerRank,
    RankLevels,
    Widths,
    decode,
    encode,
    footprint,
    levels_of,
    parse_format,
    teaal_format,
)
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import RankFormat, TensorFormat
from tests.reference.common import Outcome, comparing, sections

RULES = {"assign_by_nnz": "nnz", "assign_by_nnz_plus_header": "data"}
KERNELS = ("mttkrp", "ttmc", "spmm", "spmv")


def is_footprints(given: Mapping[str, Any]) -> bool:
    """True for files whose cases have bits of formats."""
    cases = given.get("cases")
    return isinstance(cases, list) and bool(cases) and "fibertree_bits" in cases[0]


def is_facts(given: Mapping[str, Any]) -> bool:
    """True for files with the lanes of the paper's figure."""
    return "ciss_golden_fig3" in given


def check(path: Path) -> list[Outcome]:
    """One outcome per case; a case that cannot be read is a fault."""
    given = json.loads(path.read_text(encoding="utf-8"))
    if is_facts(given):
        return [_guarded("ciss_golden_fig3", given["ciss_golden_fig3"], _golden, {})]
    tensors = _tensors(path.parent)
    return [_guarded(str(case.get("case", n)), case, _case, tensors) for n, case in enumerate(given["cases"])]


def _guarded(
    name: str, case: Mapping[str, Any], compare: Any, tensors: Mapping[str, SparseTensor]
) -> Outcome:
    with comparing(Outcome(name)) as outcome:
        compare(case, outcome, tensors)
    return outcome


def _tensors(folder: Path) -> dict[str, SparseTensor]:
    """The tensors A of the kernels' files in a folder, by the name of their case."""
    found = {}
    for kernel in KERNELS:
        path = folder / f"tensaurus_{kernel}.json"
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"] if path.is_file() else []:
            a = case["A"]
            coords = [list(column) for column in zip(*a["coords"], strict=True)] or [[] for _ in a["ranks"]]
            found[case["id"]] = SparseTensor.from_coo("A", a["ranks"], a["shape"], coords, a["values"])
    return found


def _case(case: Mapping[str, Any], outcome: Outcome, tensors: Mapping[str, SparseTensor]) -> None:
    sections(
        case, {"shape": list, "fibers_per_level": list, "coords_per_level": list, "fibertree_bits": dict}
    )
    first = next(iter(case["fibertree_bits"].values()))["spec"]
    ranks = tuple(rank for rank in first if rank != "root")
    tensor = tensors.get(str(case["case"]))
    if tensor is not None:
        levels = levels_of(tensor)
        for key, ours in (("shape", levels.shape), ("fibers", levels.fibers), ("coords", levels.coords)):
            theirs = case[key if key == "shape" else f"{key}_per_level"]
            for rank, mine, given in zip(ranks, ours, theirs, strict=True):
                outcome.equal(f"{key} of {rank}", int(mine), given)
    else:
        fibers, coords = tuple(case["fibers_per_level"]), tuple(case["coords_per_level"])
        levels = RankLevels(ranks, tuple(case["shape"]), fibers, coords, "exact")
        outcome.notes.append("the tensor is not at hand: bits from the counts of the case")
    outcome.equal("nnz", int(levels.nnz), case["nnz"])
    for name, expected in case["fibertree_bits"].items():
        _bits(name, expected, levels, outcome)
    for rule, expected in case.get("ciss_definition_check", {}).items():
        _ciss(rule, expected, tensor, levels, outcome)


def _bits(name: str, expected: Mapping[str, Any], levels: RankLevels, outcome: Outcome) -> None:
    """Through TeAAL's records and through our own notation."""
    spec = expected["spec"]
    root = sum(spec.get("root", {}).values())
    rows = tuple(RankFormat(rank, **spec[rank]) for rank in levels.ranks)
    ours = parse_format({rank: dict(spec[rank]) for rank in levels.ranks}, levels.ranks)
    for format in (teaal_format(TensorFormat("A", name, rows, levels.ranks)), ours):
        assert isinstance(format, PerRank)
        found = footprint(levels, format)
        outcome.equal(f"{name}: total", int(found.total) + root, expected["total"])
        for rank, bits in found.per_rank().items():
            outcome.equal(f"{name}: {rank}", int(bits), expected["per_rank"][rank])


def _ciss(
    rule: str, expected: Mapping[str, Any], tensor: SparseTensor | None, levels: RankLevels, outcome: Outcome
) -> None:
    parts, slots = expected["P"], int(levels.nnz) + int(levels.coords[0])
    widths = Widths(expected["dw"], expected["iw"])
    outcome.equal(f"{rule}: slots", slots, expected["lane_slots_used"])
    entries = expected["entries"]
    if tensor is not None:
        assign = RULES[rule]
        found = encode(tensor, parts, assign)  # type: ignore[arg-type]  # a word of the table above
        format = CISS(parts, widths, assign)  # type: ignore[arg-type]  # a word of the table above
        outcome.equal(f"{rule}: entries", found.entries, entries)
        outcome.equal(f"{rule}: slots used", found.slots_used, expected["lane_slots_used"])
        outcome.equal(f"{rule}: padding", found.padding_slots, expected["padding_slots"])
        outcome.equal(f"{rule}: bits", found.bits(widths), expected["bits"])
        outcome.equal(f"{rule}: footprint", int(footprint(tensor, format).total), expected["bits"])
        same = decode(found).coords.tolist() == tensor.coords.tolist()
        outcome.equal(f"{rule}: decoded", int(same), 1)
    else:
        slot = CISS(parts, widths).slot(levels)
        outcome.equal(f"{rule}: padding", entries * parts - slots, expected["padding_slots"])
        outcome.equal(f"{rule}: bits", entries * parts * int(slot), expected["bits"])
        outcome.at_most(f"{rule}: the mean lane", -(-slots // parts), entries)


def _golden(case: Mapping[str, Any], outcome: Outcome, _: Mapping[str, SparseTensor]) -> None:
    coords = [list(column) for column in zip(*case["coords"], strict=True)]
    values = range(1, len(case["coords"]) + 1)
    tensor = SparseTensor.from_coo("A", "IJK"[: len(case["shape"])], case["shape"], coords, list(values))
    found = encode(tensor, case["P"])
    outcome.equal("entries", found.entries, case["entries"])
    outcome.equal("padding", found.padding_slots, case["padding_slots"])
    for lane, (ours, theirs) in enumerate(zip(found.lanes(), case["lanes"], strict=True)):
        outcome.equal(f"slots of lane {lane}", len(ours), len(theirs))
        for slot, (mine, given) in enumerate(zip(ours, theirs, strict=False)):
            outcome.checked += 1
            if mine != given:
                outcome.mismatches.append(f"lane {lane}, slot {slot}: ours {mine}, reference {given}")
    again = decode(found)
    outcome.equal("decoded", int(again.coords.tolist() == tensor.coords.tolist()), 1)
