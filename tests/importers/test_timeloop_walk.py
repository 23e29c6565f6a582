"""Small Timeloop specs, drawn in all spellings of the format, count as imported what a literal walk does.

Factors of variables that are spread over instances are even: what an instance holds while it has no work is
our rule, not Timeloop's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polymodel as pm
from tests.importers.timeloop_walk import Counts, Loop, Tensor, size, walk
from tests.reference.common import engine

Ranks = dict[str, list[list[tuple[str, int]]]]
MATMUL: Ranks = {"A": [[("M", 1)], [("K", 1)]], "B": [[("K", 1)], [("N", 1)]], "C": [[("M", 1)], [("N", 1)]]}
CONV: Ranks = {"I": [[("C", 1)], [("P", 2), ("R", 1)]], "W": [[("C", 1)], [("R", 1)]], "O": [[("P", 1)]]}
NAMES = ("DRAM", "Buffer", "Reg")


@st.composite
def nests(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Loop], list[Tensor], dict[str, Any]]:
    """Variables, loops in execution order, tensors, and a spec that says the same."""
    kernel = draw(st.sampled_from([MATMUL, CONV]))
    variables = tuple(
        draw(st.permutations(sorted({v for ranks in kernel.values() for r in ranks for v, _ in r})))
    )
    memories = draw(st.integers(2, 3))
    across = draw(st.integers(-1, memories - 1))
    slots = [
        (gap, spatial) for gap in range(memories) for spatial in (False, True) if not spatial or gap == across
    ]
    outermost = dict.fromkeys(variables, True)
    loops: list[Loop] = []
    orders: dict[tuple[int, bool], list[str]] = {}
    for gap, spatial in slots:
        orders[gap, spatial] = list(draw(st.permutations(variables)))
        for v in orders[gap, spatial]:
            bound = draw(st.sampled_from([1, 1, 2] if spatial else [1, 2, 3]))
            last = bound if outermost[v] else draw(st.sampled_from([bound, bound, 1]))
            outermost[v] = outermost[v] and bound == 1
            loops.append(Loop(v, bound, last, spatial, gap))
    spread = {x.variable for x in loops if x.spatial and x.bound > 1}
    loops = [replace(x, last=x.bound) if x.variable in spread else x for x in loops]
    kept = {0: set(kernel), **{m: {t for t in kernel if draw(st.integers(0, 3))} for m in range(1, memories)}}
    tensors = [
        Tensor(t, tuple(tuple(r) for r in ranks), t in "CO", tuple(m for m in kept if t in kept[m]))
        for t, ranks in kernel.items()
    ]
    tensors = [replace(t, output=t.name == list(kernel)[-1]) for t in tensors]
    spec = {
        "problem": draw(problems(variables, loops, tensors)),
        "architecture": draw(architectures(loops, memories, across)),
        "mapping": draw(mappings(loops, orders, kept, across, memories)),
    }
    return variables, loops, tensors, spec


@st.composite
def problems(
    draw: st.DrawFn, variables: tuple[str, ...], loops: list[Loop], tensors: list[Tensor]
) -> dict[str, Any]:
    dash = draw(st.booleans())
    spaces = []
    for t in tensors:
        style = draw(st.sampled_from(["products", "named", "text"]))
        space: dict[str, Any] = {"name": t.name}
        if style == "text":
            space["projection"] = [" + ".join(f"{f}*{v}" for v, f in rank) for rank in t.ranks]
        else:
            factor = {1: [], 2: ["Stride"] if style == "named" else [2]}
            space["projection"] = [[[v, *factor[f]] for v, f in rank] for rank in t.ranks]
        if t.output:
            space["read-write" if dash else "read_write"] = True
        spaces.append(space)
    return {
        "shape": {
            "name": "Drawn",
            "dimensions": list(variables),
            "coefficients": [{"name": "Stride", "default": 2}],
            "data-spaces" if dash else "data_spaces": spaces,
        },
        "instance": {v: size(loops, v) for v in variables},
    }


@st.composite
def architectures(draw: st.DrawFn, loops: list[Loop], memories: int, across: int) -> dict[str, Any]:
    """`across`: below this memory there are instances, as many as the loops need, or more."""
    many = 1
    for x in loops:
        many *= x.bound if x.spatial else 1
    many *= draw(st.sampled_from([1, 2]))
    names = [*NAMES[:memories], "MAC"]
    classes = ["DRAM", *["regfile"] * (memories - 1), "intmac"]
    if draw(st.booleans()):
        nodes: list[dict[str, Any]] = []
        for i, (name, kind) in enumerate(zip(names, classes, strict=True)):
            if i == across + 1 and across >= 0:
                nodes.append({"type": "Container", "name": "Array", "spatial": {"meshX": many}})
            nodes.append({"name": name, "class": kind, "attributes": {"datawidth": 8}})
        for node in nodes:
            node.pop("type", None)
        if across >= 0:
            # Plain data has no tags: the mesh stands at the component itself.
            array = nodes.pop(across + 1)
            nodes[across + 1]["spatial"] = array["spatial"]
        return {"version": 0.4, "nodes": nodes}
    local = []
    for i, (name, kind) in enumerate(zip(names, classes, strict=True)):
        ranged = f"{name}[0..{many - 1}]" if 0 <= across < i else name
        local.append({"name": ranged, "class": kind, "attributes": {"word-bits": 8}})
    return {
        "version": 0.2,
        "subtree": [{"name": "System", "local": local[:1], "subtree": [{"name": "PE", "local": local[1:]}]}],
    }


@st.composite
def mappings(
    draw: st.DrawFn,
    loops: list[Loop],
    orders: dict[tuple[int, bool], list[str]],
    kept: dict[int, set[str]],
    across: int,
    memories: int,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for (gap, spatial), order in orders.items():
        own = [x for x in loops if (x.gap, x.spatial) == (gap, spatial)]
        target = NAMES[gap]
        directive: dict[str, Any] = {"target": target, "type": "spatial" if spatial else "temporal"}
        pairs = [(x.variable, x.bound, x.last) for x in own if x.bound > 1 or draw(st.booleans())]
        texts = [f"{v}={b}" if b == n else f"{v}={b},{n}" for v, b, n in pairs]
        style = draw(st.sampled_from(["text", "list", "map"]))
        as_map = {v: b if b == n else [b, n] for v, b, n in pairs}
        directive["factors"] = {"text": " ".join(texts), "list": texts, "map": as_map}[style]
        inner_first = order[::-1]
        directive["permutation"] = draw(
            st.sampled_from([inner_first, "".join(inner_first), " ".join(inner_first)])
        )
        found.append(directive)
    for memory, tensors in kept.items():
        if memory:
            gone = sorted({t for names in kept.values() for t in names} - tensors)
            kind = draw(st.sampled_from(["datatype", "bypass", "dataspace"]))
            found.append({"target": NAMES[memory], "type": kind, "keep": sorted(tensors), "bypass": gone})
    return draw(st.permutations(found))


def counted(spec: dict[str, Any], tensors: list[Tensor]) -> Counts:
    read = pm.import_timeloop(spec).spec
    assert read.mapping is not None
    result = engine("exact").analyse(pm.Problem(read.workload, read.arch, read.mapping))
    found = Counts({}, {}, {}, result.compute[0].operations)
    outputs = {t.name for t in tensors if t.output}
    for row in result.traffic:
        if row.component in NAMES:
            key = NAMES.index(row.component), row.tensor
            found.fills[key] = row.writes_fill
            found.updates[key] = row.writes_drain
            if row.tensor not in outputs:
                found.reads[key] = row.reads_fill
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nests())
def test_an_imported_spec_counts_what_a_walk_counts(
    drawn: tuple[tuple[str, ...], list[Loop], list[Tensor], dict[str, Any]],
) -> None:
    variables, loops, tensors, spec = drawn
    total = 1
    for v in variables:
        total *= size(loops, v)
    if total > 3000:
        return
    walked, ours = walk(loops, tensors, variables), counted(spec, tensors)
    assert ours.computes == walked.computes == total
    for mine, theirs in (
        (ours.fills, walked.fills),
        (ours.reads, walked.reads),
        (ours.updates, walked.updates),
    ):
        assert {key: mine.get(key, 0) for key in theirs} == theirs
