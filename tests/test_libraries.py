"""The packaged libraries: everything loads by name, is legal, fits its machine, and is what its name says."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.seeds import seeds

ROOT = Path(__file__).resolve().parent.parent
MAPPINGS = sorted(p.relative_to(ROOT / "workloads") for p in (ROOT / "workloads").glob("*/*/*.yaml"))
ARCHITECTURES = sorted(p.stem for p in (ROOT / "arch").glob("*.yaml"))
WORKLOADS = sorted(p.name.removesuffix(".yaml") for p in (ROOT / "workloads").glob("*.yaml"))
# Twice the global buffer at the default size, which is what the mapping is there to show.
VARIABLES: dict[str, dict[str, int]] = {
    "gpt3_6.7B/tpu_v4i/long_context": {"N_TOKENS": 8192},
    "gpt3_6.7B/tpu_v4i/untiled_fused": {"N_TOKENS": 1024},
    "conv2d/eyeriss_like/row_stationary": {"BITS": 16},
    "deepseek_v3/h100_like/layer_by_layer": {"LAYERS": 8},
}


def report(workload: str, arch: str, variant: str, variables: dict[str, int] | None = None) -> pm.Report:
    key = f"{workload}/{arch}/{variant}"
    given = VARIABLES.get(key, {}) if variables is None else variables
    return evaluated(arch, f"{workload}/{variant}", tuple(given.items()))


@functools.cache
def evaluated(arch: str, mapping: str, given: tuple[tuple[str, int], ...]) -> pm.Report:
    """Many tests ask for the same report."""
    return pm.evaluate(pm.load(arch, mapping, **dict(given)))


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda p: str(p.with_suffix("")))
@pytest.mark.thin(7)
def test_mapping_is_evaluated_and_fits(path: Path) -> None:
    workload, arch, variant = path.parts[0], path.parts[1], path.stem
    found = report(workload, arch, variant)
    assert found.feasible, found.violations
    assert (found.accesses["read_bits"] >= 0).all()
    assert found.total_latency > 0
    assert found.total_energy > 0


@pytest.mark.parametrize("pair", sorted({p.parts[:2] for p in MAPPINGS}), ids="/".join)
@pytest.mark.thin(9)
def test_what_loads_without_a_variant_or_variable_fits(pair: tuple[str, str]) -> None:
    spec = pm.load(*pair)
    if pair == ("matmul", "simple_two_level"):  # two mappings, neither more fused than the other
        assert spec.mapping is None
    elif pair[0] == "deepseek_v3":  # no machine here has room for all of its layers
        assert spec.mapping is not None
    else:
        assert evaluated(pair[1], spec.chosen.partition(" ")[0], ()).feasible


# Whole models: tests/library compares the engines at small sizes.
MODELS = {"convnet", "cp_als", "deepseek_v3", "mamba_2", "transformer"}
# Why a mapping has no closed form: Einsums run a shared loop in other ranges, something is carried along
# several ranks, or values of inferred windows live and die one by one.
NO_CLOSED_FORM = {
    "resnet_basic_block/edge_npu/tiled_fused": "run the loop over p in other ranges",
    "resnet_bottleneck_block/edge_npu/tiled_fused": "run the loop over p in other ranges",
    "stencil_in_time": "carried from one iteration to the next along several ranks",
    "wave_in_time": "carried from one iteration to the next along several ranks",
    "vgg_e_front/fused_layer_fpga/pool_fused": "peaks of live elements have no closed form",
}


@pytest.mark.parametrize(
    "path", [p for p in MAPPINGS if p.parts[0] not in MODELS], ids=lambda p: str(p.with_suffix(""))
)
@pytest.mark.thin(7)
def test_closed_forms_give_the_exact_numbers(path: Path) -> None:
    workload, arch, variant = path.parts[0], path.parts[1], path.stem
    given = VARIABLES.get(f"{workload}/{arch}/{variant}", {})
    spec = pm.load(arch, f"{workload}/{variant}", **given)
    reason = NO_CLOSED_FORM.get(f"{workload}/{arch}/{variant}", NO_CLOSED_FORM.get(workload))
    if reason:
        with pytest.raises(pm.NotSeparable, match=reason):
            pm.evaluate(spec, engine="symbolic")
        return
    closed = pm.evaluate(spec, engine="symbolic")
    assert not differences(closed.analysis, report(workload, arch, variant).analysis)
    assert len(closed.symbolic.tiles) == len(closed.tiles)


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_has_a_mapping_and_names_for_its_tensors(name: str) -> None:
    assert any(p.parts[0] == name for p in MAPPINGS)
    for einsum in pm.load(name).workload:
        assert {"input", "weight", "output"} <= {n for n, _ in einsum.renames}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_architecture_is_used_and_cites_its_numbers(name: str) -> None:
    assert any(p.parts[1] == name for p in MAPPINGS)
    text = (ROOT / "arch" / f"{name}.yaml").read_text(encoding="utf-8")
    assert "chosen for illustration" in text
    assert pm.load(name).arch.components


def moved(found: pm.Report, component: str, tensor: str) -> int:
    rows = found.accesses
    rows = rows[(rows["component"] == component) & (rows["tensor"] == tensor)]
    return int(rows["read_bits"].sum() + rows["write_bits"].sum())


@pytest.mark.parametrize(
    ("workload", "arch", "memory", "intermediates"),
    [
        ("matmul_chain_2", "simple_two_level", "DRAM", ("T1",)),
        ("matmul_chain_3", "simple_two_level", "DRAM", ("T1", "T2")),
        ("matvec_chain", "two_buffers", "OffChipBuffer", ("A",)),
        ("attention", "simple_two_level", "DRAM", ("QK", "SM")),
        ("attention_cascade", "simple_two_level", "DRAM", ("QK", "MX", "EX", "SU", "SM")),
        ("resnet_basic_block", "edge_npu", "DRAM", ("T1", "T2")),
        ("resnet_bottleneck_block", "edge_npu", "DRAM", ("T1", "T2", "T3")),
        ("gpt3_6.7B", "tpu_v4i", "DRAM", ("V", "K", "Q", "QK", "QK_softmax", "AV", "Z", "FFA")),
    ],
)
@pytest.mark.thin(2)
def test_fusion_keeps_intermediates_on_chip(
    workload: str, arch: str, memory: str, intermediates: tuple[str, ...]
) -> None:
    tokens = {"N_TOKENS": 1024} if workload == "gpt3_6.7B" else {}
    variants = {p.stem for p in MAPPINGS if p.parts[:2] == (workload, arch)}
    assert {"unfused", "untiled_fused"} <= variants
    for variant in variants:
        found = report(workload, arch, variant, tokens)
        for tensor in intermediates:
            assert (moved(found, memory, tensor) > 0) == (variant == "unfused"), (variant, tensor)


# At the peak, in Add: all weights; of the bottleneck five rows of I, four of T3 and of O, six of T1 (two are
# to stay); of the basic block six of I and of T1, four of T2 and of O.
BANDS = {
    "resnet_bottleneck_block": 2 * 512 * 128 + 9 * 128 * 128 + 28 * (512 * (5 + 4 + 4) + 128 * 6),
    "resnet_basic_block": 2 * 9 * 64 * 64 + 56 * 64 * (6 + 6 + 4 + 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("workload", BANDS)
def test_residual_blocks_are_fused_through_padded_convolutions(workload: str, tmp_path: Path) -> None:
    """Half the memory of the untiled mapping at the same traffic; at small sizes the referee agrees."""
    tiled, whole = (report(workload, "edge_npu", v) for v in ("tiled_fused", "untiled_fused"))
    assert moved(tiled, "DRAM", "I") == moved(whole, "DRAM", "I") > 0
    peaks = [
        max(w.bits for w in r.analysis.working_sets if (w.component, w.measure) == ("SRAM", "tile"))
        for r in (tiled, whole)
    ]
    assert peaks[0] == 8 * BANDS[workload]
    assert peaks[0] < 0.55 * peaks[1]
    text = (ROOT / f"workloads/{workload}/edge_npu/tiled_fused.yaml").read_text(encoding="utf-8")
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(text.replace("tile_shape: 16", "tile_shape: 2"), encoding="utf-8")
    sizes = {"CHANNELS": 2, "SIZE": 10} | ({"WIDTH": 2} if "bottleneck" in workload else {})
    spec = pm.load("edge_npu", workload, str(narrow), **sizes)
    ours, referee = pm.evaluate(spec, engine="exact"), pm.evaluate(spec, engine="enumerate")
    assert not differences(ours.analysis, referee.analysis)


def test_a_pipeline_on_two_engines() -> None:
    """64 rows of 24 and 30 cycles, 10 at a time; the first rows of the second stage wait for its weights.

    240 for the first 10 rows, 330 while DRAM brings T0 and W1 and takes T2, 5 x 300, 120 for the last 4.
    """
    overlapped, one_by_one = (report("matmul_chain_2", "two_engines", v) for v in ("pipeline", "tiled_fused"))
    assert overlapped.total_latency == pytest.approx((240 + 330 + 5 * 300 + 120) * 1e-9)
    assert one_by_one.total_latency == pytest.approx(64 * (24 + 30) * 1e-9)
    assert overlapped.total_energy == one_by_one.total_energy
    held = [
        {w.einsum: w.bits for w in r.analysis.working_sets if (w.component, w.measure) == ("GLB", "tile")}
        for r in (overlapped, one_by_one)
    ]
    both = 8 * (32 * 48 + 48 * 40) + 8 * 10 * (2 * 48 + 32 + 40)
    assert held[0] == {"Matmul1": both, "Matmul2": both}
    assert max(held[1].values()) == 8 * (32 * 48 + 48 * 40) + 8 * 10 * (48 + 40)


def test_gpt3_fused_moves_each_weight_once_and_keeps_the_array_busy() -> None:
    found = report("gpt3_6.7B", "tpu_v4i", "fused")
    rows = found.accesses[found.accesses["component"] == "DRAM"]
    reads = dict(rows.groupby("tensor")["read_elements"].sum())
    model, hidden, tokens = 4096, 16384, 2048
    assert {t: int(n) for t, n in reads.items() if n} == {
        "I_in": tokens * model,
        **dict.fromkeys(("WV", "WK", "WQ", "WZ"), model * model),
        **dict.fromkeys(("WFFA", "WFFB"), model * hidden),
    }
    products = found.summary.set_index("einsum")["operations"]
    per_product = tokens * model * model
    assert int(products["V"]) == per_product
    assert int(products["FFA"]) == 4 * per_product
    assert int(products["QK"]) == tokens * tokens * model
    # Every multiplier works in every cycle of a product.
    busy = {c.einsum: (c.busiest, c.instances) for c in found.analysis.compute if c.component == "MAC"}
    assert busy["V"] == (per_product // (4 * 128 * 128), 4 * 128 * 128)
    assert busy["AV"] == (tokens * tokens * model // (4 * 128 * 128), 4 * 128 * 128)


@pytest.mark.slow
def test_gpt3_long_contexts_have_a_mapping_of_their_own() -> None:
    """Eight thousand tokens do not fit the mapping for the model's own context, but there is one they fit."""
    long = {"N_TOKENS": 8192}
    assert not report("gpt3_6.7B", "tpu_v4i", "fused", long).feasible
    found = report("gpt3_6.7B", "tpu_v4i", "long_context", long)
    assert found.feasible
    assert moved(found, "DRAM", "WQ") == 8 * 4096 * 4096
    usual, same = (
        report("gpt3_6.7B", "tpu_v4i", "fused", {}),
        report("gpt3_6.7B", "tpu_v4i", "long_context", {}),
    )
    assert usual.total_latency == same.total_latency
    assert usual.total_energy < same.total_energy < 1.01 * usual.total_energy


def test_gpt3_untiled_fusion_does_not_fit_at_2048_tokens() -> None:
    found = report("gpt3_6.7B", "tpu_v4i", "untiled_fused", {"N_TOKENS": 2048})
    assert not found.feasible
    assert any(v.component == "GLB" for v in found.violations)


def test_convolution_variants() -> None:
    for workload in ("conv1d", "conv2d"):
        variant = {"conv1d": "sliding_window", "conv2d": "row_bands"}[workload]
        macs = set()
        for stride, dilation in ((1, 1), (2, 1), (1, 2), (3, 2)):
            found = report(workload, "simple_two_level", variant, {"STRIDE": stride, "DILATION": dilation})
            macs.add(int(found.summary["operations"].iloc[0]))
        assert len(macs) == 1


SMALL: dict[str, dict[str, int]] = {
    "attention": {"H": 1, "M": 12, "P": 6, "E": 4},
    "attention_cascade": {"H": 1, "M": 12, "P": 6, "E": 4},
    "attention_one_pass": {"H": 1, "C": 3, "M": 2, "P": 12, "E": 2},
    "attention_two_pass": {"H": 1, "C": 3, "M": 2, "P": 12, "E": 2},
    "chunked_scan": {"C": 4, "Q": 3, "M": 2},
    "conv1d": {"M": 2, "C": 2, "P": 12, "STRIDE": 2},
    "conv2d": {"M": 16, "C": 4, "P": 5, "Q": 3},
    "depthwise_conv2d": {"C": 16, "P": 16, "Q": 2},
    "horner": {"P": 5, "M": 100},
    "matmul": {"M": 33, "N": 33, "K": 9},
    "matmul_chain_2": {"M": 16, "N0": 4, "N1": 6, "N2": 5},
    "matmul_chain_3": {"M": 16, "N0": 4, "N1": 6, "N2": 5, "N3": 3},
    "matvec_chain": {"M": 2, "NI": 5, "NA": 6, "NB": 3},
    "prefix_sum": {"P": 20, "M": 3},
    "stencil_in_time": {"T": 4, "N": 6},
    "wave_in_time": {"T": 4, "N": 6},
    "vgg_e_front": {"SIZE": 8, "CHANNELS": 2, "COLOURS": 1},
}


REFEREED = [p for p in MAPPINGS if p.parts[0] in SMALL and p.stem != "weight_stationary"]
# One mapping of each workload, then the others of the same workloads.
FIRST = list({p.parts[0]: p for p in REFEREED}.values())


@pytest.mark.parametrize("path", seeds(len(FIRST), FIRST + [p for p in REFEREED if p not in FIRST]), ids=str)
@pytest.mark.thin(99)
def test_small_sizes_of_each_mapping_agree_with_the_referee(path: Path) -> None:
    spec = pm.load(path.parts[1], f"{path.parts[0]}/{path.stem}", **SMALL[path.parts[0]])
    ours, referee = pm.evaluate(spec, engine="exact"), pm.evaluate(spec, engine="enumerate")
    assert not differences(ours.analysis, referee.analysis)
    assert ours.table("summary").rows == referee.table("summary").rows
