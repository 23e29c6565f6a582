"""`distribute`: a cascade split over chips, with the time and energy of their exchanges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from polymodel.cost.costs import total_area
from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import seconds_of, spare, terminable
from polymodel.hardware.chips import ChipCount, ChipExchange, ChipPiece, Distribution
from polymodel.hardware.collectives import Bounds, ChipSplit, Exchange, Interconnect, split_of
from polymodel.hardware.search import Answered, SearchTask, answered, mark_of
from polymodel.hardware.stages import (
    BySlot,
    StageSplit,
    joined,
    moved_by_slot,
    stage_split,
    stages_of,
    times_inside,
    together,
)
from polymodel.loading import Spec
from polymodel.mapper.records import Limits
from polymodel.mapper.request import Constraints, of_part, read_search_request, section_of_arguments
from polymodel.objectives import read_objectives
from polymodel.spec.faults import Faults, not_a_spec, plainly
from polymodel.stores.store import check_store, folder_of
from polymodel.workload.einsum import Einsum

Progress = Callable[[int, int, float], None]
Numbers = Sequence[int] | int
FIGURES = ("energy", "latency")
CHIPS = (1, 2, 4, 8)
MOST_CHIPS = 4096  # the most numbers of chips; each is computed separately


def distribute(
    spec: Spec,
    chips: Numbers | None = None,
    *,
    split: Sequence[str] | str,
    stages: Sequence[Sequence[str]] | None = None,
    batches: Numbers | None = None,
    within: Sequence[str] | str | None = None,
    link: Interconnect | None = None,
    whole: bool = True,
    objective: str = "latency",
    constraints: Constraints | None = None,
    time_limit: float | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    store: str | Path | None = None,
    resume: bool = True,
) -> Distribution:
    """The costs of a cascade on several chips of the spec's architecture.

    `chips`: one number or several (default: 1, 2, 4 and 8). `split`: rank variables; each Einsum is split in
    blocks of equal size along the first of them that it has, and computed by every chip if it has none.
    `link`: the interconnect (default: a ring without cost). `whole`: the results of the cascade are required
    on every chip, as the next layer reads them; if False they stay where they are produced, and partial sums
    are reduced there. Inputs are where they are needed.

    `stages`: a pipeline: each stage has Einsums of its own, and the blocks of `split` are `batches` (one
    number or several; default: 1) that pass from stage to stage. In a slot each stage computes one batch;
    then what later stages read is sent. Results stay where they are produced. `chips` then is the number of
    chips per stage (one number for all, or one for each; default: 1), which share each batch along the first
    rank variable of `within` that an Einsum has, as chips without stages do along `split`.

    Einsums between two exchanges are searched together with `explore` for the least `objective` (energy,
    latency or edp) within `constraints`; an exchange begins when all chips have produced the tensor, and
    nothing overlaps. `time_limit`: seconds, divided among the searches. `workers`, `progress(done, searches,
    seconds)`, `store`, `resume`: as for `codesign`. Raises SpecError for wrong input; Refused for cascades
    that iterate, batches that depend on later ones, and for what `explore` does not cover.
    """
    begun = perf_counter()
    if not isinstance(spec, Spec):
        raise not_a_spec("distribute", spec)
    link = link if link is not None else Interconnect()
    names = (split,) if isinstance(split, str) else split
    inner = (within,) if isinstance(within, str) else within
    asked = _checked(spec, chips, names, stages, batches, inner, link, objective, time_limit, store)
    parts = [_part(spec, n, names, asked, whole) for n in asked.counts]
    _check_fused(
        read_search_request(spec, (asked.objective,), constraints, None, None, 1, None).request.limits.fuse,
        [part.work for part in parts],
    )
    orders = _orders(spec, [part.work for part in parts], asked.objective, constraints, store, resume)
    with terminable():
        answers = answered(orders, monotonic() + spare(time_limit), workers, progress, begun)
    rows = tuple(_count(spec, part, answers, asked.objective, link) for part in parts)
    return Distribution(spec, link, rows, asked.objective, perf_counter() - begun)


@dataclass(frozen=True)
class DistributionRequest:
    """The checked arguments. `counts`: numbers of chips, or with stages of batches.

    `widths`: chips of each stage, which share its work along `within`.
    """

    counts: tuple[int, ...]
    stages: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    within: tuple[str, ...]
    objective: str


def _checked(
    spec: Spec,
    chips: object,
    names: object,
    stages: object,
    batches: object,
    within: object,
    link: object,
    objective: str,
    time_limit: object,
    store: object,
) -> DistributionRequest:
    """The checked request. Raises SpecError with every fault."""
    faults = Faults()
    rows: tuple[tuple[str, ...], ...] = ()
    widths: tuple[int, ...] = ()
    if stages is not None:
        with faults.noting():
            rows = stages_of(spec.workload, stages, faults)
        counts = _numbers("batches", batches, (1,), faults)
        widths = _widths(chips, len(rows), within, faults)
    else:
        counts = _numbers("chips", chips, CHIPS, faults)
        for name, given in (("batches", batches), ("within", within)):
            if given is not None:
                what = f"`{name}` is for the stages of a pipeline"
                remedy = f"give `stages`, or leave out `{name}`"
                faults.note(Diagnostic(what, remedy, name, code="ineffective-argument"))
    for name, given in (("split", names), ("within", within or ())):
        if not isinstance(given, Sequence) or not all(isinstance(v, str) for v in given):
            message = f"{given!r} are not rank variables"
            faults.note(Diagnostic(message, "give e.g. ['h', 'c']", name, code="wrong-type"))
    if not isinstance(link, Interconnect):
        remedy = "give pm.Interconnect(topology='ring', throughput=4e11)"
        faults.note(Diagnostic(f"{link!r} is not an interconnect", remedy, "link", code="wrong-type"))
    elif link.shape is not None and any(n != prod(link.shape) for n in ([sum(widths)] if rows else counts)):
        what = f"a mesh of {link.shape[0]} x {link.shape[1]} has {prod(link.shape)} chips"
        remedy = "give that number, or another shape"
        faults.note(Diagnostic(what, remedy, "link.shape", code="inconsistent-values"))
    result, unknown = read_objectives((objective,), (), ())
    if unknown or result[0] not in (*FIGURES, "edp"):
        message = f"unknown objective {objective!r}"
        faults.note(Diagnostic(message, "use energy, latency or edp", "objective", code="unknown-choice"))
    with faults.noting():
        check_store(store)
    with faults.noting():
        seconds_of(plainly(time_limit), "time_limit")
    faults.raise_if_any()
    inner = within if isinstance(within, Sequence) else ()
    return DistributionRequest(counts, rows, widths, tuple(map(str, inner)), result[0])


def _widths(chips: object, stages: int, within: object, faults: Faults) -> tuple[int, ...]:
    """The number of chips of each stage. Reports faults."""
    plain = plainly(chips if chips is not None else 1)
    several = plain if isinstance(plain, Sequence) and not isinstance(plain, str) else [plain]
    several = [*several] * stages if len(several) == 1 else several
    widths = tuple(n for n in map(plainly, several) if type(n) is int and n >= 1)
    if len(widths) < len(several):
        remedy = "give one number, or one for each stage"
        faults.note(Diagnostic(f"{chips!r} are not numbers of chips", remedy, "chips", code="not-a-number"))
    elif stages and len(widths) != stages:
        what = f"{len(widths)} numbers of chips for {stages} stages"
        faults.note(Diagnostic(what, "give one number, or one for each stage", "chips", code="wrong-count"))
    elif sum(widths) > MOST_CHIPS:
        message = f"{sum(widths)} are too many chips"
        faults.note(Diagnostic(message, f"give {MOST_CHIPS} at most", "chips", code="out-of-range"))
    elif any(n > 1 for n in widths) and not within:
        remedy = "name rank variables along which they share it in `within`"
        message = "the chips of a stage have no share of its work"
        faults.note(Diagnostic(message, remedy, "within", code="missing-value"))
    return widths


def _numbers(of: str, given: object, default: tuple[int, ...], faults: Faults) -> tuple[int, ...]:
    """One number of chips or batches, or several. Reports faults."""
    if given is None:
        return default
    plain = plainly(given)
    several = plain if isinstance(plain, Sequence) and not isinstance(plain, str) else (plain,)
    counts = tuple(n for n in map(plainly, several) if type(n) is int and n >= 1)
    if not counts or len({*counts}) < len(several):
        message = f"{given!r} are not numbers of {of}"
        faults.note(Diagnostic(message, "give e.g. [1, 2, 4]", of, code="not-a-number"))
        return ()
    if max(counts) > MOST_CHIPS:
        message = f"{max(counts)} are too many {of}"
        faults.note(Diagnostic(message, f"give {MOST_CHIPS} at most", of, code="out-of-range"))
    return counts


@dataclass(frozen=True)
class ChipPart:
    """One number of chips, or of batches: its exchanges and searches.

    For a pipeline, by tensor and slot: what is exchanged within stages (`inside`), and sent after the slot
    (`sends`).
    """

    split: ChipSplit
    work: Pieces
    exchanges: tuple[Exchange, ...] = ()
    staged: StageSplit | None = None
    inside: tuple[BySlot, ...] = ()
    sends: tuple[BySlot, ...] = ()


def _part(spec: Spec, count: int, names: Sequence[str], asked: DistributionRequest, whole: bool) -> ChipPart:
    cascade = spec.workload
    if not asked.stages:
        split = split_of(cascade, count, names, whole=whole)
        exchanges = split.exchanges()
        groups = _groups(list(cascade), {e.tensor for e in exchanges})
        chips = [(chip,) for chip in range(count)]
        tasks = [PieceTask(tuple(group), chips, lambda e, at: split.bounds(e, *at)) for group in groups]
        return ChipPart(split, _pieces(spec, tasks), exchanges)
    staged = stage_split(cascade, asked.stages, count, names, asked.widths, asked.within)
    inside, sends = staged.moves()
    apart = {one.tensor for by_slot in inside for one in by_slot.values()}
    tasks = [
        PieceTask(tuple(group), staged.cells(s), staged.bounds)
        for s, stage in enumerate(asked.stages)
        for group in _groups([cascade[name] for name in stage], apart)
    ]
    return ChipPart(staged.batches, _pieces(spec, tasks), (), staged, inside, sends)


def _count(
    spec: Spec, part: ChipPart, answers: Mapping[str, Answered], objective: str, link: Interconnect
) -> ChipCount:
    """The costs for one number of chips, or of batches."""
    area = total_area(spec.arch)
    leak = sum(spec.arch.instances(c.name) * c.leak_power for c in spec.arch.components)
    pieces = tuple(_piece(einsums, here, answers, objective) for einsums, here in part.work)
    if part.staged is None:
        exchanges = tuple(_timed(e, part.split.chips, link) for e in part.exchanges)
        return ChipCount(part.split.chips, part.split, pieces, exchanges, area * part.split.chips, leak)
    chips, rate, energy = part.staged.chips, float(link.throughput), float(link.energy_per_bit_hop)
    every = (*part.inside, *part.sends)
    moved, _ = moved_by_slot(every, chips, link)
    _, behind = moved_by_slot(part.sends, chips, link)
    exchanges = tuple(
        ChipExchange(
            joined(by_slot),
            together(list(one.values()), chips),
            sum(words.busiest / rate for words in one.values()),
            sum(words.bit_hops for words in one.values()) * energy,
        )
        for by_slot, one in zip(every, moved, strict=True)
    )
    working = _stage_seconds(part, part.staged, answers, objective, link)
    slots = tuple(
        (
            max(working[s].get(slot, 0.0) for s in range(len(part.staged.stages))),
            behind[slot].busiest / rate if slot in behind else 0.0,
        )
        for slot in range(part.staged.slots)
    )
    within = {
        e.name: part.staged.within.get(e.name, "-")
        for e in spec.workload
        if part.staged.width(part.staged.stage(e)) > 1
    }
    return ChipCount(chips, part.split, pieces, exchanges, area * chips, leak, slots, within)


def _stage_seconds(
    part: ChipPart, staged: StageSplit, answers: Mapping[str, Answered], objective: str, link: Interconnect
) -> list[dict[int, float]]:
    """The seconds of each stage in each slot: its pieces, each as long as its slowest chip, and its chips'
    exchanges."""
    result: list[dict[int, float]] = [defaultdict(float) for _ in staged.stages]
    for einsums, here in part.work:
        stage = staged.stage(staged.batches.cascade[einsums[0]])
        for batch, seconds in _slowest(_timed_work(here, answers, objective)).items():
            result[stage][stage + batch] += seconds
    for (stage, slot), seconds in times_inside(part.inside, staged, link).items():
        result[stage][slot] += seconds
    return result


def _slowest(times: Mapping[Place, float]) -> dict[int, float]:
    """The time of the slowest chip for each batch; without batches, of all chips (as batch 0)."""
    result: dict[int, float] = {}
    for place, seconds in times.items():
        batch = place[0] if len(place) > 1 else 0
        result[batch] = max(seconds, result.get(batch, 0.0))
    return result


@dataclass(frozen=True)
class ChipWork:
    """The work of a chip in a piece.

    `later`: intermediates of the piece that later pieces also read, so that they must be in the backing
    storage.
    """

    spec: Spec
    later: tuple[str, ...]

    def mark(self, objective: str) -> str:
        """A fingerprint of everything that its search depends on."""
        return mark_of(self.spec, (objective, *self.later))


def _orders(
    spec: Spec,
    work: Sequence[Pieces],
    name: str,
    constraints: Constraints | None,
    store: str | Path | None,
    resume: bool,
) -> dict[str, SearchTask]:
    """The searches of all pieces, by their fingerprints."""
    place = None if store is None else folder_of(store)
    orders: dict[str, SearchTask] = {}
    for one in (one for parts in work for _, here in parts for one in here.values()):
        mark = one.mark(name)
        folder = None if place is None else place / mark[:16]
        constrained = _written_back(of_part(constraints, one.spec, spec), one)
        orders.setdefault(mark, SearchTask(one.spec, (name,), FIGURES, constrained, 0.0, folder, resume))
    return orders


Place = tuple[int, ...]  # a chip; in a pipeline a batch, and a chip of its stage
Pieces = Sequence[
    tuple[tuple[str, ...], Mapping[Place, ChipWork]]
]  # Einsums, and the work of each chip in them


@dataclass(frozen=True)
class PieceTask:
    """Einsums that are searched together, the places that compute them, and their iterations there."""

    einsums: tuple[Einsum, ...]
    places: Sequence[Place]
    bounds: Callable[[Einsum, Any], Bounds | None]


def _check_fused(fused: frozenset[str], work: Sequence[Pieces]) -> None:
    """Raises SpecError for tensors that must be fused but are read by a piece other than the one that
    produces them."""
    for one in (one for pieces in work for _, here in pieces for one in here.values()):
        made = {a.tensor for e in one.spec.workload for a in e.outputs}
        if apart := sorted(fused & made - ({*_intermediates(one.spec)} - {*one.later})):
            what = f"{', '.join(apart)} cannot be fused: it is read after an exchange between chips"
            remedy = "leave it out of `fuse`"
            raise SpecError([Diagnostic(what, remedy, "constraints.fuse", code="conflicting-arguments")])


def _written_back(constraints: Constraints | None, work: ChipWork) -> Constraints | None:
    """The constraints of a search such that tensors read by later pieces are not fused."""
    if not work.later:
        return constraints
    if isinstance(constraints, Limits):
        named: object = constraints.unfused
        before = [f"({named})"] if isinstance(named, str) else [*constraints.unfused]
        return replace(constraints, unfused=frozenset({*before, *work.later}))
    section, faults = section_of_arguments(constraints)
    if faults:
        return constraints  # the search reports faults
    given = section if "unfused" in section.model_fields_set else work.spec.raw_explore
    before = [f"({given.unfused})"] if given is not None and given.unfused else []
    return section.model_copy(update={"unfused": " | ".join([*before, *work.later])})


def _groups(einsums: Sequence[Einsum], exchanged: set[str]) -> list[list[Einsum]]:
    """The Einsums, cut where tensors are exchanged."""
    groups: list[list[Einsum]] = []
    made: set[str] = set()
    for einsum in einsums:
        if not groups or made & exchanged & {a.tensor for a in einsum.inputs}:
            groups.append([])
            made = set()
        groups[-1].append(einsum)
        made |= {a.tensor for a in einsum.outputs}
    return groups


def _pieces(spec: Spec, tasks: Sequence[PieceTask]) -> Pieces:
    """Groups of Einsums, with the work of each chip that has any; in a pipeline, for each batch."""
    result: list[tuple[tuple[str, ...], Mapping[Place, ChipWork]]] = []
    for i, task in enumerate(tasks):
        later = {a.tensor for others in tasks[i + 1 :] for e in others.einsums for a in e.inputs}
        alike: dict[object, ChipWork] = {}
        here: dict[Place, ChipWork] = {}
        for place in task.places:
            bounds = {e.name: _shifted(e, task.bounds(e, place)) for e in task.einsums}
            key = tuple((name, some) for name, some in bounds.items() if some is not None)
            if key and key not in alike:
                part = _on_chip(spec, dict(key))
                alike[key] = ChipWork(part, tuple(t for t in _intermediates(part) if t in later))
            if key:
                here[place] = alike[key]
        result.append((tuple(e.name for e in task.einsums), here))
    return tuple(result)


def _intermediates(spec: Spec) -> list[str]:
    """Tensors that one Einsum of a spec produces and another reads."""
    made = dict.fromkeys(a.tensor for e in spec.workload for a in e.outputs)
    return [t for t in made if spec.workload.consumers(t)]


def _shifted(einsum: Einsum, bounds: Bounds | None) -> Bounds | None:
    """The bounds of a chip, shifted to the first chip if nothing depends on the position.

    In a box of iterations, blocks of one size then have equal costs.
    """
    box = all(len(c.expr.variables) == 1 and not c.modulus for c in einsum.constraints)
    if not bounds or not box or any(a.guard for a in einsum.accesses):
        return bounds
    firsts = [einsum.bound(name)[0] for name, _, _ in bounds]
    return tuple((name, at, at + high - low) for at, (name, low, high) in zip(firsts, bounds, strict=True))


def _on_chip(spec: Spec, working: Mapping[str, Bounds]) -> Spec:
    """Some Einsums of the spec, each within its bounds."""
    part = spec.only(*working)
    assert part.raw_workload is not None
    einsums = []
    for raw in part.raw_workload.einsums:
        texts = (f"{low} <= {name} <= {high}" for name, low, high in working[raw.name])
        shape = (*raw.iteration_space_shape, *texts)
        einsums.append(raw.model_copy(update={"iteration_space_shape": shape}))
    return replace(part, raw_workload=part.raw_workload.model_copy(update={"einsums": tuple(einsums)}))


def _timed_work(
    here: Mapping[Place, ChipWork], answers: Mapping[str, Answered], objective: str
) -> dict[Place, float]:
    """Seconds of each chip (or batch) that has work; infinite if nothing fits."""
    result = {i: answers[work.mark(objective)] for i, work in here.items()}
    return {i: float(a.figures["latency"][0]) if a.mappings else inf for i, a in result.items()}


def _piece(
    einsums: tuple[str, ...], here: Mapping[Place, ChipWork], answers: Mapping[str, Answered], objective: str
) -> ChipPiece:
    """The costs of some Einsums on all chips; in a pipeline, batch after batch."""
    found = {place: answers[work.mark(objective)] for place, work in here.items()}
    lacking = next((a for a in found.values() if not a.mappings), None)
    if lacking is not None:
        return ChipPiece(einsums, inf, inf, {}, lacking.complete, lacking.reason or "no mapping fits")
    times = _timed_work(here, answers, objective)
    energy = sum(float(a.figures["energy"][0]) for a in found.values())
    trees = {place if len(place) > 1 else place[0]: a.mappings[0].tree for place, a in found.items()}
    complete = all(a.complete for a in found.values())
    latency = sum(_slowest(times).values())
    return ChipPiece(einsums, latency, energy, trees, complete, working=sum(times.values()))


def _timed(exchange: Exchange, chips: int, link: Interconnect) -> ChipExchange:
    moved = exchange.moved(chips, link)
    rate, energy = float(link.throughput), float(link.energy_per_bit_hop)
    return ChipExchange(exchange, moved, moved.busiest / rate, moved.bit_hops * energy)
