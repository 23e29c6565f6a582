"""Random TeAAL specs with format, architecture and bindings, as plain data: all that traffic covers."""

from __future__ import annotations

from random import Random

DECLARED = {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]}


def random_spec(seed: int) -> tuple[dict, dict, dict]:
    """A spec of Z[m,n] = A[k,m] * B[k,n], the sizes of its ranks, and the ranks walked over their shape."""
    rng = Random(seed)
    parts = {r: rng.choice([0, 0, 1, 2]) for r in "KMN"}
    sizes = {r: rng.randint(1, 9) for r in "KMN"}
    chains = {r: [f"{r}{i}" for i in range(n, -1, -1)] if n else [r] for r, n in parts.items()}
    loops = _shuffled(rng, [list(c) for c in chains.values()])
    ranks = {t: [x for x in loops if x.rstrip("0123456789") in rs] for t, rs in DECLARED.items()}
    partitioning = {
        r: [f"uniform_shape({s})" for s in sorted(rng.sample([1, 2, 3, 4, 6], n), reverse=True)]
        for r, n in parts.items()
        if n
    }
    formats = {t: {"default": _format(rng, own)} for t, own in ranks.items()}
    walked = {}
    for t in "AB":
        walked[t] = tuple(r for r in ranks[t][:-1] if r in "KMN" and rng.random() < 0.4)
    spec = {
        "einsum": {"declaration": DECLARED, "expressions": ["Z[m, n] = A[k, m] * B[k, n]"]},
        "mapping": {
            "rank-order": {t: _shuffled(rng, [[r] for r in rs]) for t, rs in DECLARED.items()},
            "partitioning": {"Z": partitioning} if partitioning else {},
            "loop-order": {"Z": loops},
            "spacetime": {"Z": {"space": [], "time": loops}},
        },
        "format": formats,
    }
    _hardware(rng, spec, ranks, loops)
    return spec, sizes, walked


def as_cache(spec: dict, lines: int, tensors: str = "AB") -> None:
    """Make the outer buffer a cache of some tensors, lazily bound, and leave the inner one out."""
    chip = spec["architecture"]["Machine"][0]["subtree"][0]
    attributes = {"width": 64, "depth": lines, "bandwidth": 512}
    chip["local"] = [{"name": "Outer", "class": "Cache", "attributes": attributes}]
    bound = []
    for t in tensors:
        form = spec["format"][t]["default"]
        for r in form["rank-order"]:
            bound += [{"tensor": t, "rank": r, "type": k, "format": "default"} for k in _kinds(form[r])]
    kept = [s for s in spec["bindings"]["Z"] if s.get("component") not in ("Outer", "Inner")]
    spec["bindings"]["Z"] = [*kept, {"component": "Outer", "bindings": bound}]


def random_points(rng: Random, shape: list[int], density: float) -> dict[tuple[int, ...], int]:
    found = {}
    for i in range(shape[0]):
        for j in range(shape[1]):
            if rng.random() < density:
                found[i, j] = rng.randint(1, 9)
    return found


def _shuffled(rng: Random, chains: list[list[str]]) -> list[str]:
    """All ranks in a random order that keeps each chain's."""
    found = []
    chains = [list(c) for c in chains]
    while any(chains):
        found.append(rng.choice([c for c in chains if c]).pop(0))
    return found


def _format(rng: Random, ranks: list[str]) -> dict:
    found: dict = {"rank-order": ranks}
    for r in ranks:
        bits = {k: rng.choice([0, 8, 16, 32]) for k in ("cbits", "pbits")}
        found[r] = {"format": rng.choice("CU"), **bits}
        if rng.random() < 0.2:
            found[r]["layout"] = "interleaved"
    return found


def _hardware(rng: Random, spec: dict, ranks: dict[str, list[str]], loops: list[str]) -> None:
    outer, inner = ([], []) if rng.random() < 0.5 else ([], None)
    memory = []
    for t, own in ranks.items():
        form = spec["format"][t]["default"]
        for r in own:
            memory += [{"tensor": t, "rank": r, "type": k, "format": "default"} for k in _kinds(form[r])]
        mine = _held(rng, t, own, form, loops)
        outer += mine
        if inner is not None:
            inner += [{**b, "evict-on": _inside(rng, b, t, own, loops)} for b in mine]
    shared = [r for r in loops if r.startswith("K")]
    meets = [
        {"name": f"I{r}", "class": "Intersector", "attributes": {"type": rng.choice(_TYPES)}} for r in shared
    ]
    units = [
        *meets,
        {"name": "Seq", "class": "Sequencer", "attributes": {"num_ranks": 2}},
        {"name": "Mul", "class": "Compute", "attributes": {"type": "mul"}},
        {"name": "Add", "class": "Compute", "attributes": {"type": "add"}},
    ]
    buffer = {"class": "Buffet", "attributes": {"width": 64, "depth": 1024, "bandwidth": 512}}
    chip = {"name": "Chip", "local": [{"name": "Outer", **buffer}], "subtree": [{"name": "PE[0..3]"}]}
    chip["subtree"][0]["local"] = [{"name": "Inner", **buffer, "attributes": {"width": 32}}, *units]
    dram = {"name": "DRAM", "class": "DRAM", "attributes": {"bandwidth": 1024}}
    root = {"name": "System", "attributes": {"clock_frequency": 1000}, "local": [dram], "subtree": [chip]}
    spec["architecture"] = {"Machine": [root]}
    bound: list[dict] = [{"config": "Machine"}, {"component": "DRAM", "bindings": memory}]
    bound.append({"component": "Outer", "bindings": outer})
    if inner is not None:
        bound.append({"component": "Inner", "bindings": [b for b in inner if _fits(b, spec)]})
    for r, m in zip(shared, meets, strict=True):
        led = {"leader": rng.choice("AB")} if m["attributes"]["type"] == "leader-follower" else {}
        bound.append({"component": m["name"], "bindings": [{"rank": r, **led}]})
    bound.append({"component": "Seq", "bindings": [{"rank": r} for r in loops[:2]]})
    bound += [{"component": c, "bindings": [{"op": op}]} for c, op in (("Mul", "mul"), ("Add", "add"))]
    spec["bindings"] = {"Z": bound}


_TYPES = ("two-finger", "leader-follower", "skip-ahead")


def _kinds(form: dict) -> list[str]:
    return ["elem"] if form.get("layout") == "interleaved" else ["coord", "payload"]


def _held(rng: Random, tensor: str, own: list[str], form: dict, loops: list[str]) -> list[dict]:
    """Lazy bindings of some ranks, then perhaps one eager binding of the rest."""
    root = rng.randrange(len(own)) if rng.random() < 0.5 else len(own)
    found = []
    for r in own[:root]:
        kinds = [k for k in _kinds(form[r]) if rng.random() < 0.8]
        evict = rng.choice(["root", *loops[: loops.index(r) + 1]])
        found += [{"tensor": tensor, "rank": r, "type": k, "evict-on": evict} for k in kinds]
    if root < len(own):
        last = loops.index(own[root])
        if tensor == "Z":
            last = loops.index(own[root - 1]) + 1 if root else 0
        kind = _kinds(form[own[root]])[0]
        evict = rng.choice(["root", *loops[:last]])
        found.append({"tensor": tensor, "rank": own[root], "type": kind, "evict-on": evict, "style": "eager"})
    return [{**b, "format": "default"} for b in found]


def _inside(rng: Random, bound: dict, tensor: str, own: list[str], loops: list[str]) -> str:
    """An eviction as often as, or more often than, that of the buffer around it."""
    if bound.get("style") != "eager":
        last = loops.index(bound["rank"]) + 1
    elif tensor != "Z":
        last = loops.index(bound["rank"])
    else:
        at = own.index(bound["rank"])
        last = loops.index(own[at - 1]) + 1 if at else 0
    first = 0 if bound["evict-on"] == "root" else loops.index(bound["evict-on"]) + 1
    return rng.choice(["root", *loops[:last]][first:])


def _fits(bound: dict, spec: dict) -> bool:
    """Elements of a lazy binding are no wider than a line of 32 bits; eager ones are left out if any is."""
    form = spec["format"][bound["tensor"]]["default"]
    ranks = form["rank-order"]
    below = ranks[ranks.index(bound["rank"]) :] if bound.get("style") == "eager" else [bound["rank"]]
    return all(form[r]["cbits"] + form[r]["pbits"] <= 32 or "layout" not in form[r] for r in below)
