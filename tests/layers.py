"""Fused chains of small convolutions at random, most of which have closed forms."""

from __future__ import annotations

from random import Random

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.fused import ranks, reach
from tests.workloads import box, hull

LEVELS = {"DRAM": 0, "GLB": 1, "RF": 2}
MEMORIES = Hierarchy((*(Component(name, "memory") for name in LEVELS), Component("MAC", "compute")))
POLICIES: tuple[Reuse, ...] = ("refill", "slide", "slide", "keep_previous")


def layers(pick: Random, length: int, plane: bool) -> Cascade:
    """Convolutions whose windows have no holes, over rows p or rows p and columns q, stride 1 or 2."""
    found: list[Einsum] = []
    wanted = pick.randint(3, 7), pick.randint(2, 4)
    for i in reversed(range(length)):
        sizes = {f"p{i}": wanted[0] + (pick.randrange(3) == 0), f"q{i}": wanted[-1]}
        forms = [], [], []  # type: tuple[list[str], list[str], list[str]]
        for v, w in (("p", "r"), ("q", "s"))[: 1 + plane]:
            stride = pick.choice([1, 1, 2])
            sizes[f"{w}{i}"] = pick.randint(stride, 3)
            for texts, text in zip(forms, (f"{stride}*{v}{i}+{w}{i}", f"{w}{i}", f"{v}{i}"), strict=True):
                texts.append(text)
        source, weights, output = (ranks(",".join(texts)) for texts in forms)
        named = ((f"T{i}", source), (f"W{i}", weights), (f"T{i + 1}", output))
        accesses = tuple(
            TensorAccess(t, tuple(f"R{k}" for k in range(len(x))), x, output=x is output) for t, x in named
        )
        variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
        ranges = {v: (0, sizes[v] - 1) for v in variables}
        bounds = hull(variables, box(ranges), ranges)[1]
        assert bounds is not None
        found.insert(0, Einsum(f"E{i}", variables, box(ranges), accesses, bounds))
        wanted = reach(source[0], sizes), reach(source[-1], sizes)
    return Cascade(tuple(found))


class Mapping:
    """Loops over the last layer above one split, storage of anything between them.

    `first`: the share of loops with a first tile of a size of its own.
    """

    def __init__(self, pick: Random, cascade: Cascade, first: float = 0) -> None:
        self.pick, self.cascade, self.first = pick, cascade, first
        self.level: dict[str, int] = {}

    def tree(self) -> LoopTree:
        inner = list(self.cascade.intermediates)
        last = self.cascade.einsums[-1]
        extent = {v: last.bound(v)[1] + 1 for v in last.outputs[0].variables}
        backed = [t for t in self.cascade.tensors if t not in inner or self.pick.random() < 0.15]
        nodes = self.store("DRAM", backed)
        for _ in range(self.pick.randint(1, 4)):
            nodes += self.some(self.cascade.tensors, 0.25)
            nodes.append(self.loop(self.pick.choice(list(extent)), extent))
        nodes += self.some(self.cascade.tensors, 0.4)
        nodes += self.store("GLB", [t for t in inner if t not in self.level])
        return LoopTree((*nodes, Split(tuple(self.branch(e) for e in self.cascade))))

    def loop(self, v: str, extent: dict[str, int]) -> Loop:
        """A loop over v, whose tiles are all that is left of its extent."""
        tile = self.pick.randint(1, extent[v])
        begin = self.pick.randint(1, extent[v]) if self.first and self.pick.random() < self.first else None
        extent[v] = max(tile, begin or 0)
        return Loop(v, tile, begin)

    def some(self, tensors: tuple[str, ...], share: float) -> list[Node]:
        inner = self.cascade.intermediates
        return self.store(
            "GLB",
            [
                t
                for t in tensors
                if self.level.get(t, 0) < 1 and (t in self.level or t in inner) and self.pick.random() < share
            ],
        )

    def store(self, component: str, tensors: list[str]) -> list[Node]:
        self.level |= dict.fromkeys(tensors, LEVELS[component])
        return [StorageNode(component, (t,), self.pick.choice(POLICIES)) for t in tensors]

    def branch(self, einsum: Einsum) -> tuple[Node, ...]:
        """Up to two loops of its own, filters in any tiles, and operands held above them."""
        nodes: list[Node] = []
        for v in self.pick.sample(einsum.rank_variables, self.pick.randint(0, 2)):
            held = {n.tensors[0] for n in nodes if isinstance(n, StorageNode)}
            for a in einsum.accesses:
                if a.tensor not in held and self.pick.random() < 0.2:
                    policy: Reuse = "refill" if a.output else self.pick.choice(POLICIES)
                    nodes.append(StorageNode("RF", (a.tensor,), policy))
            most = einsum.bound(v)[1] + 1 if v[0] in "rs" else 1
            nodes.append(self.loop(v, {v: most}))
        return (*nodes, ComputeNode(einsum.name, "MAC"))


def fused_layers(pick: Random, first: float = 0) -> Problem:
    """A legal chain of 2 to 4 layers and a mapping that fuses them."""
    plane = pick.random() < 0.5
    cascade = layers(pick, pick.choice([2, 2, 3] if plane else [2, 3, 3, 4]), plane)
    return Problem(cascade, MEMORIES, Mapping(pick, cascade, first).tree())
