"""Classes of equal tiles for every setting of every rank variable, for the transfers over one link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from polymodel.analysis.result import Problem
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Counters, Ints
from polymodel.sparse.actions.links import Condition, EinsumLinks, TransferEdge
from polymodel.sparse.actions.reach import Inner, Meeting
from polymodel.sparse.actions.tally import Bools, LinkTally
from polymodel.sweeps.sparse.columns import VariableColumn

Flag = tuple[str, int]
READ, WRITE = ("read", 0), ("write", 0)


@dataclass(frozen=True)
class Classes:
    """The transfers along one rank variable: `count` atoms with equal `extent`, flags and `sizes`.

    `sizes`: of each condition's part (by its number). `solid`: whether the values of these parts are
    consecutive. `inner`: the sizes that meetings depend on.
    """

    count: Ints
    extent: Ints
    flags: Mapping[Flag, Bools]
    sizes: Mapping[int, Ints]
    solid: Mapping[int, bool]
    inner: Mapping[int, Inner] = field(default_factory=dict)

    def holds(self, flags: Sequence[Flag]) -> Bools:
        """Mask of the classes with all these flags; an unknown flag holds everywhere."""
        result = np.ones(self.count.size, np.bool_)
        for flag in flags:
            if flag in self.flags:
                result &= self.flags[flag]
        return result


class _OneVariable(EinsumLinks):
    """The structure restricted to one rank variable."""

    def __init__(self, problem: Problem, einsum: str, only: Counters) -> None:
        super().__init__(problem, einsum)
        self._only = only

    @cached_property
    def counters(self) -> tuple[Counters, ...]:
        return (self._only,)


def classes_of(
    structure: EinsumLinks,
    column: VariableColumn,
    chain: Sequence[TransferEdge],
    conditions: Sequence[Condition | Meeting],
    by_value: bool = False,
) -> tuple[Classes, ...]:
    """The classes of each setting for the last link of `chain` (empty: for operations)."""
    result = []
    for setting in range(column.settings):
        one = _OneVariable(structure.problem, structure.name, column.counters(setting))
        tally = LinkTally(one, chain, conditions, by_value)
        (atoms,), (labels,), (picks,) = tally.axes, tally.labels, tally.picks
        flags = {READ: atoms.read[picks], WRITE: atoms.write[picks]}
        for name, levels in (("first", atoms.first), ("here", atoms.here)):
            flags |= {(name, i): x[picks] for i, x in enumerate(levels)}
        sizes = {i: x[picks] for i, x in atoms.sizes.items()}
        inner = {i: x.at(picks) for i, x in atoms.inner.items()}
        result.append(Classes(np.bincount(labels), atoms.extent[picks], flags, sizes, atoms.solid, inner))
    return tuple(result)


Term = tuple[int, tuple[Flag, ...]]


def terms_of(kind: str, chain: Sequence[TransferEdge], output: bool) -> tuple[Term, ...]:
    """The sum of products of flags that counts in one kind of access: (sign, flags).

    For an output, what is read for filling and written as a filling are partial sums (`Tally.partial`): all
    except those that do not exist yet, which are products of flags, level by level.
    """
    if not chain:
        return ((1, ()),)
    side = READ if kind in ("reads_fill", "writes_drain") else WRITE
    if not output or kind not in ("reads_fill", "writes_fill"):
        return ((1, (side,)),)
    absent: list[Term] = []
    for level, link in enumerate(chain):
        first = ("first", level)
        if level == 0:
            absent = [(1, (first,))]
        else:
            here = ("here", level - 1)
            absent = [
                (1, (first,)),
                (-1, (first, here)),
                *((sign, (first, here, *flags)) for sign, flags in absent),
            ]
        if link.read_first:
            absent = []
    more = (side, ("here", len(chain) - 1)) if kind == "writes_fill" else (side,)
    return ((1, more), *((-sign, (*more, *flags)) for sign, flags in absent))
