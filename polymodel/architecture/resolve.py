"""Schema objects -> a resolved `Hierarchy`: numbers evaluated, set expressions bound per Einsum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polymodel.architecture.hierarchy import (
    Action,
    Component,
    FanoutDim,
    Hierarchy,
    Kind,
    Link,
    TensorRule,
)
from polymodel.architecture.numbers import Numbers
from polymodel.architecture.rules import Rules
from polymodel.architecture.sparse_resolve import resolve_sparse
from polymodel.architecture.tile_rules import resolve_tiles
from polymodel.spec import Action as ActionSpec
from polymodel.spec import Arch, ComputeUnit, Container, EnergyModel, Fanout, Memory, Toll
from polymodel.spec.energy import EnergyAnswer, EnergyRequest, ask
from polymodel.spec.energy_table import TableFaults
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value
from polymodel.spec.setexpr import SetScope

ACTIONS = {"Memory": ("read", "write"), "Toll": ("read", "write"), "Compute": ("compute",), "Container": ()}
# What else sparse data may do; an action that is not named is free, metadata then moves as data.
SPARSE_ACTIONS = {
    "Memory": ("gated_read", "gated_write", "metadata_read", "metadata_write"),
    "Compute": ("gated_compute",),
}
Node = Memory | Toll | Container | ComputeUnit
_NOTHING = EnergyAnswer({}, {})


def resolve_arch(
    arch: Arch,
    scopes: Sequence[SetScope],
    symbols: Mapping[str, Value | None],
    faults: Faults,
    folder: str = "",
) -> Hierarchy | None:
    """Build the hierarchy. Every fault is added to `faults`; None if there was any.

    `scopes` give set expressions their meaning per Einsum (empty without a workload). `folder` is
    where energy tables may be read from. A number's provenance is its `source`, its component's,
    its energy model's, or `given`.
    """
    before = len(faults)
    _check_names(arch, faults)
    rules = Rules(arch, scopes, faults)
    numbers = Numbers(symbols, faults)
    components = tuple(
        _component(node, ("arch", "nodes", i), rules, numbers, folder) for i, node in enumerate(arch.nodes)
    )
    if len(faults) > before:
        return None
    return Hierarchy(components, arch.assume_overlap, arch.name)


def _check_names(arch: Arch, faults: Faults) -> None:
    seen: set[str] = set()
    for i, node in enumerate(arch.nodes):
        path: Path = ("arch", "nodes", i)
        if node.name in seen:
            faults.add((*path, "name"), f"component {node.name} is given twice", "give it another name")
        seen.add(node.name)
        _distinct([d.name for d in node.spatial], (*path, "spatial"), "fanout dimension", faults)
        actions = () if isinstance(node, Container) else node.actions
        _distinct([a.name for a in actions], (*path, "actions"), "action", faults)
        known = (*ACTIONS[node.type], *SPARSE_ACTIONS.get(node.type, ()))
        for j, action in enumerate(actions):
            if action.name not in known:
                near = suggestion(action.name, known, "actions")
                where = (*path, "actions", j, "name")
                faults.add(where, f"unknown action {action.name} of {node.name}", near)
    if not any(isinstance(n, ComputeUnit) for n in arch.nodes):
        faults.add(("arch", "nodes"), "the architecture has no compute unit", "add `- !Compute {name: MAC}`")


def _distinct(names: list[str], path: Path, what: str, faults: Faults) -> None:
    for j, name in enumerate(names):
        if name in names[:j]:
            faults.add((*path, j, "name"), f"{what} {name} is given twice", "give it another name")


def _component(node: Node, path: Path, rules: Rules, numbers: Numbers, folder: str) -> Component:
    answer = _asked(node, path, numbers, folder)
    area, area_origin = _quantity(node, "area", node.area, answer, path, numbers)
    leak, _ = _quantity(node, "leak_power", node.leak_power, answer, path, numbers)
    tensors = node.tensors if isinstance(node, (Memory, Toll)) else None
    keep = rules.rule(node.name, tensors.keep, (*path, "tensors", "keep")) if tensors else None
    may_keep = rules.rule(node.name, tensors.may_keep, (*path, "tensors", "may_keep")) if tensors else None
    clock = None if isinstance(node, Container) else node.clock
    memory = node if isinstance(node, Memory) else Memory(name=node.name)
    size = numbers.positive(memory.size, (*path, "size"), "size")
    delay = 0 if isinstance(node, Container) else node.fill_drain_latency
    ports = node.ports if isinstance(node, (Memory, Toll)) else "shared"
    section = node.sparse if isinstance(node, (Memory, ComputeUnit)) else None
    return Component(
        name=node.name,
        kind=_KINDS[node.type],
        size_bits=size,
        allocation=memory.allocation,
        actions=_actions(node, answer, path, numbers),
        leak_power=leak,
        area=area,
        area_provenance=area_origin,
        spatial=tuple(_dim(d, (*path, "spatial", j), rules, numbers) for j, d in enumerate(node.spatial)),
        keep=keep,
        may_keep=may_keep,
        read_first=memory.read_first,
        ports=ports,
        buffering=memory.buffering,
        fill_drain_latency=numbers.at_least_zero(delay, (*path, "fill_drain_latency"), "latency"),
        clock=None if clock is None else numbers.positive(clock, (*path, "clock"), "clock", finite=True),
        sparse=resolve_sparse(
            section, isinstance(node, ComputeUnit), (*path, "sparse"), rules, numbers.faults
        ),
        data_tiles=resolve_tiles(memory.data_tiles, size, (*path, "data_tiles"), numbers),
    )


def _quantity(
    node: Node, name: str, given: Value | str | None, answer: EnergyAnswer, path: Path, numbers: Numbers
) -> tuple[float, str]:
    if given is not None:
        return numbers.at_least_zero(given, (*path, name), name.replace("_", " ")), node.source or "given"
    if name in answer.values:
        return answer.values[name], answer.provenance[name]
    return 0.0, "default"


def _actions(node: Node, answer: EnergyAnswer, path: Path, numbers: Numbers) -> tuple[Action, ...]:
    if isinstance(node, Container):
        return ()
    found = [_action(a, node, answer, (*path, "actions", j), numbers) for j, a in enumerate(node.actions)]
    named = {a.name for a in node.actions}
    for name in ACTIONS[node.type]:
        if name not in named and name in answer.values:
            found.append(Action(name, answer.values[name], provenance=answer.provenance[name]))
    return tuple(found)


def _action(spec: ActionSpec, node: Node, answer: EnergyAnswer, path: Path, numbers: Numbers) -> Action:
    energy, origin = 0.0, "default"
    if spec.energy is not None:
        energy = numbers.at_least_zero(spec.energy, (*path, "energy"), "energy")
        origin = spec.source or node.source or "given"
    elif spec.name in answer.values:
        energy, origin = answer.values[spec.name], answer.provenance[spec.name]
    elif node.energy_model is not None and answer is not _NOTHING:
        message = f"energy model {node.energy_model.name} gives no energy for {spec.name} of {node.name}"
        numbers.faults.add(path, message, "add it to the model, or write energy: here")
    bits = spec.bits_per_action
    return Action(
        spec.name,
        energy,
        numbers.positive(spec.throughput, (*path, "throughput"), "throughput"),
        None if bits is None else numbers.whole(bits, (*path, "bits_per_action"), "bits_per_action"),
        origin,
    )


def _asked(node: Node, path: Path, numbers: Numbers, folder: str) -> EnergyAnswer:
    model = node.energy_model
    if model is None:
        return _NOTHING
    where: Path = (*path, "energy_model")
    values = {k: numbers.at_least_zero(v, (*where, "values", k), k) for k, v in model.values.items()}
    quantities = (*ACTIONS[node.type], "area", "leak_power")
    for name in model.values:
        if name not in quantities:
            near = suggestion(name, quantities, "quantities")
            numbers.faults.add((*where, "values", name), f"unknown quantity {name}", near, key=True)
    bits = {
        a.name: numbers.whole(a.bits_per_action, (*path, "actions", j, "bits_per_action"), "bits_per_action")
        for j, a in enumerate(() if isinstance(node, Container) else node.actions)
        if a.bits_per_action is not None
    }
    request = EnergyRequest(
        model.component or node.name,
        quantities,
        values,
        model.file,
        model.source,
        folder,
        model.options,
        bits,
    )
    try:
        return ask(model.name, request)
    except TableFaults as faults:
        numbers.faults.extend(faults.diagnostics)
    except TextFault as fault:
        numbers.faults.add(_place_of(model, where), fault.message, fault.remedy)
    return _NOTHING


def _place_of(model: EnergyModel, where: Path) -> Path:
    return (*where, "file") if model.file else (*where, "name")


def _dim(spec: Fanout, path: Path, rules: Rules, numbers: Numbers) -> FanoutDim:
    link = None
    if spec.link is not None:
        below: Path = (*path, "link")
        link = Link(
            numbers.at_least_zero(spec.link.energy_per_bit_hop, (*below, "energy_per_bit_hop"), "energy"),
            spec.link.topology,
            numbers.positive(spec.link.throughput, (*below, "throughput"), "throughput"),
        )
    reuse: TensorRule | None = rules.rule("", spec.may_reuse, (*path, "may_reuse"))
    fanout = numbers.whole(spec.fanout, (*path, "fanout"), "fanout")
    return FanoutDim(spec.name, fanout, reuse, spec.broadcast_partials, link, spec.multicast)


_KINDS: dict[str, Kind] = {"Memory": "memory", "Toll": "toll", "Container": "container", "Compute": "compute"}
