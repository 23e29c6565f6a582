"""Figures that papers and documents print: ours, computed here, for `make reference`, tests and pages alike.

A file of them (`"anchors": [{"id": ..., ...}]`) has theirs; the ids below are those that are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polymodel as pm
from polymodel.exhibits import timeloop_page
from polymodel.exhibits.fused_layers import MIB, maps_off_chip, maps_on_chip
from polymodel.exhibits.looptree import Triple, capacities, reads_and_writes
from polymodel.exhibits.looptree import spec as cascaded
from polymodel.exhibits.orojenesis import bound_of_gemm, least_words
from tests.reference.common import Outcome, comparing

# Anchors of which nothing is computed, and why.
CLAIMS = {
    "looptree_paper": "an error of its model, against designs whose mappings are not printed",
    "ffm": "the speed of another program; `make bench` races with it, and its optima are cases here",
    "tcm": "the speed and the results of another program",
    "tenet": "a gain over another notation, of dataflows that are not printed whole",
    "cosa": "the speed and the results of another program",
    "defines": "results of another program on a machine of its own",
}


def _by_number(found: Mapping[Triple, int]) -> dict[str, int]:
    """Keys as the file has them: `1:Filter1:E1`."""
    return {f"{level[1:]}:{tensor}:E{einsum[-1]}": n for (level, tensor, einsum), n in found.items()}


def _each(outcome: Outcome, what: str, ours: Mapping[str, int], theirs: Mapping[str, Any]) -> None:
    for name in sorted({*ours, *theirs}):
        outcome.equal(f"{what} {name}", ours.get(name, 0), theirs.get(name, 0))


def _looptree(outcome: Outcome, given: Mapping[str, Any]) -> None:
    report = pm.evaluate(cascaded())
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
    _each(outcome, "", timeloop_page.counted(), given["values"])


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
