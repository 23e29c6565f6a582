"""The schedule of the panels of two products: when they are loaded, configured, run and stored, in three ways
on the same machine.

Steps take an integer number of cycles, and every step uses one unit: the memory port loads and stores, a part
of the array is configured and runs. A unit performs its steps in a fixed order, each as soon as the steps
that it depends on are complete. docs/tiling/pipelines.md defines the order and the dependences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

import numpy as np

from polymodel.governor import tick
from polymodel.tiling.matmul.chain import ChainPanels
from polymodel.tiling.plane.pattern import Ints

Way = Literal["separate", "fused", "pipelined"]
WAYS: tuple[Way, ...] = ("separate", "fused", "pipelined")
MEMORY = "memory"
IN_FLIGHT = 2  # operands and results of a kernel are double-buffered


@dataclass(frozen=True)
class PipelineMachine:
    """`pes`: multiplies per cycle of the whole array, of which the first product has `split` where the array
    is divided. `bandwidth`: words per cycle. `config`, `ramp`: cycles of a launch. `once`: a part that
    continues with the same kernel stays configured. `buffers`: panels of T that are held between the
    products."""

    pes: int
    split: int
    bandwidth: float
    config: int
    ramp: int
    once: bool
    buffers: int


@dataclass(frozen=True, eq=False)
class PanelWork:
    """The work of launched panels: words loaded for the first and the second product, words of T and of Z,
    and multiplies of both products."""

    load_1: Ints
    load_2: Ints
    store_t: Ints
    store_z: Ints
    multiplies_1: Ints
    multiplies_2: Ints

    @classmethod
    def of(cls, panels: ChainPanels) -> PanelWork:
        on, one, two = panels.launched, panels.first, panels.second
        multiplies = panels.multiplies
        return cls(
            one.a[on] + one.b[on], two.b[on], one.z[on], two.z[on], multiplies[0][on], multiplies[1][on]
        )

    @property
    def load_t(self) -> Ints:
        """Words of T that the second product loads if T was stored, for the panels that launch it."""
        return np.where(self.multiplies_2 > 0, self.store_t, 0)

    @property
    def panels(self) -> int:
        return int(self.load_1.size)


@dataclass(frozen=True)
class PanelSchedule:
    """A schedule of the panels. `busy`: cycles in which each unit performs a step. `words`: loaded and
    stored. `ends`: per panel the cycle in which its result is stored. `launches`: kernels."""

    way: Way
    cycles: int
    words: int
    launches: int
    busy: dict[str, int]
    ends: tuple[int, ...]


def pipeline(work: PanelWork, way: Way, machine: PipelineMachine) -> PanelSchedule:
    """Return the schedule of one of the ways."""
    steps = {"separate": _separate, "fused": _fused, "pipelined": _pipelined}[way](work, machine)
    intermediate = int((work.store_t + work.load_t).sum()) if way == "separate" else 0
    words = int((work.load_1 + work.load_2 + work.store_z).sum()) + intermediate
    launches = work.panels + int(np.count_nonzero(work.multiplies_2))
    ends = tuple(steps.end.get(("store", q), 0) for q in range(work.panels))
    return PanelSchedule(way, max(steps.free.values(), default=0), words, launches, steps.busy, ends)


Key = tuple[str, int]


@dataclass
class _UnitSteps:
    """Steps in the order in which their units perform them. `end`: of each step; `free`: of each unit."""

    end: dict[Key, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)

    def do(self, unit: str, step: Key, cycles: int, needs: Sequence[Key] = ()) -> None:
        """Begin a step when its unit is free and its dependences are complete; dependences that do not exist
        are met."""
        tick("scheduling panels")
        start = max([self.free.get(unit, 0), *(self.end.get(need, 0) for need in needs)])
        self.end[step] = self.free[unit] = start + cycles
        self.busy[unit] = self.busy.get(unit, 0) + cycles


def _moved(words: int, machine: PipelineMachine) -> int:
    return ceil(words / machine.bandwidth)


def _launch(
    steps: _UnitSteps, unit: str, kernel: str, q: int, multiplies: int, pes: int, machine: PipelineMachine,
    needs: Sequence[Key], configured: bool,
) -> None:  # fmt: skip
    """Configure and run a kernel on a part of the array; a panel without products is not launched, and passes
    an empty result on when its dependences are met."""
    if not multiplies and kernel == "run 2":
        at = max([0, *(steps.end.get(need, 0) for need in needs)])
        steps.end[kernel, q] = at
        return
    steps.do(unit, (f"configure {kernel}", q), 0 if configured else machine.config)
    steps.do(unit, (kernel, q), -(-multiplies // pes) + machine.ramp, needs)


def _separate(work: PanelWork, machine: PipelineMachine) -> _UnitSteps:
    """All panels of the first product with T stored, then all of the second with T loaded."""
    steps = _UnitSteps()
    for number, loads, stores, multiplies in (
        (1, work.load_1, work.store_t, work.multiplies_1),
        (2, work.load_2 + work.load_t, work.store_z, work.multiplies_2),
    ):
        run, load = f"run {number}", f"load {number}"
        store = "store t" if number == 1 else "store"
        begun = False
        for q in range(work.panels + 1):
            if q < work.panels:
                steps.do(MEMORY, (load, q), _moved(int(loads[q]), machine), [(run, q - IN_FLIGHT)])
                needs = [(load, q), (store, q - IN_FLIGHT)]
                some = int(multiplies[q])
                _launch(steps, "array", run, q, some, machine.pes, machine, needs, machine.once and begun)
                begun = begun or some > 0
            if q:
                steps.do(MEMORY, (store, q - 1), _moved(int(stores[q - 1]), machine), [(run, q - 1)])
    return steps


def _fused(work: PanelWork, machine: PipelineMachine) -> _UnitSteps:
    """Both products panel by panel on the whole array; T stays on chip."""
    steps = _UnitSteps()
    last = ""
    for q in range(work.panels + 1):
        if q < work.panels:
            for number, loads, multiplies in (
                (1, work.load_1, work.multiplies_1),
                (2, work.load_2, work.multiplies_2),
            ):
                run, load = f"run {number}", f"load {number}"
                steps.do(MEMORY, (load, q), _moved(int(loads[q]), machine), [(run, q - IN_FLIGHT)])
                needs = [(load, q), *([("run 1", q), ("store", q - IN_FLIGHT)] if number == 2 else [])]
                some = int(multiplies[q])
                again = machine.once and last == run
                _launch(steps, "array", run, q, some, machine.pes, machine, needs, again)
                last = run if some else last
        if q:
            steps.do(MEMORY, ("store", q - 1), _moved(int(work.store_z[q - 1]), machine), [("run 2", q - 1)])
    return steps


def _pipelined(work: PanelWork, machine: PipelineMachine) -> _UnitSteps:
    """The array in two parts, one for each product: the second processes panel q while the first computes q +
    1."""
    steps = _UnitSteps()
    begun = [False, False]
    for q in range(work.panels + IN_FLIGHT):
        if q < work.panels:
            steps.do(MEMORY, ("load 1", q), _moved(int(work.load_1[q]), machine), [("run 1", q - IN_FLIGHT)])
            needs = [("load 1", q), ("run 2", q - machine.buffers)]
            _launch(
                steps, "part 1", "run 1", q, int(work.multiplies_1[q]), machine.split, machine, needs,
                machine.once and begun[0],
            )  # fmt: skip
            begun[0] = True
        p = q - 1
        if 0 <= p < work.panels:
            steps.do(MEMORY, ("load 2", p), _moved(int(work.load_2[p]), machine), [("run 2", p - IN_FLIGHT)])
            needs = [("load 2", p), ("run 1", p), ("store", p - IN_FLIGHT)]
            some = int(work.multiplies_2[p])
            _launch(
                steps, "part 2", "run 2", p, some, machine.pes - machine.split, machine, needs,
                machine.once and begun[1],
            )  # fmt: skip
            begun[1] = begun[1] or some > 0
        if q >= IN_FLIGHT:
            p = q - IN_FLIGHT
            steps.do(MEMORY, ("store", p), _moved(int(work.store_z[p]), machine), [("run 2", p)])
    return steps
