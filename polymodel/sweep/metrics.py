"""Costs of whole blocks of points, from the values of their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.sweep.kernel import Row
from polymodel.sweep.plan import Busy, Costing, Limit, Linear, Phase

Array = Any


class Block:
    """Rows of one block of points, each computed once and on demand."""

    def __init__(self, rows: Sequence[Row], lefts: Sequence[Array], cut: slice, columns: slice) -> None:
        self.rows, self.lefts, self.cut, self.columns = rows, lefts, cut, columns
        self.found: dict[int, Array] = {}

    def row(self, index: int) -> Array:
        """Values [left, right] of one row; [left, 1] if it depends on the left half alone."""
        if index not in self.found:
            row, left = self.rows[index], self.lefts[index][self.cut]
            self.found[index] = left[:, :1] if row.flat else left @ row.right[:, self.columns]
        return self.found[index]

    def linear(self, linear: Linear) -> Array:
        """Exact value of a row times its scale (its type was chosen with room for that)."""
        index, scale = linear
        if index < 0:
            return scale
        return self.row(index) if scale == 1 else self.row(index) * scale

    def floats(self, index: int) -> Array:
        value = self.row(index)
        return value if value.dtype == np.float64 else value.astype(np.float64)


class Found:
    """Joules, seconds, and whether each limit is kept, broadcast against [left, right]; found on demand."""

    def __init__(self, evaluator: Evaluator, block: Block) -> None:
        self.evaluator, self.block = evaluator, block

    @cached_property
    def latency(self) -> Array:
        return self.evaluator.latency(self.block)

    @cached_property
    def energy(self) -> Array:
        joules = _weighted(self.block, self.evaluator.energy, self.evaluator.energy_constant)
        leak = self.evaluator.costing.leak
        return joules + leak * self.latency if leak else joules

    @cached_property
    def fits(self) -> tuple[Array, ...]:
        return tuple(fits(limit, self.block) for limit in self.evaluator.costing.limits)


class Evaluator:
    """One architecture's costs, prepared: what is constant is added up once."""

    def __init__(self, costing: Costing) -> None:
        self.costing = costing
        self.energy: dict[int, float] = {}
        constant = []
        for each, (index, scale) in costing.energy:
            if index < 0:
                constant.append(each * scale)
            else:
                self.energy[index] = self.energy.get(index, 0.0) + each * scale
        self.energy_constant = math.fsum(constant)

    def __call__(self, block: Block) -> Found:
        return Found(self, block)

    def latency(self, block: Block) -> Array:
        """Seconds: Einsums one after the other, each as slow as its slowest component."""
        seconds: Array = 0.0
        for parts in self.costing.latency:
            seconds = seconds + self._slowest(parts, block)
        return seconds

    def _slowest(self, parts: tuple[Busy, ...], block: Block) -> Array:
        slowest: Array = 0.0
        for busy in parts:
            seconds: Array = 0.0
            for side in busy.sides:
                seconds = (
                    np.maximum(seconds, _time(side, block)) if len(busy.sides) > 1 else _time(side, block)
                )
            if busy.added:
                moves = sum((block.linear(m) for m in busy.moved), start=0) > 0
                seconds = seconds + np.where(moves, busy.added, 0.0)
            slowest = _larger(slowest, seconds * busy.times if busy.times > 1 else seconds)
        return slowest


def _larger(a: Array, b: Array) -> Array:
    if np.ndim(a) == 0 and np.ndim(b) == 0:
        return max(float(a), float(b))
    return np.maximum(a, b)


def _time(side: tuple[tuple[float, Linear], ...], block: Block) -> Array:
    weights: dict[int, float] = {}
    constant = 0.0
    for rate, (index, scale) in side:
        if index < 0:
            constant += rate * scale
        else:
            weights[index] = weights.get(index, 0.0) + rate * scale
    return _weighted(block, weights, constant)


def _weighted(block: Block, weights: dict[int, float], constant: float) -> Array:
    total: Array = None
    for index, weight in weights.items():
        part = block.floats(index) * weight
        if total is None:
            total = part
        elif total.shape == part.shape:
            total += part
        else:
            total = total + part
    if total is None:
        return constant
    if constant:
        total += constant
    return total


def need(phases: tuple[Phase, ...], block: Block) -> Array:
    """The largest phase (bits, or instances), exact."""
    most: Array = 0
    for phase in phases:
        total = block.linear(phase.whole)
        for linear, denominator, count in phase.rounded:
            total = total + -(-block.linear(linear) // denominator) * count
        most = np.maximum(most, total) if np.ndim(most) or np.ndim(total) else max(most, total)
    return most


def fits(limit: Limit, block: Block) -> Array:
    """True where every phase is within what there is."""
    if math.isinf(limit.have):
        return True
    have = math.floor(limit.have)
    found: Array = True
    for phase in limit.phases:
        good = need((phase,), block) <= have
        found = good if found is True else found & good
    return found
