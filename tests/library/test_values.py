"""Values of library workloads at small sizes: what NumPy computes of the same inputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

import polymodel as pm
from polymodel.polyhedra.sets import size
from polymodel.spec.files import models
from polymodel.workload.einsum import Cascade

ROOT = Path(__file__).parents[2]
Array = NDArray[np.float64]
SIZES = {"LAYERS": 1, "WIDTH": 8, "HEADS": 4, "KV_HEADS": 2, "HEAD_WIDTH": 4, "HIDDEN": 6, "VOCABULARY": 5}
EXPERTS = {"EXPERTS": 4, "ACTIVE": 2, "QK_NORM": 1}
V3 = {
    "LAYERS": 2, "DENSE_LAYERS": 1, "WIDTH": 8, "HEADS": 3, "HEAD_WIDTH": 4, "ROTARY_WIDTH": 2, "LATENT": 5,
    "QUERY_LATENT": 6, "HIDDEN": 4, "DENSE_HIDDEN": 6, "EXPERTS": 4, "ACTIVE": 2, "VOCABULARY": 5,
}  # fmt: skip


def room(cascade: Cascade, tensor: str) -> tuple[int, ...]:
    """Of each rank from coordinate 0, or the lowest of an index, to the highest, padding among them."""
    ends: list[list[tuple[int, int]]] = []
    for e in cascade:
        for access in e.accesses_of(tensor):
            sides = [[sorted(c * x for x in e.bound(v)) for v, c in i.terms] for i in access.projection]
            here = zip(access.projection, sides, strict=True)
            ends.append(
                [(i.constant + sum(t[0] for t in s), i.constant + sum(t[1] for t in s)) for i, s in here]
            )
    return tuple(
        max(x[1] for x in rank) + 1 - min(0, *(x[0] for x in rank)) for rank in zip(*ends, strict=True)
    )


def computed(name: str, given: dict[str, Array] | None = None, **sizes: Any) -> pm.Values:
    """Values on random inputs, but for those that are given."""
    cascade = (spec := pm.load(name, **sizes)).workload
    random = np.random.default_rng(len(name))
    made = {a.tensor for e in cascade for a in e.outputs if not a.accumulates}
    inputs = {t: random.uniform(0.1, 1, room(cascade, t)) for t in cascade.tensors if t not in made}
    before = {value for _, value in cascade.init if isinstance(value, str) and value != "identity"}
    assert before <= {*inputs, *(given or {})}
    return pm.values(spec, {**inputs, **(given or {})})


def agree(found: Array, want: Array) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-13, equal_nan=False)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def normal(x: Array, gain: Array, small: float = 1e-5) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + small) * gain


def centred(v: pm.Values, name: str, x: Array, small: float = 1e-5) -> Array:
    """Layer normalisation (Ba et al., 2016)."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + small) * v[f"W{name}"] + v[
        f"B{name}"
    ]


def softmax(x: Array, axis: int) -> Array:
    return special.softmax(x, axis)


def turns(tokens: int, width: int, first: int = 0) -> Array:
    """The matrix that turns pair r of token m by an angle, [m, r, made, read]."""
    frequency = 10000.0 ** (-np.arange(width // 2) / (width // 2))
    angle = np.arange(first, first + tokens)[:, None] * frequency
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)


def turned(x: Array, tokens: int, first: int = 0) -> Array:
    """Rotary embedding of x[b, m, ..., e], as complex numbers (Su et al., 2021)."""
    width = x.shape[-1]
    frequency = 10000.0 ** (-np.arange(width // 2) / (width // 2))
    by = np.exp(1j * np.arange(first, first + tokens)[:, None] * frequency)
    by = by.reshape(1, tokens, *[1] * (x.ndim - 3), width // 2)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * by
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def choices(tokens: int, experts: int, active: int) -> tuple[Array, int]:
    """The choices of tokens spread evenly, [t, j, x], and how many tokens an expert has."""
    used = max(n for n in range(1, experts + 1) if tokens * active % n == 0)
    each = tokens * active // used
    chosen = np.zeros((tokens, active, experts))
    for t in range(tokens):
        for j in range(active):
            chosen[t, j, (tokens * j + t) // each] = 1
    return chosen, used


@pytest.mark.parametrize(("phase", "causal"), [("prefill", 0), ("prefill", 1), ("decode", 1)])
def test_a_transformer_of_today(phase: str, causal: int) -> None:
    """A token that decodes looks at all of the cache."""
    batch, tokens, context = 2, 3 if phase == "prefill" else 1, 5
    run = {"TOKENS": tokens, "BATCH": batch, "PHASE": phase, "CONTEXT": context, "CAUSAL": causal}
    causal = causal and phase == "prefill"
    first = 0 if phase == "prefill" else context - 1
    v = computed("transformer", {"ROPE": turns(tokens, 4, first)}, **SIZES, **run)
    x = v["X"]
    n = normal(x, v["WN1"])
    q = turned(np.einsum("bmd,dghe->bmghe", n, v["WQ"]), tokens, first)
    k = turned(np.einsum("bmd,dge->bmge", n, v["WK"]), tokens, first)
    agree(v["KR"].reshape(k.shape), k)
    keys, values = (k, v["V"]) if phase == "prefill" else (v["CacheK"], v["CacheV"])
    keys = keys.reshape(*keys.shape[:3], -1)
    scores = np.einsum("bmghe,bpge->bmpgh", q, keys) / np.sqrt(4)
    if causal:
        scores[:, np.arange(tokens)[:, None] < np.arange(tokens)] = -np.inf
    z = np.einsum("bmpgh,bpgf,ghfd->bmd", softmax(scores, 2), values, v["WZ"])
    middle = x + z
    n = normal(middle, v["WN2"])
    out = middle + (silu(n @ v["WGate"]) * (n @ v["WUp"])) @ v["WDown"]
    agree(v["Logits"], normal(out, v["WN3"]) @ v["WLogits"])


def test_a_transformer_of_experts() -> None:
    batch, tokens = 2, 3
    chosen, used = choices(batch * tokens, 4, 2)
    given = {"ROPE": turns(tokens, 4), "Chosen": chosen}
    v = computed("transformer", given, **SIZES, **EXPERTS, TOKENS=tokens, BATCH=batch)
    q = normal(np.einsum("bmd,dghe->bmghe", normal(v["X"], v["WN1"]), v["WQ"]), v["WQN"])
    agree(v["QR"].reshape(q.shape), turned(q, tokens))
    middle = v["X1"]
    n = normal(middle, v["WN2"]).reshape(batch * tokens, -1)
    router = n @ v["WRouter"]
    out = np.zeros_like(n)
    share = softmax(np.where(chosen.any(1), router, -np.inf), 1)
    for t, _, x in np.argwhere(chosen):
        assert x < used
        out[t] += share[t, x] * (silu(n[t] @ v["WGate"][x]) * (n[t] @ v["WUp"][x]) @ v["WDown"][x])
    agree(v["X2"], middle + out.reshape(middle.shape))


def placed(table: Array, active: int, places: int) -> tuple[Array, Array]:
    """Of a table of choices, token by expert: the choices [t, j, x], and the places of those that are taken
    [t, j, s], of each expert its first tokens."""
    tokens, experts = table.shape
    chosen, place = np.zeros((tokens, active, experts)), np.zeros((tokens, active, experts * places))
    seen = [0] * experts
    for t, row in enumerate(table):
        for j, x in enumerate(np.flatnonzero(row)):
            chosen[t, j, x] = 1
            if seen[x] < places:
                place[t, j, places * x + seen[x]] = 1
            seen[x] += 1
    return chosen, place


@pytest.mark.parametrize("model", ["mixtral_8x22b", "qwen3_30b_a3b", "deepseek_v3"])
@pytest.mark.parametrize("capacity", [0, 1.25])
@pytest.mark.thin(2)
def test_a_model_computes_the_tokens_of_a_table(model: str, capacity: float) -> None:
    """Experts have 6, 3, 1 and 2 tokens; with capacity 1.25 two of the first are dropped."""
    table = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 1]])
    loads = table.sum(0)
    places = 4 if capacity else 6
    chosen, place = placed(table, 2, places)
    run = {"TOKENS": 6, "LOADS": loads.tolist(), "CAPACITY": capacity, "EXPERTS": 4, "ACTIVE": 2}
    sizes = {**SIZES, **run} if model != "deepseek_v3" else {**V3, **run}
    width = 2 if model == "deepseek_v3" else sizes["HEAD_WIDTH"]
    given = {"ROPE": turns(6, width), "Chosen": chosen, "Placed": place}
    v = computed(model, given, PLACED=1, **sizes)
    n = v["N2"].reshape(6, -1)
    taken = np.einsum("tjs,tjx->tx", place, chosen)
    share = np.einsum("tj,tjx->tx", v["Share"], chosen) * taken
    want = np.zeros_like(n)
    for t, x in np.argwhere(share):
        want[t] += share[t, x] * (silu(n[t] @ v["WGate"][x]) * (n[t] @ v["WUp"][x]) @ v["WDown"][x])
    agree(v["Combine"], want)
    dense, sparse = (pm.load(model, "h100_like", PLACED=p, **sizes) for p in (0, 1))
    report = pm.evaluate(sparse)
    whole = pm.evaluate(dense).summary.set_index("einsum")["operations"]
    for name in ("Gate", "Up", "Act", "Down"):
        assert report.summary.set_index("einsum")["operations"][name] == whole[name]
    data = {"Placed": pm.SparseTensor.from_dense("Placed", ["T", "J", "S"], place)}
    found = pm.sparsify(report, data).compute.set_index("einsum")["effectual"]
    assert taken.sum() == (10 if capacity else 12)
    assert found["Combine"] == whole["Combine"]
    assert found["Dispatch"] == found["Combine"]


@pytest.mark.slow
def test_an_image_in_patches() -> None:
    sizes = {**SIZES, "KV_HEADS": 4, "LAYERS": 1, "TOKENS": 5, "PATCHES": 4, "PATCH": 6}
    v = computed("vit_b_16", **sizes)
    n = centred(v, "N1", v["X"], 1e-6)
    q, k, w = (np.einsum(f"bmd,dgh{e}->bmgh{e}" if e == "e" else "bmd,dge->bmge", n, v[t])
               for e, t in (("e", "WQ"), ("", "WK"), ("", "WV")))  # fmt: skip
    scores = softmax(np.einsum("bmghe,bpge->bmpgh", q, k) / np.sqrt(4), 2)
    middle = v["X"] + np.einsum("bmpgh,bpgf,ghfd->bmd", scores, w, v["WZ"])
    n = centred(v, "N2", middle, 1e-6) @ v["WUp"]
    erf = np.vectorize(math.erf)
    out = middle + (0.5 * n * (1 + erf(n / np.sqrt(2)))) @ v["WDown"]
    agree(v["Logits"], centred(v, "N3", out, 1e-6)[:, 0] @ v["WLogits"])
    agree(v["Embedded"], v["Patch"] @ v["WEmbedded"])


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_deepseek_v3(phase: str) -> None:
    """Decode meets the latent vectors of the cache: keys and values are never made."""
    tokens, context = (3, 1) if phase == "prefill" else (1, 4)
    first = context - 1
    chosen, _ = choices(tokens, 4, 2)
    given = {"ROPE": turns(tokens, 2, first), "Chosen": chosen}
    v = computed("deepseek_v3", given, **V3, TOKENS=tokens, PHASE=phase, CONTEXT=context)
    n = normal(v["X"], v["WN1"], 1e-6)
    low = normal(n @ v["WQL"], v["WQN"], 1e-6)
    q = np.einsum("bml,lhe->bmhe", low, v["WQ"])
    qr = turned(np.einsum("bml,lho->bmho", low, v["WQP"]), tokens, first)
    latent, kr = normal(n @ v["WL"], v["WLN"], 1e-6), turned(n @ v["WKP"], tokens, first)
    agree(v["LN"], latent)
    latent, kr = (latent, kr) if phase == "prefill" else (v["CacheL"], v["CacheR"])
    scores = np.einsum("bmhe,bpa,ahe->bmph", q, latent, v["WK"]) + np.einsum("bmho,bpo->bmph", qr, kr)
    values = np.einsum("bpa,ahf->bphf", latent, v["WV"])
    scores = softmax(scores / np.sqrt(4 + 2), 2)
    middle = v["X"] + np.einsum("bmph,bphf,hfd->bmd", scores, values, v["WZ"])
    n = normal(middle, v["WN2"], 1e-6)[0]
    out = silu(n @ v["WSharedGate"]) * (n @ v["WSharedUp"]) @ v["WSharedDown"]
    share = chosen.any(1) / (1 + np.exp(-n @ v["WRouter"]))
    share *= 2.5 / share.sum(1, keepdims=True)
    for t, _, x in np.argwhere(chosen):
        out[t] += share[t, x] * (silu(n[t] @ v["WGate"][x]) * (n[t] @ v["WUp"][x]) @ v["WDown"][x])
    agree(v["Logits"], normal(middle + out, v["WN3"], 1e-6) @ v["WLogits"])


def test_mamba_2() -> None:
    """The selective scan as a loop over tokens."""
    sizes = {"WIDTH": 4, "HEADS": 2, "HEAD_WIDTH": 3, "STATE": 3, "TAPS": 2, "VOCABULARY": 5, "TOKENS": 4}
    v = computed("mamba_2", LAYERS=1, **sizes)
    n = normal(v["X"], v["WNorm"])

    def conv(x: Array, taps: Array) -> Array:
        """Before the first token there is nothing."""
        return silu(np.concatenate([0 * x[:1], x[:-1]]) * taps[0] + x * taps[1])

    state, outs = np.zeros((2, 3, 3)), []
    u = conv(np.einsum("td,dhp->thp", n, v["WU"]), v["WUConv"])
    b, c = (conv(n @ v[f"W{x}"], v[f"W{x}Conv"]) for x in "BC")
    delta = np.logaddexp(0, np.einsum("td,dh->th", n, v["WStep"]) + v["StepBias"])
    for t in range(4):
        moved = delta[t][:, None] * u[t]
        state = state * np.exp(delta[t] * v["A"])[:, None, None] + moved[:, :, None] * b[t]
        outs.append(state @ c[t])
    gated = (np.stack(outs) + v["WSkip"][:, None] * u) * silu(np.einsum("td,dhp->thp", n, v["WGate"]))
    flat = normal(gated.reshape(4, 6), v["WNGated"].reshape(6))
    out = v["X"] + flat @ v["WOut"].reshape(6, 4)
    agree(v["Logits"], normal(out, v["WLast"]) @ v["WLogits"])


def graph() -> Array:
    links = np.random.default_rng(3).random((6, 6)) < 0.4
    return (links | links.T | np.eye(6, dtype=bool)).astype(np.float64)


GRAPH = {"NODES": 6, "WORDS": 5, "CLASSES": 3, "LINKS": 20, "ENTRIES": 25}


def test_a_graph_convolution() -> None:
    v = computed("gcn", {"A": graph()}, **GRAPH, HIDDEN=4)
    hidden = np.maximum(v["A"] @ v["X"] @ v["W1"], 0)
    agree(v["H2"], v["A"] @ hidden @ v["W2"])


def test_graph_attention() -> None:
    v = computed("gat", {"A": graph()}, **GRAPH, HEADS=2, FEATURES=4)
    x = v["X"]
    for n, subscript in ((1, "mc,chf->mhf"), (2, "mhf,hfkg->mkg")):
        y = np.einsum(subscript, x, v[f"W{n}"])
        source, target = ((y * v[f"A{side}{n}"]).sum(-1) for side in ("Source", "Target"))
        score = source[None] + target[:, None]
        weight = v["A"][..., None] * np.exp(np.where(score > 0, score, 0.01 * score))
        mean = np.einsum("nmh,mhf->nhf", weight / weight.sum(1, keepdims=True), y)
        x = np.where(mean > 0, mean, np.expm1(mean)) if n == 1 else mean
        agree(v[f"H{n}"], x)


def test_alternating_least_squares() -> None:
    v = computed("cp_als", {"Unit": np.eye(3)}, I=5, J=4, K=6, RANK=3)
    x, b, c = v["X"], v["B"], v["C"]
    a = np.einsum("ijk,jr,kr->ir", x, b, c) @ np.linalg.inv((b.T @ b) * (c.T @ c))
    agree(v["A1"], a)
    b = np.einsum("ijk,ir,kr->jr", x, a, c) @ np.linalg.inv((a.T @ a) * (c.T @ c))
    np.testing.assert_allclose(v["B1"], b, rtol=1e-7)


def test_pooling_takes_means_and_maxima() -> None:
    rows = [["Top", "max", "Image", 2, 2, 2, 2, 2, 0, 1, 1], ["Mean", "mean", "Top", 2, 2, 1, 2, 1, 0, 1, 1]]
    v = computed("convnet", LAYERS=rows)
    top = v["Image"].reshape(1, 2, 2, 2, 2, 2).max((3, 5))
    agree(v["Mean"], top.mean((2, 3), keepdims=True))


HEADS = {"H": 1, "E": 2, "M": 3, "P": 4}
SMALL: dict[str, dict[str, Any]] = {
    "attention": HEADS, "attention_cascade": HEADS,
    "attention_one_pass": {**HEADS, "C": 2}, "attention_two_pass": {**HEADS, "C": 2},
    "bert_base": {**SIZES, "KV_HEADS": 4, "TOKENS": 3}, "gpt3_6_7b": {**SIZES, "KV_HEADS": 4, "TOKENS": 3},
    "llama3_8b": {**SIZES, "TOKENS": 3}, "mixtral_8x22b": {**SIZES, "TOKENS": 3, "EXPERTS": 4},
    "vit_b_16": {**SIZES, "KV_HEADS": 4, "TOKENS": 5, "PATCHES": 4, "PATCH": 6},
    "qwen3_30b_a3b": {**SIZES, **EXPERTS, "TOKENS": 3},
    "mamba_2": {"LAYERS": 1, "WIDTH": 4, "HEADS": 2, "HEAD_WIDTH": 3, "STATE": 3, "VOCABULARY": 5,
                "PHASE": "decode", "BATCH": 3},
    "routed_experts": {"TOKENS": 8, "WIDTH": 6, "HIDDEN": 4}, "mttkrp": {"I": 3, "J": 3, "K": 3, "F": 2},
    "sddmm": {"I": 4, "J": 4, "K": 3}, "resnet_basic_block": {"CHANNELS": 3, "SIZE": 6},
    "resnet_bottleneck_block": {"CHANNELS": 4, "SIZE": 6},
    "gpt3_6.7B": {"TOKENS": 2, "HEADS": 2, "HEAD_WIDTH": 4},
    "vgg_e_front": {"SIZE": 16}, "gcn": GRAPH, "gat": GRAPH, "deepseek_v3": V3 | {"TOKENS": 2},
    "transformer": {**SIZES, "TOKENS": 3}, "cp_als": {"I": 5, "J": 4, "K": 6, "RANK": 3},
}  # fmt: skip


def narrow(rows: list[list[Any]], by: int = 32) -> list[list[Any]]:
    """A table of layers with so many times fewer channels, as many groups unless each channel is one."""

    def fewer(channels: int) -> int:
        return max(channels // by, 1)

    return [
        [*row[:3], row[3] if row[2] == "Image" else fewer(row[3]), fewer(row[4]), *row[5:9],
         fewer(row[9]) if row[1] == "depthwise" else row[9], row[10]]
        for row in rows
    ]  # fmt: skip


def small(name: str) -> dict[str, Any]:
    """Sizes at which each value is computed in no time: a model's own, or those of its workload."""
    if name in SMALL or name not in models():
        return SMALL.get(name, {})
    model = models()[name]
    if model.workload == "convnet":
        return {"LAYERS": narrow(model.variables["LAYERS"])}
    return SMALL.get(model.workload, {})


def names() -> list[str]:
    return sorted({p.stem for p in (ROOT / "workloads").glob("*.yaml")} | {*models()})


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_workload_has_values(name: str) -> None:
    cascade = pm.load(name, **small(name)).workload
    found = computed(name, **small(name))
    for tensor in cascade.tensors:
        maker = cascade.producer(tensor)
        if maker is not None and tensor not in dict(cascade.init):
            assert np.isfinite(found[tensor]).sum() == size(maker.access(tensor).range())
