"""The bindings of one Einsum to memories, resolved: what each buffer holds and where it loads it from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.teaal.records import Binding, Component, RankFormat, TeaalSpec, TensorFormat

BUFFERS = ("Buffet", "Cache")
_MEMORIES = ("DRAM", *BUFFERS)


@dataclass(frozen=True)
class Held:
    """One kind of data of one rank in one buffer. `bits`: of an element; `root`: the rank at which an eager
    binding starts, empty for a lazy one; `source`: the memory it is loaded from, None for none."""

    buffer: Component
    binding: Binding
    rank: str
    kind: str
    bits: int
    root: str = ""
    source: Component | None = None

    @property
    def tensor(self) -> str:
        return self.binding.tensor

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from all else that the Einsum's buffers hold."""
        return self.buffer.name, self.tensor, self.rank, self.kind, self.binding.format

    @property
    def width(self) -> int:
        return int(self.buffer.number("width") or 0)

    @property
    def per_line(self) -> int:
        return self.width // self.bits

    @property
    def cached(self) -> bool:
        """A cache is never emptied."""
        return self.buffer.kind == "Cache"


def element_bits(rank: RankFormat, kind: str) -> int:
    """Bits of a coordinate, a payload, or both (an element)."""
    coordinate, payload = rank.cbits or 0, rank.pbits or 0
    return {"coord": coordinate, "payload": payload, "elem": coordinate + payload}[kind]


def held_data(spec: TeaalSpec, einsum: str) -> tuple[Held, ...]:
    """Everything the Einsum's buffers hold, in order of the architecture, then of the text.

    SpecError with every fault: unknown formats or ranks, elements wider than a line, no width, no eviction.
    """
    bound = spec.bindings_of(einsum)
    if not bound.bindings:
        return ()
    components = spec.configuration(bound.config).components
    faults: list[Diagnostic] = []
    found: list[Held] = []
    loads: dict[str, list[tuple[str, str, str, str]]] = {}
    for component in components:
        if component.kind not in _MEMORIES:
            continue
        for binding in bound.of(component.name):
            if component.kind == "DRAM":
                key = (binding.tensor, binding.rank, binding.type, binding.format)
                loads.setdefault(component.name, []).append(key)
                continue
            spread = list(_spread(spec, einsum, component, binding, faults))
            found += spread
            loads.setdefault(component.name, []).extend(_key(h) for h in spread)
    if faults:
        raise SpecError(faults)
    return tuple(replace(h, source=_source(h, components, loads)) for h in found)


def _key(held: Held) -> tuple[str, str, str, str]:
    return held.tensor, held.rank, held.kind, held.binding.format


def _source(
    held: Held, components: Sequence[Component], loads: Mapping[str, list[tuple[str, str, str, str]]]
) -> Component | None:
    """The last memory before this one, in order of the architecture, that holds the same data."""
    source = None
    for component in components:
        if component.name == held.buffer.name:
            break
        if _key(held) in loads.get(component.name, ()):
            source = component
    return source


def _spread(
    spec: TeaalSpec, einsum: str, buffer: Component, binding: Binding, faults: list[Diagnostic]
) -> Iterator[Held]:
    """A lazy binding by itself; an eager one as all data of its rank and the ranks below it."""
    where = f"{einsum}: {binding.tensor} on {buffer.name}"
    form = spec.format_of(binding.tensor, binding.format)
    if form is None:
        what = f"{where}: the tensor has no format {binding.format or '(none named)'}"
        faults.append(Diagnostic(what, "name a configuration of `format:`"))
        return
    ranks = {r.rank: r for r in form.ranks}
    if binding.rank not in ranks:
        what = f"{where}: the format {binding.format} has no rank {binding.rank}"
        faults.append(Diagnostic(what, f"it has {', '.join(ranks)}"))
        return
    if binding.style == "eager":
        order = _order(form)
        below = order[order.index(binding.rank) :]
        items = [(r, k) for r in below if r in ranks for k in _kinds(ranks[r])]
    else:
        items = [(binding.rank, binding.type)]
    for rank, kind in items:
        bits = element_bits(ranks[rank], kind)
        if not bits:
            continue
        held = Held(buffer, binding, rank, kind, bits, binding.rank if binding.style == "eager" else "")
        if fault := _fault(held, where):
            faults.append(fault)
        else:
            yield held


def _order(form: TensorFormat) -> tuple[str, ...]:
    return form.rank_order or tuple(r.rank for r in form.ranks)


def _kinds(rank: RankFormat) -> tuple[str, ...]:
    if rank.layout == "interleaved":
        return ("elem",)
    return tuple(k for k in ("coord", "payload") if element_bits(rank, k))


def _fault(held: Held, where: str) -> Diagnostic | None:
    if not held.width:
        return Diagnostic(f"{where}: {held.buffer.name} has no width", "give the bits of a line as `width`")
    if held.bits > held.width:
        what = f"{where}: each {held.kind} of {held.rank} has {held.bits} bits, a line {held.width}"
        return Diagnostic(what, "make the lines at least as wide as an element")
    if not held.cached and not held.binding.evict_on:
        return Diagnostic(f"{where}: {held.rank} says no evict-on", "name a loop rank or root")
    return None


def evict_loops(held: Held, names: Sequence[str], last: int) -> int:
    """How many loops lie at or above the eviction; 0 for one that never happens. `last`: the loop that binds
    the data (or enters its subtree), below which it cannot be evicted."""
    if held.cached or held.binding.evict_on == "root":
        return 0
    evict = held.binding.evict_on
    if evict not in names:
        what = f"{held.tensor} on {held.buffer.name} is evicted on {evict}, which is no loop"
        raise SpecError([Diagnostic(what, f"the loops are {', '.join(names)}")])
    at = names.index(evict) + 1
    deepest = last if held.root else last + 1
    if at > deepest:
        what = f"{held.tensor} {held.rank} on {held.buffer.name} is evicted on {evict}, inside the loop"
        raise Refused(f"{what} that brings it in", f"evict on {names[last]} or a loop around it, or on root")
    return at
