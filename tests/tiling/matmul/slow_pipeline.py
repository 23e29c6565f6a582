"""A machine that runs the panels of two products cycle by cycle: units, and buffers that are free or full."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from polymodel.tiling.matmul.pipeline import PanelWork, PipelineMachine, Way

IDLE = 10**9


@dataclass
class Buffers:
    """So many buffers of a kind; which panels are in them, complete or not."""

    count: int
    taken: int = 0

    def __post_init__(self) -> None:
        self.full: set[int] = set()

    def room(self) -> bool:
        return self.taken < self.count


@dataclass
class Job:
    """What a unit does: may begin if `ready`; `begin` takes buffers, `done` fills and frees them."""

    cycles: int
    ready: Callable[[], bool]
    begin: Callable[[], object]
    done: Callable[[], object]


class Floor:
    """Buffers of one way, and what every unit has to do, in order."""

    def __init__(self, work: PanelWork, way: Way, m: PipelineMachine) -> None:
        self.work, self.way, self.m = work, way, m
        self.clock = [0]
        self.stored = [0] * work.panels
        self.operands = {1: Buffers(2), 2: Buffers(2)}
        self.t_out, self.z_out = Buffers(2), Buffers(2)
        self.t_held = Buffers(m.buffers if way == "pipelined" else 1)
        self.many = {1: work.multiplies_1.tolist(), 2: work.multiplies_2.tolist()}
        self.configured: dict[object, int] = {}

    def moved(self, words: int) -> int:
        whole = int(words / self.m.bandwidth)
        return whole + (whole < words / self.m.bandwidth)

    def load(self, kernel: int, q: int, words: int) -> Job:
        buffers = self.operands[kernel]

        def begin() -> None:
            buffers.taken += 1

        return Job(self.moved(words), buffers.room, begin, lambda: buffers.full.add(q))

    def store(self, buffers: Buffers, q: int, words: int) -> Job:
        def done() -> None:
            buffers.taken -= 1
            buffers.full.discard(q)
            if buffers is self.z_out:
                self.stored[q] = self.clock[0]

        return Job(self.moved(words), lambda: q in buffers.full, lambda: None, done)

    def runs(self, kernel: int, q: int, pes: int) -> list[Job]:
        """Configuration and run; a second product without work only passes its buffers on."""
        apart = self.way == "separate"
        source = None if kernel == 1 or apart else self.t_held
        target = (self.t_out if apart else self.t_held) if kernel == 1 else self.z_out
        operands = self.operands[kernel]

        def ready() -> bool:
            return q in operands.full and target.room() and (source is None or q in source.full)

        def begin() -> None:
            target.taken += 1

        def done() -> None:
            target.full.add(q)
            for buffers in (operands, source):
                if buffers is not None:
                    buffers.taken -= 1
                    buffers.full.discard(q)

        if not self.many[kernel][q]:
            return [Job(-1, ready, begin, done)]
        part = kernel if self.way == "pipelined" else "array"
        cycles = 0 if self.m.once and self.configured.get(part) == kernel else self.m.config
        self.configured[part] = kernel
        run = -(-self.many[kernel][q] // pes) + self.m.ramp
        return [Job(cycles, lambda: True, lambda: None, lambda: None), Job(run, ready, begin, done)]

    def separate(self) -> list[list[Job]]:
        w, last = self.work, self.work.panels - 1
        memory, array = [], []
        second = (w.load_2 + w.load_t).tolist()
        for kernel, loads, out, stores in (
            (1, w.load_1, self.t_out, w.store_t),
            (2, second, self.z_out, w.store_z),
        ):
            for q in range(w.panels):
                memory += [self.load(kernel, q, loads[q])]
                memory += [self.store(out, q - 1, stores[q - 1])] if q else []
                array += self.runs(kernel, q, self.m.pes)
            memory += [self.store(out, last, stores[last])] if w.panels else []
        return [memory, array]

    def fused(self) -> list[list[Job]]:
        w = self.work
        memory, array = [], []
        for q in range(w.panels):
            memory += [self.load(1, q, w.load_1[q]), self.load(2, q, w.load_2[q])]
            memory += [self.store(self.z_out, q - 1, w.store_z[q - 1])] if q else []
            array += self.runs(1, q, self.m.pes) + self.runs(2, q, self.m.pes)
        memory += [self.store(self.z_out, q, w.store_z[q]) for q in range(w.panels)[-1:]]
        return [memory, array]

    def pipelined(self) -> list[list[Job]]:
        w, every = self.work, range(self.work.panels)
        memory = []
        for q in range(w.panels + 2):
            memory += [self.load(1, q, w.load_1[q])] if q in every else []
            memory += [self.load(2, q - 1, w.load_2[q - 1])] if q - 1 in every else []
            memory += [self.store(self.z_out, q - 2, w.store_z[q - 2])] if q - 2 in every else []
        one = [job for q in every for job in self.runs(1, q, self.m.split)]
        two = [job for q in every for job in self.runs(2, q, self.m.pes - self.m.split)]
        return [memory, one, two]


def machine(work: PanelWork, way: Way, m: PipelineMachine) -> tuple[int, list[int]]:
    """Cycles until all is stored, and for every panel the cycle in which its result is."""
    floor = Floor(work, way, m)
    units = {"separate": floor.separate, "fused": floor.fused, "pipelined": floor.pipelined}[way]()
    return step([deque(jobs) for jobs in units], floor.clock), floor.stored


def step(units: list[deque[Job]], clock: list[int]) -> int:
    """Cycle by cycle: units end what is due, then begin what they can, until nothing changes."""
    left = [IDLE] * len(units)
    while any(units):
        changed = True
        while changed:
            changed = False
            for number, queue in enumerate(units):
                if queue and left[number] <= 0:
                    queue.popleft().done()
                    left[number] = IDLE
                    changed = True
                if queue and left[number] == IDLE and queue[0].ready():
                    queue[0].begin()
                    left[number] = queue[0].cycles
                    changed = True
        if any(units):
            clock[0] += 1
            left = [n - (n != IDLE) for n in left]
        assert clock[0] < 10**6, "the machine does not end"
    return clock[0]
