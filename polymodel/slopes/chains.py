"""Chains of Einsums: each hands one tensor to the next, and loops over its ranks may be fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.slopes.levels import BY_HAND, check_einsum
from polymodel.slopes.tile_sizes import extent, overlapping
from polymodel.workload.einsum import Cascade, Einsum, require_plain

GRAPHS = "for branches, residuals and Einsums apart call pm.graph_slope(spec); "
GRAPHS += "for a part that is a chain, name it: einsums=[...]"
INSTEAD = "evaluate or sweep mappings of it instead: polymodel.sweep"


@dataclass(frozen=True)
class Chain:
    """Einsums in order, and the tensor that each but the last hands to the next."""

    einsums: tuple[Einsum, ...]
    links: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.einsums)

    def next_variable(self, i: int, variable: str) -> str | None:
        """The rank variable of Einsum i + 1 that goes over the same rank of the tensor handed on."""
        link = self.links[i]
        here, there = (self.einsums[k].access_of(link).variables for k in (i, i + 1))
        return there[here.index(variable)] if variable in here else None

    def co_iterated(self, first: int, last: int) -> tuple[tuple[str, ...], ...]:
        """What fused loops of the Einsums first to last may go over: one rank variable of each Einsum.

        Every tensor handed on within the group is indexed by it, so no partial sum is handed on (FFMR).
        Rank variables of extent 1 have nothing to fuse.
        """
        result = []
        for start in self.einsums[first].rank_variables:
            variables: list[str | None] = [start]
            for i in range(first, last):
                at = variables[-1]
                variables.append(at and self.next_variable(i, at))
            if None not in variables and extent(self.einsums[first], start) > 1:
                result.append(tuple(v for v in variables if v))
        return tuple(result)


def chain_of(cascade: Cascade, names: Sequence[str] | None = None) -> Chain:
    """The chain of these Einsums, by default all, in order of execution.

    SpecError for fewer than two, Refused where they are no chain (branches, residuals,
    copies), NotSeparable for windows, among them halos between Einsums, and for spaces that are no box.
    """
    require_plain(cascade, "slopes cover", BY_HAND)
    einsums = tuple(e for e in cascade if names is None or e.name in names)
    if len(einsums) < 2:
        what = f"a chain has at least two Einsums, here there is {len(einsums)}"
        raise SpecError([Diagnostic(what, "for a single one call ski_slope")])
    for one in einsums:
        _check(one)
    for a, b in pairwise(einsums):
        if a.n_instances != b.n_instances:
            what = f"{a.name} runs in {a.n_instances} instances, {b.name} in {b.n_instances}"
            raise Refused(what, "name Einsums that run equally often: einsums=[...]")
    links = tuple(_link(a, b) for a, b in pairwise(einsums))
    _check_sharing(einsums, links)
    return Chain(einsums, links)


def _check(one: Einsum) -> None:
    if one.is_copy:
        raise Refused(f"{one.name} is a copy, which holds nothing", "leave it out: einsums=[...]")
    check_einsum(one)
    for a in one.accesses:
        if overlapping(one, a):
            raise NotSeparable(f"{a.tensor} of {one.name} has windows; slopes of chains are without", INSTEAD)


def _link(producer: Einsum, consumer: Einsum) -> str:
    link = producer.outputs[0].tensor
    if link not in (a.tensor for a in consumer.inputs):
        raise Refused(
            f"{consumer.name} does not read {link}, the result of {producer.name}: no chain", GRAPHS
        )
    here, there = producer.access_of(link), consumer.access_of(link)
    for access, one in ((here, producer), (there, consumer)):
        plain = all(
            len(e.variables) == 1 and e.terms[0][1] == 1 and not e.constant for e in access.projection
        )
        if not plain or len(access.variables) != len(access.projection):
            what = f"{one.name} does not go over {link} with one rank variable per rank"
            raise NotSeparable(what, INSTEAD)
    for v, w in zip(here.variables, there.variables, strict=True):
        if producer.bound(v) != consumer.bound(w):
            raise NotSeparable(f"{consumer.name} reads another part of {link} than there is", INSTEAD)
    return link


def _check_sharing(einsums: tuple[Einsum, ...], links: tuple[str, ...]) -> None:
    users: dict[str, list[str]] = {}
    for one in einsums:
        for tensor in one.tensors:
            users.setdefault(tensor, []).append(one.name)
    for tensor, names in users.items():
        if len(names) > (2 if tensor in links else 1):
            what = f"{tensor} is used by {' and '.join(names)}: a graph with branches, not a chain"
            raise Refused(what, GRAPHS)
