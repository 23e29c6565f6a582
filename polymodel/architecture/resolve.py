"""Schema objects -> a resolved `Hierarchy`: numbers evaluated, set expressions bound per Einsum."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polymodel.architecture.hierarchy import (
    KINDS,
    MOST_CAPACITY,
    MOST_CYCLES,
    ActionCost,
    ActionKind,
    Component,
    FanoutDim,
    FanoutLink,
    Fit,
    Hierarchy,
    IntersectionUnit,
    Kind,
    ProductRules,
    SparseOptimization,
    SparseRules,
    TensorRule,
    TileRules,
)
from polymodel.arithmetic import is_priced
from polymodel.spec.arch_schema import (
    Acting,
    Arch,
    ArchNode,
    ComputeUnit,
    DataTiles,
    EnergyModel,
    Fanout,
    Memory,
    Moving,
    ProductTiles,
    SparseSection,
    check_branches,
)
from polymodel.spec.arch_schema import Action as ActionSpec
from polymodel.spec.arch_schema import Intersection as IntersectionSpec
from polymodel.spec.arch_schema import SparseAction as SparseActionSpec
from polymodel.spec.base import shown
from polymodel.spec.expressions import SetScope, parse_set, tensor_set
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Numbers, Value


class Rules:
    """Evaluates `keep`, `may_keep` and `may_reuse`; `X.tensors` is the set that component X must keep."""

    def __init__(self, arch: Arch, scopes: Sequence[SetScope], faults: Faults) -> None:
        self.scopes = scopes
        self.faults = faults
        self.keeps = {n.name: n.tensors.keep for n in arch.nodes if isinstance(n, Moving)}
        self.known: dict[tuple[str, str], frozenset[str]] = {}
        self.open: list[str] = []

    def rule(self, component: str, text: str | None, path: Path) -> TensorRule | None:
        """The rule of one expression, None for None. `component` is the component to which the rule belongs
        if it is its `keep`, at `path` in the architecture."""
        if text is None:
            return None
        tree = parse_set(text)
        result: list[tuple[str, frozenset[str]]] = []
        keep = path[0] == "arch" and path[-1] == "keep"
        for scope in self.scopes:
            try:
                if keep:
                    result.append((scope.einsum, self._keep_set(component, scope)))
                else:
                    result.append((scope.einsum, tensor_set(tree, self._with_components(scope))))
            except TextFault as fault:
                self.faults.text(path, fault)
                break
        return TensorRule(text, tuple(result))

    def _with_components(self, scope: SetScope) -> SetScope:
        def component(name: str) -> frozenset[str] | None:
            return self._keep_set(name, scope) if name in self.keeps else None

        return replace(scope, component=component, component_names=tuple(self.keeps))

    def _keep_set(self, component: str, scope: SetScope) -> frozenset[str]:
        key = (component, scope.einsum)
        if key in self.known:
            return self.known[key]
        if component in self.open:
            cycle = " -> ".join([*self.open[self.open.index(component) :], component])
            message = f"components refer to each other's tensors: {cycle}"
            raise TextFault(message, 0, "break the cycle", code="cyclic-definition")
        text = self.keeps[component]
        if text is None:
            return frozenset()
        self.open.append(component)
        try:
            self.known[key] = tensor_set(parse_set(text), self._with_components(scope))
        finally:
            self.open.pop()
        return self.known[key]


if TYPE_CHECKING:
    from polymodel.spec.energy import EnergyAnswer

    Answered = EnergyAnswer | None

# Keys that only some kinds have, with their values for the other kinds.
# Constructed without validation, which would build a validator for each.
_MOVES, _STORES = Moving.model_construct(name="_"), Memory.model_construct(name="_")
_ACTS = Acting.model_construct(name="_")


def resolve_arch(
    arch: Arch,
    scopes: Sequence[SetScope],
    symbols: Mapping[str, Value | None],
    faults: Faults,
    folder: str = "",
    sparse: Collection[str] = (),
) -> Hierarchy | None:
    """Build the hierarchy. Every fault is added to `faults`; None if there was any. `sparse`: components
    whose section `sparse` stands in the mapping, where its faults are reported.

    `scopes` give set expressions their meaning per Einsum (empty without a workload). Energy tables may be
    read from `folder`. The provenance of a number is its own `source`, else that of its component, else that
    of its energy model, else `given`.
    """
    before = len(faults)
    _check_names(arch, faults)
    known = [n.name for n in arch.nodes if isinstance(n, (Memory, ComputeUnit))]
    for name in (n for n in sparse if n not in known):
        what, near = f"unknown component {name}", suggestion(name, known, "memories and compute units")
        faults.add(("mapping", "sparse", name), what, near, key=True, code="unknown-name")
    rules = Rules(arch, scopes, faults)
    numbers = Numbers(symbols, faults)
    components = tuple(
        _component(node, ("arch", "nodes", i), rules, numbers, folder, node.name in sparse)
        for i, node in enumerate(arch.nodes)
    )
    if len(faults) > before:
        return None
    return Hierarchy(components, arch.assume_overlap, arch.name)


def _check_names(arch: Arch, faults: Faults) -> None:
    seen: set[str] = set()
    for i, node in enumerate(arch.nodes):
        path: Path = ("arch", "nodes", i)
        if node.name in seen:
            what = f"component {node.name} is given twice"
            faults.add((*path, "name"), what, "give it another name", code="duplicate-name")
        seen.add(node.name)
        _distinct([d.name for d in node.spatial], (*path, "spatial"), "fanout dimension", faults)
        actions = node.actions if isinstance(node, Acting) else ()
        _distinct([a.name for a in actions], (*path, "actions"), "action", faults)
        known = (*KINDS[kind_of(node)].actions, *KINDS[kind_of(node)].sparse)
        for j, action in enumerate(actions):
            operator = isinstance(node, ComputeUnit) and is_priced(action.name)
            if action.name not in known and not operator:
                near = suggestion(action.name, known, "actions")
                where = (*path, "actions", j, "name")
                faults.add(where, f"unknown action {action.name} of {node.name}", near, code="unknown-name")
    if not any(isinstance(n, ComputeUnit) for n in arch.nodes):
        message = "the architecture has no compute unit"
        faults.add(("arch", "nodes"), message, "add `- !Compute {name: MAC}`", code="missing-component")
    check_branches(arch, faults)


def _distinct(names: list[str], path: Path, what: str, faults: Faults) -> None:
    for j, name in enumerate(names):
        if name in names[:j]:
            message = f"{what} {name} is given twice"
            faults.add((*path, j, "name"), message, "give it another name", code="duplicate-name")


def _component(
    node: ArchNode, path: Path, rules: Rules, numbers: Numbers, folder: str, elsewhere: bool
) -> Component:
    memory = node if isinstance(node, Memory) else _STORES
    size = numbers.positive(memory.size, (*path, "size"), "size")
    answer = _model_answer(node, path, numbers, folder, size)
    area, area_origin = _quantity(node, "area", node.area, answer, path, numbers)
    leak, _ = _quantity(node, "leak_power", node.leak_power, answer, path, numbers)
    moving = node if isinstance(node, Moving) else _MOVES
    acting = node if isinstance(node, Acting) else _ACTS
    clock = acting.clock
    section = node.sparse if isinstance(node, (Memory, ComputeUnit)) else None
    of_zeros: Path = ("mapping", "sparse", node.name) if elsewhere else (*path, "sparse")
    return Component(
        name=node.name,
        kind=kind_of(node),
        size_bits=size,
        allocation=memory.allocation,
        actions=_actions(node, answer, path, numbers),
        leak_power=leak,
        area=area,
        area_provenance=area_origin,
        spatial=tuple(_dim(d, (*path, "spatial", j), rules, numbers) for j, d in enumerate(node.spatial)),
        keep=rules.rule(node.name, moving.tensors.keep, (*path, "tensors", "keep")),
        may_keep=rules.rule(node.name, moving.tensors.may_keep, (*path, "tensors", "may_keep")),
        read_first=memory.read_first,
        ports=moving.ports,
        buffering=memory.buffering,
        fill_drain_latency=numbers.at_least_zero(
            acting.fill_drain_latency, (*path, "fill_drain_latency"), "latency"
        ),
        clock=None if clock is None else numbers.positive(clock, (*path, "clock"), "clock", finite=True),
        sparse=resolve_sparse(section, isinstance(node, ComputeUnit), of_zeros, rules, numbers),
        data_tiles=resolve_tiles(memory.data_tiles, size, (*path, "data_tiles"), numbers),
        branch=node.branch,
    )


def _quantity(
    node: ArchNode, name: str, given: Value | str | None, answer: Answered, path: Path, numbers: Numbers
) -> tuple[float, str]:
    if given is not None:
        return numbers.at_least_zero(given, (*path, name), name.replace("_", " ")), node.source or "given"
    if answer is not None and name in answer.values:
        return answer.values[name], answer.provenance[name]
    return 0.0, "default"


def _actions(node: ArchNode, answer: Answered, path: Path, numbers: Numbers) -> tuple[ActionCost, ...]:
    if not isinstance(node, Acting):
        return ()
    result = [_action(a, node, answer, (*path, "actions", j), numbers) for j, a in enumerate(node.actions)]
    named = {a.name for a in node.actions}
    for name in KINDS[kind_of(node)].actions:
        if answer is not None and name not in named and name in answer.values:
            result.append(ActionCost(name, answer.values[name], provenance=answer.provenance[name]))
    return tuple(result)


def _action(spec: ActionSpec, node: ArchNode, answer: Answered, path: Path, numbers: Numbers) -> ActionCost:
    energy, origin = 0.0, "default"
    if spec.energy is not None:
        energy = numbers.at_least_zero(spec.energy, (*path, "energy"), "energy")
        origin = spec.source or node.source or "given"
    elif answer is not None and spec.name in answer.values:
        energy, origin = answer.values[spec.name], answer.provenance[spec.name]
    elif answer is not None and node.energy_model is not None:
        message = f"energy model {node.energy_model.name} gives no energy for {spec.name} of {node.name}"
        numbers.faults.add(path, message, "add it to the model, or write energy: here", code="missing-energy")
    bits = spec.bits_per_action
    return ActionCost(
        spec.name,
        energy,
        numbers.positive(spec.throughput, (*path, "throughput"), "throughput"),
        None if bits is None else numbers.whole(bits, (*path, "bits_per_action"), "bits_per_action"),
        origin,
    )


def _model_answer(node: ArchNode, path: Path, numbers: Numbers, folder: str, size: float) -> Answered:
    """The estimate of a component's energy model; None if it has none or the model cannot be evaluated."""
    model = node.energy_model
    if model is None:
        return None
    from polymodel.spec.energy import NUMERIC, EnergyRequest, TableFaults, ask

    where: Path = (*path, "energy_model")
    values = {k: numbers.at_least_zero(v, (*where, "values", k), k) for k, v in model.values.items()}
    quantities = (*KINDS[kind_of(node)].actions, "area", "leak_power")
    for name in model.values:
        if name not in quantities:
            near = suggestion(name, quantities, "quantities")
            message = f"unknown quantity {name}"
            numbers.faults.add((*where, "values", name), message, near, key=True, code="unknown-name")
    bits = {
        a.name: numbers.whole(a.bits_per_action, (*path, "actions", j, "bits_per_action"), "bits_per_action")
        for j, a in enumerate(node.actions if isinstance(node, Acting) else ())
        if a.bits_per_action is not None
    }
    request = EnergyRequest(
        model.component or node.name,
        quantities,
        values,
        model.file,
        model.source,
        folder,
        {k: _option(k, v, NUMERIC.get(model.name, ()), where, numbers) for k, v in model.options.items()},
        bits,
        size,
    )
    try:
        return ask(model.name, request)
    except TableFaults as faults:
        numbers.faults.extend(faults.diagnostics)
    except TextFault as fault:
        numbers.faults.add(_place_of(model, where), fault.message, fault.remedy, code=fault.code)
    return None


def _option(name: str, given: object, numeric: Sequence[str], where: Path, numbers: Numbers) -> object:
    """An option as written, or as a number where the model expects one; of a table, all numbers in it."""
    from polymodel.spec.energy import ANY

    path = (*where, "options", name)
    if numeric == ANY:
        return numbers.in_text(given, path)
    if name not in numeric:
        return given
    if isinstance(given, Mapping):
        return _numbers_in(given, path, numbers)
    return numbers.positive(given, path, name) if isinstance(given, (str, int, float)) else given


def _numbers_in(table: Mapping[str, object], path: Path, numbers: Numbers) -> dict[str, object]:
    """A table of parts with its expressions evaluated; names stay as they are."""
    from polymodel.spec.energy import NAMES

    result: dict[str, object] = {}
    for key, given in table.items():
        if isinstance(given, Mapping):
            result[key] = _numbers_in(given, (*path, key), numbers)
        elif key in NAMES or not isinstance(given, (str, int, float)):
            result[key] = given
        else:
            result[key] = numbers.at_least_zero(given, (*path, key), key)
    return result


def _place_of(model: EnergyModel, where: Path) -> Path:
    return (*where, "file") if model.file else (*where, "name")


def _dim(spec: Fanout, path: Path, rules: Rules, numbers: Numbers) -> FanoutDim:
    link = None
    if spec.link is not None:
        below: Path = (*path, "link")
        link = FanoutLink(
            numbers.at_least_zero(spec.link.energy_per_bit_hop, (*below, "energy_per_bit_hop"), "energy"),
            spec.link.topology,
            numbers.positive(spec.link.throughput, (*below, "throughput"), "throughput"),
            numbers.at_least_zero(spec.link.hop_latency, (*below, "hop_latency"), "latency"),
        )
    reuse: TensorRule | None = rules.rule("", spec.may_reuse, (*path, "may_reuse"))
    fanout = numbers.whole(spec.fanout, (*path, "fanout"), "fanout")
    return FanoutDim(spec.name, fanout, reuse, spec.broadcast_partials, link, spec.multicast)


def kind_of(node: ArchNode) -> Kind:
    """The kind of a component according to its tag."""
    return next(kind for kind in KINDS if kind == node.type.lower())


OPERATION = "compute"


def resolve_sparse(
    section: SparseSection | None, compute: bool, path: Path, rules: Rules, numbers: Numbers
) -> SparseRules | None:
    """The sparse rules of one component; every fault is added to those of `numbers`. `compute`: it is a
    compute unit."""
    if section is None:
        return None
    faults = numbers.faults
    formats = _formats(section, (*path, "format"), rules, faults)
    actions = tuple(
        _sparse_action(a, compute, (*path, "actions", i), rules, faults)
        for i, a in enumerate(section.actions)
    )
    met = tuple(
        _intersection(x, (*path, "intersect", i), rules, faults) for i, x in enumerate(section.intersect)
    )
    outputs = _dense_outputs(section, compute, path, rules, faults)
    fit = _fit(section.fit, (*path, "fit"), numbers)
    if compute and fit != "expected":
        message = "a compute unit stores no tiles"
        faults.add(
            (*path, "fit"), message, "give it at the memories that hold them", code="invalid-component"
        )
    return SparseRules(formats, actions, met, outputs, fit)


def _fit(given: object, path: Path, numbers: Numbers) -> Fit:
    """The criterion by which tiles fit, as written."""
    if given in ("expected", "worst"):
        return "worst" if given == "worst" else "expected"
    share = given.get("probability") if isinstance(given, dict) and len(given) == 1 else None
    if isinstance(share, bool) or not isinstance(share, (int, float, str)):
        what = f"{shown(given)} does not say when a tile fits"
        numbers.faults.add(path, what, "write expected, worst or {probability: 0.9}", code="unknown-choice")
        return "expected"
    result = numbers.positive(share, (*path, "probability"), "probability", finite=True)
    if result > 1:
        remedy = "write a number above 0 and at most 1"
        message = f"{result:g} is not a probability"
        numbers.faults.add((*path, "probability"), message, remedy, code="out-of-range")
    return min(result, 1.0)


def _dense_outputs(
    section: SparseSection, compute: bool, path: Path, rules: Rules, faults: Faults
) -> tuple[str, ...]:
    """The tensors that any of the expressions selects; each must be an output of some Einsum."""
    at = (*path, "dense_outputs")
    if compute and section.dense_outputs:
        message = "a compute unit stores no outputs"
        faults.add(at, message, "give it at the memories that hold them", code="invalid-component")
    before, result = len(faults), dict[str, None]()
    for number, scope in enumerate(rules.scopes):
        members = _union(section.dense_outputs, number, at, rules)
        outputs = tensor_set(parse_set("Outputs"), scope)
        result |= dict.fromkeys(_ordered(members & outputs, scope))
    if section.dense_outputs and rules.scopes and not result and len(faults) == before:
        what = f"no Einsum computes any of {', '.join(section.dense_outputs)}"
        faults.add(at, what, "name outputs, or Outputs for all", code="unknown-name")
    return tuple(result)


def _formats(section: SparseSection, path: Path, rules: Rules, faults: Faults) -> tuple[tuple[str, Any], ...]:
    """The format of each tensor; `Other` stands for all tensors that no other key names."""
    result: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in sorted(section.format.items(), key=lambda item: item[0].strip() == "Other"):
        for tensor in _covered(key, (*path, key), rules, faults, frozenset(result)):
            if tensor in result and result[tensor] != value:
                what = f"`{keys[tensor]}` and `{key}` give {tensor} different formats"
                remedy = "use Other for the tensors that no other key names"
                faults.add((*path, key), what, remedy, key=True, code="inconsistent-values")
            result.setdefault(tensor, value)
            keys.setdefault(tensor, key)
    return tuple(result.items())


def _covered(key: str, path: Path, rules: Rules, faults: Faults, taken: frozenset[str]) -> tuple[str, ...]:
    everything = dict.fromkeys(t for s in rules.scopes for t in s.tensors)
    if key.strip() == "Other":
        return tuple(t for t in everything if t not in taken)
    tree = parse_set(key, key=True)
    members: set[str] = set()
    for scope in rules.scopes:
        try:
            members |= tensor_set(tree, scope)
        except TextFault as fault:
            faults.text(path, fault, key=True)
            break
    return tuple(t for t in everything if t in members)


def _sparse_action(
    spec: SparseActionSpec, compute: bool, path: Path, rules: Rules, faults: Faults
) -> SparseOptimization:
    word: ActionKind = "gate" if spec.gate else "skip"
    texts = spec.gate or spec.skip
    operation = tuple(t.strip() for t in texts) == (OPERATION,)
    if compute and not operation:
        remedy = f"write {{{word}: compute, on: [...]}}, or move it to the memory that is read"
        message = f"a compute unit can {word} its operations only"
        faults.add((*path, word), message, remedy, code="invalid-component")
    if not compute and operation:
        fault = f"a memory cannot {word} operations"
        faults.add((*path, word), fault, "move it to the compute unit", code="invalid-component")
    if not spec.on and not operation:
        message = f"{word}: {', '.join(texts)} lacks on:"
        faults.add(path, message, "name the tensors whose zeros decide", code="missing-key")
    if compute != operation:
        return SparseOptimization(word, ())
    before = len(faults)
    result = []
    for number, scope in enumerate(rules.scopes):
        targets = () if operation else _union(texts, number, (*path, word), rules)
        leaders = _union(spec.on or ("Inputs",), number, (*path, "on"), rules)
        if leaders and (targets or operation):
            result.append((scope.einsum, _ordered(targets, scope), _ordered(leaders, scope)))
    if rules.scopes and not result and len(faults) == before:
        what = f"no Einsum has both {', '.join(texts)} and {', '.join(spec.on)}"
        faults.add((*path, "on"), what, "name tensors of one Einsum", code="unknown-name")
    return SparseOptimization(word, tuple(result))


def _union(texts: tuple[str, ...], number: int, path: Path, rules: Rules) -> frozenset[str]:
    """The tensors that any of the expressions selects in one Einsum."""
    result: set[str] = set()
    for i, text in enumerate(texts):
        rule = rules.rule("", text, (*path, i) if len(texts) > 1 else path)
        if rule is not None and number < len(rule.by_einsum):
            result |= rule.by_einsum[number][1]
    return frozenset(result)


def _ordered(tensors: frozenset[str] | tuple[str, ...], scope: SetScope) -> tuple[str, ...]:
    return tuple(t for t in scope.tensors if t in tensors)


def _intersection(spec: IntersectionSpec, path: Path, rules: Rules, faults: Faults) -> IntersectionUnit:
    known = list(dict.fromkeys(t for s in rules.scopes for t in s.tensors))
    for i, tensor in enumerate(spec.tensors):
        if rules.scopes and tensor not in known:
            faults.add(
                (*path, "tensors", i),
                f"unknown tensor {tensor}",
                suggestion(tensor, known, "tensors"),
                code="unknown-name",
            )
    if len(set(spec.tensors)) < 2:
        message = "an intersection needs two tensors or more"
        faults.add((*path, "tensors"), message, "name them: [A, B]", code="wrong-count")
    leads = spec.kind == "leader_follower"
    if leads and spec.leader not in spec.tensors:
        given = f"leader {spec.leader} is none of them" if spec.leader else "leader_follower has no leader"
        remedy = f"write leader: {spec.tensors[0]}"
        faults.add((*path, "leader") if spec.leader else path, given, remedy, code="unknown-name")
    if not leads and spec.leader:
        fault = f"{spec.kind} has no leader"
        faults.add((*path, "leader"), fault, "leave it out", code="ineffective-argument")
    return IntersectionUnit(spec.kind, spec.tensors, spec.leader or "")


def resolve_tiles(
    section: DataTiles | None, size_bits: float, path: Path, numbers: Numbers
) -> TileRules | None:
    """The tiling rules of one memory; every fault is added to `numbers.faults`."""
    if section is None:
        return None
    costs: Path = (*path, "configuration")
    if section.capacity is None and math.isinf(size_bits):
        fault = "the memory is unbounded, so nothing has to be cut to fit it"
        remedy = "write capacity:, or the memory's size:"
        numbers.faults.add(path, fault, remedy, key=True, code="ineffective-argument")
    return TileRules(
        fit=section.fit,
        format=section.format,
        capacity=_checked_integer(section.capacity, (*path, "capacity"), numbers),
        word_bits=_checked_integer(section.word_bits, (*path, "word_bits"), numbers),
        tiler=section.tiler,
        objective=section.objective,
        run=section.run,
        config_add=_cycles(section.configuration.add, (*costs, "add"), numbers),
        config_multiply=_cycles(section.configuration.multiply, (*costs, "multiply"), numbers),
        ramp=_cycles(section.ramp, (*path, "ramp"), numbers),
        empty=_cycles(section.empty, (*path, "empty"), numbers),
        ranks=section.ranks,
        product=_product(section.product, (*path, "product"), numbers),
    )


def _product(section: ProductTiles, path: Path, numbers: Numbers) -> ProductRules:
    tile = None
    if section.tile is not None:
        i, k, j = (
            _checked_integer(t, (*path, "tile", at), numbers, "tile size") or 1
            for at, t in enumerate(section.tile)
        )
        tile = i, k, j
    overbook = numbers.at_least_zero(section.overbook, (*path, "overbook"), "overbook")
    if overbook >= 1:
        message = f"{overbook:g} is not a share of tiles"
        numbers.faults.add((*path, "overbook"), message, "write e.g. 0.1", code="out-of-range")
    return ProductRules(
        strategy=section.strategy or ("search" if tile is None else "uniform"),
        tile=tile,
        capacity=_checked_integer(section.capacity, (*path, "capacity"), numbers),
        order=section.order,
        objective=section.objective,
        pes=numbers.whole(section.pes, (*path, "pes"), "pes"),
        bandwidth=numbers.positive(section.bandwidth, (*path, "bandwidth"), "bandwidth", finite=True),
        overbook=overbook,
        time_limit=numbers.positive(section.time_limit, (*path, "time_limit"), "time limit"),
    )


def _checked_integer(
    given: int | float | str | None, path: Path, numbers: Numbers, what: str | None = None
) -> int | None:
    """`what`: left out, the key."""
    if given is None:
        return None
    name = what or str(path[-1])
    result = numbers.whole(given, path, name)
    if result > MOST_CAPACITY:
        message = f"{name} {result:g} is more than 2^62"
        numbers.faults.add(path, message, "write a smaller number", code="number-too-large")
    return result


def _cycles(given: int | float | str, path: Path, numbers: Numbers) -> int:
    result = numbers.at_least_zero(given, path, "cycles")
    if result != int(result):
        message = f"{result:g} is not a whole number of cycles"
        numbers.faults.add(path, message, "write 0, 1, 2, ...", code="not-an-integer")
    elif result > MOST_CYCLES:
        what = f"{result:g} cycles are more than 10^9"
        numbers.faults.add(path, what, "write a smaller number", code="out-of-range")
    return int(result)
