"""The GPT-3 layer on a machine like a TPU, at most one fused loop: our search beside AccelForge's mapper.

The machine is `tpu_like.yaml`: four memories, three fanouts that have to be in full use, two kinds of compute
units. AccelForge gets the same workload, machine and constraints, written from the records that our search
works on. It adds up 32-bit floats, so energies that are equal there and here differ in the seventh digit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polymodel as pm
from benchmarks.explored import ENERGY, Race, races
from benchmarks.rows import Row
from polymodel.architecture.hierarchy import Component, FanoutDim, TensorRule
from polymodel.workload.einsum import Cascade, Einsum

MACHINE = Path(__file__).resolve().parent / "tpu_like.yaml"
LAYER = "gpt3_6.7B"
FULL = (("LocalBuffer", "Z"), ("Array", "columns"), ("Array", "rows"))
SINGLE = 1e-6  # relative: a sum of some hundred 32-bit floats
ROLES = ("input", "weight", "output")
Fields = dict[str, Any]


def bounds(spec: pm.Spec) -> pm.Limits:
    """At most one fused loop, intermediates exchanged in the global buffer or main memory, all units in use;
    products on the array, what has one input on the scalar unit."""
    units = {e.name: "MAC" if len(e.inputs) > 1 else "ScalarUnit" for e in spec.workload if not e.is_copy}
    return pm.Limits(
        max_fused_loops=1,
        exchange=frozenset({"GlobalBuffer"}),
        min_utilisation=tuple((component, dim, 1.0) for component, dim in FULL),
        compute=tuple(units.items()),
    )


@dataclass(frozen=True)
class OnTpu(Race):
    """A race on one workload and machine; `case` is the workload's name or file."""

    machine: Path = MACHINE

    def problem(self) -> tuple[pm.Spec, pm.Limits]:
        spec = pm.load(self.case, self.machine)
        return spec, bounds(spec)

    def told(self) -> tuple[str, Fields]:
        spec, limits = self.problem()
        return peer_spec(spec, limits), {"max_fused_loops": limits.max_fused_loops}


TPU = OnTpu(
    "the GPT-3 layer on a machine like a TPU", LAYER, ENERGY, False, repeats=1, close=SINGLE, seconds=1800
)


def tpu_like(forget: Callable[[], None], long: bool) -> tuple[dict[str, Row], list[str]]:
    """The row, and what the peer found that beats what we found."""
    return races((TPU,), forget, long)


def peer_spec(spec: pm.Spec, limits: pm.Limits) -> str:
    """Workload, machine and constraints in AccelForge's YAML. ValueError for what would be lost."""
    shape = {
        v: f"{low} <= {v} <= {high}"
        for e in spec.workload
        for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)
    }
    einsums = [einsum(e, spec, limits) for e in spec.workload]
    text = [f"workload: {json.dumps({'iteration_space_shape': shape, 'einsums': einsums})}"]
    text += ["arch:", "  nodes:"]
    for c in spec.arch.components:
        fields = component(c, spec, limits)
        text.append(f"  - !{c.kind.capitalize()} {json.dumps(fields)}")
    return "\n".join(text) + "\n"


def einsum(given: Einsum, spec: pm.Spec, limits: pm.Limits) -> Fields:
    """One Einsum with the roles of its tensors. A copy has none, as nothing but its two ends moves it; the
    peer would pass it through every memory that keeps inputs or outputs. `on_UNIT` is All where it runs."""
    if given.n_instances != 1 or any(a.density is not None or a.backing_scale != 1 for a in given.accesses):
        raise ValueError(f"Einsum {given.name}: instances, densities and scales are not written")
    roles = {r: " | ".join(sorted(held)) or "Nothing" for r, held in given.renames if r in ROLES}
    if given.is_copy:
        roles = dict.fromkeys(ROLES, "Nothing")
    units = [c.name for c in spec.arch.components if c.kind == "compute"]
    runs = dict(limits.compute).get(given.name, units[0])
    return {
        "name": given.name,
        "is_copy_operation": given.is_copy,
        "tensor_accesses": [
            {
                "name": a.tensor,
                "projection": {r: str(index) for r, index in zip(a.ranks, a.projection, strict=True)},
                "output": a.output,
                "bits_per_value": a.bits_per_value,
                "persistent": a.persistent,
            }
            for a in given.accesses
        ],
        "renames": {**roles, **{f"on_{u}": "All" if u == runs else "Nothing" for u in units}},
    }


def component(given: Component, spec: pm.Spec, limits: pm.Limits) -> Fields:
    """One component as AccelForge reads it, without its type."""
    rounded = any(a.bits_per_action for a in given.actions)
    if given.kind == "toll" or given.buffering == "single" or given.fill_drain_latency or rounded:
        raise ValueError(f"component {given.name} has what the benchmark does not write")
    result: Fields = {"name": given.name}
    if given.spatial:
        result["spatial"] = [fanout(given, dim, spec.workload, limits) for dim in given.spatial]
    if given.kind == "container":
        return result
    result |= {"area": 0, "leak_power": given.leak_power}
    result["actions"] = [
        {"name": a.name, "energy": a.energy, "throughput": finite(a.throughput)} for a in given.actions
    ]
    if given.kind == "compute":
        return {**result, "enabled": f"len(on_{given.name}) > 0"}
    keep, backing = rule(given.keep), spec.arch.components[0].name
    if limits.exchange and given.name in limits.exchange:
        keep = f"({keep}) | ~{backing}.tensors"  # handed on here, or in the backing storage
    if given.ports == "separate":
        result["total_latency"] = "max(a.n_calls / a.throughput for a in actions)"
    may_keep = "All" if given.may_keep is None else given.may_keep.text
    result["tensors"] = {"keep": keep, "may_keep": may_keep}
    return {**result, "size": finite(given.size_bits), "skip_initial_output_write": not given.read_first}


def fanout(given: Component, dim: FanoutDim, workload: Cascade, limits: pm.Limits) -> Fields:
    """One dimension. The peer gives a refilled partial sum to all units of a reduction.

    Where partial sums are not reduced it lets units write them one over the other, and counts no reads that
    would add them up: `loop_bounds` forbid such loops, as our search does. Of a dimension that shares one
    kind of tensor it gets only loops that share it (`reuse`), as in its own example of such a machine: fewer
    than our search looks at, among them those of the optimum. Without, it has no answer in 900 s of CPU.
    """
    written = [(e.name, a.tensor) for e in workload if not e.is_copy for a in e.outputs]
    reduced = {dim.reuses(*output) for output in written}
    if not dim.broadcast_partials or dim.link is not None or len(reduced) > 1:
        raise ValueError(f"fanout {given.name}.{dim.name} is counted otherwise by the peer")
    least = {(c, d): share for c, d, share in limits.min_utilisation}
    shared = "All" if dim.may_reuse is None else dim.may_reuse.text
    result: Fields = {"name": dim.name, "fanout": dim.fanout, "may_reuse": shared}
    if shared not in ("All", "Nothing"):
        result["reuse"] = shared
    if reduced == {False}:
        result["loop_bounds"] = [{"expression": "~output.rank_variables", "operator": "==", "value": 1}]
    return {**result, "min_usage": least.get((given.name, dim.name), 0)}


def rule(given: TensorRule | None) -> str:
    return "Nothing" if given is None else given.text


def finite(value: float) -> float | str:
    """YAML's reader there takes `inf` for a word that it evaluates."""
    return "inf" if math.isinf(value) else value
