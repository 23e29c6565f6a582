"""The command `polymodel explore`: its options, progress line, and printed and saved results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from threading import Event, Lock, Thread
from time import perf_counter
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE, INFEASIBLE, INTERRUPTED, REFUSED
from polymodel.cli.options import add_search, add_sources
from polymodel.cli.output import check_search, tell, write_page
from polymodel.cli.progress import ProgressLine
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, SpecError
from polymodel.objectives import SUMS, listed, written

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.mapper.front import Front
    from polymodel.mapper.records import Progress

NAME = "explore"
ABOUT = "Find the best whole mappings: the Pareto front of all that are valid."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, objectives, constraints and outputs."""
    add_sources(parser)
    parser.add_argument(
        "--objective",
        action="append",
        metavar="NAME",
        help=f"{listed()} of a memory or toll X, or {SUMS}; working_set alone is that of the outermost "
        "bounded memory; on sparse data sparse_energy, sparse_latency, sparse_edp; repeat it for a front "
        "(default: energy and latency)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="TEXT",
        help="an upper bound on a figure, e.g. 'latency <= 2 ms' or 'accesses:DRAM <= 1e9'; repeat it",
    )
    parser.add_argument(
        "--eps",
        metavar="E",
        help="omit mappings within a factor 1 + E of one that is kept (default: 0, omit none)",
    )
    parser.add_argument("--max-fused-loops", metavar="N", help="at most N loops shared by several Einsums")
    parser.add_argument("--sizes", help="tile sizes: divisors of the enclosing tile (default), or all")
    parser.add_argument(
        "--moves",
        action="append",
        metavar="NAME",
        help="also change mappings: pipelines (stages that overlap) or initial_tiles; repeat it for both",
    )
    parser.add_argument("--fuse", metavar="SET", help="tensors that must not reach the backing storage")
    parser.add_argument("--unfused", metavar="SET", help="tensors that must")
    parser.add_argument(
        "--layer-by-layer",
        action="store_true",
        help="nothing is fused: --unfused Intermediates --max-fused-loops 0",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="do not search: explain why the mapping of the spec is not in the search space",
    )
    add_search(
        parser,
        "processes that evaluate the mappings found",
        "save the front as CSV and parquet, and every mapping as YAML",
        ", with plots and the best mappings",
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Explore and print the front; exit code 1 if there is no valid mapping, 3 if the time limit passed
    before one was found, 130 if the search was interrupted."""
    from polymodel.mapper.search import explore

    spec = load_spec(options)
    check_search(options)
    names = ("eps", "time_limit", "max_fused_loops", "sizes", "moves", "fuse", "unfused")
    given = {n: getattr(options, n) for n in names if getattr(options, n) is not None}
    if options.layer_by_layer:
        given |= _unfused(spec, given)
    if options.why:
        return _why(spec, given, options)
    bar = ExploreProgress(sys.stderr.write, live=sys.stderr.isatty(), best=_first(options, spec))
    try:
        with bar.ticking():
            result = explore(
                spec,
                objectives=options.objective,
                limits=options.limit,
                constraints=given,
                workers=options.workers,
                progress=bar,
                store=options.store,
                resume=not options.no_resume,
            )
    except SpecError as error:
        raise SpecError([_of_option(d, options) for d in error.diagnostics]) from error
    text = _text(result, options.format)
    if options.out:
        saved = result.save(options.out)
        told = f"saved {len(saved)} files in {options.out}: the front, and mapping-N.yaml for each point\n"
        if options.format == "table":
            text += told
        else:
            tell(told)
    write_page(result, options)
    if result.interrupted:
        return text, INTERRUPTED
    if not len(result) and not result.complete:
        return text, REFUSED  # a time or memory limit was reached: whether anything fits is unknown
    return text, FINE if len(result) else INFEASIBLE


def _unfused(spec: Spec, given: Mapping[str, object]) -> dict[str, object]:
    """Return the constraints under which each Einsum is a layer of its own.

    Raises SpecError if an option or the spec says otherwise.
    """
    faults = [
        Diagnostic(
            "nothing is fused where each Einsum is a layer of its own",
            "leave out one of the two",
            f"--layer-by-layer and --{name.replace('_', '-')}",
            code="conflicting-arguments",
        )
        for name in ("fuse", "unfused", "max_fused_loops")
        if name in given
    ]
    if not faults and spec.raw_explore is not None and spec.raw_explore.fuse:
        remedy = "leave out --layer-by-layer, or `fuse` of the section `explore`"
        what = "the spec has tensors that must be fused"
        faults = [Diagnostic(what, remedy, "--layer-by-layer", code="conflicting-arguments")]
    if faults:
        raise SpecError(faults)
    return {"unfused": "Intermediates", "max_fused_loops": 0}


def _why(spec: Spec, given: dict[str, object], options: argparse.Namespace) -> tuple[str, int]:
    """Return the reason why the mapping of the spec is not in the search space."""
    from polymodel.mapper.membership import excluded_by
    from polymodel.view.files import table_json
    from polymodel.view.table import Column, Table

    limits = {"limits": options.limit} if options.limit else {}
    reasons = excluded_by(spec, {**given, **limits})
    code = INFEASIBLE if reasons else FINE
    if options.format != "table":
        table = Table("excluded_by", (Column("excluded_by"),), tuple((r,) for r in reasons))
        return table_json(table) if options.format == "json" else table.to_csv(), code
    if not reasons:
        return "the mapping is one of those that explore looks at\n", code
    return "\n".join(["what keeps the mapping out:", *(f"  {r}" for r in reasons), ""]), code


def _of_option(fault: Diagnostic, options: argparse.Namespace) -> Diagnostic:
    """Return a fault of an argument of `explore` as a fault of the option that set it."""
    name = fault.path.removeprefix("constraints.").partition("[")[0]
    if name == "objectives":
        for text in options.objective:
            if "," in text and fault.message.endswith(text):
                several = " ".join(f"--objective {part.strip()}" for part in text.split(","))
                fault = replace(fault, remedy=f"repeat the option: {several}")
        return replace(fault, path="--objective")
    if name == "limits":
        return replace(fault, path="--limit")
    if name == fault.path and name != "workers":
        return fault
    return replace(fault, path="--" + name.replace("_", "-"))


def _first(options: argparse.Namespace, spec: Spec) -> str:
    """Return the objective whose best value so far the progress line shows."""
    section = spec.raw_explore.objectives if spec.raw_explore is not None else ()
    return written(next(iter(options.objective or section), "energy"))


def _text(found: Front, style: str) -> str:
    from polymodel.view.files import table_json

    if style == "table":
        return f"{found!r}\n"
    if not found.complete or not len(found):
        tell("".join(f"{n}\n" for n in found.notes))
    return table_json(found.exported()) if style == "json" else found.to_csv()


class ExploreProgress(ProgressLine):
    """The progress line of an exploration: share of the steps done, current step, best value so far, time
    left."""

    def __init__(
        self,
        write: Callable[[str], object],
        live: bool = True,
        best: str = "energy",
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(write, live)
        self.best = best
        self.clock = clock
        self.begun = clock()
        self.phase = 0.0
        self.latest: Progress | None = None
        self.lock = Lock()

    @contextmanager
    def ticking(self, every: float = 0.5) -> Iterator[None]:
        """Context that refreshes the line at intervals, because one step of a search may take long."""
        over = Event()

        def tick() -> None:
            while not over.wait(every):
                self.again()

        clockwork = Thread(target=tick, daemon=True)
        clockwork.start()
        try:
            yield
        finally:
            over.set()
            clockwork.join()
            self.finish()

    def __call__(self, progress: Progress) -> None:
        if progress.of == "evaluate" and not progress.done and progress.overall is None:
            self.phase = self.clock() - self.begun  # from here on the share is that of the evaluation
        self.latest = progress
        self.again()

    def again(self) -> None:
        """Show the current state if a refresh is due."""
        with self.lock:
            self._shown(self.clock() - self.begun)

    def _shown(self, seconds: float) -> None:
        progress = self.latest
        if not self.due(seconds):
            return
        if progress is None:
            self.show(0.0, f"begins  {seconds:.0f} s")
            return
        from polymodel.objectives import canonical, unit_of
        from polymodel.quantities import engineering

        share = progress.share
        parts = [f"{progress.of}", f"{seconds:.0f} s"]
        if progress.looked and progress.of != "evaluate":
            parts.append(f"{engineering(progress.looked)} tilings and joins looked at")
        if progress.best is not None:
            best = canonical(self.best)
            parts.append(f"least {best} so far {engineering(progress.best, unit_of(best))}")
            if progress.gap is not None and progress.gap < inf:
                parts.append(f"gap {100 * progress.gap:.3g} %")
        if share:
            parts.append(f"about {(seconds - self.phase) * (1 / share - 1):.0f} s left")
        self.show(share, "  ".join(parts))
