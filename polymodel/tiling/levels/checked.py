"""Checks of `data_tiles:` of an architecture when it is loaded: all faults with their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Component, Hierarchy, TileRules, capacity_of
from polymodel.errors import SpecError
from polymodel.sparse.formats.parse import parse_format
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.arch_schema import Arch, Memory
from polymodel.spec.faults import Faults, Path, suggestion
from polymodel.tiling.fits.fit import Elements, Fit, Stored, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.tilers.named import cut
from polymodel.workload.einsum import Cascade

_RANKS = ("M", "N")


def fit_of(rules: TileRules, capacity: int) -> Fit:
    """Return the measure of capacity of the buffer of one operand. Raises SpecError for a capacity below 1
    and for invalid formats."""
    if rules.fit == "stored":
        return Stored(capacity, rules.format)
    return Words(capacity) if rules.fit == "words" else Elements(capacity)


def check_data_tiles(
    arch: Arch, hierarchy: Hierarchy | None, cascade: Cascade | None, faults: Faults
) -> None:
    """Add faults in formats and names of tilers to `faults`, and, given a hierarchy, faults in capacities."""
    accesses = [a for e in cascade or () for a in e.accesses]
    widest = max((a.bits_per_value for a in accesses), default=None)
    ranks = next((a.ranks for a in accesses if len(a.ranks) == 2), _RANKS)
    for i, node in enumerate(arch.nodes):
        section = node.data_tiles if isinstance(node, Memory) else None
        if section is None:
            continue
        path: Path = ("arch", "nodes", i, "data_tiles")
        if section.fit == "stored":
            named = section.format if isinstance(section.format, list | tuple) else ()
            alike = next((a.ranks for a in accesses if len(a.ranks) == len(named)), ranks)
            _check_format(section.format, alike, (*path, "format"), faults)
        _check_tiler(section.tiler, (*path, "tiler"), faults)
        if cascade is not None:
            _check_ranks(section.ranks or (), cascade, (*path, "ranks"), faults)
        if hierarchy is not None:
            _check_capacity(hierarchy.components[i], widest, path, faults)


def _check_format(written: Any, ranks: tuple[str, ...], path: Path, faults: Faults) -> None:
    try:
        parse_format(written, ranks)
    except SpecError as error:
        for fault in error.diagnostics:
            faults.add(path, fault.message, fault.remedy, code=fault.code)


def _check_tiler(tiler: str, path: Path, faults: Faults) -> None:
    """Check names before anything is tiled, by tiling an empty matrix."""
    none = SparseTensor("A", _RANKS, (1, 1), np.zeros((2, 0), dtype=np.int64), np.zeros(0))
    try:
        cut(pattern_of(none), "add", Elements(1), tiler)
    except SpecError as error:
        for fault in error.diagnostics:
            faults.add(path, fault.message.removeprefix("tiler: "), fault.remedy, code=fault.code)


def _check_ranks(named: tuple[str, ...], cascade: Cascade, path: Path, faults: Faults) -> None:
    known = tuple(dict.fromkeys(r for e in cascade for a in e.accesses for r in a.ranks))
    for at, rank in enumerate(named):
        if rank not in known:
            message = f"no tensor has a rank {rank}"
            faults.add((*path, at), message, suggestion(rank, known, "ranks"), code="unknown-name")


def _check_capacity(component: Component, widest: int | None, path: Path, faults: Faults) -> None:
    rules = component.data_tiles
    assert rules is not None
    width = rules.word_bits or widest or 1
    if not capacity_of(rules, component.size_bits, component.buffering, width):
        unit = "bit" if rules.fit == "stored" else f"word of {width} bits"
        size = f"{component.size_bits:g} bits"
        what = f"{component.name} has {size}: equal buffers for A, B and the output hold no {unit}"
        faults.add(path, what, "give a larger size:, or capacity:", key=True, code="over-capacity")
