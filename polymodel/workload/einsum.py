"""Einsums and cascades: resolved records, their ISL relations, their text, and copies with other extents.

`workload.resolve` builds them from YAML or Python objects: all names are checked and all projections affine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polymodel.arithmetic import SIGNS, Affine, Constraint, names_of
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.polyhedra.sets import map_from_affine, set_from_constraints
from polymodel.quantities import drawn
from polymodel.spec.expressions import operators_named

if TYPE_CHECKING:
    import islpy
    import networkx


ENDS = 8  # Einsums shown at either end of a longer workload
NAMES = 4  # the same, if only names are shown
_OPERATORS = tuple(SIGNS.values())
_HARD = "\0"  # a space inside a tensor's brackets, at which lines are not broken


@dataclass(frozen=True)
class TensorAccess:
    """One access of an Einsum to a tensor: one affine expression per rank, in rank order.

    `accumulates`: an output whose elements have initial values, to which results are added. `guard`:
    constraints; the access touches elements only in iterations that satisfy them. `stands_for`: this access
    reads the initial tensor or boundary of that tensor, in the iterations that `guard` selects. `default`:
    the value of points that sparse data does not store.
    """

    tensor: str
    ranks: tuple[str, ...]
    projection: tuple[Affine, ...]
    output: bool = False
    bits_per_value: int = 8
    persistent: bool = False
    backing_scale: Fraction = Fraction(1)
    density: Any = None
    accumulates: bool = False
    guard: tuple[Constraint, ...] = ()
    stands_for: str = ""
    default: float = 0.0

    def __hash__(self) -> int:
        return hash((self.tensor, self.projection))  # sufficient, and many caches are keyed by accesses

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables that index the tensor, in order of first appearance."""
        return tuple(dict.fromkeys(v for expr in self.projection for v in expr.variables))


@dataclass(frozen=True)
class Einsum:
    """One Einsum. `constraints` define the iteration space completely (shapes and rank sizes included).

    `rank_variables` are in order of first appearance in the accesses. `bounds` is the bounding box: one
    inclusive (low, high) per rank variable, in the same order. `n_instances` includes the factor of the whole
    workload.
    """

    name: str
    rank_variables: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    accesses: tuple[TensorAccess, ...]
    bounds: tuple[tuple[int, int], ...]
    is_copy: bool = False
    n_instances: int = 1
    renames: tuple[tuple[str, frozenset[str]], ...] = ()
    operations: tuple[tuple[str, str | None], ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.bounds))  # sufficient, and many caches are keyed by Einsums

    def __repr__(self) -> str:
        return f"Einsum({self.name}: {with_remarks(self)})"

    def __str__(self) -> str:
        return f"{self.name}: {with_remarks(self)}; {sizes_text(self)}"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor once, in order of first access."""
        return tuple(dict.fromkeys(a.tensor for a in self.accesses))

    @property
    def inputs(self) -> tuple[TensorAccess, ...]:
        return tuple(a for a in self.accesses if not a.output)

    @property
    def operands(self) -> tuple[TensorAccess, ...]:
        """The operands of the operation: all inputs but those that stand for another (`stands_for`)."""
        return tuple(a for a in self.inputs if not a.stands_for)

    @property
    def outputs(self) -> tuple[TensorAccess, ...]:
        return tuple(a for a in self.accesses if a.output)

    @cached_property
    def operators(self) -> tuple[tuple[str, int], ...]:
        """The operators that one operation costs as, each with its multiplicity, without the reduction beside
        a `map`. Without a `map`, an operation of one operand costs as its reduction."""
        operations, several = dict(self.operations), len(self.operands)
        if operations.get("cost"):
            return tuple(sorted(Counter((operations["cost"] or "").split()).items()))
        text = operations.get("map") or ("mul" if several > 1 else "")
        if several == 1 and text in ("", *names_of("identity")):
            text, several = operations.get("reduce") or text or "add", 2
        return operators_named(text, several)

    def accesses_of(self, tensor: str) -> tuple[TensorAccess, ...]:
        """All accesses of `tensor`, in order; none if this Einsum does not touch it."""
        return tuple(a for a in self.accesses if a.tensor == tensor)

    def access_of(self, tensor: str) -> TensorAccess:
        """The access that writes `tensor`, else the first that reads it; KeyError if there is none."""
        result = self.accesses_of(tensor)
        if not result:
            raise KeyError(f"Einsum {self.name} does not access {tensor}")
        return next((a for a in result if a.output), result[0])

    def indexing(self, tensor: str) -> tuple[str, ...]:
        """Rank variables that index `tensor` in any of its accesses, in order of first appearance."""
        return tuple(dict.fromkeys(v for a in self.accesses_of(tensor) for v in a.variables))

    def bound(self, variable: str) -> tuple[int, int]:
        """Inclusive (low, high) of a rank variable over the whole iteration space."""
        return self.bounds[self.rank_variables.index(variable)]

    @cached_property
    def iteration_space(self) -> islpy.Set:
        """The iteration space as an ISL set, dimensions named after the rank variables."""
        return set_from_constraints(self.name, self.rank_variables, self.constraints)

    def access(self, tensor: str) -> islpy.Map:
        """The access relation `iteration space -> tensor` as an ISL map, restricted to the iteration space.

        With several accesses of the tensor it is their union. Raises KeyError if there is none.
        """
        first = self.access_of(tensor)
        result = self.relation(first)
        for other in self.accesses_of(tensor):
            if other is not first:
                result = result.union(self.relation(other)).coalesce()
        return result

    def relation(self, access: TensorAccess) -> islpy.Map:
        """The relation `iteration space -> tensor` of one access."""
        ends = self.name, self.rank_variables, access.tensor
        made = map_from_affine(*ends, access.ranks, access.projection)
        within = set_from_constraints(self.name, self.rank_variables, (*self.constraints, *access.guard))
        return made.intersect_domain(within)


@dataclass(frozen=True)
class Cascade:
    """The Einsums of a workload in execution order, with their data dependences.

    `generational`: by tensor the ranks along which it is carried forward from iteration to iteration. `init`:
    the values of generations that no Einsum writes; `boundary`: the values beyond the edges of other ranks
    (those of `init` unless given).
    """

    einsums: tuple[Einsum, ...]
    rank_sizes: tuple[tuple[str, int], ...] = ()
    name: str = ""
    generational: tuple[tuple[str, tuple[str, ...]], ...] = ()
    init: tuple[tuple[str, float | str], ...] = ()
    boundary: tuple[tuple[str, float | str], ...] = ()

    def __repr__(self) -> str:
        return f"Cascade({f'{self.name}: ' if self.name else ''}{names_text(self)})"

    def __str__(self) -> str:
        return table_text(self)

    def _repr_svg_(self) -> str:
        """For notebooks: Einsums and tensors as a graph."""
        return drawn("svg_cascade", "cascade_svg", self)

    def __getitem__(self, name: str) -> Einsum:
        result = self._named.get(name)
        if result is None:
            raise KeyError(f"no Einsum {name}; there are {', '.join(e.name for e in self.einsums)}")
        return result

    def __iter__(self) -> Iterator[Einsum]:
        return iter(self.einsums)

    def __len__(self) -> int:
        return len(self.einsums)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor, in order of first appearance."""
        return tuple(dict.fromkeys(t for e in self.einsums for t in e.tensors))

    def producer(self, tensor: str) -> Einsum | None:
        """The Einsum that writes `tensor`, None for a workload input."""
        return next(iter(self._ends[True].get(tensor, ())), None)

    def consumers(self, tensor: str) -> tuple[Einsum, ...]:
        """Einsums that read `tensor`, in execution order."""
        return self._ends[False].get(tensor, ())

    def earlier_readers(self, tensor: str) -> tuple[Einsum, ...]:
        """The Einsums that read earlier generations of `tensor`: its producer, and consumers that precede
        it."""
        return self._earlier.get(tensor, ())

    @cached_property
    def recurrent(self) -> tuple[str, ...]:
        """Tensors that are carried forward: read by their producer or by an Einsum before it."""
        return tuple(self._earlier)

    @cached_property
    def shifted(self) -> tuple[str, ...]:
        """The recurrent tensors, and those of which only later Einsums read generations that no Einsum writes
        (`init`)."""
        guarded = (a.tensor for e in self.einsums for a in e.inputs if a.guard and not a.stands_for)
        return tuple(dict.fromkeys((*self._earlier, *(t for t in guarded if t in self._ends[True]))))

    @cached_property
    def _earlier(self) -> Mapping[str, tuple[Einsum, ...]]:
        place = {e.name: i for i, e in enumerate(self.einsums)}
        result = {}
        for tensor in self._ends[True]:
            maker = self._ends[True][tensor][0]
            earlier = tuple(e for e in self.consumers(tensor) if place[e.name] <= place[maker.name])
            if earlier:
                result[tensor] = earlier
        return result

    def accesses_of(self, tensor: str) -> tuple[TensorAccess, ...]:
        """All accesses of `tensor`, in execution order."""
        return self._accesses.get(tensor, ())

    @cached_property
    def _accesses(self) -> Mapping[str, tuple[TensorAccess, ...]]:
        result: dict[str, tuple[TensorAccess, ...]] = {}
        for access in (a for e in self.einsums for a in e.accesses):
            result[access.tensor] = (*result.get(access.tensor, ()), access)
        return result

    @cached_property
    def _named(self) -> Mapping[str, Einsum]:
        return {e.name: e for e in reversed(self.einsums)}

    @cached_property
    def _ends(self) -> tuple[Mapping[str, tuple[Einsum, ...]], Mapping[str, tuple[Einsum, ...]]]:
        """By tensor the Einsums that read it, and by tensor those that write it."""
        ends: tuple[dict[str, tuple[Einsum, ...]], dict[str, tuple[Einsum, ...]]] = ({}, {})
        for e in self.einsums:
            for tensor, output in dict.fromkeys((a.tensor, a.output) for a in e.accesses):
                ends[output][tensor] = (*ends[output].get(tensor, ()), e)
        return ends

    @cached_property
    def intermediates(self) -> frozenset[str]:
        """Tensors written by one Einsum and read by another."""
        makers = {t: self.producer(t) for t in self.tensors}
        return frozenset(t for t, e in makers.items() if e and any(c is not e for c in self.consumers(t)))

    @cached_property
    def shared(self) -> frozenset[str]:
        """Tensors that more than one Einsum touches."""
        return frozenset(
            t for t, many in Counter(t for e in self.einsums for t in e.tensors).items() if many > 1
        )

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """Einsums and tensors as a bipartite DiGraph (`kind` on nodes), edges along the data."""
        import networkx

        graph: networkx.DiGraph = networkx.DiGraph()
        for einsum in self.einsums:
            graph.add_node(("einsum", einsum.name), kind="einsum", name=einsum.name)
            for access in einsum.accesses:
                graph.add_node(("tensor", access.tensor), kind="tensor", name=access.tensor)
                ends = (("tensor", access.tensor), ("einsum", einsum.name))
                graph.add_edge(*(reversed(ends) if access.output else ends))
        return graph


def einsum_text(e: Einsum) -> str:
    """The Einsum as text: `T1[m, n1] = T0[m, n0] * W0[n0, n1]`; a rank is named where it differs from its
    index.

    Operands are joined by the operator of `operations: {map: ...}`: `A[m] + B[m]`, `exp(A[m])`, `max(A[m],
    B[m])`.
    """
    return " ".join(einsum_words(e))


def einsum_words(e: Einsum) -> tuple[str, ...]:
    """The same text in pieces between which a line may be broken; an operator precedes its operand."""
    reduce = dict(e.operations).get("reduce") or "add"
    equals = f"{SIGNS.get(reduce, reduce)}=" if any(a.accumulates for a in e.outputs) else "="
    spaced = f"{', '.join(_access(a) for a in e.outputs)} {equals} {_mapped(e)}"
    words: list[str] = []
    for word in spaced.split(" "):
        if words and (words[-1] in _OPERATORS or words[-1].endswith("=")):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return tuple(word.replace(_HARD, " ") for word in words)


def _access(a: TensorAccess) -> str:
    parts = [
        str(x) if str(x).upper() == rank else f"{rank}={x}"
        for rank, x in zip(a.ranks, a.projection, strict=True)
    ]
    return f"{a.tensor}[{', '.join(parts)}]".replace(" ", _HARD)


def _mapped(e: Einsum) -> str:
    """The operands, joined by the Einsum's `map`."""
    operands = [_access(a) for a in e.operands]
    operation = dict(e.operations).get("map") or "mul"
    sign = SIGNS.get(operation)
    if sign is not None:
        return f" {sign} ".join(operands)
    if re.fullmatch(r"\w+", operation):
        return f"{operation}({', '.join(operands)})"
    numbered = {f"_{i}": text for i, text in enumerate(operands)}
    return re.sub(r"\b_\d+\b", lambda found: numbered.get(found[0], found[0]), operation)


def remarks(e: Einsum) -> tuple[str, ...]:
    """What the formula cannot show: a copy, a reduction other than a sum, an operator applied to the
    result."""
    done = {k: v for k, v in e.operations if v and (k == "populate" or (k == "reduce" and v != "add"))}
    return (*(["copy"] if e.is_copy else []), *(f"{k}: {v}" for k, v in done.items()))


def with_remarks(e: Einsum) -> str:
    """The formula with its remarks and the number of instances."""
    noted = f" ({'; '.join(remarks(e))})" if remarks(e) else ""
    return einsum_text(e) + noted + (f" x {e.n_instances}" if e.n_instances > 1 else "")


def sizes_text(e: Einsum) -> str:
    """`m 16, i -2..4`: the size of each rank variable, or its range where it does not start at 0."""
    ranges = zip(e.rank_variables, e.bounds, strict=True)
    return ", ".join(f"{v} {low}..{high}" if low else f"{v} {high + 1}" for v, (low, high) in ranges)


def names_text(cascade: Cascade) -> str:
    names = [e.name for e in cascade]
    if len(names) > 2 * NAMES:
        names[NAMES:-NAMES] = ["..."]
    return ", ".join(names)


def table_text(cascade: Cascade) -> str:
    """A heading, and a line for each Einsum: its name, projections and rank variables with their sizes."""
    many = len(cascade)
    between = [t for t in cascade.tensors if t in cascade.intermediates]
    told = between if len(between) <= 2 * NAMES else [*between[:NAMES], "...", *between[-NAMES:]]
    noted = f" (intermediates {', '.join(told)})" if told else ""
    head = f"Cascade {cascade.name}".rstrip()
    lines = [f"{head}: {many} Einsum{'s' if many != 1 else ''}, {len(cascade.tensors)} tensors{noted}"]
    few = many <= 2 * ENDS
    some = cascade.einsums if few else (*cascade.einsums[:ENDS], *cascade.einsums[-ENDS:])
    rows = [(e.name, with_remarks(e), sizes_text(e)) for e in some]
    names, formulas = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    lines += [f"  {n.ljust(names)}  {f.ljust(formulas)}  {sizes}".rstrip() for n, f, sizes in rows]
    if not few:
        lines.insert(1 + ENDS, f"  ... {many - len(some)} more; one of them: workload[name]")
    return "\n".join(lines)


def _of_box(c: Constraint, ranges: Mapping[str, tuple[int, int]]) -> bool:
    """True if the ranges of the rank variables already imply the constraint."""
    ends = [sorted(k * x for x in ranges[v]) for v, k in c.expr.terms]
    low, high = (c.expr.constant + sum(end[i] for end in ends) for i in (0, 1))
    return (c.kind == "ge" and low >= 0) or (c.kind == "eq" and low == high == 0)


def cascade_text(cascade: Cascade) -> str:
    """One line per Einsum with the ranges of its rank variables, and constraints that cut into these."""
    lines = []
    wide = max((len(e.name) for e in cascade), default=0)
    for e in cascade:
        ranges = ", ".join(
            f"{low} <= {v} <= {high}" for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)
        )
        ranged = dict(zip(e.rank_variables, e.bounds, strict=True))
        cut = "".join(f", {c}" for c in e.constraints if not _of_box(c, ranged))
        lines.append(f"{e.name.ljust(wide)}  {with_remarks(e)}    {ranges}{cut}")
    known = {a.tensor: a.density for e in cascade for a in e.accesses if a.density is not None}
    if known:
        lines.append("densities: " + ", ".join(f"{name} {written}" for name, written in known.items()))
    return "\n".join(lines) + "\n"


def values_text(cascade: Cascade) -> str:
    """One line each for the bits per value, the persistent tensors and the scaled backing storage."""
    accesses = {a.tensor: a for e in cascade for a in e.accesses}
    widths = {t: f"{a.bits_per_value}" for t, a in accesses.items()}
    bits = _by_value(widths) if len(set(widths.values())) > 1 else "".join(set(widths.values()))
    scaled = {t: f"{float(a.backing_scale):g}" for t, a in accesses.items() if a.backing_scale != 1}
    staying = [t for t, a in accesses.items() if a.persistent]
    lines = [f"bits per value: {bits}"]
    lines += [f"persistent: {', '.join(staying)}"] if staying else []
    forward = [f"{t} along {', '.join(ranks)}" for t, ranks in cascade.generational]
    before, beyond = (
        [f"{t} {value:g}" if isinstance(value, float) else f"{t} {value}" for t, value in given]
        for given in (cascade.init, cascade.boundary)
    )
    lines += [f"carried forward: {', '.join(forward)}"] if forward else []
    lines += [f"before the first generation: {', '.join(before)}"] if before else []
    lines += [f"beyond the edges: {', '.join(beyond)}"] if beyond else []
    absent = {a.tensor: a.default for a in accesses.values() if a.default}
    lines += [f"absent points hold: {', '.join(f'{t} {x:g}' for t, x in absent.items())}"] if absent else []
    lines += [f"backing storage size scale: {_by_value(scaled)}"] if scaled else []
    return "".join(f"{line}\n" for line in lines)


def _by_value(values: Mapping[str, str]) -> str:
    """`8 of A, B; 16 of C`."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return "; ".join(f"{value} of {', '.join(names)}" for value, names in groups.items())


def touched(cascade: Cascade, tensor: str) -> islpy.Set:
    """The elements of a tensor that any Einsum accesses in any iteration."""
    result: islpy.Set | None = None
    for einsum in cascade:
        if tensor in einsum.tensors:
            here = einsum.access(tensor).range()
            result = here if result is None else result.union(here)
    assert result is not None, "every tensor is touched"
    return result


def is_range_bound(constraint: Constraint) -> bool:
    """True for `v >= low` and `v <= high`: one side of a range, which `resized` replaces with the extent of
    `v`."""
    terms = constraint.expr.terms
    return constraint.kind == "ge" and len(terms) == 1 and abs(terms[0][1]) == 1


def resized(cascade: Cascade, extents: Mapping[str, int]) -> Cascade:
    """The same Einsums over boxes of other extents (rank variable -> extent); lower bounds and constraints
    over several rank variables stay, and the caller ensures that these still hold."""
    return replace(cascade, einsums=tuple(_resized(e, extents) for e in cascade.einsums))


def boxed(cascade: Cascade) -> Cascade:
    """The same Einsums over their whole bounding boxes."""
    return replace(cascade, einsums=tuple(_boxed(e) for e in cascade.einsums))


def _boxed(einsum: Einsum) -> Einsum:
    sides: list[Constraint] = []
    for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True):
        sides += [Constraint(Affine(((v, 1),), -low)), Constraint(Affine(((v, -1),), high))]
    return replace(einsum, constraints=tuple(sides))


def _resized(einsum: Einsum, extents: Mapping[str, int]) -> Einsum:
    bounds, sides = [], []
    for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True):
        high = low + extents[v] - 1 if v in extents else high
        bounds.append((low, high))
        if v in extents:
            sides += [Constraint(Affine(((v, 1),), -low)), Constraint(Affine(((v, -1),), high))]
    kept = [c for c in einsum.constraints if not (is_range_bound(c) and c.expr.terms[0][0] in extents)]
    return replace(einsum, bounds=tuple(bounds), constraints=(*sides, *kept))


# Einsums as most rooms handle them: one access per tensor, and nothing carried between iterations.
#
# Rooms that handle more do not call it.


def require_plain(
    einsums: Iterable[Einsum],
    what: str,
    remedy: str,
    products: bool = False,
    carried: bool = False,
    several: bool = False,
) -> None:
    """Raise Refused for an Einsum that accesses a tensor several times or accumulates into existing values,
    and for a cascade that carries a tensor forward. `what` (e.g. "slopes cover") begins the message.

    With `products` an Einsum may accumulate, and read one element of a tensor several times; with `several`
    it may read several elements; with `carried` a cascade may carry tensors forward.
    """
    forward = einsums.shifted if isinstance(einsums, Cascade) else ()
    if isinstance(einsums, Cascade) and forward and not carried:
        found = f"{forward[0]} is carried from one iteration to the next; {what} cascades without that"
        raise Refused(found, remedy, code="unsupported-recurrence")
    for one in einsums:
        for access in one.accesses:
            if access.accumulates and not products:
                found = f"{one.name} adds to {access.tensor}; {what} Einsums that make their results anew"
                raise Refused(found, remedy, code="unsupported-recurrence")
            if access.guard and not (carried and (access.stands_for or access.tensor in forward)):
                found = f"{one.name} reads {access.tensor} of the iteration before"
                if access.stands_for:
                    found = f"{one.name} reads {access.tensor} in its first iteration alone"
                found = f"{found}; {what} Einsums without that"
                raise Refused(found, remedy, code="unsupported-recurrence")
        for tensor in (t for t in one.tensors if not several and not (carried and t in forward)):
            found_here = one.accesses_of(tensor)
            if len({a.projection for a in found_here} if products else found_here) > 1:
                how = "at several elements" if products else f"{len(found_here)} times"
                others = "touch one element" if products else "access each tensor once"
                found = f"{one.name} accesses {tensor} {how}; {what} Einsums that {others}"
                raise Refused(found, remedy, code="unsupported-einsum")


# How often a cascade has to walk the fibers of a tensor's rank, whatever the mapping (FuseMax, MICRO 2024).
#
# An Einsum that reads the result of a reduction over a rank and itself iterates over that rank begins another
# pass: the result is complete only after the pass that reduces. Softmax over a row of scores takes three:
# for its maximum, for its sum, for the quotient.


@dataclass(frozen=True)
class Passes:
    """The least number of passes over each fiber of `rank` of an input, or over what is derived from it along
    that rank, the Einsums that begin a pass, and the derived tensor that each reads (empty: the input)."""

    tensor: str
    rank: str
    passes: int
    begun_by: tuple[str, ...]
    over: tuple[str, ...]


def passes(cascade: Cascade) -> tuple[Passes, ...]:
    """One row for each rank of each workload input, in their order.

    Passes are followed through ranks that a single rank variable indexes. A tensor that is carried forward
    along the rank is known up to the current position, so that it begins no new pass.
    """
    inputs = [t for t in cascade.tensors if cascade.producer(t) is None]
    first = {t: cascade.accesses_of(t)[0] for t in inputs}
    return tuple(_walked(cascade, t, rank) for t in inputs for rank in first[t].ranks)


def _walked(cascade: Cascade, tensor: str, rank: str) -> Passes:
    along: dict[tuple[str, str], int] = {
        (tensor, rank): 1
    }  # (tensor, rank) -> the pass that iterates over it
    ended: dict[str, int] = {}  # tensors that are complete at the end of a pass
    begun: dict[int, tuple[str, str]] = {}
    for e in cascade:
        walking = {v: along[key] for key, v in _indices(e) if key in along}
        known = [ended[a.tensor] for a in e.inputs if a.tensor in ended]
        known += [along[key] for key, v in _indices(e) if key in along and not v]
        walking.pop("", None)
        read = [t for (t, r), v in _indices(e) if v and (t, r) in along]
        if not walking:
            ended.update((a.tensor, max(known)) for a in e.outputs if known)
            continue
        level = max([*walking.values(), *(n + 1 for n in known)])
        begun.setdefault(level, (e.name, "" if tensor in read else read[0]))
        for access in e.outputs:
            ranks = zip(access.ranks, access.projection, strict=True)
            kept = [r for r, x in ranks if set(x.variables) & set(walking)]
            along.update(((access.tensor, r), level) for r in kept)
            if not kept:
                ended[access.tensor] = level
    names, over = ([begun[n][k] for n in sorted(begun)] for k in (0, 1))
    return Passes(tensor, rank, max(begun, default=0), tuple(names), tuple(over))


def _indices(e: Einsum) -> Iterator[tuple[tuple[str, str], str]]:
    """((tensor, rank), the rank variable that indexes it) for every read of an Einsum; "" for constants."""
    for access in e.operands:
        for rank, expr in zip(access.ranks, access.projection, strict=True):
            if len(expr.variables) <= 1:
                yield (access.tensor, rank), (*expr.variables, "")[0]
