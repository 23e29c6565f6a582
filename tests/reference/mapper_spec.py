"""Mapper cases (`mapper-oracle/1`): workload and architecture as a spec, settings as limits of the search.

`must_hold` and `may_hold` are set expressions in which a memory's name stands for what it holds in the
mapping at hand, not for what it has to hold: `~DRAM` at the buffer asks for those tensors that DRAM does not
hold. Here a memory keeps what it must hold whatever the others choose; that every tensor is held somewhere
is a rule of all mappings.
"""

from __future__ import annotations

import math
import re
from typing import Any

import polymodel as pm

Numbers = dict[str, Any]
WORKLOAD_KEYS = "name ranks tensors bits_per_value einsums persistent n_instances".split()
EINSUM_KEYS = "name inputs output outputs copy n_instances".split()
ARCH_KEYS = (
    "type name size_bits read_energy_per_bit write_energy_per_bit read_bits_per_cycle write_bits_per_cycle"
    " spatial skip_initial_output_write energy_per_op ops_per_cycle leak_power must_hold may_hold"
).split()
FANOUT_KEYS = "name fanout max_fanout may_reuse min_usage broadcast_partials".split()
KINDS = {"memory": "Memory", "compute": "Compute", "container": "Container", "fanout": "Container"}


def understood(where: str, found: Numbers, known: list[str]) -> None:
    """ValueError for keys that would change the problem if they were passed over."""
    strange = sorted(set(found) - set(known))
    if strange:
        raise ValueError(f"{where}: keys not understood: {', '.join(strange)}")


def spec_of(case: Numbers, allocation: str = "tile") -> pm.Spec:
    """Workload and architecture of a case; all memories with a size have this `allocation`."""
    return pm.load(
        {
            "schema_version": 1,
            "workload": _workload(case["workload"]),
            "arch": {"nodes": [_component(c, case["arch"], allocation) for c in case["arch"]]},
        }
    )


def _workload(given: Numbers) -> Numbers:
    understood("workload", given, WORKLOAD_KEYS)
    found: Numbers = {
        "iteration_space_shape": {v: f"0 <= {v} < {size}" for v, size in given["ranks"].items()},
        "bits_per_value": {t: given["bits_per_value"][t] for t in _used(given)},
        "n_instances": given.get("n_instances", 1),
        "einsums": [_einsum(e, given) for e in given["einsums"]],
    }
    if given.get("persistent"):
        found["persistent_tensors"] = " | ".join(t for t in given["persistent"] if t in _used(given))
    return found


def _used(workload: Numbers) -> list[str]:
    """The tensors of all Einsums; a file may list more."""
    return list(dict.fromkeys(t for e in workload["einsums"] for t in (*e["inputs"], *_outputs(e))))


def _outputs(einsum: Numbers) -> Numbers:
    found = einsum.get("output", einsum.get("outputs"))
    if not isinstance(found, dict):
        raise ValueError(f"Einsum {einsum['name']} has no output")
    return found


def _einsum(given: Numbers, workload: Numbers) -> Numbers:
    understood(f"Einsum {given['name']}", given, EINSUM_KEYS)
    outputs = _outputs(given)
    accesses = []
    for tensor, indices in [*given["inputs"].items(), *outputs.items()]:
        ranks = workload["tensors"][tensor]
        if len(ranks) != len(indices):
            raise ValueError(f"{tensor} has {len(ranks)} ranks, {given['name']} gives {len(indices)}")
        projection = {r: str(i) for r, i in zip(ranks, indices, strict=True)}
        accesses.append({"name": tensor, "projection": projection, "output": tensor in outputs})
    return {
        "name": given["name"],
        "tensor_accesses": accesses,
        "is_copy_operation": bool(given.get("copy", False)),
        "n_instances": given.get("n_instances", 1),
    }


def _component(given: Numbers, arch: list[Numbers], allocation: str) -> Numbers:
    understood(f"component {given['name']}", given, ARCH_KEYS)
    kind = KINDS.get(str(given["type"]).lower())
    if kind is None:
        raise ValueError(f"component {given['name']} has the unknown type {given['type']}")
    found: Numbers = {"type": kind, "name": given["name"], "leak_power": given.get("leak_power", 0)}
    if given.get("spatial"):
        found["spatial"] = [_fanout(d, given["name"]) for d in given["spatial"]]
    if kind == "Compute":
        found["actions"] = [_action(given, "compute", "energy_per_op", "ops_per_cycle")]
    if kind == "Memory":
        found["actions"] = [
            _action(given, k, f"{k}_energy_per_bit", f"{k}_bits_per_cycle") for k in ("read", "write")
        ]
        found["size"] = given.get("size_bits", math.inf)
        found["allocation"] = allocation
        found["read_first"] = not given.get("skip_initial_output_write", True)
        found["tensors"] = {"keep": _always(given, arch), "may_keep": _ever(given, arch)}
    return found


def _action(given: Numbers, name: str, energy: str, throughput: str) -> Numbers:
    each = given.get(throughput)
    return {"name": name, "energy": given.get(energy, 0), "throughput": math.inf if each is None else each}


def _fanout(given: Numbers, where: str) -> Numbers:
    """The tool gives a refilled partial sum to all units of a reduction."""
    understood(f"fanout of {where}", given, FANOUT_KEYS)
    found = {"name": given["name"], "fanout": given.get("fanout", given.get("max_fanout"))}
    if "may_reuse" in given:
        found["may_reuse"] = _text(given["may_reuse"])
    return {**found, "broadcast_partials": given.get("broadcast_partials", True)}


def _text(given: object) -> str:
    """A set expression; lists are unions."""
    return " | ".join(f"({t})" for t in given) or "Nothing" if isinstance(given, list) else str(given)


def _always(given: Numbers, arch: list[Numbers]) -> str:
    """What the memory holds whatever the memories that its `must_hold` names choose to hold."""
    least, most = (_with(_text(given.get("must_hold", "Nothing")), arch, which) for which in (0, 1))
    return least if least == most else f"({least}) & ({most})"


def _ever(given: Numbers, arch: list[Numbers]) -> str:
    """What the memory holds in some mapping."""
    texts = [_with(_text(given.get("may_hold", "All")), arch, which) for which in (0, 1)]
    texts.append(_always(given, arch))
    return " | ".join(f"({t})" for t in dict.fromkeys(texts))


def _with(text: str, arch: list[Numbers], which: int, depth: int = 0) -> str:
    """The expression with each memory's name replaced by the least or the most that it holds."""
    if depth > len(arch):
        raise ValueError(f"memories refer to each other: {text}")
    memories = {c["name"]: c for c in arch if c.get("type") == "memory"}

    def held(match: re.Match[str]) -> str:
        other = memories[match.group(1)]
        must = _with(_text(other.get("must_hold", "Nothing")), arch, which, depth + 1)
        may = _with(_text(other.get("may_hold", "All")), arch, which, depth + 1)
        return f"({must})" if which == 0 else f"(({must}) | ({may}))"

    names = "|".join(re.escape(n) for n in memories)
    return re.sub(rf"\b({names})\b(?:\.tensors)?", held, text) if names else text


def minimum_usage(arch: list[Numbers]) -> tuple[tuple[str, str, float], ...]:
    """Least shares of fanouts in use, as the search takes them."""
    return tuple(
        (c["name"], d["name"], float(d["min_usage"]))
        for c in arch
        for d in c.get("spatial") or ()
        if d.get("min_usage") is not None
    )
