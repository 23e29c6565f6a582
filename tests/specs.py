"""Random whole specs as documents: fused or not, mixed reuse policies, nested splits, about a third illegal.

`drawn(Random(seed))` gives a document that `pm.load` takes, whose tile sizes are symbols, with their values.
`Drawn.fault` names what was done to it on purpose; by chance others break dependences as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from polymodel.reuse import Reuse

POLICIES: tuple[Reuse, ...] = ("refill", "refill", "slide", "keep_previous")
Doc = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """One Einsum: its text, rank variables with extents, tensors, and what its output is indexed by."""

    name: str
    text: str
    extents: dict[str, int]
    tensors: tuple[str, ...]
    output: tuple[str, ...]


@dataclass(frozen=True)
class Workload:
    """Stages in order, rank sizes, and the tensors handed from one to another."""

    stages: tuple[Stage, ...]
    sizes: dict[str, int]
    more: Doc = field(default_factory=dict)  # further keys of the workload: bounds, initial values

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t for s in self.stages for t in s.tensors))

    @property
    def inner(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.stages if any(s.name in o.tensors for o in self.stages if o != s))


@dataclass(frozen=True)
class Drawn:
    """A document, the values of its tile symbols, the extents they may take, and the fault put into it;
    `policy` to put in the place of all."""

    document: Doc
    values: dict[str, int]
    most: dict[str, int]
    fault: str = ""
    fused: bool = False
    stages: int = 1
    policy: Reuse = "refill"


def products(pick: Random, count: int) -> Workload:
    """A chain of matrix products over shared rows; sometimes one that is elementwise, or sums rows up."""
    sizes = {"M": pick.randint(1, 4), **{f"N{i}": pick.randint(1, 4) for i in range(count + 1)}}
    stages = []
    width = 0  # which of the N ranks the tensor before has
    for i in range(1, count + 1):
        kind = pick.choice(["product", "product", "product", "row sums", "scaled"])
        before, into = f"n{width}", f"n{i}"
        if kind == "scaled" or (kind == "row sums" and i < count):
            text = f"T{i}[m, {before}] = T{i - 1}[m, {before}] * W{i}[{before}]"
            names, output = ("m", before), ("m", before)
            tensors = (f"T{i - 1}", f"W{i}", f"T{i}")
        elif kind == "row sums":
            text, names, output = f"T{i}[m] = T{i - 1}[m, {before}]", ("m", before), ("m",)
            tensors = (f"T{i - 1}", f"T{i}")
        else:
            text = f"T{i}[m, {into}] = T{i - 1}[m, {before}] * W{i}[{before}, {into}]"
            names, output, width = ("m", before, into), ("m", into), i
            tensors = (f"T{i - 1}", f"W{i}", f"T{i}")
        stages.append(Stage(f"T{i}", text, {v: sizes[v.upper()] for v in names}, tensors, output))
    used = {v.upper() for s in stages for v in s.extents}
    return Workload(tuple(stages), {k: v for k, v in sizes.items() if k in used})


def windows(pick: Random, count: int) -> Workload:
    """A chain of one-dimensional convolutions, each reading a halo, perhaps with channels or a factor per
    element of its window."""
    deep = pick.random() < 0.4
    sizes = {f"P{count}": pick.randint(2, 4)}
    strides = [0] + [pick.choice([1, 1, 1, 2]) for _ in range(count)]
    for i in range(count, 0, -1):
        sizes[f"R{i}"] = pick.randint(1, 3)
        sizes[f"P{i - 1}"] = strides[i] * (sizes[f"P{i}"] - 1) + sizes[f"R{i}"]
    if deep:
        sizes["C"] = pick.randint(1, 3)
    stages = []
    for i in range(1, count + 1):
        own, window = f"p{i}", f"P{i - 1}={f'{strides[i]}*' if strides[i] > 1 else ''}p{i}+r{i}"
        tail = ", c" if deep else ""
        text = f"T{i}[{own}{tail}] = T{i - 1}[{window}{tail}] * W{i}[r{i}]"
        names = (own, f"r{i}", *(("c",) if deep else ()))
        tensors: tuple[str, ...] = (f"T{i - 1}", f"W{i}", f"T{i}")
        if pick.random() < 0.2:
            text, tensors = f"{text} * B{i}[{own}]", (*tensors, f"B{i}")
        output = (own, *(("c",) if deep else ()))
        stages.append(Stage(f"T{i}", text, {v: sizes[v.upper()] for v in names}, tensors, output))
    return Workload(tuple(stages), sizes)


def attention(pick: Random, count: int) -> Workload:
    """Scores and their product with values; the first Einsum makes queries."""
    sizes = {v: pick.randint(1, 3) for v in "MKNLE"}
    every = (
        Stage("Q", "Q[m, n] = X[m, k] * V[k, n]", {}, ("X", "V", "Q"), ("m", "n")),
        Stage("S", "S[m, l] = Q[m, n] * Y[l, n]", {}, ("Q", "Y", "S"), ("m", "l")),
        Stage("O", "O[m, e] = S[m, l] * U[l, e]", {}, ("S", "U", "O"), ("m", "e")),
    )[:count]
    names = (("m", "k", "n"), ("m", "n", "l"), ("m", "l", "e"))
    stages = tuple(
        Stage(s.name, s.text, {v: sizes[v.upper()] for v in n}, s.tensors, s.output)
        for s, n in zip(every, names, strict=False)
    )
    used = {v.upper() for s in stages for v in s.extents}
    return Workload(stages, {k: v for k, v in sizes.items() if k in used})


def shared_ranks(pick: Random, count: int) -> Workload:
    """A chain of Einsums with the same rank variables, each indexing its result by some of them: a loop over
    one of the others must not run twice above the split of producer and consumer."""
    names = ("m", "n", "k")[: pick.randint(2, 3)]
    extents = {v: pick.randint(2, 4) for v in names}
    stages, before = [], "A0[" + ", ".join(names) + "]"
    for i in range(1, count + 1):
        output = tuple(v for v in names if pick.random() < 0.7) or names[:1]
        result = f"T{i}[{', '.join(output)}]"
        text = f"{result} = {before} * A{i}[{', '.join(names)}]"
        tensors = (before.partition("[")[0], f"A{i}", f"T{i}")
        stages.append(Stage(f"T{i}", text, dict(extents), tensors, output))
        before = result
    return Workload(tuple(stages), {v.upper(): n for v, n in extents.items()})


@dataclass
class Above:
    """What stands above the node being drawn."""

    extents: dict[tuple[str, str], int] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    spread: bool = False  # below a spatial loop
    inside: bool = False  # below storage in RF
    trips: int = 1

    def copy(self) -> Above:
        return Above(dict(self.extents), dict(self.stored), self.spread, self.inside, self.trips)


class Drawing:
    """One mapping in the making; `needed` is the fanout, `reduced` the outputs that it sums up.

    `apart`: instances share little, as what they share in part has no closed form where it stays.
    """

    def __init__(self, pick: Random, workload: Workload) -> None:
        self.pick, self.workload = pick, workload
        self.values: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.needed = 1
        self.reduced: dict[str, None] = {}
        self.apart = False

    def chance(self, share: float) -> bool:
        return self.pick.random() < share

    def mapping(self) -> list[Doc]:
        above = Above({(s.name, v): n for s in self.workload.stages for v, n in s.extents.items()})
        outside = [t for t in self.workload.tensors if t not in self.workload.inner or self.chance(0.35)]
        nodes = self.store(above, "DRAM", outside)
        return [*nodes, *self.below(self.workload.stages, above)]

    def spread_windows(self) -> list[Doc]:
        """A loop over the last window that infers all other Einsums, most of them spread over instances with
        operands in RF: windows come and go, and are larger at first."""
        stages, inner = self.workload.stages, self.workload.inner
        self.apart = self.chance(0.8)
        above = Above({(s.name, v): n for s in stages for v, n in s.extents.items()})
        outside = [t for t in self.workload.tensors if t not in inner or self.chance(0.2)]
        nodes = self.store(above, "DRAM", outside)
        nodes += self.store(above, "GLB", [t for t in inner if t not in above.stored and self.chance(0.75)])
        for _ in range(self.pick.choice([1, 1, 1, 2])):
            nodes.append(self.small_tiles(stages[-1], above))
        nodes += self.store(above, "GLB", [t for t in inner if t not in above.stored])
        branches = [{"type": "Nested", "nodes": self.instances(s, above.copy())} for s in stages]
        return [*nodes, {"type": "Sequential", "nodes": branches}]

    def instances(self, stage: Stage, above: Above) -> list[Doc]:
        """A branch that is spread over PE, three times in four, with some operands in RF below."""
        spatial = self.chance(0.75)
        memory = "RF" if spatial else "GLB"
        nodes = [self.small_tiles(stage, above, spatial=True)] if spatial else []
        nodes += self.loop((stage,), above) if self.chance(0.2) else []
        kept = [t for t in stage.tensors if self.chance(0.1 if t == stage.name else 0.6)]
        nodes += self.store(above, memory, [t for t in kept if spatial or above.stored[t] == "DRAM"])
        nodes += self.loop((stage,), above) if self.chance(0.2) else []
        return [*nodes, {"type": "Compute", "einsum": stage.name, "component": "MAC"}]

    def small_tiles(self, stage: Stage, above: Above, spatial: bool = False) -> Doc:
        """A loop of many trips over the stage's window."""
        name = stage.output[0]
        extent = above.extents[stage.name, name]
        tile = min(self.pick.choice([1, 1, 1, 2, 3]), extent)
        return self.tiled({stage.name: name}, name, (extent, tile), above, spatial)

    def store(self, above: Above, memory: str, tensors: list[str]) -> list[Doc]:
        if not tensors:
            return []
        above.stored.update(dict.fromkeys(tensors, memory))
        above.inside = above.inside or memory == "RF"
        groups = [tensors] if self.chance(0.5) else [[t] for t in tensors]
        return [
            {"type": "Storage", "component": memory, "tensors": g, "reuse": self.pick.choice(POLICIES)}
            for g in groups
        ]

    def below(self, group: tuple[Stage, ...], above: Above) -> list[Doc]:
        """Loops, storage and splits over a group of Einsums."""
        nodes: list[Doc] = []
        for _ in range(self.pick.randint(0, 3) if len(group) > 1 else self.pick.randint(1, 4)):
            nodes += self.loop(group, above) if self.chance(0.6) else self.storage(group, above)
        if len(group) == 1:
            missing = [t for t in group[0].tensors if t not in above.stored]
            nodes += self.store(above, "RF" if above.spread else "GLB", missing)
            return [*nodes, {"type": "Compute", "einsum": group[0].name, "component": "MAC"}]
        cut = self.pick.randint(1, len(group) - 1)
        parts = [group[:cut], group[cut:]]
        if len(group) >= 3 and self.chance(0.3):
            parts = [(s,) for s in group]
        crossing = [
            t
            for t in self.workload.tensors
            if t not in above.stored and sum(any(t in s.tensors for s in part) for part in parts) > 1
        ]
        nodes += self.store(above, "RF" if above.spread else "GLB", crossing)
        branches = [{"type": "Nested", "nodes": self.below(part, above.copy())} for part in parts]
        return [*nodes, {"type": "Sequential", "nodes": branches}]

    def storage(self, group: tuple[Stage, ...], above: Above) -> list[Doc]:
        memory = "RF" if above.spread or (self.chance(0.3) and above.stored) else "GLB"
        order = ("DRAM", "GLB", "RF")
        fitting = [
            t
            for t in dict.fromkeys(t for s in group for t in s.tensors)
            if (t not in above.stored and t in self.workload.inner and memory == "GLB")
            or (t in above.stored and order.index(above.stored[t]) < order.index(memory))
        ]
        return self.store(above, memory, [t for t in fitting if self.chance(0.6)])

    def bound(self, group: tuple[Stage, ...]) -> tuple[dict[str, str], Any]:
        """For each Einsum that a loop binds its variable, and how the mapping writes that."""
        leader = group[-1] if self.chance(0.7) else self.pick.choice(group)
        choice = leader.output if self.chance(0.7) else tuple(leader.extents)
        name = self.pick.choice(choice)
        found = {s.name: name for s in group if name in s.extents}
        if len(group) > 1 and self.chance(0.15):
            renamed = {s.name: self.pick.choice(tuple(s.extents)) for s in group}
            return renamed, renamed
        return found, name

    def loop(self, group: tuple[Stage, ...], above: Above) -> list[Doc]:
        names, written = self.bound(group)
        extents = [above.extents[pair] for pair in names.items()]
        extent = max(extents)
        if extent == 1 and self.chance(0.7):
            return []
        tile = self.pick.randint(1, extent)
        if len(set(extents)) > 1:
            tile = self.pick.randint(1, min(extents))
        spatial = not above.inside and self.chance(0.25 if len(group) == 1 else 0.12)
        node = self.tiled(names, written, (extent, tile), above, spatial)
        if spatial:
            for s in group:
                if names.get(s.name) not in (None, *s.output):
                    self.reduced[s.name] = None
        return [node]

    def tiled(
        self, names: dict[str, str], written: Any, sizes: tuple[int, int], above: Above, spatial: bool
    ) -> Doc:
        """A loop over variables of Einsums, as the mapping writes them; `sizes`: extent and tile."""
        extent, tile = sizes
        symbol = f"X{len(self.values)}"
        self.values[symbol], self.most[symbol] = tile, extent
        above.extents.update(dict.fromkeys(names.items(), tile))
        node: Doc = {"type": "Temporal", "rank_variable": written, "tile_shape": symbol}
        if spatial:
            above.spread = True
            above.trips *= -(-extent // tile)
            self.needed = max(self.needed, above.trips)
            node |= {"type": "Spatial", "component": "PE", "name": "X"}
        return node


def machine(pick: Random, drawing: Drawing, workload: Workload) -> Doc:
    """Components for a mapping; the fanout holds it, and may reduce what it has to, if `drawing` is legal."""
    needed = list(drawing.reduced)
    share = 0.1 if drawing.apart else 0.5
    others = [t for t in workload.tensors if t not in needed and pick.random() < share]
    names = " | ".join([*needed, *others]) or "Nothing"
    reuse: Doc = {"may_reuse": names if drawing.apart else pick.choice(["All", names, names])}
    if pick.random() < 0.2:
        reuse = {}

    def actions(energy: float, rate: float) -> list[Doc]:
        return [{"name": n, "energy": energy, "throughput": rate} for n in ("read", "write")]

    fan = {"name": "X", "fanout": max(drawing.needed, pick.randint(1, 4)), **reuse}
    if pick.random() < 0.15:
        fan["broadcast_partials"] = True
    toll = {"type": "Toll", "name": "Net", "tensors": {"keep": "All"}, "actions": actions(0.5, 1e9)}
    return {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "actions": actions(8.0, 1e9)},
            *([toll] if pick.random() < 0.15 else []),
            {
                "type": "Memory",
                "name": "GLB",
                "size": 8 * pick.choice([6, 20, 200]),
                "actions": actions(2.0, 3e9),
            },
            {"type": "Container", "name": "PE", "spatial": [fan]},
            {"type": "Memory", "name": "RF", "size": 8 * pick.choice([4, 200]), "actions": actions(1.0, 5e9)},
            {
                "type": "Compute",
                "name": "MAC",
                "actions": [{"name": "compute", "energy": 1.0, "throughput": 1e9}],
            },
        ]
    }


def _lists(nodes: list[Doc]) -> list[list[Doc]]:
    """Every list of nodes of a mapping, outermost first."""
    found = [nodes]
    for n in nodes:
        found += _lists(n["nodes"]) if "nodes" in n else []
    return found


def _of(nodes: list[Doc], kind: str) -> list[tuple[list[Doc], int]]:
    return [(at, i) for at in _lists(nodes) for i, n in enumerate(at) if n["type"] == kind]


def spoiled(pick: Random, document: Doc, drawing: Drawing, workload: Workload) -> str:
    """Break one rule of the document on purpose; what was done, empty if it had nothing to break."""
    nodes = document["mapping"]["nodes"]
    fan = document["arch"]["nodes"][-3]["spatial"][0]
    loops = _of(nodes, "Temporal") + _of(nodes, "Spatial")
    splits = _of(nodes, "Sequential")
    storages = _of(nodes, "Storage")
    kinds = ["backing", "places", "spread"]
    kinds += (
        ["order"] * 2 * bool(splits) + ["contraction"] * 3 * bool(splits) + ["fanout"] * (drawing.needed > 1)
    )
    kinds += ["reduction"] * 3 * bool(drawing.reduced) + ["tile"] * (len(loops) > 1)
    kind = pick.choice(kinds)
    if kind == "reduction":
        fan["may_reuse"] = " | ".join(t for t in workload.tensors if t not in drawing.reduced) or "Nothing"
    elif kind == "fanout":
        fan["fanout"] = pick.randint(1, drawing.needed - 1)
    elif kind == "order":
        at, i = pick.choice(splits)
        at[i]["nodes"].reverse()
    elif kind == "contraction":
        at, i = pick.choice(splits)
        stage = pick.choice(workload.stages[:-1] or workload.stages)
        symbol = f"X{len(drawing.values)}"
        name = pick.choice([v for v in stage.extents if v not in stage.output] or list(stage.extents))
        drawing.values[symbol], drawing.most[symbol] = 1, stage.extents[name]
        at.insert(i, {"type": "Temporal", "rank_variable": name, "tile_shape": symbol})
    elif kind == "backing":
        at, i = storages[0]
        dropped = pick.choice(at[i]["tensors"])
        at[i]["tensors"] = [t for t in at[i]["tensors"] if t != dropped]
        if not at[i]["tensors"]:
            del at[i]
    elif kind == "tile":
        at, i = pick.choice(loops)
        symbol = at[i]["tile_shape"]
        drawing.values[symbol] = drawing.most[symbol] + pick.randint(0, 1)
    else:
        _moved(pick, kind, nodes, drawing, workload, storages)
    return kind


def _moved(
    pick: Random,
    kind: str,
    nodes: list[Doc],
    drawing: Drawing,
    workload: Workload,
    storages: list[tuple[list[Doc], int]],
) -> None:
    """`spread`: a spatial loop above some storage. `places`: two neighbours in the other order."""
    if kind == "spread":
        at, i = pick.choice(storages)
        stage = pick.choice(workload.stages)
        name, symbol = pick.choice(tuple(stage.extents)), f"X{len(drawing.values)}"
        drawing.values[symbol], drawing.most[symbol] = 1, stage.extents[name]
        drawing.needed *= stage.extents[name]
        at.insert(
            i,
            {"type": "Spatial", "rank_variable": name, "tile_shape": symbol, "component": "PE", "name": "X"},
        )
        return
    at = pick.choice([x for x in _lists(nodes) if len(x) > 1] or [nodes])
    last = len(at) - (at[-1]["type"] in ("Compute", "Sequential"))
    if last > 1:
        i = pick.randrange(last - 1)
        at[i], at[i + 1] = at[i + 1], at[i]


def drawn(pick: Random) -> Drawn:
    """One document: half of them fused, 3 to 4 Einsums in most of these; a third illegal."""
    count = pick.choice([1, 1, 1, 2, 2, 3, 3, 3, 4, 4])
    make = pick.choice([products, products, windows, windows, attention, shared_ranks])
    workload = make(pick, min(count, 3) if make in (attention, shared_ranks) else count)
    spread = make is windows and count > 1 and pick.random() < 0.4
    return mapped(pick, workload, spread, faults=0.35)


def mapped(pick: Random, workload: Workload, spread: bool = False, faults: float = 0.0) -> Drawn:
    """A mapping of a workload and a machine for it; `spread`: over instances, window by window."""
    drawing = Drawing(pick, workload)
    nodes = drawing.spread_windows() if spread else drawing.mapping()
    document: Doc = {
        "arch": machine(pick, drawing, workload),
        "workload": {
            "rank_sizes": workload.sizes,
            "bits_per_value": {"All": pick.choice([1, 8])},
            "einsums": [s.text for s in workload.stages],
            **workload.more,
        },
        "mapping": {"nodes": nodes},
    }
    fault = spoiled(pick, document, drawing, workload) if pick.random() < faults else ""
    # Few symbols are swept; the others are written as numbers.
    free = pick.sample(sorted(drawing.values), min(2, len(drawing.values)))
    for at in _lists(nodes):
        for n in at:
            if "tile_shape" in n and n["tile_shape"] not in free:
                n["tile_shape"] = drawing.values[n["tile_shape"]]
    document["symbols"] = dict.fromkeys(free)
    values = {s: drawing.values[s] for s in free}
    most = {s: drawing.most[s] for s in free}
    return Drawn(document, values, most, fault, _fused(nodes), len(workload.stages), pick.choice(POLICIES))


def _fused(nodes: list[Doc]) -> bool:
    """True if a loop stands above a split."""
    return any(
        any(n["type"] in ("Temporal", "Spatial") for n in at[:i]) for at, i in _of(nodes, "Sequential")
    )
