"""The input of a sweep: the specs that it covers, one for each mapping, and the grid of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from polymodel.loading import Spec
from polymodel.mapping.looptree import LoopTree
from polymodel.spec.faults import Faults, each, listed
from polymodel.spec.section_schemas import MappingSpec
from polymodel.sweeps.grid import Grid, make_grid
from polymodel.sweeps.parallel import SweepRequest
from polymodel.sweeps.values import wrong

MappingLike = LoopTree | MappingSpec | str | Path


def swept(
    spec: Spec, mappings: Sequence[MappingLike] | None, asked: SweepRequest, faults: Faults
) -> tuple[tuple[Spec, ...], list[Grid]]:
    """The spec under each mapping, and its grid, as far as they are valid. Reports faults."""
    specs: tuple[Spec, ...] = ()
    grids: list[Grid] = []
    with faults.noting():
        specs = _mapped(spec, mappings)
    for one in specs if asked.symbols or asked.broken else ():
        with faults.noting():
            grids.append(make_grid(one, asked.symbols, asked.where, specs, asked.broken))
    return specs, grids


def _mapped(spec: Spec, mappings: Sequence[MappingLike] | None) -> tuple[Spec, ...]:
    """The spec under each mapping."""
    if mappings is None and spec.template is None:
        raise spec.no_mapping()
    given: object = (mappings,) if isinstance(mappings, (LoopTree, MappingSpec, Path)) else mappings
    several = listed("mappings", given, "['a.yaml', 'b.yaml']") if mappings is not None else ()
    if mappings is None:
        return (spec,)
    # What is not a mapping is refused by with_mapping itself.
    tried = (partial(spec.with_mapping, m) for m in several)  # type: ignore[arg-type]  # it refuses what is none
    result = tuple(each(*tried))
    if not result:
        raise wrong("`mappings` is empty", "give at least one, or leave it out", code="missing-argument")
    return result
