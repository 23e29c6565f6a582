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
from polymodel.mapping.looptree import ComputeNode, LoopTree, StorageNode
from polymodel.objectives import on_sparse_data
from polymodel.sparse.actions.data import TensorData
from polymodel.spec.arch_schema import (
    ComputeUnit,
    Memory,
    SparseAction,
    SparseActionChoice,
    SparseChoices,
    SparseSection,
)
from polymodel.spec.base import shown
from polymodel.spec.faults import Faults, Path, path_text, suggestion

Array = Any
WRITTEN = "mapping.sparse."  # before the places of faults in sections that are chosen
MOST = 64  # combinations that one exploration searches
Given = Mapping[str, SparseChoices]
Word = tuple[str, tuple[str, ...]]  # a choice in words, and the tensors that it is about
Chosen = tuple[SparseSection, tuple[Word, ...]]  # of one component


@dataclass(frozen=True)
class SparseArchitecture:
    """One combination of choices: the spec with these choices, their description, and each in words.
    `about`: component -> each of its choices in words, with the tensors that it is about."""

    spec: Spec
    text: str
    words: tuple[str, ...] = ()
    about: tuple[tuple[str, tuple[Word, ...]], ...] = ()

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
    """The `sparse:` section of one component for each combination of its choices. Combinations that make the
    same section are one."""
    written = node.sparse or SparseSection()
    formats = [[(tensor, f) for f in listed] for tensor, listed in rule.format.items()]
    actions = [[_effective(a, kind, written) for kind in a.kinds] for a in rule.actions]
    fits = rule.fit or (written.fit,)
    seen = []
    for forms, chosen, fit in product(product(*formats), product(*actions), fits):
        all_formats = {**written.format, **dict(forms)}
        changed = {
            "format": all_formats,
            "actions": (*written.actions, *(action for _, actions in chosen for action in actions)),
            "fit": fit,
        }
        if changed in seen:
            continue
        seen.append(changed)
        words: list[Word] = [(f"{t} in {_format_text(f)}", (t,)) for t, f in forms]
        words += [word for word, _ in chosen]
        compressed = tuple(t for t, f in all_formats.items() if f != "dense")
        words += [(f"fit {_fit_text(fit)}", compressed)] if rule.fit else []
        yield written.model_copy(update=changed), tuple(words)


def _effective(
    choice: SparseActionChoice, kind: str, written: SparseSection
) -> tuple[Word, tuple[SparseAction, ...]]:
    """What a memory or unit does if `kind` is chosen, in words, and the actions that it needs besides those
    that are written. What is skipped is not gated."""
    own = {k: SparseAction.model_validate({k: choice.of, "on": choice.on}) for k in ("skip", "gate")}
    does = next((k for k, action in own.items() if k == kind or action in written.actions), "")
    names = ", ".join(choice.of)
    more = (own[does],) if does and own[does] not in written.actions else ()
    return (f"{does} {names}" if does else f"{names} moves", choice.of), more


def used_choices(points: Sequence[Point], every: Sequence[SparseArchitecture]) -> tuple[Point, ...]:
    """The points, each described by the choices that its mapping uses: those about tensors that a memory
    keeps, and those of units that compute."""
    known = {one.text: one for one in every}
    return tuple(replace(p, chosen=_used_text(p.candidate.tree, known[p.chosen])) for p in points)


def _used_text(tree: LoopTree, one: SparseArchitecture) -> str:
    held: dict[str, set[str]] = {}
    for _, node, _ in tree.walk():
        if isinstance(node, StorageNode):
            held.setdefault(node.component, set()).update(node.tensors)
        elif isinstance(node, ComputeNode):
            held.setdefault(node.component, set()).update(one.spec.workload.tensors, ["compute"])
    tensors = {"compute", *one.spec.workload.tensors}
    parts = []
    for component, words in one.about:
        kept = held.get(component, set())
        # a name that is no tensor is a set expression, which may be about any
        used = [word for word, about in words if kept & {*about} or (kept and {*about} - tensors)]
        parts += [f"{component}: {', '.join(used)}"] if used else []
    return "; ".join(parts)


def _format_text(written: object) -> str:
    if isinstance(written, Mapping):
        name = str(written.get("format", ""))
        more = [f"{k} {shown(v)}" for k, v in written.items() if k != "format"]
        return " ".join([name, *more]).strip()
    return "-".join(map(_format_text, written)) if isinstance(written, (list, tuple)) else str(written)


def _fit_text(fit: object) -> str:
    return f"{fit.get('probability')}" if isinstance(fit, Mapping) else str(fit)


def _with(spec: Spec, chosen: Mapping[str, Chosen]) -> SparseArchitecture:
    """The spec with the chosen sections. Raises SpecError for wrong formats and actions."""
    result = spec.with_sparse({name: section for name, (section, _) in chosen.items()})
    about = tuple((name, words) for name, (_, words) in chosen.items())
    text = "; ".join(f"{name}: {', '.join(w for w, _ in words)}" for name, words in about)
    return SparseArchitecture(result.bind(), text, tuple(w for _, words in about for w, _ in words), about)


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

    def admitted(self, request: Request) -> list[Point]:
        """The points among which the front is that fit and obey the limits."""
        return [p for p in self.best or (*self.looked, *self.besides) if admitted(p, request)]

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
