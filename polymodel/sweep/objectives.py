"""What a sweep may minimise, per block of points and per exact row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.loading import Spec
from polymodel.spec import Memory, Toll
from polymodel.spec.faults import suggestion
from polymodel.spec.plain import listed
from polymodel.sweep.metrics import Block, Found, need
from polymodel.sweep.plan import Costing
from polymodel.sweep.sparse import rows as sparse
from polymodel.sweep.values import wrong

Array = Any
PLAIN = ("energy", "latency", "edp")
WAYS = ("reads", "writes", "accesses", "working_set")
# What explorations, and people, call the same.
SAME = {"energy_delay": "edp", "energy_delay_product": "edp", "delay": "latency", "time": "latency"}


def known_objectives(names: Sequence[str] | str, spec: Spec) -> tuple[str, ...]:
    """The names, if each is `energy`, `latency`, `edp` or like `accesses:DRAM`, or these behind `sparse_`.

    Raises SpecError.
    """
    given = listed("objectives", names, "['energy', 'latency']")
    found = tuple(dict.fromkeys(name if isinstance(name, str) else repr(name) for name in given))
    if not found:
        raise wrong("a sweep needs an objective", "name energy or latency")
    nodes = spec.raw_arch.nodes if spec.raw_arch else ()
    known = [*PLAIN, *(f"{w}:{n.name}" for n in nodes if isinstance(n, Memory) for w in WAYS)]
    known += [f"{w}:{n.name}" for n in nodes if isinstance(n, Toll) for w in WAYS[:-1]]
    faults = []
    for i, name in enumerate(found):
        meant = [sparse.PREFIX + n for n in known] if name.startswith(sparse.PREFIX) else known
        if name not in meant:
            near = _same(name, meant) or suggestion(name, meant, "objectives")
            faults.append(Diagnostic(f"unknown objective {name}", near, f"objectives[{i}]"))
    if faults:
        raise SpecError(faults)
    return found


def _same(name: str, known: Sequence[str]) -> str:
    """The remedy for a word of explorations: `energy_delay`, or `buffer:GLB`."""
    prefix = sparse.PREFIX if name.startswith(sparse.PREFIX) else ""
    way, colon, component = name.removeprefix(prefix).partition(":")
    meant = prefix + (f"working_set:{component}" if colon and way == "buffer" else SAME.get(way + colon, ""))
    return f"did you mean {meant}? A sweep calls it so" if meant in known else ""


def check_objectives(names: Sequence[str], costings: Sequence[Costing]) -> None:
    """SpecError for an objective at a component that moves nothing under this mapping."""
    moving = {c for costing in costings for c, _, _ in costing.accesses}
    for name in names:
        component = name.partition(":")[2]
        if component and component not in moving:
            what = f"objective {name}: {component} moves nothing under this mapping"
            raise wrong(what, "these do: " + ", ".join(sorted(moving)))


def objective(name: str, found: Found, block: Block, costing: Costing) -> Array:
    """Values of one objective over a block (float64, broadcast)."""
    if name.startswith(sparse.PREFIX):
        return found.sparse(name.removeprefix(sparse.PREFIX))
    if name == "energy":
        return found.energy
    if name == "latency":
        return found.latency
    values = block.memory.values
    if name == "edp":
        return values.apply(np.multiply, found.energy, found.latency)
    way, _, component = name.partition(":")
    if way == "working_set":
        phases = [limit.phases for limit in costing.limits if limit.name == component]
        return _float(need(phases[0], block)) if phases else 0.0
    total: Array = 0.0
    for c, action, linear in costing.accesses:
        if c == component and (way == "accesses" or action + "s" == way):
            total = values.apply(np.add, total, _float(block.linear(linear)))
    return total


def _float(value: Array) -> Array:
    return np.asarray(value).astype(np.float64, copy=False)
