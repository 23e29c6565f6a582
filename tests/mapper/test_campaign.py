"""Random small spaces that mix what the search offers: the front is that of all mappings, each evaluated.

Windows and products, padded ones and masks, over fanouts with links and tolls, under constraints, with nodes
that slide, with tiles over fanouts that need not divide. The listers share no code with the search.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import inf, prod
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapper import first_mappings
from polymodel.mapping.looptree import Loop, LoopTree, Split, StorageNode
from tests.mapper.brute_evaluated import Fused, FusedPair, Listed, Part, UnevenlyListed, figures
from tests.mapper.brute_kept import branches, keeping
from tests.mapper.test_slides import sliding, staying
from tests.mapper.test_ties import figures as whole_tiles
from tests.mapper.test_windows import fanouts, memory

MOST = 300  # mappings of one space
PORTS = ("shared", "separate")
Figures = tuple[float, float]
TEXTS = {
    "product": "Z[m] = A[m,k] * B[k]",
    "window": "O[p] = I[W=p+r] * F[r]",
    "stride": "O[p,c] = I[W=2*p+r, c] * F[r,c]",
    "padding": "O[p] = I[W=p+r-1] * F[r]",
    "channels": "O[p,c] = I[W=p+r-1] * F[r,c]",
    "padded stride": "O[p] = I[W=2*p+r-1] * F[r]",
    "dilated": "O[p,c] = I[W=p+2*r-2] * F[r,c]",
    "mask": "Z[m] = A[m,n] * B[n]",
    "masked": "Z[m,k] = A[m,n] * B[n,k]",
    "plane": "O[p,q] = I[W=p+r, V=q+s] * F[r,s]",
    "late": "O[P=p-1,c] = I[W=p+r-2] * F[r,c]",
    "late mask": "Z[M=m-2,k] = A[M=m-2,n] * B[n,k]",
    "stencil": "O[X=p] = I[X=p-1] + I[X=p+1]",
    "neighbours": "O[X=p,c] = I[X=p,c] * I[X=p+1,c] * I[X=p+2,c] * F[c]",
    "squares": "O[p,c] = I[p,Y=c] * I[p,Y=c+1] * I[p,Y=c] * I[p,Y=c+1] * F[c]",
    "block": "O[X=p,Y=c] = I[X=p,Y=c] + I[X=p+1,Y=c] + I[X=p,Y=c+1] + I[X=p+1,Y=c+1]",
}
TIED = ("padding", "channels", "mask", "masked", "late", "late mask")
PADDED = ("padding", "channels", "late", "padded stride", "dilated")
KINDS = ("product", *["window"] * 5, "stride", *TIED)
SEVERAL = ("stencil", "neighbours", "squares", "block")


class UnevenlyApart(UnevenlyListed):
    """The same where bounds tie all variables together but c and k: these alone are spread."""

    def _over(self, v: str, tile: int, dims: list[int]) -> Iterator[tuple[int, ...]]:
        yield from super()._over(v, tile, dims) if v in "ck" else [(tile,) * len(dims)]


class OffSomeFanouts(Listed):
    """The same variables are not spread over meshes, nor where only what is the same for all is shared."""

    def _apart_on_a_mesh(self, v: str, dim: FanoutDim) -> bool:
        mesh = dim.link is not None and dim.link.topology not in ("bus", "switch")
        some = any(dim.reuses(self.einsum.name, t) for t in self.einsum.tensors)
        barred = v not in "ck" and (mesh or (some and dim.multicast == "identical"))
        return barred or super()._apart_on_a_mesh(v, dim)


@dataclass
class Space:
    """A spec, what is asked for besides, and the features that it has."""

    spec: Spec
    asked: dict[str, Any]
    features: set[str] = field(default_factory=set)
    used: int = 0  # instances along X of the mapping that was read last

    @property
    def along(self) -> str:
        """What windows and neighbours of I are over."""
        return "c" if "squares" in self.features else "pc" if "block" in self.features else "pr"

    @property
    def listed(self) -> Listed:
        if "uneven in space" in self.features:
            return (UnevenlyApart if "padding" in self.features else UnevenlyListed)(self.spec)
        return OffSomeFanouts(self.spec) if "padding" in self.features else Listed(self.spec)

    def trees(self) -> Iterator[LoopTree]:
        """All mappings that obey the constraints."""
        for tree in self.listed.trees():
            if "keep" in self.features and "padding" not in self.features:
                (einsum,) = self.spec.workload.einsums
                refilling = [tree] if "refill" in self.asked["memories"]["GLB"]["reuse"] else []
                yield from filter(self._obeys, (*keeping(tree, einsum, ["GLB"]), *refilling))
                continue
            for one in sliding(tree, self.along) if "slide" in self.features else (tree,):
                stay = "slide" in self.features and "padding" not in self.features
                for kept in staying(one, "GLB") if stay else (one,):
                    if self._obeys(kept):
                        yield kept

    def _obeys(self, tree: LoopTree, shared: bool = True) -> bool:
        """A reading of the rules on fanouts and of `no_refetch`, loop by loop; `shared`: that on as high a
        share as there can be too."""
        (one,) = self.spec.workload.einsums
        now = dict(self.listed.extents)
        spread: dict[tuple[str, str], int] = {}
        passed: set[str] = set()
        refetched = False
        kept = self.asked.get("memories", {}).get("GLB", {}).get("no_refetch", "")
        for n in tree.nodes:
            if isinstance(n, Loop):
                tile = int(n.tile_shape)
                if n.spatial:
                    spread[n.dim, n.rank_variable] = -(-now[n.rank_variable] // tile)
                else:
                    passed.add(n.rank_variable)
                now[n.rank_variable] = tile
            elif isinstance(n, StorageNode) and (n.component, n.tensors) == ("GLB", (kept,)):
                refetched = bool(passed - set(one.access_of(kept).variables))
        for dim, rule in self.asked.get("fanouts", {}).get("PE", {}).items():
            over = {v: n for (d, v), n in spread.items() if d == dim}
            barred = set(one.access_of(rule["must_reuse"]).variables) if "must_reuse" in rule else set()
            factors = all(_allows(n, over.get(v, 1)) for v, n in rule.get("factors", {}).items())
            if not factors or over.keys() & barred or not over.keys() <= set(rule.get("variables", over)):
                return False
        held = {
            t for n in tree.nodes if isinstance(n, StorageNode) and n.component == "GLB" for t in n.tensors
        }
        rule = self.asked.get("memories", {}).get("GLB", {})
        if rule.get("keep", next(iter(held), "")) not in held | {""} or rule.get("bypass") in held:
            return False
        share = self.asked.get("min_utilisation", {}).get("PE", {}).get("X", 0)
        width = next(d.fanout for _, _, d in self.listed.dims if d.name == "X")
        # `most` reads all mappings, and with each of them `used` changes
        least = (self.most if shared else 0) if share == "max" else share * width
        self.used = prod(n for (d, _), n in spread.items() if d == "X")
        return self.used >= least and not refetched

    @cached_property
    def most(self) -> int:
        """The most instances that loops use, whether they fit or not."""
        return max((self.used for tree in self.listed.trees() if self._obeys(tree, False)), default=0)

    def cost(self, tree: LoopTree) -> tuple[float, float] | None:
        try:
            return (whole_tiles if "padding" in self.features else figures)(self.spec, tree)
        except SpecError:
            return None


def _allows(rule: int | str, number: int) -> bool:
    """A factor, or the most or the least of it."""
    if isinstance(rule, int):
        return number == rule
    sign, _, given = rule.partition(" ")
    return number <= int(given) if sign == "<=" else number >= int(given)


def space_of(pick: Random, kinds: Sequence[str] = KINDS, bits: Sequence[int] = (24, 32, 48, 64)) -> Space:
    """One of any features that go together; `bits`: of the buffer."""
    kind = pick.choice(kinds)
    tied = kind in (*TIED, *PADDED)
    text, found = TEXTS[kind], {"padding" if tied else kind.replace("stride", "window")}
    found |= {"late"} if kind.startswith("late") else set()
    sizes = {"m": (3, 4, 6), "k": (2, 4), "p": (3, 4, 6), "r": (2, 3), "c": (1, 2), "q": (2,), "s": (2,)}
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in sizes.items() if v in text}
    ranks: dict[str, int] = {}
    if kind in ("mask", "masked"):
        shape["n"] = "0 <= n <= m"
    if kind == "stencil":
        size = pick.choice((4, 6))
        shape["p"] = f"1 <= p <= {size}"
    if kind == "late mask":
        shape.update({"m": f"2 <= m < {pick.choice((4, 5, 6))}", "n": "1 <= n < m"})
    if kind in PADDED:
        size, low = pick.choice((3, 4, 6)), int(kind == "late")
        shape.update({"p": f"{low} <= p < {size + low}", "r": "0 <= r < 3"})
        ranks = {"W": 2 * size - 1 if kind == "padded stride" else size}
    dims = fanouts(pick, pick.choice((1, 1, 2)))
    pes = {"type": "Container", "name": "PE", "spatial": dims}
    buffer = memory("GLB", 4, pick.choice(bits), 32, buffering=pick.choice(("single", "double")))
    buffer |= {"tensors": {"may_keep": "I"}} if kind == "plane" else {}
    order = pick.choice(([buffer, pes], [pes, buffer]))
    nodes = [memory("DRAM", 64, "inf", 16), *order]
    if pick.random() < 0.3:
        found.add("tolls")
        paying = {"keep": pick.choice(("All", "Inputs"))}
        wire = {"type": "Toll", "name": "Wire", "tensors": paying, "actions": memory("", 3, 0, 24)["actions"]}
        nodes.insert(pick.randint(1, 3), wire)
    meshed = any(d.get("link", {}).get("topology") in ("mesh", "all_to_all") for d in dims)
    found |= {"links"} if any("link" in d for d in dims) else set()
    asked: dict[str, Any] = {}
    if not meshed and pick.random() < 0.5:
        found.add("uneven in space")
        asked["spatial_sizes"] = "all"
    elif kind in ("window", "stride", *SEVERAL) and pick.random() < 0.5:
        found |= {"slide", "stay"} if order[0] is pes else {"slide"}
        asked["memories"] = {"GLB": {"reuse": ["refill", "slide"]}}
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {
        "iteration_space_shape": shape, "rank_sizes": ranks, "bits_per_value": {"All": 8}, "einsums": [text],
    }  # fmt: skip
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.7}
    spec = pm.load({"schema_version": 1, "workload": work, "arch": arch})
    if pick.random() < 0.4 and kind != "plane":
        found.add("constraints")
        _constrain(pick, spec, asked)
        found |= {"as high as can be"} if "max" in str(asked.get("min_utilisation")) else set()
    return Space(spec, asked, found)


def keeping_pairs(pick: Random) -> Iterator[PairSpace]:
    """Chains in which nodes keep what the preceding visit held."""
    for space in pair_spaces(pick, tuple(k for k in PAIRS if k not in TIED)):
        space.asked.setdefault("memories", {}).setdefault("GLB", {})["reuse"] = pick.choice(POLICIES[:2])
        yield space


KEEPING = ("product", "window", "window", "stride", "plane", *SEVERAL, "padding", "mask")
POLICIES = (["keep_previous"], ["refill", "keep_previous"], ["refill", "slide", "keep_previous"])


def keeping_spaces(pick: Random) -> Iterator[Space]:
    """Spaces in which nodes keep what the preceding visit held where all tiles are equal, and else refill."""
    for space in spaces(pick, KEEPING):
        if "uneven in space" not in space.features:
            policies = pick.choice(POLICIES[1:] if "padding" in space.features else POLICIES)
            space.asked.setdefault("memories", {}).setdefault("GLB", {})["reuse"] = policies
            yield replace(space, features=space.features - {"slide", "stay"} | {"keep"})


def sliding_padded(pick: Random) -> Iterator[Space]:
    """Windows over padding along which nodes may slide."""
    for space in spaces(pick, PADDED, (16, 24, 32)):
        rule = space.asked.setdefault("memories", {}).setdefault("GLB", {})
        if "uneven in space" not in space.features and not rule:
            rule.update({"keep": "I", "reuse": ["refill", "slide"]})
            yield replace(space, features=space.features | {"slide"})


def _constrain(pick: Random, spec: Spec, asked: dict[str, Any]) -> None:
    """One or two rules: on a fanout, on what the buffer keeps, on a tensor that is fetched once."""
    (one,) = spec.workload.einsums
    variables = [v for v in one.rank_variables if len({*one.bound(v)}) > 1]
    of_fanouts = (
        {"variables": pick.sample(variables, 1)},
        {"factors": {pick.choice(variables): pick.choice((1, 1, 2, "<= 2", ">= 2"))}},
        {"must_reuse": pick.choice(one.tensors)},
    )
    for rule in pick.sample((*of_fanouts, "share", "keep", "bypass", "no_refetch"), pick.choice((1, 2))):
        memory = asked.setdefault("memories", {}).setdefault("GLB", {})
        if isinstance(rule, dict):
            asked.setdefault("fanouts", {}).setdefault("PE", {}).setdefault("X", {}).update(rule)
        elif rule == "share":
            asked["min_utilisation"] = {"PE": {"X": pick.choice((0.5, "max"))}}
        elif rule == "no_refetch":
            memory[rule] = pick.choice(one.inputs).tensor
        elif not {"keep", "bypass"} & memory.keys():
            memory[rule] = pick.choice(one.tensors)


PAIRS = {  # two Einsums that hand on T, and the rank variables over which they may share loops
    "pair": (("T[m,n] = A[m] * B[n]", "Z[m] = T[m,n]"), "mn"),
    "product": (("T[m] = A[m,k] * B[k]", "Z[m] = T[m] * C[m]"), "m"),
    "sum": (("T[m,n] = A[m] * B[n]", "Z[m,n] = T[m,n] + C[m]"), "mn"),
    "window": (("T[p] = I[W=p+r]", "O[p] = T[p] * G[p]"), "p"),
    "stride": (("T[p] = I[W=2*p+r] * F[r]", "O[p] = T[p]"), "p"),
    "padding": (("T[p] = I[W=p+r-1] * F[r]", "O[p] = T[p]"), "p"),
    "late": (("T[P=p-1] = I[W=p+r-2]", "O[P=p-1] = T[P=p-1] * G[P=p-1]"), "p"),
    "mask": (("T[m,n] = A[m] * B[n]", "Z[m] = T[m,n]"), "mn"),
    "neighbours": (("T[p,c] = I[X=p,c] * I[X=p+1,c]", "O[p] = T[p,c]"), "pc"),
    "behind": (("T[x] = A[x]", "O[p] = T[X=p+r] * F[r]"), ""),
}


WINDOWED = ("padding", "window", "late", "stride", "behind")
RULES = ("fuse", "unfused", "max_fused_loops", "loop_order", "keep", "bypass")


@dataclass
class PairSpace:
    """A chain of two Einsums, what is asked for besides, and the features."""

    spec: Spec
    asked: dict[str, Any]
    features: set[str]
    shared: tuple[str, ...]

    @property
    def listed(self) -> tuple[FusedPair, FusedPair]:
        """Mappings that hand on T in the buffer, and others."""
        return FusedPair(self.spec, "T", self.shared), FusedPair(self.spec, "T", (), apart=True)

    def structures(self, pair: FusedPair) -> Iterator[tuple[Fused, list[Part], list[Part]]]:
        """Shared loops, and the parts below them; where nodes keep, they do so below no shared loops."""
        policies = self.asked.get("memories", {}).get("GLB", {}).get("reuse", ["refill"])
        one, other = self.spec.workload.einsums
        for loops, first, second in pair.structures():
            if "refill" not in policies and not pair.apart:
                continue
            if "keep_previous" in policies and not loops:
                first = [(above, x) for above, b in first for x in branches(b, one, ["GLB"])]
                second = [(above, x) for above, b in second for x in branches(b, other, ["GLB"])]
            yield loops, first, second

    def size(self) -> int:
        return sum(one.size() for one in self.listed)

    def promising(self, front: Sequence[Figures]) -> Iterator[tuple[LoopTree, Figures]]:
        """Mappings that obey the constraints and that no point of the front is better than, if what each
        Einsum costs adds up, with the sums. Which of them fit is not looked at."""
        for pair in self.listed:
            for loops, firsts, seconds in self.structures(pair):
                rows = [self._figures(pair.tree(loops, (a, seconds[0]))) for a in firsts]
                columns = [self._figures(pair.tree(loops, (firsts[0], b))) for b in seconds]
                energy, latency = (
                    np.add.outer([r[k] for r in rows], [c[k] for c in columns]) - rows[0][k] for k in (0, 1)
                )
                left = np.isfinite(energy)
                for e, t in front:
                    left &= (e >= energy * (1 - 1e-9)) | (t >= latency * (1 - 1e-9))
                for i, j in zip(*np.nonzero(left), strict=True):
                    tree = pair.tree(loops, (firsts[i], seconds[j]))
                    if self.obeys(tree):
                        yield tree, (float(energy[i, j]), float(latency[i, j]))

    def _figures(self, tree: LoopTree) -> Figures:
        """Energy and latency, whether it fits or not; infinite where it is illegal."""
        try:
            report = evaluate_problem(Problem(self.spec.workload, self.spec.arch, tree))
        except SpecError:
            return inf, inf
        return report.total_energy, float(report.total_latency)

    def obeys(self, tree: LoopTree) -> bool:
        asked, rule = self.asked, self.asked.get("memories", {}).get("GLB", {})
        above, (*_, split) = tree.nodes[:-1], tree.nodes
        loops = [n.rank_variable for n in above if isinstance(n, Loop)]
        inside = {(None, t) for n in above[1:] if isinstance(n, StorageNode) for t in n.tensors}
        assert isinstance(split, Split)
        for one, branch in zip(self.spec.workload.einsums, split.branches, strict=True):
            inside |= {(one.name, t) for n in branch if isinstance(n, StorageNode) for t in n.tensors}
        fused = (None, "T") in inside
        order = asked.get("loop_order", {}).get("O" if "O" in self.spec.workload.tensors else "Z", loops)
        if len(loops) > asked.get("max_fused_loops", 9) or [v for v in order if v in loops] != loops:
            return False
        if (asked.get("fuse") and not fused) or (asked.get("unfused") and fused):
            return False

        def held(tensor: str, einsum: str) -> bool:
            return bool({(None, tensor), (einsum, tensor)} & inside)

        if "no_refetch" in rule and self._refetched(tree, rule["no_refetch"]):
            return False
        users = [(t, e.name) for e in self.spec.workload.einsums for t in e.tensors]
        kept, barred = rule.get("keep"), rule.get("bypass")
        return all(held(t, e) for t, e in users if t == kept) and not any(
            held(t, e) for t, e in users if t == barred
        )

    def _refetched(self, tree: LoopTree, tensor: str) -> bool:
        """Whether a loop above a node of a tensor in the buffer is over a variable that does not index it."""
        (*above, split) = tree.nodes
        assert isinstance(split, Split)
        for one, branch in zip(self.spec.workload.einsums, split.branches, strict=True):
            if tensor not in one.tensors:
                continue
            mine, passed = set(one.access_of(tensor).variables), set[str]()
            for n in (*above, *branch):
                if isinstance(n, Loop) and not n.spatial:
                    passed |= {n.rank_variable} - mine
                elif isinstance(n, StorageNode) and (n.component, n.tensors) == ("GLB", (tensor,)) and passed:
                    return True
        return False

    def cost(self, tree: LoopTree) -> Figures | None:
        """None where it does not fit; of tied variables also where the largest tiles together do not."""
        try:
            return (whole_tiles if "padding" in self.features else figures)(self.spec, tree)
        except SpecError:
            return None


def pair_of(pick: Random, kinds: Sequence[str] = tuple(PAIRS), rules: Sequence[str] = RULES) -> PairSpace:
    """One of any features that go together."""
    kind = pick.choice(kinds)
    texts, shared = PAIRS[kind]
    found = {"fused", "padding" if kind in TIED else kind}
    text, ranks = " ".join(texts), {}
    sizes = {"m": (2, 4), "n": (2,), "k": (1, 2), "p": (2, 4), "r": (2,), "c": (1, 2), "x": (3,)}
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in sizes.items() if re.search(rf"\b{v}\b", text)}
    if kind in ("padding", "late"):
        low = int(kind == "late")
        shape, ranks = {"p": f"{low} <= p < {3 + low}", "r": "0 <= r < 3"}, {"W": 3}
    if kind == "mask":
        shape.update(m="0 <= m < 3", n="0 <= n <= m")
    if kind == "behind":
        shape.update(p="0 <= p < 2")
    nodes = [
        memory("DRAM", 64, "inf", 16, tensors={"keep": "~T", "may_keep": "All"}, ports=pick.choice(PORTS)),
        memory("GLB", 4, pick.choice((24, 32, 48, 64)), 32, buffering=pick.choice(("single", "double"))),
    ]
    if pick.random() < 0.4:
        dims = [{k: v for k, v in d.items() if k != "link"} for d in fanouts(pick, 1)]
        nodes.append({"type": "Container", "name": "PE", "spatial": dims})
        found |= {"fanout"} if kind not in TIED else set()
    if kind in TIED:
        nodes = nodes[:2]
    if pick.random() < 0.3:
        found.add("tolls")
        wire = {"type": "Toll", "name": "Wire", "tensors": {"keep": pick.choice(("All", "Inputs"))}}
        nodes.insert(pick.randint(1, 2), wire | {"actions": memory("", 3, 0, 24)["actions"]})
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {
        "iteration_space_shape": shape, "rank_sizes": ranks, "bits_per_value": {"All": 8}, "einsums": texts,
    }  # fmt: skip
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.7}
    asked: dict[str, Any] = {}
    if rules is not RULES or pick.random() < 0.5:
        found.add("constraints")
        (rule,) = pick.sample(rules, 1)
        last = texts[1].split("[")[0]
        value = {"fuse": "T", "unfused": "T", "max_fused_loops": pick.choice((0, 1))}.get(rule)
        asked = {rule: {last: pick.sample(shared, len(shared))} if rule == "loop_order" else value}
        if rule in ("keep", "bypass"):
            asked = {"memories": {"GLB": {rule: pick.choice(re.findall(r"(\w+)\[", text))}}}
        if rule == "no_refetch":
            once = pick.choice(re.findall(r"(\w+)\[", text))
            asked = {"memories": {"GLB": {rule: once} | ({"keep": once} if pick.random() < 0.7 else {})}}
            found.add(rule)
    spec = pm.load({"schema_version": 1, "workload": work, "arch": arch})
    return PairSpace(spec, asked, found, tuple(v for v in shared if shape[v] != f"0 <= {v} < 1"))


def check(space: Space) -> int:
    """Whether both fronts are the same, and of each objective by itself the least, and of ties the least of
    the other; how many mappings there are that fit."""
    mine = [(p.energy, p.latency) for p in pm.explore(space.spec, constraints=space.asked)]
    listed = [x for x in map(space.cost, space.trees()) if x is not None]
    for energy, latency in listed:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    for e, x in mine:
        assert any(e == pytest.approx(a) and x == pytest.approx(b) for a, b in listed)
    for number, objective in enumerate(("energy", "latency") if listed else ()):
        (best,) = pm.explore(space.spec, objectives=objective, constraints=space.asked)
        least = min(figures[number] for figures in listed)
        alike = [f[1 - number] for f in listed if f[number] <= least * (1 + 1e-9)]
        mine = [(best.energy, best.latency)]
        assert mine[0][number] == pytest.approx(least)
        assert mine[0][1 - number] == pytest.approx(min(alike))
    return len(listed)


def spaces(
    pick: Random, kinds: Sequence[str] = KINDS, bits: Sequence[int] = (24, 32, 48, 64)
) -> Iterator[Space]:
    while True:
        space = space_of(pick, kinds, bits)
        if 1 < space.listed.size() <= MOST:
            yield space


def check_pair(space: PairSpace, pick: Random) -> int:
    """Whether no mapping that looks promising beats the front, and each point is one of them; how many were
    evaluated, of more than MOST so many drawn ones."""
    found = pm.explore(space.spec, constraints=space.asked)
    mine = [(p.energy, p.latency) for p in found]
    assert all(space.obeys(p.mapping) for p in found)
    several = list(space.promising(mine))
    for e, x in mine:
        alike = (tree for tree, sums in several if sums == (pytest.approx(e), pytest.approx(x)))
        assert any(figures(space.spec, tree) == (pytest.approx(e), pytest.approx(x)) for tree in alike)
    some = several if len(several) <= MOST else pick.sample(several, MOST)
    for cost in (space.cost(tree) for tree, _ in some):
        assert cost is None or any(e <= cost[0] * (1 + 1e-9) and x <= cost[1] * (1 + 1e-9) for e, x in mine)
    return len(some)


def pair_spaces(
    pick: Random, kinds: Sequence[str] = tuple(PAIRS), rules: Sequence[str] = RULES
) -> Iterator[PairSpace]:
    while True:
        space = pair_of(pick, kinds, rules)
        if 1 < space.size() <= 30 * MOST:
            yield space


def campaign(several: Iterator[Space], many: int) -> Counter[str]:
    """Spaces by their features, and all mappings."""
    found = Counter[str]()
    for space in islice(several, many):
        found["mappings"] += check(space)
        found.update(space.features)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_fronts_are_those_of_all_mappings(seed: int) -> None:
    found = campaign(spaces(Random(seed)), 60)
    assert found["mappings"] > 1000
    assert min(found[f] for f in ("window", "padding", "links", "constraints")) >= 8
    assert min(found[f] for f in ("slide", "stay", "late", "uneven in space")) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "many"), [(1, 4), *(pytest.param(n, 60, marks=pytest.mark.slow) for n in range(2, 6))]
)
def test_fronts_of_einsums_that_read_several_elements(seed: int, many: int) -> None:
    found = campaign(spaces(Random(seed), SEVERAL), many)
    assert found["mappings"] > 10 * many
    assert many < 60 or min(found[f] for f in (*SEVERAL, "links", "tolls", "slide", "uneven in space")) >= 3


@pytest.mark.parametrize(
    ("seed", "many"), [(1, 3), *(pytest.param(n, 40, marks=pytest.mark.slow) for n in range(2, 5))]
)
def test_fronts_of_nodes_that_slide_over_padding(seed: int, many: int) -> None:
    found = campaign(sliding_padded(Random(seed)), many)
    assert found["slide"] == many
    assert found["mappings"] > 10 * many
    assert many < 40 or min(found[f] for f in ("links", "late", "constraints")) >= 3


@pytest.mark.parametrize(
    ("seed", "many"), [(1, 3), *(pytest.param(n, 50, marks=pytest.mark.slow) for n in range(2, 7))]
)
def test_fronts_of_nodes_that_keep(seed: int, many: int) -> None:
    found = campaign(keeping_spaces(Random(seed)), many)
    assert found["mappings"] > 10 * many
    several = ("window", "plane", "padding", "links", "tolls", "constraints")
    assert many < 50 or min(found[f] for f in several) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_fronts_of_chains_whose_nodes_keep(seed: int) -> None:
    pick, found = Random(seed), Counter[str]()
    for space in islice(keeping_pairs(pick), 30):
        found["mappings"] += check_pair(space, pick)
        found.update(space.features)
    assert found["mappings"] > 500
    assert min(found[f] for f in ("window", "stride", "neighbours", "fanout", "constraints")) >= 2


def pairs(seed: int, many: int) -> Counter[str]:
    """Chains by their features, and all mappings that were evaluated."""
    pick, found = Random(seed), Counter[str]()
    for space in islice(pair_spaces(pick), many):
        found["mappings"] += check_pair(space, pick)
        found.update(space.features)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_fronts_of_chains_are_those_of_all_mappings(seed: int) -> None:
    found = pairs(seed, 40)
    assert found["mappings"] > 1000
    assert min(found[f] for f in ("padding", "window", "fanout", "tolls", "constraints")) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_fronts_of_chains_where_a_tensor_is_fetched_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With first mappings, which look at fused loops below which the rule leaves nothing."""
    monkeypatch.setattr(first_mappings, "MANY", 0)
    monkeypatch.setattr(first_mappings, "SEVERAL", 0)
    pick, found = Random(seed), Counter[str]()
    for space in islice(pair_spaces(pick, WINDOWED, ("no_refetch",)), 20):
        found["mappings"] += check_pair(space, pick)
        found.update(space.features)
    assert found["mappings"] > 500
    assert min(found[f] for f in ("padding", "window", "fanout")) >= 2
