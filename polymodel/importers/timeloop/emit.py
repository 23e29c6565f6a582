"""Write what was read as a spec in YAML, in polymodel's style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from polymodel.arithmetic import Affine
from polymodel.importers.timeloop.energy import ComponentPrices, Energies
from polymodel.importers.timeloop.nest import NestLoop, TimeloopNest
from polymodel.importers.timeloop.parts import TimeloopLevel
from polymodel.importers.timeloop.problem import DataSpace, EinsumShape
from polymodel.importers.timeloop.reading import exact
from polymodel.spec.numbers import Value

Written = tuple[str, dict[str, object]]


def number(value: Fraction | Value) -> int | float:
    """Return a whole number as int, otherwise the nearest float."""
    result = value if isinstance(value, Fraction) else exact(value)
    return int(result) if result.denominator == 1 else float(result)


def workload(shapes: Sequence[EinsumShape], bits: int, name: str) -> dict[str, object]:
    """Return `workload:`. One Einsum is one line, named after its output; several keep their names."""
    result: dict[str, object] = {"name": name} if name else {}
    result["bits_per_value"] = {"All": bits}
    single = len(shapes) == 1 and not shapes[0].domain
    if single:
        used = {v for s in shapes[0].spaces for v in s.variables}
        sizes = {v: n for v, n in shapes[0].sizes.items() if v in used}
        result["iteration_space_shape"] = {v: f"0 <= {v} < {n}" for v, n in sizes.items()}
    densities = {s.name: s.density for shape in shapes for s in shape.spaces if s.density is not None}
    if densities:
        result["densities"] = densities
    result["einsums"] = [_line(shapes[0])] if single else [einsum_of(s) for s in shapes]
    return result


def einsum_name(shapes: Sequence[EinsumShape]) -> str:
    """Return the name by which the compute node refers to the only Einsum."""
    return next((s.name for s in shapes[0].spaces if s.output), shapes[0].name)


def _line(shape: EinsumShape) -> str:
    output = next(s for s in shape.spaces if s.output)
    inputs = " * ".join(_access(s) for s in shape.spaces if not s.output)
    return f"{_access(output)} = {inputs}"


def _access(space: DataSpace) -> str:
    return f"{space.name}[{', '.join(e if r is None else f'{r}={e}' for r, e in _ranks(space))}]"


def _ranks(space: DataSpace) -> list[tuple[str | None, str]]:
    """Return (rank, expression) for each rank; the rank is None if it is implied by its variable."""
    return [(None if _plain(r, e) else r, str(e)) for r, e in space.ranks]


def _plain(rank: str, expr: Affine) -> bool:
    return str(expr).upper() == rank and expr.terms == ((str(expr), 1),) and not expr.constant


def einsum_of(shape: EinsumShape) -> dict[str, object]:
    used = {v for s in shape.spaces for v in s.variables}
    constraints = shape.domain or tuple(f"0 <= {v} < {n}" for v, n in shape.sizes.items() if v in used)
    accesses = []
    for s in shape.spaces:
        plain = all(_plain(r, e) for r, e in s.ranks)
        projection = [str(e) for _, e in s.ranks] if plain else {r: str(e) for r, e in s.ranks}
        access: dict[str, object] = {"name": s.name, "projection": projection}
        accesses.append({**access, "output": True} if s.output else access)
    return {"name": shape.name, "iteration_space_shape": list(constraints), "tensor_accesses": accesses}


@dataclass(frozen=True)
class FanoutLoops:
    """A fanout dimension and the loops over it. `unicast`: tensors that are never shared along it."""

    name: str
    fanout: int
    loops: tuple[NestLoop, ...]
    unicast: frozenset[str]


def axes_of(part: TimeloopLevel, loops: Sequence[NestLoop]) -> list[FanoutLoops]:
    """Return the dimensions X and Y of a part along which it has several instances.

    Instances that the file does not arrange in a mesh are placed along X, whatever a mapping does with them.
    """
    fanned = zip("XY", part.mesh, strict=True) if part.shaped else (("X", part.instances),)
    result: list[FanoutLoops] = []
    for axis, fanout in fanned:
        along = tuple(x for x in loops if x.axis == axis or not part.shaped)
        if along or fanout > 1:
            result.append(FanoutLoops(axis, fanout, along, part.unicast))
    return result


def windowed(spaces: Sequence[DataSpace]) -> bool:
    """Return whether tiles of some tensor may overlap without being equal: Timeloop does not share such
    tiles."""
    return any(s.variables - s.alone for s in spaces)


def fanouts(axes: Sequence[FanoutLoops], identical: bool) -> list[dict[str, object]]:
    """Return `spatial:` of a component. It is valid for every mapping, because it does not depend on the
    loops."""
    result = []
    for a in axes:
        fields: dict[str, object] = {"name": a.name, "fanout": a.fanout}
        if a.unicast:
            fields["may_reuse"] = f"~({' | '.join(sorted(a.unicast))})"
        if identical:
            fields["multicast"] = "identical"
        result.append({**fields, "broadcast_partials": True})
    return result


@dataclass(frozen=True)
class SharedAttributes:
    """Attributes common to all components. `cycle`: seconds; `bits`: of a word; `identical`: how fanouts
    multicast."""

    cycle: Fraction
    bits: int
    energies: Energies
    sparse: Mapping[str, object]
    identical: bool

    @property
    def hertz(self) -> int | float:
        """Return the clock rate in cycles per second."""
        return number(1 / self.cycle)


def component(
    part: TimeloopLevel, axes: Sequence[FanoutLoops], machine: SharedAttributes, tensors: Sequence[str]
) -> Written:
    """Return a part as a node of `arch:`."""
    fields: dict[str, object] = {"name": part.name}
    if part.kind == "memory" and part.entries:
        # Only whole words count, as in Timeloop; a placeholder of less than one word keeps its bits.
        words = int(part.entries)
        data = f"{words} * {machine.bits}" if words else str(ceil(part.entries * machine.bits))
        size = f"{data} + {part.metadata}" if part.metadata else data
        fields["size"] = int(size) if size.isdecimal() else size
    if axes:
        fields["spatial"] = fanouts(axes, machine.identical)
    if part.kind == "container":
        return "Container", fields
    if part.entries == 0:
        fields["tensors"] = {"keep": "Nothing", "may_keep": "Nothing"}
    elif part.kind == "memory" and (part.held.keep or part.held.bypass):
        fields["tensors"] = _keep_rules(part, tensors)
    prices = machine.energies.of(part.name)
    if prices.leak:
        fields["leak_power"] = float(prices.leak * Fraction(1, 10**12) / part.cluster / machine.cycle)
    if prices.area is not None:
        fields["area"] = float(prices.area * Fraction(1, 10**12) / part.cluster)
    if part.kind == "compute":
        action: dict[str, object] = {"name": "compute"}
        if prices.compute is not None:
            action["energy"] = float(prices.compute / 10**12)
        actions = [{**action, "throughput": machine.hertz}]
    else:
        actions = [_moving(part, n, p, bw, machine) for n, p, bw in _directions(part, prices)]
        actions = [a for a in actions if len(a) > 1]
        if part.read is not None and not part.shared_port:
            fields["ports"] = "separate"
    if actions:
        fields["actions"] = actions
    if any("throughput" in a for a in actions):
        fields["clock"] = machine.hertz
    if part.name in machine.sparse:
        fields["sparse"] = machine.sparse[part.name]
    return ("Memory" if part.kind == "memory" else "Compute"), fields


def _directions(
    part: TimeloopLevel, prices: ComponentPrices
) -> list[tuple[str, Fraction | None, Value | None]]:
    return [("read", prices.read, part.read), ("write", prices.write, part.write)]


def _moving(
    part: TimeloopLevel, name: str, price: Fraction | None, bandwidth: Value | None, machine: SharedAttributes
) -> dict[str, object]:
    """Return an action with its energy per bit: Timeloop's energy, in pJ, is that of an access of `words`
    words per instance."""
    result: dict[str, object] = {"name": name}
    if price is not None:
        result["energy"] = float(price / 10**12 / part.words / part.cluster / machine.bits)
    if bandwidth is not None and bandwidth != float("inf"):
        result["throughput"] = f"{number(bandwidth)} * {machine.bits} * {machine.hertz}"
    return result


def _keep_rules(part: TimeloopLevel, tensors: Sequence[str]) -> dict[str, object]:
    keep = [t for t in tensors if t in part.held.keep]
    may = [t for t in tensors if t not in part.held.bypass and t not in keep]
    result: dict[str, object] = {"keep": " | ".join(keep)} if keep else {"keep": "Nothing"}
    return {**result, "may_keep": " | ".join(may) or "Nothing"}


def mapping(
    parts: Sequence[TimeloopLevel], nest: TimeloopNest, axes: Mapping[str, Sequence[FanoutLoops]], einsum: str
) -> list[Written]:
    """Return `mapping:`: storage nodes with the loops below them; the reuse of every storage node is
    Timeloop's."""
    result: list[Written] = []
    for part in parts:
        for loop in nest.of(part.name, spatial=True):
            name = next(a.name for a in axes[part.name] if any(x is loop for x in a.loops))
            fields = {"rank_variable": loop.variable, "tile_shape": nest.tile(loop)}
            result.append(("Spatial", {**fields, "component": part.name, "name": name}))
        if part.kind == "memory":
            kept = list(nest.kept[part.name])
            if kept:
                storage = {"component": part.name, "tensors": kept, "reuse": "slide"}
                result.append(("Storage", dict(storage)))
            for loop in nest.of(part.name, spatial=False):
                fields = {"rank_variable": loop.variable, "tile_shape": nest.tile(loop)}
                result.append(("Temporal", dict(fields)))
    unit = next(p.name for p in parts if p.kind == "compute")
    return [*result, ("Compute", {"einsum": einsum, "component": unit})]
