"""Choices of formats, actions and fit rules: one architecture for each combination, and one front of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod
from time import monotonic
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.loading import Spec
from polymodel.mapper.confirm import Point
from polymodel.mapper.records import Request, SearchResult
from polymodel.mapper.sparse_objectives import admitted, more_points, sparse_points
from polymodel.objectives import on_sparse_data
from polymodel.sparse.actions.data import TensorData
from polymodel.spec.arch_schema import (
    ComputeUnit,
    Memory,
    SparseAction,
    SparseChoices,
    SparseSection,
)
from polymodel.spec.base import shown
from polymodel.spec.faults import Faults, Path, path_text, suggestion

Array = Any
WRITTEN = "mapping.sparse."  # before the places of faults in sections that are chosen
MOST = 64  # combinations that one exploration searches
Given = Mapping[str, SparseChoices]
Chosen = tuple[SparseSection, tuple[str, ...]]  # of one component, with the choices in words


@dataclass(frozen=True)
class SparseArchitecture:
    """One combination of choices: the spec with these choices, their description, and each in words."""

    spec: Spec
    text: str
    words: tuple[str, ...] = ()

    def on(self, hierarchy: Hierarchy) -> Hierarchy:
        """The hierarchy of an exploration with the sparse sections of this architecture."""
        components = (replace(c, sparse=self.spec.arch[c.name].sparse) for c in hierarchy.components)
        return replace(hierarchy, components=tuple(components))


def combinations_of(
    spec: Spec, choices: Given, objectives: Sequence[str], path: Path, faults: Faults
) -> tuple[SparseArchitecture, ...]:
    """Every combination of choices, in the order they are written; empty without choices. Reports faults."""
    assert spec.raw_arch is not None, "an exploration has an architecture"
    nodes = {n.name: n for n in spec.raw_arch.nodes if isinstance(n, (Memory, ComputeUnit))}
    before = len(faults)
    if choices and not any(map(on_sparse_data, objectives)):
        what = "sparse_choices are about sparse data, and no objective is"
        remedy = "ask for sparse_energy, sparse_latency or sparse_edp, or leave them out"
        faults.add(path, what, remedy, code="conflicting-arguments")
    for name in choices:
        if name not in nodes:
            near = suggestion(name, nodes, "memories and compute units")
            faults.add((*path, name), f"unknown component {name}", near, key=True, code="unknown-name")
    if len(faults) > before or not choices:
        return ()
    each = {name: tuple(_sections(nodes[name], rule)) for name, rule in choices.items()}
    number = prod(map(len, each.values()))
    if not number:
        message = "a choice has nothing to choose from"
        faults.add(path, message, "write at least one format, kind or rule in each", code="missing-argument")
        return ()
    if number > MOST:
        remedy = f"leave no more than {MOST}, or explore some of them at a time"
        faults.add(path, f"there are {number} combinations of these choices", remedy, code="too-large")
        return ()
    try:
        return tuple(_with(spec, dict(zip(each, picks, strict=True))) for picks in product(*each.values()))
    except SpecError as error:
        faults.extend(_at_choices(d, path, faults) for d in error.diagnostics)
    return ()


def _at_choices(fault: Diagnostic, path: Path, faults: Faults) -> Diagnostic:
    """A fault in a section that was chosen, at the place of the choices."""
    if not fault.path.startswith(WRITTEN):
        return fault
    inside = fault.path.removeprefix(WRITTEN)
    return replace(fault, path=f"{path_text(path)}.{inside}", place=faults.locator.place(path))


def _sections(node: Memory | ComputeUnit, rule: SparseChoices) -> Iterator[Chosen]:
    """The `sparse:` section of one component for each combination of its choices."""
    written = node.sparse or SparseSection()
    formats = [[(tensor, f) for f in listed] for tensor, listed in rule.format.items()]
    actions = [[(a, kind) for kind in a.kinds] for a in rule.actions]
    fits = rule.fit or (written.fit,)
    for forms, chosen, fit in product(product(*formats), product(*actions), fits):
        more = tuple(SparseAction.model_validate({k: a.of, "on": a.on}) for a, k in chosen if k != "none")
        changed = {
            "format": {**written.format, **dict(forms)},
            "actions": (*written.actions, *more),
            "fit": fit,
        }
        words = [f"{t} in {_format_text(f)}" for t, f in forms]
        words += [f"{k} {', '.join(a.of)}" if k != "none" else f"{', '.join(a.of)} moves" for a, k in chosen]
        words += [f"fit {_fit_text(fit)}"] if rule.fit else []
        yield written.model_copy(update=changed), tuple(words)


def _format_text(written: object) -> str:
    if isinstance(written, Mapping):
        return str(written.get("format", shown(written)))
    return "-".join(map(_format_text, written)) if isinstance(written, (list, tuple)) else str(written)


def _fit_text(fit: object) -> str:
    return f"{fit.get('probability')}" if isinstance(fit, Mapping) else str(fit)


def _with(spec: Spec, chosen: Mapping[str, Chosen]) -> SparseArchitecture:
    """The spec with the chosen sections. Raises SpecError for wrong formats and actions."""
    result = spec.with_sparse({name: section for name, (section, _) in chosen.items()})
    text = "; ".join(f"{name}: {', '.join(words)}" for name, (_, words) in chosen.items())
    each = tuple(one for _, words in chosen.values() for one in words)
    return SparseArchitecture(result.bind(), text, each)


# A search per architecture, and the merged results.


@dataclass(frozen=True)
class SparseSearch:
    """The result of the search on one architecture: its evaluated points, and additional points.

    `proven`: figures [n, objectives] of which each mapping of the space is in none below one of them, if they
    are known better than by the bounds of the result. `best`: the front, if it is known to be exact.
    """

    result: SearchResult
    looked: tuple[Point, ...] = ()
    besides: tuple[Point, ...] = ()
    proven: Array = field(default_factory=lambda: np.zeros((0, 0)), compare=False)
    best: tuple[Point, ...] = ()

    def called(self, text: str) -> SparseSearch:
        """Return the same result, with a description of the choices at each point."""
        looked, besides = (tuple(replace(p, chosen=text) for p in x) for x in (self.looked, self.besides))
        return SparseSearch(self.result, looked, besides)


def evaluated(
    one: SparseArchitecture,
    result: SearchResult,
    request: Request,
    bounded: Request,
    data: Mapping[str, TensorData],
    search: Callable[[Request], SearchResult],
    done: Callable[[int, int], bool],
    end: float,
) -> SparseSearch:
    """Evaluate the mappings of a search by lower bounds (`bounded`) on sparse data, and further mappings.

    `done(number, of)` is called with the progress; if it returns False, the evaluation ends.
    """
    named = replace(result, objectives=request.objectives)
    if not result.candidates:
        return SparseSearch(named)
    looked = sparse_points(one.spec, result, request.objectives, data, request.workers, done, end)
    more: list[Point] = []
    if result.complete:
        good = [p for p in looked if admitted(p, request)]
        now = monotonic()
        half = now + (end - now) / 2  # the other half is for neighbours (`sparse_local`)
        more = more_points(one.spec, result, good, request.objectives, data, bounded, search, half)
    return SparseSearch(named, tuple(looked), tuple(more)).called(one.text)


def shared_out(request: Request, left: int, end: float) -> tuple[Request, float]:
    """Return the request and the end time of the next of `left` searches, which share the remaining time
    equally."""
    if request.time_limit is None or left == 1:
        return request, end
    seconds = max(end - monotonic(), 0.0) / left
    return replace(request, time_limit=min(request.time_limit, seconds)), monotonic() + seconds


def together(found: Sequence[SparseSearch], every: int) -> SparseSearch:
    """All searches merged into one: each mapping of the space belongs to the space of one of them."""
    results = [f.result for f in found]
    if every == 1:
        return found[0]
    bounds = [r.bounds for r in results]
    rest = every - len(found)
    # mappings on architectures that were not searched have no bounds
    known = not rest and all(bounds)
    least = tuple(min(row) for row in zip(*bounds, strict=True)) if known else ()
    missing = [u for r in results for u in r.unsearched]
    missing += [f"{rest} of {every} combinations of sparse_choices"] if rest else []
    result = replace(
        results[0],
        candidates=tuple(c for r in results for c in r.candidates),
        stages=tuple(s for r in results for s in r.stages),
        complete=not rest and all(r.complete for r in results),
        unsearched=tuple(dict.fromkeys(missing)),
        seconds=sum(r.seconds for r in results),
        memory=any(r.memory for r in results),
        bounds=least,
        diagnosis=None,
    )
    looked, besides = (tuple(p for f in found for p in getattr(f, n)) for n in ("looked", "besides"))
    return SparseSearch(result, looked, besides)
