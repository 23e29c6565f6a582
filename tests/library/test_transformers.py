"""Transformers of the library: parameters and multiply-accumulates, by hand and as published."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import polymodel as pm
from polymodel.spec.files import models
from tests.analysis.test_agreement import differences
from tests.faults import faults
from tests.library.figures import macs, operations, parameters
from tests.library.published import PUBLISHED
from tests.seeds import seeds

# layers, width, heads, groups of them, head width, hidden width, vocabulary, experts, active
SHAPES = {
    "llama3_8b": (32, 4096, 32, 8, 128, 14336, 128256, 1, 1),
    "llama3_70b": (80, 8192, 64, 8, 128, 28672, 128256, 1, 1),
    "mixtral_8x22b": (56, 6144, 48, 8, 128, 16384, 32000, 8, 2),
    "qwen3_30b_a3b": (48, 2048, 32, 4, 128, 768, 151936, 128, 8),
}
NORMS = {"qwen3_30b_a3b": 2 * 128}  # of queries and keys, in each layer
# Of all parameters those that a token meets, its own row of the embedding aside.
ACTIVE = {
    # Mistral AI, "Cheaper, Better, Faster, Stronger", 2024: 39B active parameters out of 141B
    "mixtral_8x22b": 39,
    # Model card of Qwen3-30B-A3B: 3.3B activated; with the embedding 3.35, without 3.04
    "qwen3_30b_a3b": 3,
}


def products_of(model: str, experts: int) -> int:
    """Weights of the products, with so many experts in each layer."""
    layers, width, heads, groups, head, hidden, vocabulary, every, _ = SHAPES[model]
    attention = 2 * width * heads * head + 2 * width * groups * head
    router = width * every if every > 1 else 0
    return layers * (attention + router + experts * 3 * width * hidden) + width * vocabulary


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.thin(2)
def test_parameters_and_operations_by_hand(model: str) -> None:
    layers, width, heads, _, head, _, _, every, active = SHAPES[model]
    prefill = pm.load(model, TOKENS=512, BATCH=2).workload
    norms = layers * (2 * width + NORMS.get(model, 0)) + width
    assert sum(parameters(prefill).values()) == products_of(model, every) + norms
    tokens = 2 * 512
    attention = 2 * layers * heads * head
    assert macs(prefill) == tokens * products_of(model, active) + 2 * 512**2 * attention
    decode = pm.load(model, PHASE="decode", CONTEXT=3000, BATCH=4).workload
    assert macs(decode) == 4 * (products_of(model, active) + 3000 * attention)


@pytest.mark.parametrize("model", ACTIVE)
def test_what_a_token_meets_is_as_published(model: str) -> None:
    one = pm.load(model, TOKENS=1).workload
    assert round(sum(parameters(one).values()) / 1e9) == ACTIVE[model]


# Brown et al., 2020, table D.1: operations of training on 300 billion tokens, six for each of one pass.
TRAINING = {"gpt3_6_7b": "1.20e+22", "gpt3_175b": "3.14e+23"}


@pytest.mark.parametrize("model", TRAINING)
def test_training_takes_what_was_published(model: str) -> None:
    one = macs(pm.load(model, PHASE="decode", CONTEXT=1).workload)
    assert f"{6 * one * 300e9:.2e}" == TRAINING[model]


@pytest.mark.slow
def test_encoders_by_hand() -> None:
    """Twelve layers of twelve squares of the width; attention; the pooler, or the patches and the classes."""
    layers, width = 12, 768
    for model, tokens, rest in (
        ("bert_base", 512, width**2),
        ("vit_b_16", 197, 196 * width**2 + 1000 * width),
    ):
        found = macs(pm.load(model).workload)
        assert found == layers * (12 * tokens * width**2 + 2 * tokens**2 * width) + rest
    # BertModel of transformers: 109,482,240 parameters
    beside = PUBLISHED["bert_base"].beside.values()
    assert sum(parameters(pm.load("bert_base").workload).values()) + sum(beside) == 109_482_240


def test_of_causal_scores_half_are_computed() -> None:
    """Of T tokens T (T + 1) / 2 pairs, in both products and in each part of the softmax."""
    sizes = {"TOKENS": 7, "LAYERS": 1, "KV_HEADS": 2, "HEADS": 4}
    whole, half = (pm.load("llama3_8b", CAUSAL=c, **sizes).workload for c in (0, 1))
    assert macs(whole) - macs(half) == 2 * (49 - 28) * 4 * 128
    for name in ("MX", "EX", "SU", "SM"):
        assert operations(half[name]) == 28 * 4
        assert operations(whole[name]) == 49 * 4


@pytest.mark.slow
def test_a_batch_that_decodes_uses_as_many_experts_as_it_can() -> None:
    sizes = {1: 8, 3: 24, 16: 128, 32: 128}
    for batch, experts in sizes.items():
        cascade = pm.load("qwen3_30b_a3b", PHASE="decode", BATCH=batch).workload
        assert parameters(cascade)["WUp"] == 48 * experts * 2048 * 768
        # The others stay where the weights are kept.
        (access,) = (a for a in cascade["Up"].inputs if a.tensor == "WUp")
        assert float(access.backing_scale) * experts == pytest.approx(128)


SMALL = {"LAYERS": 2, "WIDTH": 8, "HEADS": 4, "KV_HEADS": 2, "HEAD_WIDTH": 4, "HIDDEN": 6, "VOCABULARY": 10}
EXPERTS = {"EXPERTS": 4, "ACTIVE": 2, "QK_NORM": 1}
PLAIN = {"ROTARY": 0, "GATED": 0, "KV_HEADS": 4, "CENTRED": 1}
RUNS: dict[str, dict[str, int | str]] = {
    "dense": {"TOKENS": 3, "QUERIES": 2, "ROWS": 2},
    "dense_decode": {"PHASE": "decode", "CONTEXT": 5, "BATCH": 3},
    "causal": {"TOKENS": 5, "QUERIES": 4, "ROWS": 4, "CAUSAL": 1, **PLAIN},
    "experts": {"TOKENS": 5, "QUERIES": 4, "ROWS": 4, "BATCH": 2, **EXPERTS},
    "experts_decode": {"PHASE": "decode", "CONTEXT": 5, "BATCH": 3, **EXPERTS},
    "image": {"TOKENS": 5, "QUERIES": 4, "ROWS": 4, "ENCODER": 1, "PATCHES": 4, "PATCH": 6, **PLAIN},
    "post_norm": {"TOKENS": 5, "QUERIES": 4, "ROWS": 4, "ENCODER": 1, "POST_NORM": 1, "BATCH": 2, **PLAIN},
}
MACHINES = ("tpu_v4i", "h100_like")
FIRST = [("tpu_v4i", "dense"), ("tpu_v4i", "experts_decode"), ("h100_like", "post_norm")]
CASES = FIRST + [case for case in product(MACHINES, RUNS) if case not in FIRST]


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "name"), seeds(len(FIRST), CASES))
def test_the_engines_agree_on_small_transformers(machine: str, name: str) -> None:
    """On the H100 the tile of queries is not a variable."""
    run = {k: v for k, v in RUNS[name].items() if k != "QUERIES" or machine == "tpu_v4i"}
    spec = pm.load("transformer", machine, **{**SMALL, **run})
    referee = pm.evaluate(spec, engine="enumerate")
    assert not differences(pm.evaluate(spec, engine="auto").analysis, referee.analysis)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense", "causal", "dense_decode"])
def test_dense_transformers_are_explored(name: str) -> None:
    """Any mapping that is found is evaluated to what the search says of it."""
    run = {k: v for k, v in RUNS[name].items() if k not in ("QUERIES", "ROWS")}
    spec = pm.load("transformer", "simple_two_level", **{**SMALL, "LAYERS": 1, **run})
    front = pm.explore(spec, time_limit=10)
    point = front.best("energy")
    assert pm.evaluate(point.spec).total_energy == pytest.approx(point.energy, rel=1e-12)


# How many layers of a model fit a machine's memory with eight bits each; all of them where nothing is said.
FITS: dict[str, dict[str, int]] = {
    "tpu_v4i": {"gpt3_175b": 4, "llama3_70b": 8, "mixtral_8x22b": 2, "qwen3_30b_a3b": 8},
    "h100_like": {"gpt3_175b": 40, "mixtral_8x22b": 28},
}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("model", sorted(n for n, m in models().items() if m.workload == "transformer"))
def test_every_model_fits_with_as_many_layers_as_memory_holds(model: str, machine: str) -> None:
    """Where not all layers fit, the memory is the only reason."""
    layers = FITS[machine].get(model)
    few = pm.evaluate(pm.load(model, machine, **({} if layers is None else {"LAYERS": layers})))
    assert few.feasible, few.violations
    if layers is not None:
        whole = pm.evaluate(pm.load(model, machine))
        assert {v.component for v in whole.violations} == {"HBM" if machine == "h100_like" else "DRAM"}


SMALL_V3 = {
    "LAYERS": 3, "DENSE_LAYERS": 1, "WIDTH": 8, "HEADS": 3, "HEAD_WIDTH": 4, "ROTARY_WIDTH": 2,
    "LATENT": 5, "QUERY_LATENT": 6, "HIDDEN": 4, "DENSE_HIDDEN": 6, "EXPERTS": 4, "ACTIVE": 2,
    "VOCABULARY": 10,
}  # fmt: skip


def test_deepseek_v3_by_hand() -> None:
    """Prefill makes keys and values of each token; decode meets the latent vectors of the cache instead."""
    layers, width, heads = 61, 7168, 128
    queries, latent = width * 1536 + 1536 * heads * (128 + 64), width * (512 + 64)
    expanded, out = 512 * heads * 2 * 128, heads * 128 * width
    sparse = 58 * (width * 256 + (8 + 1) * 3 * width * 2048)
    rest = 3 * 3 * width * 18432 + sparse + width * 129280
    each = layers * (queries + latent + expanded + out) + rest
    scores = layers * heads * (128 + 64 + 128)
    assert macs(pm.load("deepseek_v3", TOKENS=512).workload) == 512 * each + 512**2 * scores
    cached = layers * heads * (512 + 64 + 512)
    decode = pm.load("deepseek_v3", PHASE="decode", CONTEXT=3000, BATCH=2).workload
    assert macs(decode) == 2 * (each + 3000 * cached)


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", [{"TOKENS": 5, "ROWS": 4, "BATCH": 2}, {"PHASE": "decode", "CONTEXT": 5, "BATCH": 3}], ids=str
)
def test_the_engines_agree_on_a_small_deepseek_v3(run: dict[str, int | str]) -> None:
    spec = pm.load("deepseek_v3", "h100_like", **{**SMALL_V3, **run})
    referee = pm.evaluate(spec, engine="enumerate")
    assert not differences(pm.evaluate(spec).analysis, referee.analysis)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_an_h100_holds_eight_layers_of_deepseek_v3(phase: str) -> None:
    assert pm.evaluate(pm.load("deepseek_v3", "h100_like", LAYERS=8, PHASE=phase)).feasible
    whole = pm.evaluate(pm.load("deepseek_v3", "h100_like", PHASE=phase))
    assert {v.component for v in whole.violations} == {"HBM"}


@pytest.mark.parametrize(
    "model", ["llama3_8b", "mixtral_8x22b", "deepseek_v3", "mamba2_2_7b", "gpt3_6.7B", "bert_base"]
)
@pytest.mark.thin(3)
def test_values_that_a_model_cannot_have_are_faults(model: str) -> None:
    for variables, code in (
        ({"PHASE": "sideways"}, "unknown-choice"),
        ({"TOKENS": 0}, "out-of-range"),
        ({"WIDTH": -1}, "out-of-range"),
        ({"BATCH": 1.5}, "not-an-integer"),
    ):
        with faults(code, at=f"variables.{next(iter(variables))}"):
            pm.load(model, "tpu_v4i", **variables)


def test_variables_that_contradict_each_other_are_faults() -> None:
    for model, name, value, code in (
        ("llama3_8b", "HEADS", 31, "inconsistent-values"),
        ("mixtral_8x22b", "ACTIVE", 9, "out-of-range"),
        ("deepseek_v3", "DENSE_LAYERS", 61, "out-of-range"),
        ("bert_base", "PHASE", "decode", "unknown-choice"),
        ("vit_b_16", "TOKENS", 100, "out-of-range"),
        ("mamba2_2_7b", "TAPS", 0, "out-of-range"),
    ):
        with faults(code, at=f"variables.{name}"):
            pm.load(model, **{name: value})


def test_one_layer_of_gpt3_has_the_variables_of_other_models() -> None:
    """A decoded token meets each weight once, and the cache twice."""
    sizes = {"HEADS": 4, "HEAD_WIDTH": 8, "BATCH": 3}
    assert macs(pm.load("gpt3_6.7B", TOKENS=5, **sizes).workload) == 3 * (5 * 12 * 32**2 + 2 * 5 * 5 * 32)
    decode = pm.load("gpt3_6.7B", PHASE="decode", CONTEXT=7, **sizes).workload
    assert macs(decode) == 3 * (12 * 32**2 + 2 * 7 * 32)
    whole = pm.load("gpt3_6_7b", TOKENS=16, LAYERS=1).workload
    own = pm.load("gpt3_6.7B", TOKENS=16).workload
    assert macs(whole) - macs(own) == 16 * 4096 * 50257
    for variant in ("fused", "long_context", "unfused", "untiled_fused"):
        report = pm.evaluate(pm.load("tpu_v4i", f"gpt3_6.7B/{variant}", PHASE="decode", CONTEXT=256, BATCH=2))
        assert report.feasible
        read = {t.tensor: t.reads_fill for t in report.analysis.traffic if t.component == "DRAM"}
        assert read["CacheK"] == read["CacheV"] == 2 * 256 * 4096


TINY = {
    "TOKENS": 6,
    "WIDTH": 5,
    "HEADS": 2,
    "HEAD_WIDTH": 2,
    "HIDDEN": 3,
    "VOCABULARY": 4,
    "EXPERTS": 4,
    "ACTIVE": 2,
}
CHOICES = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize("model", ["mixtral_8x22b", "qwen3_30b_a3b", "deepseek_v3"])
@pytest.mark.parametrize("capacity", [0, 1.25])
@pytest.mark.thin(3)
def test_experts_take_measured_loads_and_drop_what_is_above_their_capacity(
    model: str, capacity: float
) -> None:
    """Of a table of choices its sums, 6, 3, 1 and 2 pairs; with capacity 1.25 each has 4 places."""
    loads = CHOICES.sum(axis=0)
    places = int(np.ceil(capacity * 6 * 2 / 4)) if capacity else loads.max()
    taken = int(np.minimum(loads, places).sum())
    own = dict.fromkeys(("DENSE_LAYERS", "DENSE_HIDDEN", "LATENT", "QUERY_LATENT"), 1)
    own["ROTARY_WIDTH"] = 2
    sizes = {**TINY, "LAYERS": 2, **(own if model == "deepseek_v3" else {"KV_HEADS": 1})}
    layers = 1 if model == "deepseek_v3" else 2
    spec = pm.load(model, "h100_like", LOADS=loads.tolist(), CAPACITY=capacity, **sizes)
    done = {e.name: operations(e) for e in spec.workload}
    assert done["Gate"] == done["Up"] == done["Down"] == layers * 4 * places * 5 * 3
    assert done["Act"] == layers * 4 * places * 3
    assert done["Combine"] == layers * taken * 5
    assert done["Dispatch"] == (layers * 4 * places * 5 if model == "deepseek_v3" else 0)
    found = pm.evaluate(spec)
    moved = {(t.einsum, t.tensor): t.reads for t in found.analysis.traffic if t.component == "HBM"}
    assert moved["Gate", "WGate"] == 4 * 5 * 3
    assert moved["Combine", "Down"] == taken * 5
    assert not differences(found.analysis, pm.evaluate(spec, engine="enumerate").analysis)


def test_loads_are_drawn_from_a_law_or_have_to_be_those_of_the_pairs() -> None:
    def rows(**routing: object) -> int:
        spec = pm.load("mixtral_8x22b", **{**TINY, "KV_HEADS": 1, "LAYERS": 1, **routing})
        return operations(spec.workload["Gate"]) // (5 * 3)

    assert rows() == 12  # pairs in equal shares
    assert rows(SKEW=1) == 4 * 6  # 12 pairs as 1, 1/2, 1/3, 1/4: 6, 3, 2, 1
    assert rows(SKEW=1, CAPACITY=1) == 4 * 3
    assert rows(CAPACITY=2) == 4 * 6
    for wrong in ([6, 3, 1], [6, 3, 2, 2], [7, 3, 1, 1]):
        with faults("assertion-failed", at="variables.LOADS"):
            rows(LOADS=wrong)
    with faults("assertion-failed", at="variables.LOADS"):
        pm.load("llama3_8b", SKEW=1)


def test_sizes_of_the_phase_that_is_not_asked_for_change_nothing() -> None:
    def told(**given: object) -> list[str]:
        notes = pm.load("llama3_8b", **given).variable_remarks
        return [note.split()[2] for note in notes]

    assert told(PHASE="decode", TOKENS=64, CONTEXT=64) == ["TOKENS"]
    assert told(TOKENS=64, CONTEXT=64) == ["CONTEXT"]
    assert told(CONTEXT=2048) == []
    report = pm.evaluate(pm.load("llama3_8b", "tpu_v4i", PHASE="decode", TOKENS=64))
    assert [note for note in report.notes if "TOKENS = 64 changes nothing" in note]
