"""Whole mappings of the search as candidates: their values, and LoopTrees traced back through the join."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polymodel.explore.join import Rules, Stage
from polymodel.explore.pmappings import Pmappings
from polymodel.explore.records import Candidate, Request
from polymodel.explore.space import EinsumSpace
from polymodel.explore.trees import Chosen, looptree
from polymodel.explore.undominated import undominated


def candidates_of(
    joined: Sequence[Stage],
    found: Sequence[tuple[Pmappings, ...]],
    spaces: Sequence[EinsumSpace],
    rules: Rules,
    request: Request,
) -> tuple[Candidate, ...]:
    """Every state of the last stage."""
    result = []
    for states in joined[-1]:
        for k in range(len(states)):
            chosen = _traced(joined, found, spaces, states.structure.depth, k)
            energy, latency = float(states.energy[k]), float(states.latency[k])
            peaks = [float(p) for p in states.peak[0, :, k]]
            buffers = tuple((spaces[0].memories[m].name, p) for m, p in zip(rules.which, peaks, strict=True))
            values = tuple(
                _value(name, energy, latency, [peaks[b] for b in rules.buffers], request.objectives)
                for name in request.objectives
            )
            result.append(Candidate(values, energy, latency, buffers, looptree(chosen)))
    return tuple(sorted(result, key=lambda c: c.values))


def _value(
    name: str, energy: float, latency: float, buffers: list[float], objectives: tuple[str, ...]
) -> float:
    if name.startswith("buffer"):
        return buffers[[o for o in objectives if o.startswith("buffer")].index(name)]
    return {"energy": energy, "latency": latency, "energy_delay": energy * latency}[name]


def _traced(
    joined: Sequence[Stage],
    found: Sequence[tuple[Pmappings, ...]],
    spaces: Sequence[EinsumSpace],
    depth: int,
    position: int,
) -> list[Chosen]:
    """The pmappings of a state of the last stage, first Einsum first."""
    chosen: list[Chosen] = []
    group = 0
    for i in range(len(spaces), 0, -1):
        states = joined[i][group]
        number, at = (int(x) for x in states.origin[:, position])
        source = states.sources[number]
        points = found[i - 1][source.shape]
        template, tiles, spread = points.tiles(int(source.point[at]))
        chosen.append(Chosen(spaces[i - 1], template, tiles, spread, states.structure.depth))
        group, position = source.group, int(source.state[at])
    return chosen[::-1]


def best_of(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those that no other one beats."""
    if not candidates:
        return ()
    values = list(np.array([c.values for c in candidates]).T)
    kept = undominated(values, np.zeros(len(candidates), np.int64))
    return tuple(sorted((candidates[int(i)] for i in kept), key=lambda c: c.values))
