"""TeAAL specs and data for the tests of the executor, and the comparison of an execution with the referee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polymodel.sparse.execute.records import EinsumCounts, Execution
from polymodel.sparse.execute.run import run
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import TeaalSpec
from tests.sparse.oracle import Referee, interpret


def cascade(declaration: dict[str, str], *expressions: str, **mapping: Any) -> TeaalSpec:
    """A spec from `T="I J F"` declarations and expressions; `mapping` as in a file."""
    return read_teaal(
        {
            "einsum": {
                "declaration": {t: ranks.split() for t, ranks in declaration.items()},
                "expressions": list(expressions),
            },
            "mapping": {k.replace("_", "-"): v for k, v in mapping.items()},
        }
    )


def sparse(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> np.ndarray:
    """Small positive whole numbers, most of them zero."""
    return rng.integers(1, 10, shape) * (rng.random(shape) < density)


def agree(teaal: TeaalSpec, arrays: dict[str, np.ndarray], sizes: dict[str, int], **options: Any) -> None:
    """Both ways of running, with and without kept loops, equal the referee on every count."""
    expected = interpret(teaal, arrays, sizes)
    for keep in (False, True):
        found = run(teaal, arrays, rank_sizes=sizes, keep_loops=keep, **options)
        for counts in found.einsums:
            same(counts, found, expected[counts.einsum])


def same(counts: EinsumCounts, found: Execution, referee: Referee) -> None:
    name = counts.einsum
    result = found.results[name]
    points = dict(zip(map(tuple, result.coords.T.tolist()), result.values.tolist(), strict=True))
    assert points == {p: v for p, v in referee.result.items() if v != result.fill}
    assert counts.output_nnz == len(referee.result)
    assert counts.updates == counts.activities == referee.updates
    assert counts.multiplies == referee.multiplies
    assert counts.term_adds == referee.term_adds
    assert counts.adds_excluding_first_touch == referee.adds
    for ours in counts.accesses:
        rank = ours.rank
        assert ours.iterations == referee.iterations[rank], rank
        assert some(ours.intersect_coord_accesses) == some(referee.intersected.get(rank, {})), rank
        assert some(ours.driver_coord_accesses) == some(referee.driven.get(rank, {})), rank
        assert some(ours.lookups) == some(referee.looked.get(rank, {})), rank
        if ours.output_reads:
            assert ours.output_reads == {name: referee.reads[rank]}, rank
            assert ours.output_writes == {name: referee.writes[rank]}, rank
    if counts.times is not None:
        t = counts.times
        pairs = (t.distinct_space_stamps, t.distinct_spacetime_stamps, t.collisions)
        assert (t.lock_step, t.slip, *pairs) == referee.times()
        load = {tuple(s): n for s, n in zip(t.space.tolist(), t.load.tolist(), strict=True)}
        expected = referee.load()
        if any(isinstance(c, tuple) for space in expected for c in space):
            # We stamp a coordinate of a flattened rank by its number.
            assert sorted(load.values()) == sorted(expected.values())
        else:
            assert load == expected


def some(counts: Mapping[str, int]) -> dict[str, int]:
    """Without tensors of which nothing was read: the referee does not meet loops that never run."""
    return {name: n for name, n in counts.items() if n}
