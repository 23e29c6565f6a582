"""Restrict position-dependent models to what an Einsum accesses: the part of a tensor that it touches, and
the operations whose operands are nonzero.

Under a position-independent model every point is equally likely to be nonzero. For a position-dependent model
it matters which points are touched, how often, and together with which points of other operands.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import gcd, prod
from string import ascii_letters

import numpy as np

from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.polyhedra.sets import set_from_constraints, size
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import GroupTable, joined_rows
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.points import points_of
from polymodel.sparse.actions.records import Certainty, least_certain
from polymodel.sparse.actions.zeros import is_union, unstopped
from polymodel.sparse.density.model import MOST_PLACES, Floats
from polymodel.workload.einsum import Einsum, TensorAccess


def seen_by(einsum: Einsum, data: Mapping[str, TensorData]) -> dict[str, TensorData]:
    """Return what is known of every tensor, with position-dependent models restricted to the points that the
    Einsum touches.

    Raises Refused where the restriction does not follow from the model of the whole tensor.
    """
    result = dict(data)
    for access in einsum.accesses:
        known = data.get(access.tensor)  # an output is not known before its operands are
        if known is None or known.placeless or known.dense or known.actual is not None:
            continue
        if len({a.projection for a in einsum.accesses_of(access.tensor)}) > 1:
            if pairs_met(einsum, access.tensor, known) is not None:
                continue
            raise Refused(
                f"{einsum.name} reads {access.tensor} at several elements, and {type(known.model).__name__} "
                "does not tell how often these are nonzero together",
                f"give {access.tensor} a uniform density, or its nonzeros",
                code="unsupported-density",
            )
        assert known.model is not None, "what is not placeless has a model"
        touched = touched_by(einsum, access)
        if touched == tuple(map(range, known.model.shape)):
            continue
        below = touched is None or any(t.start < 0 for t in touched)
        part = None if touched is None or below else known.model.part(touched)
        if part is None:
            raise Refused(
                f"{einsum.name} touches a part of {access.tensor}, of which {type(known.model).__name__} "
                "does not tell the nonzeros",
                f"set the rank sizes of {access.tensor} to what is touched, or give its nonzeros",
                code="unsupported-density",
            )
        result[access.tensor] = replace(known, model=part)
    return result


def pairs_met(einsum: Einsum, tensor: str, known: TensorData) -> float | None:
    """Return the expected number of pairs of nonzeros that two accesses of one matrix touch together, if they
    share one rank variable: pairs in a column and a row of the same number (A x A), or pairs in one row (A x
    A^T) or column. Return None where the model does not determine it, or the accesses have another form."""
    accesses, model = different(einsum.accesses_of(tensor)), known.model
    if model is None or len(model.shape) != 2 or len(accesses) != 2 or is_union(einsum):
        return None
    if not all(each_once(a) and touched_by(einsum, a) == tuple(map(range, model.shape)) for a in accesses):
        return None
    first, second = ([x.terms[0][0] if x.terms else "" for x in a.projection] for a in accesses)
    shared = [v for v in first if v in second]
    if len(shared) != 1 or "" in (*first, *second):
        return None
    one, other = first.index(shared[0]), second.index(shared[0])
    if one == other:
        line = [1 if i == one else s for i, s in enumerate(model.shape)]
        return float(model.expected_squares(line))
    return model.square_multiplies() if model.shape[0] == model.shape[1] else None


def each_once(access: TensorAccess) -> bool:
    """Return True if every iteration of a tensor's rank variables touches a different point of it."""
    names = [v for x in access.projection for v in x.variables]
    return all(len(x.terms) < 2 for x in access.projection) and len(set(names)) == len(names)


def differs(known: TensorData, access: TensorAccess) -> bool:
    """Return True if some points of a tensor are more likely to be nonzero than others, which always holds
    for given data."""
    return not known.dense and not known.alike((1,) * len(access.projection))


def touched_by(einsum: Einsum, access: TensorAccess) -> tuple[range, ...] | None:
    """Return the coordinates of a tensor that an Einsum touches, rank by rank; None where their gaps have
    several lengths. If the iteration space is not a box, the bounding box is used."""
    result = []
    for x in access.projection:
        terms = [(c, einsum.bound(v)) for v, c in x.terms]
        terms = [(c, (low, high)) for c, (low, high) in terms if high > low]
        fixed = x.value({v: einsum.bound(v)[0] for v in x.variables})
        low = fixed + sum(min(0, c * (b[1] - b[0])) for c, b in terms)
        high = fixed + sum(max(0, c * (b[1] - b[0])) for c, b in terms)
        step = gcd(*(c for c, _ in terms)) or 1
        reach = 0
        for c, (first, last) in sorted(terms, key=lambda term: abs(term[0])):
            if abs(c) > reach + step:
                return None
            reach += abs(c) * (last - first)
        result.append(range(low, high + 1, step))
    return tuple(result)


@dataclass(frozen=True)
class Effectual:
    """The points of an Einsum's space (or of its bounding box) whose result may be nonzero: `number` out of
    `of`. `number` is an int where all zeros are given."""

    number: float
    of: int
    label: Certainty


def effectual_points(
    einsum: Einsum, data: Mapping[str, TensorData], absent: Container[str] = ()
) -> Effectual:
    """Return the points at which all factors of a product, or any term of a sum, are nonzero. `data`: what is
    known of the tensors that the Einsum accesses. `absent`: recurrent tensors whose elements before the first
    generation are zero."""
    passing = unstopped(einsum)
    inputs = [a for a in different(einsum.operands) if a not in passing]
    carried = [a for a in inputs if a.guard and not data[a.tensor].dense]
    if carried:
        return _by_generation(einsum, data, absent, carried, inputs)
    return _effectual(einsum, data, inputs)


def _by_generation(
    einsum: Einsum,
    data: Mapping[str, TensorData],
    absent: Container[str],
    carried: list[TensorAccess],
    stops: list[TensorAccess],
) -> Effectual:
    """Return the effectual points where an iteration may read elements before the first generation. The space
    is divided into parts in each of which the same accesses read an earlier generation."""
    names, space = einsum.rank_variables, einsum.constraints
    points = size(set_from_constraints(einsum.name, names, space))
    number, labels = 0.0, []
    for n in range(2 ** len(carried)):
        before = [a for i, a in enumerate(carried) if n >> i & 1]
        zero = any(a.tensor in absent for a in before)  # one that stops operations
        guards = [g for a in carried if a not in before for g in a.guard]
        guards += [_outside(einsum, a) for a in before]
        here = size(set_from_constraints(einsum.name, names, (*space, *guards)))
        if not here or (zero and not is_union(einsum)):
            continue
        inputs = [a for a in stops if a not in before]
        if is_union(einsum) and not all(a.tensor in absent for a in before):
            found = Effectual(1, 1, "exact")
        else:
            found = _effectual(einsum, data, inputs)
        number += here * found.number / found.of
        labels.append(found.label)
    known = all(d.placeless and d.actual is None for a in einsum.operands for d in [data[a.tensor]])
    return Effectual(number / points, 1, least_certain(labels or ["exact"]) if known else "estimate")


def _outside(einsum: Einsum, access: TensorAccess) -> Constraint:
    """Return the constraint under which a guarded access touches nothing."""
    if len(access.guard) != 1 or access.guard[0].kind != "ge":
        raise Refused(
            f"{einsum.name} reads {access.tensor}, which is carried along several ranks and may hold zeros",
            f"say that it has none (densities: {{{access.tensor}: 1}})",
            code="unsupported-recurrence",
        )
    return Constraint(Affine((), -1) - access.guard[0].expr)


def _effectual(einsum: Einsum, data: Mapping[str, TensorData], inputs: list[TensorAccess]) -> Effectual:
    sparse = [a for a in inputs if not data[a.tensor].dense]
    union = is_union(einsum)
    if not sparse or (union and len(sparse) < len(inputs)):
        return Effectual(1, 1, "exact")
    if all(data[a.tensor].placeless and data[a.tensor].actual is None for a in inputs):
        chance = 1 - all_alike(einsum, data, inputs, False) if union else all_alike(einsum, data, inputs)
        return Effectual(chance, 1, "expected")
    box = _Box(einsum, data)
    if not union:
        return box.all_nonzero(sparse)
    number: float = 0  # an int as long as all that is added is one
    points = box.points
    labels: list[Certainty] = []
    for n in range(1, len(sparse) + 1):
        for some in combinations(sparse, n):
            found = box.all_nonzero(some)
            # Inclusion and exclusion.
            number -= (-1) ** n * (found.number if found.of == points else found.number * points / found.of)
            labels.append(found.label)
    return Effectual(number, points, least_certain(labels))


def result_density(einsum: Einsum, data: Mapping[str, TensorData], reduced: Sequence[str]) -> float:
    """Return the mean probability that a point of the output is nonzero, with its operations taken as
    independent. `data`: the densities that the Einsum accesses. `reduced`: the variables that are summed
    over."""
    sparse = [a for a in different(einsum.inputs) if not data[a.tensor].dense]
    return _Box(einsum, data).any_nonzero(sparse, reduced)


def different(accesses: Sequence[TensorAccess]) -> list[TensorAccess]:
    """Remove accesses that touch the same element of a tensor as an earlier one."""
    return list({(a.tensor, a.projection): a for a in reversed(accesses)}.values())[::-1]


def all_alike(
    einsum: Einsum, data: Mapping[str, TensorData], accesses: Sequence[TensorAccess], nonzero: bool = True
) -> float:
    """Return the probability that at a point none of these distinct accesses is zero, or (`nonzero` False)
    that all are. `data`: position-independent densities."""
    result = 1.0
    for tensor in dict.fromkeys(a.tensor for a in accesses):
        mine, known = [a for a in accesses if a.tensor == tensor], data[tensor]
        if len(mine) == 1:
            result *= known.density if nonzero else 1 - known.density
        elif not known.dense:
            pairs = _elements_of(einsum, mine)
            result *= sum(share * _all_of(known, count, nonzero) for count, share in pairs if share)
        elif not nonzero:
            return 0.0
    return result


def _all_of(known: TensorData, count: int, nonzero: bool) -> float:
    """Return the probability that this many different elements are all nonzero, or all zero."""
    laws = ((w, law.points, law.nnz if nonzero else law.points - law.nnz) for w, law in known.laws)
    return sum(w * prod(max(0, n - i) / (points - i) for i in range(count)) for w, points, n in laws)


def _elements_of(einsum: Einsum, accesses: Sequence[TensorAccess]) -> list[tuple[int, float]]:
    """Return pairs of a number of different elements that some accesses of one tensor touch at a point, and
    the fraction of points at which they do. Raises Refused where three or more accesses may coincide."""
    first, *others = accesses
    if all([x.terms for x in a.projection] == [x.terms for x in first.projection] for a in others):
        return [(len(accesses), 1.0)]
    if len(accesses) > 2:
        raise Refused(
            f"{einsum.name} reads {first.tensor} at {len(accesses)} elements, some of which may be the same: "
            "how often all are nonzero has no formula in its density",
            f"give the nonzeros of {first.tensor}",
            code="unsupported-density",
        )
    pairs = zip(first.projection, others[0].projection, strict=True)
    meeting = tuple(Constraint(a - b, "eq") for a, b in pairs)
    names, bounds = einsum.rank_variables, einsum.constraints
    met = size(set_from_constraints(einsum.name, names, (*bounds, *meeting)))
    share = met / size(set_from_constraints(einsum.name, names, bounds))
    return [(1, share), (2, 1 - share)]


class _Box:
    """The bounding box of the points of an Einsum."""

    def __init__(self, einsum: Einsum, data: Mapping[str, TensorData]) -> None:
        self.einsum = einsum
        self.data = data
        self.size = {
            v: high - low + 1 for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)
        }

    @property
    def points(self) -> int:
        return prod(self.size.values())

    def all_nonzero(self, sparse: Sequence[TensorAccess]) -> Effectual:
        """Return the points at which none of these tensors is zero."""
        given = [a for a in sparse if self.data[a.tensor].actual is not None]
        modelled = [a for a in sparse if a not in given]
        several = [a for a in modelled if sum(a.tensor == o.tensor for o in modelled) > 1]
        modelled = [a for a in modelled if a not in several]
        apart = [a for a in modelled if self._anywhere(a, [o for o in sparse if o is not a])]
        scale, factors, known = self._factors(modelled, apart)
        label: Certainty = "expected" if modelled or several else "exact"
        paired = [a for a in several if not self.data[a.tensor].placeless]
        others = [a for a in several if a not in paired]
        tied = any(self._tied(a, sparse) for a in paired)
        if not known or tied or not is_box(self.einsum) or self._differ_where_shared(others, sparse):
            label = "estimate"
        number: float = self._counted(given, factors)
        of = prod(f.of for f in factors)
        scale *= all_alike(self.einsum, self.data, others)
        scale *= self._pairs(paired)
        return Effectual(number * scale if modelled or several else number, self.points * of, label)

    def _pairs(self, paired: Sequence[TensorAccess]) -> float:
        """Return the fraction of points at which two accesses of one tensor with a position-dependent model
        are both nonzero."""
        result = 1.0
        for tensor in dict.fromkeys(a.tensor for a in paired):
            met = pairs_met(self.einsum, tensor, self.data[tensor])
            assert met is not None, "accesses that are not told were refused"
            names = {v for a in paired if a.tensor == tensor for v in a.variables}
            result *= met / prod(self.size[v] for v in names)
        return result

    def _tied(self, access: TensorAccess, sparse: Sequence[TensorAccess]) -> bool:
        """Return whether another tensor whose density depends on the position shares a rank variable."""
        others = (o for o in sparse if o.tensor != access.tensor and differs(self.data[o.tensor], o))
        return any(set(access.variables) & set(o.variables) for o in others)

    def _differ_where_shared(self, several: Sequence[TensorAccess], sparse: Sequence[TensorAccess]) -> bool:
        """Return True if accesses of one tensor touch the same element at some points only, and the density
        of other tensors depends on the position."""
        others = any(differs(self.data[a.tensor], a) for a in sparse if a not in several)
        return others and any(
            len(_elements_of(self.einsum, [a for a in several if a.tensor == t])) > 1
            for t in {a.tensor for a in several}
        )

    def any_nonzero(self, sparse: Sequence[TensorAccess], reduced: Sequence[str]) -> float:
        """Return the mean probability that for some values of the reduced variables none of these tensors is
        zero, with points taken as independent of each other."""
        alike = [a for a in sparse if not differs(self.data[a.tensor], a)]
        scale, factors, _ = self._factors(sparse, alike)
        names = tuple(dict.fromkeys(v for f in factors for v in f.variables))
        if prod(self.size[v] for v in names) > MOST_PLACES:
            scale, factors, names = prod(self.data[a.tensor].density for a in sparse), [], ()
        chance = np.full([self.size[v] for v in names], scale)
        for f in factors:
            order = np.argsort([names.index(v) for v in f.variables])
            shape = [self.size[v] if v in f.variables else 1 for v in names]
            chance = chance * (np.transpose(f.numbers, order).reshape(shape) / f.of)
        times = prod(self.size[v] for v in reduced if v not in names)
        axes = tuple(i for i, v in enumerate(names) if v in reduced)
        with np.errstate(divide="ignore"):
            log_none = (times * np.log1p(-np.minimum(chance, 1.0))).sum(axis=axes)
        return float(-np.expm1(log_none).mean())

    def _factors(
        self, modelled: Sequence[TensorAccess], anywhere: Sequence[TensorAccess]
    ) -> tuple[float, list[_ProbabilityFactor], bool]:
        """Return the factors of the probability that no modelled tensor is zero: a number, which includes the
        densities of tensors whose positions do not matter, and arrays of probabilities by position. The third
        result is False where some of these arrays are not known."""
        scale, known, factors = 1.0, True, []
        for a in modelled:
            found = None if a in anywhere else self._factor(a)
            known = known and (found is not None or a in anywhere)
            if found is None:
                scale *= self.data[a.tensor].density
            else:
                factors.append(found)
        return scale, factors, known

    def _anywhere(self, access: TensorAccess, others: Sequence[TensorAccess]) -> bool:
        """Return True if the tensor's density applies at these points, whatever the other tensors hold
        there."""
        if not differs(self.data[access.tensor], access):
            return True
        apart = (o for o in others if differs(self.data[o.tensor], o))
        return each_once(access) and not any(set(access.variables) & set(o.variables) for o in apart)

    def _factor(self, access: TensorAccess) -> _ProbabilityFactor | None:
        """Return the probabilities of a tensor's points over its rank variables. Return None where the model
        does not provide them, or where there are too many."""
        model = self.data[access.tensor].model
        touched = touched_by(self.einsum, access)
        place = model.by_place() if model is not None else None
        if place is None or touched is None:
            return None
        names = tuple(dict.fromkeys(v for i in place.axes for v in access.projection[i].variables))
        shape = tuple(self.size[v] for v in names)
        if prod(shape) > MOST_PLACES:
            return None
        index = []
        for i in place.axes:
            x = access.projection[i]
            at = np.full([1] * len(names), x.constant - touched[i].start)
            for v, c in x.terms:
                along = np.reshape(range(*_span(self.einsum, v)), [-1 if n == v else 1 for n in names])
                at = at + c * along
            index.append(at // touched[i].step)
        numbers = place.numbers[tuple(index)] if index else place.numbers
        return _ProbabilityFactor(names, np.broadcast_to(numbers, shape).astype(np.float64), place.of)

    def _counted(self, given: Sequence[TensorAccess], factors: Sequence[_ProbabilityFactor]) -> float:
        """Return the sum of the product of the factors over all points at which no given tensor is zero."""
        tables = [self._table(a) for a in given]
        among = {v for t in tables for v in t.variables}
        within = {v for f in factors for v in f.variables}
        others = prod(n for v, n in self.size.items() if v not in among | within)
        kept = sorted(among & within)
        if not factors:
            return joined_rows(tables).total() * others if tables else others
        if prod(self.size[v] for v in kept) > MOST_PLACES:
            message = f"{self.einsum.name}: too many places at which given and modelled nonzeros meet"
            raise Refused(message, code="too-large")
        letter = dict(zip(self.size, ascii_letters, strict=False))
        parts = [f.alone([v for g in factors if g is not f for v in g.variables] + kept) for f in factors]
        names = ["".join(letter[v] for v in part) for part in (*(f.variables for f in parts), kept)]
        subscripts = f"{','.join(names[:-1])}->{names[-1]}"
        weights: Floats = np.einsum(subscripts, *(f.numbers for f in parts), optimize=True)
        if not tables:
            return float(weights) * others
        rows = joined_rows(tables, kept)
        at = weights[tuple(rows.column(v) for v in kept)]
        return float((rows.weighed().astype(np.float64) * at).sum()) * others

    def _table(self, access: TensorAccess) -> GroupTable:
        actual = self.data[access.tensor].actual
        assert actual is not None, "asked for given tensors only"
        points = points_of(self.einsum, access, actual)
        return GroupTable.of(points.variables, points.columns, points.rows, True)


@dataclass(frozen=True)
class _ProbabilityFactor:
    """The probability numbers / of, as a function of some rank variables."""

    variables: tuple[str, ...]
    numbers: Floats
    of: int

    def alone(self, others: Sequence[str]) -> _ProbabilityFactor:
        """Sum over the variables that no other factor has."""
        mine = [v not in others for v in self.variables]
        kept = tuple(v for v, own in zip(self.variables, mine, strict=True) if not own)
        return _ProbabilityFactor(
            kept, self.numbers.sum(axis=tuple(i for i, own in enumerate(mine) if own)), self.of
        )


def _span(einsum: Einsum, variable: str) -> tuple[int, int]:
    low, high = einsum.bound(variable)
    return low, high + 1
