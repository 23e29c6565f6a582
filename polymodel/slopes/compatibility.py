"""Whether two neighbours of a cascade, each with its own mapping, may be fused, and the buffer that takes.

The rules are those of the notes on version 2 of Orojenesis. A mapping of one Einsum is described by its fused
loops, outermost first, and by the number of them above the storage of each tensor. Two neighbours are
- *untiled fused* (case A) if both hold the whole tensor that they share: the footprint is the larger one;
- *tiled fused* (case B) if both hold tiles of it, and tile the same ranks in the same order, with sizes of
  their own: footprints add, transitively;
- not fused if both read the tensor from the backing store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from polymodel.errors import Diagnostic, SpecError
from polymodel.slopes.fused_graph import FusionRules
from polymodel.workload.einsum import Einsum

Case = Literal["", "unfused", "untiled", "tiled"]


@dataclass(frozen=True)
class FusedLoop:
    """A loop above the storage of a fused tensor: `bound` tiles of `tile` iterations each."""

    variable: str
    tile: int
    bound: int


@dataclass(frozen=True)
class OperationMapping:
    """One Einsum's mapping, as far as its neighbours depend on it.

    `loops`: fused loops, outermost first. `held`: per tensor in the buffer, the number of them above its
    storage; 0 means that it is held whole. Other tensors come from the backing store. `footprint`: the buffer
    that the Einsum needs, in words or bits, with tensors held whole.
    """

    einsum: Einsum
    loops: tuple[FusedLoop, ...] = ()
    held: tuple[tuple[str, int], ...] = ()
    footprint: int = 0

    def depth(self, tensor: str) -> int | None:
        """Return the number of fused loops above the storage of a tensor; None if it comes from the backing
        store."""
        return dict(self.held).get(tensor)

    def tiling(self, tensor: str) -> tuple[FusedLoop, ...]:
        """Return the fused loops that tile the held part of a tensor, outermost first."""
        return tuple(self.loops[: self.depth(tensor) or 0])


@dataclass(frozen=True)
class Verdict:
    """Whether two mappings are compatible. `case`: "" if not; `reason`: why, or why not."""

    case: Case
    reason: str

    def __bool__(self) -> bool:
        return self.case != ""

    @property
    def footprints(self) -> Literal["", "max", "sum"]:
        """Return how the two footprints combine."""
        if not self.case:
            return ""
        return "sum" if self.case == "tiled" else "max"


def compatible(first: OperationMapping, second: OperationMapping, tensor: str, rules: FusionRules) -> Verdict:
    """Return whether two Einsums may pass on (or share) a tensor under their mappings. `first`: the producer,
    if one of them is.

    Raises SpecError if one of them does not have the tensor.
    """
    for m in (first, second):
        if tensor not in m.einsum.tensors:
            message = f"{m.einsum.name} has no tensor {tensor}"
            raise SpecError([Diagnostic(message, "name a shared tensor", code="unknown-name")])
        if reason := fault(m, rules):
            return Verdict("", reason)
    depths = first.depth(tensor), second.depth(tensor)
    names = first.einsum.name, second.einsum.name
    if depths == (None, None):
        return Verdict("unfused", f"{tensor} goes through the backing store")
    if depths == (0, 0):
        return Verdict("untiled", f"{' and '.join(names)} hold all of {tensor}")
    for m, other, depth in zip((first, second), reversed(names), depths, strict=True):
        if depth is None:
            return Verdict("", f"{m.einsum.name} has {tensor} in the backing store, {other} in the buffer")
        if depth == 0:
            reason = f"{m.einsum.name} holds all of {tensor}, {other} a tile: hold all of it on both sides"
            return Verdict("", reason)
    return _tiled(first, second, tensor, rules)


def _tiled(first: OperationMapping, second: OperationMapping, tensor: str, rules: FusionRules) -> Verdict:
    link = SharedLoops.of_pair(first, second, tensor)
    names = f"{first.einsum.name} and {second.einsum.name}"
    if crossed := link.crossed:
        (a, b), (c, d) = crossed
        return Verdict("", f"{names} tile {tensor} in different orders: {a}, {b} and {c}, {d}")
    missing = link.missing
    if missing and rules.partial_overlap:
        reason = partial_fault(first, second, tensor)
        if rules.equal_outer_sizes:
            reason = reason or _unequal(first, second, tensor)
        if reason:
            return Verdict("", reason)
        return Verdict("tiled", f"{second.einsum.name} waits for tiles of {tensor} and buffers them")
    if missing:
        one, variable = missing[0]
        return Verdict("", f"only {one} tiles the rank of {tensor} that {variable} indexes")
    if rules.equal_outer_sizes and (unequal := _unequal(first, second, tensor)):
        return Verdict("", unequal)
    if not rules.head_is_tiled_fusion and _heads_only(link, (first.einsum, second.einsum), rules):
        return Verdict("untiled", f"{names} share {tensor} head by head; buffers are freed between heads")
    return Verdict("tiled", f"{names} tile the same ranks of {tensor} in the same order")


def _unequal(first: OperationMapping, second: OperationMapping, tensor: str) -> str:
    """Return the fused loops, other than the innermost common one, with different numbers of tiles."""
    mine, theirs = first.tiling(tensor), second.tiling(tensor)
    for a, b in list(zip(mine, theirs, strict=False))[:-1]:
        if a.bound != b.bound:
            here, there = f"{a.variable} of {first.einsum.name}", f"{b.variable} of {second.einsum.name}"
            return f"outer loops over {tensor} differ: {a.bound} tiles along {here}, {b.bound} along {there}"
    return ""


def _heads_only(link: SharedLoops, einsums: tuple[Einsum, Einsum], rules: FusionRules) -> bool:
    return all(
        set(loops) <= set(rules.outermost(e))
        for loops, e in zip((link.first, link.second), einsums, strict=True)
    )


@dataclass(frozen=True)
class SharedLoops:
    """The loops with which two Einsums tile one tensor, outermost first, and which of them overlap.

    Two loops overlap if they index the same rank of the tensor. `pairs`: positions in `first`, `second`.
    """

    names: tuple[str, str]
    first: tuple[str, ...]
    second: tuple[str, ...]
    pairs: frozenset[tuple[int, int]]

    @staticmethod
    def of_pair(first: OperationMapping, second: OperationMapping, tensor: str) -> SharedLoops:
        mine, theirs = (tuple(x.variable for x in m.tiling(tensor)) for m in (first, second))
        ranks = zip(
            first.einsum.access_of(tensor).projection,
            second.einsum.access_of(tensor).projection,
            strict=True,
        )
        shared = [(set(a.variables), set(b.variables)) for a, b in ranks]
        pairs = frozenset(
            (i, j)
            for i, v in enumerate(mine)
            for j, w in enumerate(theirs)
            if any(v in a and w in b for a, b in shared)
        )
        return SharedLoops((first.einsum.name, second.einsum.name), mine, theirs, pairs)

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """Return (Einsum, loop) for each loop that overlaps none of the other Einsum."""
        mine, theirs = {i for i, _ in self.pairs}, {j for _, j in self.pairs}
        return tuple((self.names[0], v) for i, v in enumerate(self.first) if i not in mine) + tuple(
            (self.names[1], w) for j, w in enumerate(self.second) if j not in theirs
        )

    @property
    def crossed(self) -> tuple[tuple[str, str], tuple[str, str]] | None:
        """Return two loops of each Einsum that are in opposite order, or None.

        A loop that overlaps several loops belongs to the same set as all of them. The order may vary within a
        set; two sets are crossed only if one is entirely outside the other in one Einsum, and entirely inside
        it in the other.
        """
        met = self.overlaps
        for mine, theirs in met:
            for others, whose in met:
                if mine[-1] < others[0] and whose[-1] < theirs[0]:
                    here = self.first[mine[-1]], self.first[others[0]]
                    return here, (self.second[whose[-1]], self.second[theirs[0]])
        return None

    @property
    def overlaps(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Return connected components of overlapping loops: positions in `first` and in `second`."""
        result: list[tuple[set[int], set[int]]] = []
        for i, j in sorted(self.pairs):
            touched = [s for s in result if i in s[0] or j in s[1]]
            merged = ({i}.union(*(s[0] for s in touched)), {j}.union(*(s[1] for s in touched)))
            result = [s for s in result if s not in touched] + [merged]
        return tuple((tuple(sorted(a)), tuple(sorted(b))) for a, b in result)


def partial_fault(first: OperationMapping, second: OperationMapping, tensor: str) -> str:
    """Return why a consumer (`second`) may not wait for tiles that its producer splits further; "" if it may.

    Every fused loop of the consumer must correspond to one of the producer over the same rank, also
    outermost, whose bound is a multiple of the consumer's; then each of the consumer's tiles consists of
    whole tiles of the producer, which iterates further inside.
    """
    link = SharedLoops.of_pair(first, second, tensor)
    mine, theirs = first.tiling(tensor), second.tiling(tensor)
    for j, loop in enumerate(theirs):
        met = [mine[i] for i, k in sorted(link.pairs) if k == j]
        head = f"{loop.variable} of {second.einsum.name}"
        if not met:
            return f"{head} has no matching fused loop in {first.einsum.name}, the producer of {tensor}"
        if j >= len(mine) or (j, j) not in link.pairs:
            return f"{first.einsum.name} has another loop outside the one that matches {head}"
        if loop.bound > met[0].bound or met[0].bound % loop.bound:
            what = f"{head} has {loop.bound} iterations"
            return f"{what}, no perfect factor of the {met[0].bound} of {first.einsum.name}"
    return ""


def fault(mapping: OperationMapping, rules: FusionRules) -> str:
    """Return why a mapping of one Einsum cannot be part of a fused graph; "" if it can.

    A tile that is passed on must be complete and is passed on once, so that every loop above it indexes the
    tensor (fusion-friendly mapping rule: fused loops above unfused ones). `head` and `batch` must be
    outermost.
    """
    one, loops = mapping.einsum, mapping.loops
    for loop in loops:
        if loop.bound < 2:
            return f"the fused loop over {loop.variable} of {one.name} has fewer than two iterations"
    if len({x.variable for x in loops}) < len(loops):
        return f"two fused loops of {one.name} go over one rank variable"
    for tensor, depth in mapping.held:
        access = one.access_of(tensor)
        above = [x.variable for x in loops[:depth] if x.variable not in access.variables]
        if above and access.output:
            return f"the loop over {above[0]} above {tensor} would hand on partial sums of {one.name}"
        if above:
            return f"the loop over {above[0]} above {tensor} would need it again in {one.name}"
    first = rules.outermost(one)
    if loops and (have := tuple(x.variable for x in loops[: len(first)])) != first:
        wanted, result = ", ".join(first), ", ".join(have)
        return f"with fused loops, {wanted} of {one.name} must stand outermost, not {result}"
    return ""


@dataclass(frozen=True)
class Groups:
    """Einsums that share the buffer at one time: members of one group are connected by tiled fusion."""

    members: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(count: int, tied: Iterable[tuple[int, int]]) -> Groups:
        """Return the groups of `count` Einsums, given the pairs that are tiled fused; fusion is
        transitive."""
        import networkx

        graph: networkx.Graph = networkx.Graph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(tied)
        return Groups(tuple(sorted(tuple(sorted(g)) for g in networkx.connected_components(graph))))

    def capacity(self, footprints: Sequence[int]) -> int:
        """Return the buffer for all Einsums: the largest sum within a group."""
        return max(sum(footprints[i] for i in g) for g in self.members)


def combined_footprint(
    mappings: Sequence[OperationMapping], verdicts: Mapping[tuple[int, int], Verdict]
) -> int:
    """Return the buffer for several mapped Einsums, given the verdict on each pair that shares a tensor.

    Pairs are positions in `mappings`. Raises SpecError if one is not compatible.
    """
    for verdict in verdicts.values():
        if not verdict:
            message = "choose another mapping of one of the two"
            raise SpecError([Diagnostic(verdict.reason, message, code="wrong-type")])
    tied = [pair for pair, verdict in verdicts.items() if verdict.footprints == "sum"]
    return Groups.of(len(mappings), tied).capacity([m.footprint for m in mappings])
