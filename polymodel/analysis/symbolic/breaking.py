"""Which loops must run once, for dependences between Einsums to be kept at other sizes.

Whether a dependence breaks depends on which loops run more than once, that is whose tile is smaller than the
enclosing one, and the more do, the more breaks. So each loop is tried alone, all others running once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.forms import Chain, names_in
from polymodel.errors import Diagnostic, Refused
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check
from polymodel.spec.faults import Faults
from polymodel.workload.einsum import resized

Size = int | str
Pair = tuple[Size, Size]  # an enclosing tile and a tile in it


@dataclass(frozen=True)
class Breaking:
    """`sizes`: rank variable -> symbol of its extent; `equal`: sizes that are the same."""

    problem: Problem
    chains: tuple[Chain, ...]
    sizes: Mapping[str, str]
    equal: tuple[tuple[object, object], ...]

    def at(self, values: Mapping[str, int]) -> tuple[Diagnostic, ...]:
        """The dependences that the mapping breaks with these sizes."""
        if not self.problem.cascade.intermediates:
            return ()
        cascade = resized(self.problem.cascade, {v: values[s] for v, s in self.sizes.items()})
        tree = bind_tree(ResolvedMapping(self.problem.tree), values, Faults()).tree
        return check(Problem(cascade, self.problem.hierarchy, tree))

    @property
    def once(self) -> tuple[tuple[Size, Size, str], ...]:
        """(enclosing tile, tile, what breaks otherwise) of loops that must run once, each by itself."""
        return self._found[0]

    @property
    def further(self) -> bool:
        """Whether that may not be all: what else breaks is known at values only."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[tuple[tuple[Size, Size, str], ...], bool]:
        if not self.problem.cascade.intermediates:
            return (), False
        pairs = tuple(dict.fromkeys(p for chain in self.chains for p in _pairs(chain)))
        plain = all(isinstance(s, (int, str)) for chain in self.chains for s in chain)
        if plain and self._tried(set(), pairs) == "":
            return (), False
        once = []
        for pair in pairs:
            why = self._tried(set(pairs) - {pair}, pairs)
            if why:
                once.append((*pair, why))
        rest = self._tried({(a, b) for a, b, _ in once}, pairs)
        return tuple(once), not plain or rest != ""

    def _tried(self, single: set[Pair], pairs: tuple[Pair, ...]) -> str | None:
        """What breaks where these loops run once and all others more often; None if that cannot be said."""
        values = assigned(pairs, single, self.equal, {n for chain in self.chains for n in names_in(chain)})
        if values is None:
            return None
        try:
            broken = self.at(values)
        except Refused:
            return None
        return broken[0].message.partition(" (for example")[0] if broken else ""


def _pairs(chain: Chain) -> Iterator[Pair]:
    for outer, tile in pairwise(chain):
        plain = isinstance(outer, (int, str)) and isinstance(tile, (int, str))
        if plain and (isinstance(outer, str) or isinstance(tile, str)):
            yield outer, tile  # type: ignore[misc]  # both are plain


def assigned(
    pairs: tuple[Pair, ...],
    single: set[Pair],
    equal: tuple[tuple[object, object], ...],
    symbols: set[str],
) -> dict[str, int] | None:
    """A value for each symbol, so that pairs in `single` are equal and of all others the first is larger."""
    for least, factor in ((2, 2), (1, 2), (1, 1)):
        found = _assigned(pairs, {*single, *equal}, single, symbols, (least, factor))
        if found is not None:
            return found
    return None


def _assigned(
    pairs: tuple[Pair, ...],
    equal: set[tuple[object, object]],
    single: set[Pair],
    symbols: set[str],
    growth: tuple[int, int],
) -> dict[str, int] | None:
    """The smallest values from the innermost tiles on, each so many times the one inside, or 1 more."""
    same: dict[object, object] = {}

    def root(size: object) -> object:
        while size in same:
            size = same[size]
        return size

    for a, b in equal:
        one, other = sorted((root(a), root(b)), key=lambda s: not isinstance(s, int))
        if one != other:
            if isinstance(other, int):
                return None
            same[other] = one
    inner: dict[object, set[object]] = {root(s): set() for s in (*symbols, *(s for p in pairs for s in p))}
    for a, b in pairs:
        if (a, b) not in single:
            inner[root(a)].add(root(b))
    known = _grown(inner, *growth)
    return None if known is None else {s: known[root(s)] for s in symbols}


def _grown(inner: Mapping[object, set[object]], least: int, factor: int) -> dict[object, int] | None:
    """A number for each size, larger than all that are inside; None if there is none."""
    known: dict[object, int] = {}
    open_ = list(inner)
    while open_:
        ready = [s for s in open_ if inner[s] <= known.keys()]
        if not ready:
            return None
        for s in ready:
            below = max((known[t] for t in inner[s]), default=0)
            needed = max(least, below * factor if factor > 1 else below + 1)
            known[s] = s if isinstance(s, int) else needed
            if known[s] <= below:
                return None
        open_ = [s for s in open_ if s not in known]
    return known
