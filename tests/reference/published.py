"""Figures that papers and documents print: ours, computed here, for `make reference`, tests and pages alike.

A file of them (`"anchors": [{"id": ..., ...}]`) has theirs; the ids below are those that are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import polymodel as pm
from polymodel.report.report import Report
from tests.reference.common import Outcome, comparing

SPEC = Path(__file__).parent / "specs" / "looptree_cascaded_mm.yaml"
MIB = 2**20
Triple = tuple[str, str, str]
# Anchors of which nothing is computed, and why.
CLAIMS = {
    "looptree_paper": "an error of its model, against designs whose mappings are not printed",
    "ffm": "the speed of another program; `make bench` races with it, and its optima are cases here",
    "tcm": "the speed and the results of another program",
    "tenet": "a gain over another notation, of dataflows that are not printed whole",
    "cosa": "the speed and the results of another program",
    "defines": "results of another program on a machine of its own",
}


def spec_of(einsums: list[str], sizes: dict[str, int], bits: int) -> pm.Spec:
    """A workload alone."""
    return pm.load({"workload": {"rank_sizes": sizes, "bits_per_value": {"All": bits}, "einsums": einsums}})


def reads_and_writes(report: Report) -> tuple[dict[Triple, int], dict[Triple, int]]:
    """(component, tensor, Einsum) -> elements read (drains aside), and written, as LoopTree counts them."""
    rows = {(t.component, t.tensor, t.einsum): t for t in report.analysis.traffic}
    return {k: t.reads_fill for k, t in rows.items()}, {k: t.writes for k, t in rows.items() if t.writes}


def capacities(report: Report) -> dict[str, int]:
    """Component -> values that are reserved at once: what stands above a split counts in all branches."""
    found: dict[str, int] = {}
    for w in report.analysis.working_sets:
        if w.measure == "reserved":
            found[w.component] = max(found.get(w.component, 0), w.bits)
    return found


@cache
def front(variant: str) -> Report:
    """The front of VGGNet-E on a machine as that of Alwani et al."""
    return pm.evaluate(pm.load("fused_layer_fpga", f"vgg_e_front/{variant}"))


def maps_off_chip(variant: str) -> int:
    """Bytes of feature maps that move to and from DRAM."""
    rows = [r for r in front(variant).table("accesses").records() if r["component"] == "DRAM"]
    maps = [r for r in rows if not str(r["tensor"]).startswith("F")]
    return sum(int(r["read_bits"] or 0) + int(r["write_bits"] or 0) for r in maps) // 8


def maps_on_chip() -> int:
    """Bytes of the joint peak of the feature maps of the fused mapping."""
    live = [r for r in front("tiled_fused").table("working_sets").records() if r["measure"] == "live"]
    return max(int(r["bits"] or 0) for r in live if r["component"] == "FeatureBuffer") // 8


@cache
def least_words() -> dict[str, int]:
    """Curve -> least words off chip of the feed-forward pair of GPT-3 6.7B, 32k tokens, with any buffer."""
    einsums = ["H[m, h] = X[m, k] * V[k, h]", "Y[m, n] = H[m, h] * W[h, n]"]
    pair = spec_of(einsums, {"M": 32768, "K": 4096, "H": 16384, "N": 4096}, 16)
    least = pm.chain_slope(pair).frame.groupby("curve")["accesses_words"].min()
    return {"unfused": int(least["unfused"]), "fused": int(least["ffmr_retain"])}


def sizes_that_matter(extent: int) -> list[int]:
    """Tile sizes of which one is as good as any: of those with as many tiles, the least takes least room."""
    return sorted({-(-extent // tiles) for tiles in range(1, extent + 1)})


@cache
def bound_of_gemm(mebibytes: int) -> float:
    """Least MiB off chip of a float32 matmul of 4096 x 4096 x 4096 with one buffer of so many MiB."""
    square = spec_of(["Z[m, n] = A[m, k] * B[k, n]"], {"M": 4096, "K": 4096, "N": 4096}, 32)
    # Tiles that divide are not enough: in 2 MiB uneven ones move a quarter less.
    tried = dict.fromkeys(("m", "n", "k"), sizes_that_matter(4096))
    slope = pm.ski_slope(square, unit="bits", tiles=tried).frame
    fits = slope[slope["capacity_bits"] <= 8 * MIB * mebibytes]
    return int(fits["accesses_bits"].min()) / 8 / MIB


@cache
def timeloop_document() -> dict[str, int]:
    """The example of Timeloop's page about its output: sizes of the tensors, operations, cycles of 16 PEs."""
    sizes = {"p": 16, "r": 3, "c": 32, "k": 32}
    accesses: list[dict[str, object]] = [
        {"name": "W", "projection": ["k", "c", "r"]},
        {"name": "I", "projection": {"C": "c", "H": "p + r"}},
        {"name": "O", "projection": ["k", "p"], "output": True},
    ]
    pe = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 16}]}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1}]}
    storage = {"type": "Storage", "component": "M", "tensors": ["W", "I", "O"]}
    loop = {"type": "Spatial", "rank_variable": "k", "tile_shape": 2, "component": "PE", "name": "X"}
    layer = pm.load(
        {
            "workload": {
                "iteration_space_shape": {v: f"0 <= {v} < {n}" for v, n in sizes.items()},
                "bits_per_value": {"All": 8},
                "einsums": [{"name": "E", "tensor_accesses": accesses}],
            }
        },
        {"arch": {"nodes": [{"type": "Memory", "name": "M"}, pe, mac]}},
        {"mapping": {"nodes": [storage, loop, {"type": "Compute", "einsum": "E", "component": "MAC"}]}},
    )
    report = pm.evaluate(layer)
    tiles = {r["tensor"]: r["tile_elements"] for r in report.table("tiles").records()}
    operations = report.table("summary").records()[-1]["operations"]
    found = {"weights": tiles["W"], "inputs": tiles["I"], "outputs": tiles["O"], "computes": operations}
    return {name: int(n or 0) for name, n in found.items()} | {"cycles": int(report.total_latency)}


def _by_number(found: Mapping[Triple, int]) -> dict[str, int]:
    """Keys as the file has them: `1:Filter1:E1`."""
    return {f"{level[1:]}:{tensor}:E{einsum[-1]}": n for (level, tensor, einsum), n in found.items()}


def _each(outcome: Outcome, what: str, ours: Mapping[str, int], theirs: Mapping[str, Any]) -> None:
    for name in sorted({*ours, *theirs}):
        outcome.equal(f"{what} {name}", ours.get(name, 0), theirs.get(name, 0))


def _looptree(outcome: Outcome, given: Mapping[str, Any]) -> None:
    report = pm.evaluate(pm.load(SPEC))
    reads, writes = reads_and_writes(report)
    _each(outcome, "reads", _by_number(reads), given["reads"])
    _each(outcome, "writes", _by_number(writes), given["writes"])
    levels = {level[1:]: n for level, n in capacities(report).items()}
    _each(outcome, "capacity", levels, given["capacity"])
    outcome.equal("cycles", int(report.total_latency), given["latency_cycles_sequential"])
    unfused = sum(len(given.get(f"unfused_{what}", ())) for what in ("reads", "writes"))
    if unfused:
        outcome.uncomputed.append(f"{unfused} unfused reads and writes: their mapping is not published")


def _front(outcome: Outcome, given: Mapping[str, Any]) -> None:
    moved, derived = maps_off_chip("tiled_fused"), given.get("derived", {})
    outcome.equal("off chip, fused, MB", round(moved / MIB, 1), given["offchip_MB_fused"])
    peak, theirs = maps_on_chip(), given["onchip_KB"]
    outcome.at_most("on chip, KB: off by", abs(peak / 1000 - theirs), 0.04 * theirs)
    computed: dict[str, Callable[[], float]] = {
        "fused_bytes": lambda: moved,
        "fused_MiB": lambda: round(moved / MIB, 4),
        "layer_by_layer_all_io_MiB": lambda: round(maps_off_chip("unfused") / MIB, 2),
        "layer_by_layer_pool_merged_MiB": lambda: round(maps_off_chip("pool_fused") / MIB, 2),
    }
    for name, theirs in derived.items():
        if name in computed:
            outcome.equal(name, computed[name](), theirs)
        elif name == "top_overlap_rows_bytes_unpadded":
            outcome.at_most(f"{name}, a part of the peak", theirs, peak)
        else:
            outcome.uncomputed.append(f"{name}: padding is not stored here")
    outcome.uncomputed.append("offchip_MB_baseline: a tiled design whose tiles are not published")


def _gemm(outcome: Outcome, given: Mapping[str, Any]) -> None:
    for kind in ("simt_dram_MiB", "tensor_dram_MiB"):
        for size, measured in zip(given["L2_MiB"], given[kind], strict=True):
            outcome.at_most(f"{kind} with {size} MiB, a bound", bound_of_gemm(size), measured)


def _pair(outcome: Outcome, given: Mapping[str, Any]) -> None:
    ours, theirs = least_words(), given["derived_words"]
    outcome.equal("min_unfused", ours["unfused"], theirs["min_unfused"])
    outcome.equal("min_fused", ours["fused"], theirs["min_fused"])
    outcome.equal("ratio", round(ours["unfused"] / ours["fused"], 4), theirs["ratio"])


def _document(outcome: Outcome, given: Mapping[str, Any]) -> None:
    _each(outcome, "", timeloop_document(), given["values"])


_CHECKS: dict[str, Callable[[Outcome, Mapping[str, Any]], None]] = {
    "looptree_cascaded_mm": _looptree,
    "fused_layer_cnn_micro16": _front,
    "orojenesis_gpu_4k_gemm": _gemm,
    "orojenesis_gpt3_ffn": _pair,
    "timeloop_docs_stats": _document,
}


def is_anchors(text: str) -> bool:
    """Whether a file holds such figures; one that only says so is one, malformed."""
    return '"anchors"' in text[:2000]


def check(path: Path) -> list[Outcome]:
    """An outcome for each group of figures: compared, or not computed and why."""
    whole = Outcome(path.stem)
    found: list[Outcome] = []
    with comparing(whole):
        for given in json.loads(path.read_text(encoding="utf-8"))["anchors"]:
            one = Outcome(f"published/{given['id']}")
            found.append(one)
            with comparing(one):
                if given["id"] in CLAIMS:
                    one.uncomputed.append(CLAIMS[given["id"]])
                else:
                    _CHECKS[given["id"]](one, given)
    return [whole] if whole.fault else found
