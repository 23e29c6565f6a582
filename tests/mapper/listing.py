"""The referee of the size of a mapspace: lists every mapping of tiny specs, node by node and size by size.
No code of `polymodel.mapper` is used.

A path is one Einsum's part: fused loops with sizes, where each node stands, all tile sizes, all spreads. Its
face is what neighbours see of it. Whole mappings are sequences of paths whose faces agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from math import prod

from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy
from polymodel.workload.einsum import Cascade, Einsum


@dataclass(frozen=True)
class Rules:
    every_size: bool = False
    most_loops: int = 9
    per_variable: int = 1
    memory_order: bool = True
    utilisation: tuple[tuple[str, str, float], ...] = ()
    exchange: frozenset[str] | None = None
    fuse: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()
    side_by_side: bool = False


@dataclass(frozen=True)
class Face:
    """Fused loops as (rank variable, size), and exchanged tensors as (tensor, memory, loops above)."""

    loops: tuple[tuple[str, int], ...]
    exchanged: frozenset[tuple[str, int, int]]


class Lister:
    def __init__(self, cascade: Cascade, hierarchy: Hierarchy, rules: Rules) -> None:
        self.cascade, self.rules = cascade, rules
        self.parts = hierarchy.components
        self.memories = [c for c in self.parts if c.kind == "memory"]

    def whole(self) -> int:
        """How many mappings there are."""
        faces = [Counter(self.faces(one)) for one in self.cascade]
        return sum(self._grown((), faces))

    def _grown(self, so_far: tuple[Face, ...], faces: list[Counter[Face]]) -> Iterator[int]:
        if len(so_far) == len(faces):
            yield 1
            return
        for face, many in faces[len(so_far)].items():
            if self._agree((*so_far, face)):
                for more in self._grown((*so_far, face), faces):
                    yield many * more

    def _agree(self, faces: tuple[Face, ...]) -> bool:
        """Whether the last of these Einsums fits those before it."""
        einsums, n = self.cascade.einsums, len(faces) - 1
        mine = einsums[n]
        open_before = self._open(faces[:-1])
        own = max((d for _, _, d in faces[n].exchanged), default=0)
        if len(faces[n].loops) != max(open_before, own):
            return False
        if n and self._split(n, faces[n])[:open_before] != self._split(n - 1, faces[n - 1])[:open_before]:
            return False
        for p in range(n):
            for out in einsums[p].outputs:
                if out.tensor not in mine.tensors:
                    continue
                if _where(faces[p], out.tensor) != _where(faces[n], out.tensor):
                    return False
                together = min(self._open(faces[: i + 1]) for i in range(p, n))
                for k in range(together):
                    a = _rank(einsums[p], out.tensor, faces[p].loops[k][0])
                    b = _rank(mine, out.tensor, faces[n].loops[k][0])
                    if a is None or a != b:
                        return False
        made = {t for e in einsums[: n + 1] for t in (a.tensor for a in e.outputs)}
        return all(t in made for t, _, _ in faces[n].exchanged)

    def _open(self, faces: tuple[Face, ...]) -> int:
        """Fused loops that stay open behind these Einsums: some tensor exchanged below them is still read."""
        later = {t for e in self.cascade.einsums[len(faces) :] for t in e.tensors}
        return max((d for f in faces for t, _, d in f.exchanged if t in later), default=0)

    def _split(self, n: int, face: Face) -> list[tuple[object, int]]:
        """Per fused loop what it splits (an extent, or the tile of loop k) and into what."""
        found: list[tuple[object, int]] = []
        seen: dict[str, int] = {}
        for k, (v, size) in enumerate(face.loops):
            found.append((("loop", seen[v]) if v in seen else _extent(self.cascade.einsums[n], v), size))
            seen[v] = k
        return found

    # One Einsum

    def faces(self, one: Einsum) -> Iterator[Face]:
        """The face of every path, one by one."""
        if one.is_copy:
            for holders in self._holders(one, len(self.memories)):
                outermost = {t: held[0] for t, held in holders.items()}
                if all(len(held) == 1 for held in holders.values()):
                    yield from self._nests(one, outermost)
            return
        for i, unit in enumerate(self.parts):
            if unit.kind != "compute":
                continue
            above = self.parts[:i]
            reach = sum(c.kind == "memory" for c in above)
            for holders in self._holders(one, reach):
                outermost = {t: held[0] for t, held in holders.items()}
                for face in self._nests(one, outermost):
                    for nodes in self._placed(one, holders, face, above):
                        for _ in self._sized(one, face, nodes, self.parts[: i + 1]):
                            yield face

    def _holders(self, one: Einsum, reach: int) -> Iterator[dict[str, tuple[int, ...]]]:
        """Which memories hold each tensor. A copy knows only the outermost one."""
        options = []
        for t in one.tensors:
            some = []
            for flags in product((False, True), repeat=reach):
                held = tuple(m for m in range(reach) if flags[m])
                if held and self._allowed(one, t, held, reach):
                    some.append((t, held))
            options.append(some)
        for chosen in product(*options):
            yield dict(chosen)

    def _allowed(self, one: Einsum, tensor: str, held: tuple[int, ...], reach: int) -> bool:
        between = tensor in self.cascade.intermediates
        if held[0] and (not between or tensor in self.rules.unfused):
            return False
        handed = self.rules.exchange
        if held[0] > 1 and handed is not None and self.memories[held[0]].name not in handed:
            return False
        if not held[0] and between and tensor in self.rules.fuse:
            return False
        for m in range(reach):
            c = self.memories[m]
            must = c.keep is not None and tensor in c.keep.tensors(one.name)
            may = must or c.may_keep is None or tensor in c.may_keep.tensors(one.name)
            if m in held and not may:
                return False
            if must and m not in held and not (one.is_copy and m > held[0]):
                return False
        return True

    def _nests(self, one: Einsum, outermost: dict[str, int]) -> Iterator[Face]:
        """Fused loops, and how many of them stand above each exchange."""
        inside = {t: m for t, m in outermost.items() if m}
        for loops in self._loops(one, ()):
            for depths in product(range(len(loops) + 1), repeat=len(inside)):
                if all(
                    _rank(one, t, v) is not None
                    for t, d in zip(inside, depths, strict=True)
                    for v, _ in loops[:d]
                ):
                    exchanged = [(t, m, d) for (t, m), d in zip(inside.items(), depths, strict=True)]
                    yield Face(loops, frozenset(exchanged))

    def _loops(
        self, one: Einsum, loops: tuple[tuple[str, int], ...]
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        yield loops
        if len(loops) == self.rules.most_loops:
            return
        for v in one.rank_variables:
            if sum(w == v for w, _ in loops) == self.rules.per_variable:
                continue
            if all(_rank(one, t, v) is None for t in one.tensors):
                continue
            now = min([s for w, s in loops if w == v], default=_extent(one, v))
            for size in self._sizes(now, self.rules.every_size):
                if size < now:
                    yield from self._loops(one, (*loops, (v, size)))

    def _sizes(self, now: int, every: bool) -> list[int]:
        return [s for s in range(1, now + 1) if every or now % s == 0]

    def _placed(
        self, one: Einsum, holders: dict[str, tuple[int, ...]], face: Face, above: tuple[Component, ...]
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Orders of the nodes in the branch, for every choice of those above fused loops."""
        private = [(t, m) for t, held in holders.items() for m in held[1:]]
        depth = len(face.loops)
        shared = {(t, m): d for t, m, d in face.exchanged}
        options = [[*(range(depth) if not self._replicated(m) else ()), None] for _, m in private]
        for where in product(*options):
            branch = [n for n, k in zip(private, where, strict=True) if k is None]
            fixed = {**shared, **{n: k for n, k in zip(private, where, strict=True) if k is not None}}
            for order in permutations(branch):
                level = {**fixed, **{n: depth + 1 + j for j, n in enumerate(order)}}
                if not any(
                    a[1] < b[1] and level[a] > level[b] and self._bound(one, a, b)
                    for a in level
                    for b in level
                ):
                    yield order

    def _replicated(self, memory: int) -> bool:
        place = self.parts.index(self.memories[memory])
        return any(d.fanout > 1 for c in self.parts[: place + 1] for d in c.spatial)

    def _bound(self, one: Einsum, a: tuple[str, int], b: tuple[str, int]) -> bool:
        """Whether the first one's memory has to stand above the second one's."""
        if a[0] == b[0] or self._across(a[1], b[1]):
            return True
        return self.rules.memory_order and not (self.rules.side_by_side and self._beside(one, a[1], b[1]))

    def _across(self, outer: int, inner: int) -> bool:
        """Whether instances fan out between two memories."""
        low, high = (self.parts.index(self.memories[m]) for m in (outer, inner))
        return any(d.fanout > 1 for c in self.parts[low + 1 : high + 1] for d in c.spatial)

    def _beside(self, one: Einsum, outer: int, inner: int) -> bool:
        """Whether a run of memories that have no tensor in common holds both; runs go from the outside in."""
        start = 1
        for m in range(2, inner + 1):
            common = any(
                self._may(one, t, m) and self._may(one, t, k) for k in range(start, m) for t in one.tensors
            )
            if common or self._across(m - 1, m):
                start = m
        return start <= outer

    def _may(self, one: Einsum, tensor: str, memory: int) -> bool:
        rules = (self.memories[memory].keep, self.memories[memory].may_keep)
        return rules[1] is None or any(r is not None and tensor in r.tensors(one.name) for r in rules)

    def _sized(
        self, one: Einsum, face: Face, nodes: tuple[tuple[str, int], ...], above: tuple[Component, ...]
    ) -> Iterator[object]:
        """Every choice of spreads and of sizes at the nodes."""
        dims = [(c, d) for c in above for d in c.spatial]
        variables = [v for v in one.rank_variables if _extent(one, v) > 1]
        each = [list(self._one_variable(one, v, face, len(nodes), dims)) for v in variables]
        for chosen in product(*each):
            wide = [prod(spread[k] for spread, _ in chosen) for k in range(len(dims))]
            least = {(c, d): x for c, d, x in self.rules.utilisation}
            if all(
                least.get((c.name, d.name), 0) * d.fanout <= w <= d.fanout
                for (c, d), w in zip(dims, wide, strict=True)
            ):
                yield chosen

    def _one_variable(
        self, one: Einsum, v: str, face: Face, nodes: int, dims: list[tuple[Component, FanoutDim]]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        extent = _extent(one, v)
        for spread in product(*(self._shares(one, v, face, c, d) for c, d in dims)):
            units = prod(spread)
            # What is spread is split evenly, and its fused tiles hold as much for each instance.
            fused = [extent, *(s for w, s in face.loops if w == v)]
            even = all(a % b == 0 for a, b in pairwise(fused))
            if units > 1 and not (even and fused[-1] % units == 0):
                continue
            every = self.rules.every_size and units == 1
            for sizes in self._descending(fused[-1] // units, nodes, every):
                yield spread, sizes

    def _shares(self, one: Einsum, v: str, face: Face, c: Component, d: FanoutDim) -> list[int]:
        """Over how many instances of a dimension a variable may be spread."""
        place = self.parts.index(c)
        outside = any(place <= self.parts.index(self.memories[m]) for _, m, _ in face.exchanged)
        window = any(
            v in e.variables and _rank(one, a.tensor, v) is None and d.reuses(one.name, a.tensor)
            for a in one.accesses
            for e in a.projection
        )
        uneven = self.rules.every_size and window and d.multicast == "overlapping"
        reduced = any(v not in a.variables and not d.reuses(one.name, a.tensor) for a in one.outputs)
        above_all = place <= self.parts.index(self.memories[0])
        if outside or uneven or reduced or above_all:
            return [1]
        extent = _extent(one, v)
        return [n for n in range(1, min(d.fanout, extent) + 1) if extent % n == 0]

    def _descending(self, now: int, nodes: int, every: bool) -> Iterator[tuple[int, ...]]:
        if not nodes:
            yield ()
            return
        for size in self._sizes(now, every):
            for more in self._descending(size, nodes - 1, every):
                yield (size, *more)


def _extent(one: Einsum, v: str) -> int:
    return one.bound(v)[1] + 1


def _where(face: Face, tensor: str) -> tuple[int, int] | None:
    return next(((m, d) for t, m, d in face.exchanged if t == tensor), None)


def _rank(one: Einsum, tensor: str, v: str) -> int | None:
    """The rank of a tensor that the variable indexes alone, but for variables of a single value."""
    for i, e in enumerate(one.access_of(tensor).projection):
        if v in e.variables and all(w == v or _extent(one, w) == 1 for w in e.variables):
            return i
    return None
