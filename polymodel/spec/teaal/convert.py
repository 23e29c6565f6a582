"""A TeAAL spec as an ordinary workload (one Einsum per expression, dense tensors) and architecture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from polymodel.arithmetic import Affine
from polymodel.errors import Refused
from polymodel.spec.arch_schema import Action, Arch, ArchNode, ComputeUnit, Container, Fanout, Memory
from polymodel.spec.faults import Faults, Path, TextFault
from polymodel.spec.numbers import UnboundSymbol, Value, evaluate_number, symbols_in
from polymodel.spec.section_schemas import Einsum, Operations, TensorAccess, Workload
from polymodel.spec.teaal.hardware import NUMBERS
from polymodel.spec.teaal.records import (
    MEMORIES,
    Attribute,
    Directive,
    EinsumMapping,
    Expression,
    FactorProduct,
    HardwareComponent,
    HardwareLevel,
    Index,
    IndexedTensor,
    NamedArchitecture,
    Take,
    TeaalSpec,
)

Symbols = Mapping[str, Value | None]
# Default without a format or `bits_per_value`: the width of values in all published examples.
DEFAULT_BITS = 32


def bounding_ranks(spec: TeaalSpec) -> tuple[str, ...]:
    """Ranks whose sizes bound the loops, in order of declaration.

    These are ranks that some access indexes by their own variable, or by that of a rank which no tensor of
    the Einsum has, and ranks that an index with a negative factor could exceed at the lower end.
    """
    result: set[str] = set()
    for expression in spec.expressions:
        found = [
            (rank, index, (index.variable or "").upper())
            for operand in (expression.output, *expression.operands)
            for rank, index in zip(spec.declaration[operand.tensor], operand.indices, strict=True)
        ]
        own = {rank for rank, _, name in found if name == rank}
        for rank, index, name in found:
            if name == rank or (name and name not in own) or any(factor < 0 for _, factor in index.terms):
                result.add(rank)
    return tuple(dict.fromkeys(r for ranks in spec.declaration.values() for r in ranks if r in result))


def sized(spec: TeaalSpec) -> TeaalSpec:
    """The spec with a size for every rank that bounds a loop: the symbol of its name where none is given."""
    sizes = {r: spec.rank_sizes.get(r, r) for r in bounding_ranks(spec)}
    return replace(spec, rank_sizes={**sizes, **spec.rank_sizes})


def symbols_of(spec: TeaalSpec) -> tuple[str, ...]:
    """Every symbol that sizes of ranks and of partitions and attributes of components use, in order."""
    written: list[int | str] = [*spec.rank_sizes.values(), *spec.bits_per_value.values()]
    written += [d.size for m in spec.mappings for p in m.partitioning for d in p.directives]
    for configuration in spec.configurations:
        for component in configuration.components:
            given = (component.attributes.get(key, 0) for key in NUMBERS[component.kind])
            written += [text for text in given if isinstance(text, str)]
        clock = configuration.root.attributes.get("clock_frequency", 0)
        written += [clock] if isinstance(clock, str) else []
    return tuple(dict.fromkeys((*(s for text in written for s in symbols_in(text)), *strides_of(spec))))


def strides_of(spec: TeaalSpec) -> tuple[str, ...]:
    """The scalars that multiply rank variables in indices and have no value yet."""
    return tuple(s for e in spec.expressions for i in indices_of(e) for _, s in i.strides)


def with_strides(spec: TeaalSpec, values: Mapping[str, float]) -> TeaalSpec:
    """The spec with the given values of strides. Raises SpecError for invalid values."""
    faults = Faults()
    fill = _Fill({name: int(v) if float(v).is_integer() else v for name, v in values.items()}, faults)
    result = replace(spec, expressions=tuple(fill.expression(e) for e in spec.expressions))
    faults.raise_if_any()
    return result


def indices_of(expression: Expression) -> Iterator[Index]:
    """The indices of all tensors of an expression, of the output first."""
    for operand in (expression.output, *expression.operands):
        yield from operand.indices


def without_constants(spec: TeaalSpec) -> None:
    """Refuses indices with a constant part, which only dense counts support."""
    for expression in spec.expressions:
        for operand in (expression.output, *expression.operands):
            shown = ", ".join(map(str, operand.indices))
            if any(i.constant for i in operand.indices):
                message = f"{operand.tensor}[{shown}]: an index with a constant part is not executed"
                remedy = "of a recurrence write what one generation does, to be run again and again: "
                raise Refused(message, f"{remedy}carry={{input: output}}", code="unsupported-recurrence")


def workload_of(spec: TeaalSpec) -> Workload | str:
    """The workload, or the reason why there is none."""
    for expression in spec.expressions:
        reason = "" if expression.operands else f"Einsum {expression.name} reads no tensor"
        waiting = next((i for i in indices_of(expression) if i.strides), None)
        if waiting is not None and not reason:
            reason = f"Einsum {expression.name}: {waiting.strides[0][1]} in the index {waiting} has no value"
        if reason:
            return reason
    return Workload(
        einsums=tuple(_einsum(e, spec) for e in spec.expressions),
        rank_sizes=dict(spec.rank_sizes),
        bits_per_value=_bits(spec),
        init=dict(spec.init),
        default={t: x for t in spec.declaration if (x := spec.absent(t)) and _is_used(t, spec)},
        name=spec.name,
    )


def _einsum(expression: Expression, spec: TeaalSpec) -> Einsum:
    operands = dict.fromkeys(expression.operands)
    return Einsum(
        name=expression.name,
        tensor_accesses=(
            *(_access(o, spec, output=False) for o in operands),
            _access(expression.output, spec, output=True),
        ),
        operations=Operations(map=_operation(expression), reduce=_reduction(expression)),
    )


def _is_used(tensor: str, spec: TeaalSpec) -> bool:
    return any(tensor in (e.name, *(o.tensor for o in e.operands)) for e in spec.expressions)


def _reduction(expression: Expression) -> str | None:
    return None if expression.semiring.ordinary else expression.semiring.reduce


def _operation(expression: Expression) -> str | None:
    term = expression.terms[0]
    if isinstance(term, Take):
        return "take"
    if not expression.semiring.ordinary:
        return _named_operation(expression)
    if len(expression.terms) > 1 and all(
        isinstance(t, FactorProduct) and len(t.factors) == 1 and not t.negative for t in expression.terms
    ):
        return "add"
    products = [t for t in expression.terms if isinstance(t, FactorProduct)]
    if len(products) > 1:
        return "".join(_product(t, tuple(dict.fromkeys(expression.operands))) for t in products)[3:]
    return None


def _named_operation(expression: Expression) -> str | None:
    """Return the operation for signs that represent other operators: by name, or as a formula of calls."""
    semiring, operands = expression.semiring, list(dict.fromkeys(expression.operands))
    products = [t for t in expression.terms if isinstance(t, FactorProduct)]
    if not products or len(products) < len(expression.terms):
        return None
    names = [
        [f"_{operands.index(f)}" if isinstance(f, IndexedTensor) else str(f) for f in t.factors]
        for t in products
    ]
    if len(names) == 1 and names[0] == [f"_{i}" for i in range(len(operands))]:
        return semiring.map if len(operands) > 1 else None
    texts = [f"{semiring.map}({', '.join(n)})" if len(n) > 1 else n[0] for n in names]
    return f"{semiring.reduce}({', '.join(texts)})" if len(texts) > 1 else texts[0]


def _product(term: FactorProduct, operands: tuple[IndexedTensor, ...]) -> str:
    """A term of a sum after its sign, with its operands numbered: ` + _0 * _1`."""
    factors = (f"_{operands.index(f)}" if isinstance(f, IndexedTensor) else str(f) for f in term.factors)
    return f" {'-' if term.negative else '+'} {' * '.join(factors)}"


def _access(operand: IndexedTensor, spec: TeaalSpec, *, output: bool) -> TensorAccess:
    ranks = spec.declaration[operand.tensor]
    projection: dict[str, int | str]
    projection = {r: str(Affine(i.terms, i.constant)) for r, i in zip(ranks, operand.indices, strict=True)}
    return TensorAccess(name=operand.tensor, projection=projection, output=output)


def _bits(spec: TeaalSpec) -> dict[str, int | float | str]:
    """Bits per value: as given, else the payload of the innermost rank of the tensor's first format."""
    result: dict[str, int | float | str] = {}
    given = dict(spec.bits_per_value)
    rest = given.pop("All", None)
    for form in spec.formats:
        payload = form.ranks[-1].pbits if form.ranks else None
        if payload and rest is None:
            result.setdefault(form.tensor, payload)
    used = {o.tensor for e in spec.expressions for o in (e.output, *e.operands)}
    result = {t: b for t, b in {**result, **given}.items() if t in used}
    return {**result, "Other": rest if rest is not None else DEFAULT_BITS}


def bound(spec: TeaalSpec, symbols: Symbols, faults: Faults) -> TeaalSpec:
    """The spec with the values of symbols filled in; those without a value keep their name."""
    fill = _Fill(symbols, faults)
    return replace(
        spec,
        expressions=tuple(fill.expression(e) for e in spec.expressions),
        rank_sizes={
            r: fill.size(s, ("teaal", "einsum", "rank_sizes", r)) for r, s in spec.rank_sizes.items()
        },
        bits_per_value={
            t: fill.size(b, ("teaal", "einsum", "bits_per_value", t)) for t, b in spec.bits_per_value.items()
        },
        mappings=tuple(fill.mapping(m) for m in spec.mappings),
        configurations=tuple(replace(c, root=fill.level(c.root)) for c in spec.configurations),
    )


class _Fill:
    def __init__(self, symbols: Symbols, faults: Faults) -> None:
        self.symbols = symbols
        self.faults = faults

    def number(self, text: int | float | str) -> Value | None:
        """The value of an expression, None if it depends on a symbol without a value."""
        if not isinstance(text, str):
            return text
        if any(self.symbols.get(s) is None for s in symbols_in(text)):
            return None
        return evaluate_number(text, self.symbols)

    def size(self, text: int | str, path: Path) -> int | str:
        try:
            value = self.number(text)
        except UnboundSymbol:
            return text
        except TextFault as fault:
            self.faults.text(path, fault)
            return text
        if value is None:
            return text
        if not 1 <= value < 2**62 or value != int(value):
            message = f"{text} = {value} is not a whole number of at least 1"
            self.faults.add(path, message, "use a whole number of at least 1", code="not-positive-integer")
            return text
        return int(value)

    def expression(self, expression: Expression) -> Expression:
        if not any(i.strides for i in indices_of(expression)):
            return expression
        return replace(
            expression,
            output=self.operand(expression.output),
            terms=tuple(self.term(t) for t in expression.terms),
        )

    def term(self, term: FactorProduct | Take) -> FactorProduct | Take:
        if isinstance(term, Take):
            return replace(term, factors=tuple(self.operand(f) for f in term.factors))
        factors = tuple(self.operand(f) if isinstance(f, IndexedTensor) else f for f in term.factors)
        return replace(term, factors=factors)

    def operand(self, operand: IndexedTensor) -> IndexedTensor:
        return replace(operand, indices=tuple(self.index(i) for i in operand.indices))

    def index(self, index: Index) -> Index:
        """The index with the values of its strides in the factors."""
        path: Path = ("teaal", "einsum", "expressions")
        sizes = {v: self.size(s, path) for v, s in index.strides}
        known = {v: n for v, n in sizes.items() if isinstance(n, int)}
        terms = tuple((v, f * known.get(v, 1)) for v, f in index.terms)
        return Index(terms, tuple((v, s) for v, s in index.strides if v not in known), index.constant)

    def mapping(self, mapping: EinsumMapping) -> EinsumMapping:
        parts = []
        for partition in mapping.partitioning:
            key = partition.ranks[0] if len(partition.ranks) == 1 else f"({', '.join(partition.ranks)})"
            path: Path = ("teaal", "mapping", "partitioning", mapping.einsum, key)
            directives = tuple(self.directive(d, (*path, i)) for i, d in enumerate(partition.directives))
            parts.append(replace(partition, directives=directives))
        return replace(mapping, partitioning=tuple(parts))

    def directive(self, directive: Directive, path: Path) -> Directive:
        if not isinstance(directive.size, str):
            return directive
        return replace(directive, size=self.size(directive.size, path))

    def level(self, level: HardwareLevel) -> HardwareLevel:
        local = tuple(self.component(c) for c in level.local)
        subtree = tuple(self.level(x) for x in level.subtree)
        return replace(level, attributes=self.attributes(level.attributes), local=local, subtree=subtree)

    def component(self, component: HardwareComponent) -> HardwareComponent:
        return replace(component, attributes=self.attributes(component.attributes))

    def attributes(self, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
        result: dict[str, Attribute] = {}
        for key, text in given.items():
            result[key] = text
            if isinstance(text, str) and key not in ("type", "order"):
                try:
                    value = self.number(text)
                except TextFault:
                    continue  # a name, not a number
                result[key] = text if value is None else value
        return result


def arch_of(spec: TeaalSpec) -> tuple[Arch | None, tuple[str, ...]]:
    """The architecture of the spec's Einsums, None if it has none; remarks name what is left out.

    DRAM, Buffet and Cache become memories (width times depth bits; their bandwidth is shared by reads and
    writes), Compute a compute unit of one operation per cycle, and a level with several instances a fanout.
    """
    if not spec.configurations:
        return None, ()
    configuration = _chosen(spec)
    if configuration is None:
        names = ", ".join(c.name for c in spec.configurations)
        return None, (f"its Einsums run on different architectures ({names}), and a dense count knows one",)
    nodes: list[ArchNode] = []
    remarks: list[str] = []
    level: HardwareLevel | None = configuration.root
    while level is not None:
        _add(level, configuration, nodes, remarks)
        below = [x for x in level.subtree if x.components]
        if len(below) > 1:
            names = ", ".join(x.name for x in below)
            remarks.append(
                f"architecture {configuration.name} forks into {names}, and a dense count knows lines"
            )
            return None, tuple(remarks)
        level = below[0] if below else None
    if not any(isinstance(n, ComputeUnit) for n in nodes):
        remarks.append(f"architecture {configuration.name} has no Compute, so nothing is counted dense on it")
        return None, tuple(remarks)
    if not any(isinstance(n, Memory) for n in nodes):
        remarks.append(f"architecture {configuration.name} has no memory, so nothing is counted dense on it")
        return None, tuple(remarks)
    remarks.append("TeAAL gives no energies: those of its architecture are 0")
    return Arch(nodes=tuple(nodes), name=configuration.name), tuple(remarks)


def _chosen(spec: TeaalSpec) -> NamedArchitecture | None:
    """The configuration that every Einsum with bindings names, or the only one."""
    named = {b.config for b in spec.einsum_bindings if b.config}
    result = [c for c in spec.configurations if not named or c.name in named]
    return result[0] if len(result) == 1 else None


def _add(
    level: HardwareLevel, configuration: NamedArchitecture, nodes: list[ArchNode], remarks: list[str]
) -> None:
    if level.instances > 1:
        taken = {c.name for c in configuration.components} | {n.name for n in nodes}
        name = level.name if level.name not in taken else f"{level.name}Level"
        nodes.append(Container(name=name, spatial=(Fanout(name=level.name, fanout=level.instances),)))
    # Data reach the compute units of a level through its memories.
    ordered = sorted(level.local, key=lambda c: (c.kind not in MEMORIES, c.kind == "Compute"))
    for component in ordered:
        if component.kind in MEMORIES:
            nodes.append(_memory(component))
        elif component.kind == "Compute":
            nodes.append(_compute(component, configuration))
        else:
            what = f"{component.type} {component.kind}".strip()
            remarks.append(f"{component.name} ({what}) has no counterpart in dense counts")


def _memory(component: HardwareComponent) -> Memory:
    given = component.attributes
    bandwidth = _number(given.get("bandwidth", math.inf))
    size: float | int | str = math.inf
    if component.kind != "DRAM" and "width" in given and "depth" in given:
        size = f"({given['width']}) * ({given['depth']})"
    energies = {n: _number(given.get(f"{n}_energy", 0)) for n in ("read", "write")}
    actions = tuple(Action(name=n, energy=e, throughput=bandwidth) for n, e in energies.items())
    return Memory(name=component.name, size=size, actions=actions)


def _compute(component: HardwareComponent, configuration: NamedArchitecture) -> ComputeUnit:
    clock = component.attributes.get("clock_frequency", configuration.root.attributes.get("clock_frequency"))
    rate = math.inf if clock is None else _number(clock)
    energy = _number(component.attributes.get("energy", 0))
    return ComputeUnit(name=component.name, actions=(Action(name="compute", energy=energy, throughput=rate),))


def _number(value: int | float | str | bool) -> int | float | str:
    return int(value) if isinstance(value, bool) else value
