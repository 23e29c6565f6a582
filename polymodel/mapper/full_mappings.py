"""Whole mappings of the search as candidates: their values, and LoopTrees traced back through the join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from polymodel.mapper.combine import coarse
from polymodel.mapper.join import Rules, Stage
from polymodel.mapper.objectives import THIN, share_of
from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.records import Candidate, Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import States
from polymodel.mapper.templates import Template
from polymodel.mapper.trees import Chosen, looptree
from polymodel.pareto import undominated

Array = Any


@dataclass(frozen=True)
class Whole:
    """One run of the join: its stages, the pmappings of every Einsum that went into it, and its rules."""

    joined: tuple[Stage, ...]
    found: tuple[tuple[Pmappings, ...], ...]
    rules: Rules

    def __len__(self) -> int:
        return sum(len(s) for s in self.joined[-1])

    @cached_property
    def _tiles(self) -> dict[tuple[int, int, int], tuple[Template, Array, Array]]:
        return {}

    def tiles(self, einsum: int, shape: int, point: int) -> tuple[Template, Array, Array]:
        """A pmapping's template, tile sizes and spread; whole mappings have most of theirs in common."""
        key = einsum, shape, point
        if key not in self._tiles:
            self._tiles[key] = self.found[einsum][shape].tiles(point)
        return self._tiles[key]

    def figures(self) -> list[Array]:
        """Figures of the whole mappings, one array each."""
        rows = [
            self.rules.interest.figures(s.energy, s.latency, [s.peak[0, m] for m in self.rules.buffers])
            for s in self.joined[-1]
        ]
        return [np.concatenate(f) for f in zip(*rows, strict=True)]


def candidates_of(
    wholes: Sequence[Whole], spaces: Sequence[EinsumSpace], request: Request
) -> tuple[Candidate, ...]:
    """The whole mappings that no other one beats; of near ones (`eps`) one."""
    wholes = [w for w in wholes if len(w)]
    if not wholes:
        return ()
    figures = [np.concatenate(f) for f in zip(*(w.figures() for w in wholes), strict=True)]
    if request.eps:
        figures = [*(coarse(f, share_of(request.eps, THIN)) for f in figures), *figures]
        kept = undominated(figures[: len(figures) // 2])
    else:
        kept = undominated(figures)
    places = [(w, s, k) for w in wholes for s in w.joined[-1] for k in range(len(s))]
    result = [_candidate(*places[int(n)], spaces, request) for n in kept]
    return tuple(sorted(result, key=lambda c: c.values))


def _candidate(
    whole: Whole, states: States, k: int, spaces: Sequence[EinsumSpace], request: Request
) -> Candidate:
    rules = whole.rules
    chosen = _traced(whole, states, k)
    energy, latency = float(states.energy[k]), float(states.latency[k])
    peaks = [float(p) for p in states.peak[0, :, k]]
    buffers = tuple((spaces[0].memories[m].name, p) for m, p in zip(rules.which, peaks, strict=True))
    values = tuple(
        _value(name, energy, latency, [peaks[b] for b in rules.buffers], request.objectives)
        for name in request.objectives
    )
    return Candidate(values, energy, latency, buffers, partial(looptree, chosen))


def _value(
    name: str, energy: float, latency: float, buffers: list[float], objectives: tuple[str, ...]
) -> float:
    if name.startswith("buffer"):
        return buffers[[o for o in objectives if o.startswith("buffer")].index(name)]
    return {"energy": energy, "latency": latency, "energy_delay": energy * latency}[name]


def _traced(whole: Whole, last: States, position: int) -> list[Chosen]:
    """The pmappings of a state of the last stage, first Einsum first."""
    chosen: list[Chosen] = []
    states = last
    for i in range(len(whole.found) - 1, -1, -1):
        number, at = (int(x) for x in states.origin[:, position])
        source = states.sources[number]
        template, tiles, spread = whole.tiles(i, source.shape, int(source.point[at]))
        space = whole.found[i][source.shape].space
        chosen.append(Chosen(space, template, tiles, spread, states.structure.depth))
        states, position = whole.joined[i][source.group], int(source.state[at])
    return chosen[::-1]
