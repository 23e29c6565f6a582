"""The command `polymodel sweep`: its options, progress line, and printed and saved results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE, INFEASIBLE, INTERRUPTED, REFUSED
from polymodel.cli.options import add_search, add_sources
from polymodel.cli.output import check_search, saved_files, tell, write_page
from polymodel.cli.parser import named_values
from polymodel.cli.progress import ProgressLine
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.libraries import installed
from polymodel.objectives import SUMS, listed
from polymodel.quantities import axis_unit, in_units

if TYPE_CHECKING:
    import pandas

    from polymodel.loading import Spec
    from polymodel.sweeps.result import Sweep
    from polymodel.sweeps.values import Choice

NAME, ABOUT = "sweep", "Evaluate every combination of symbols' values and keep the best."
SHOWN = 40
UNFINISHED = REFUSED


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, the grid, the rows to keep, and outputs."""
    add_sources(parser)
    parser.add_argument(
        "--symbol",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="values of a symbol: 1,2,4 or divisors(m), all_sizes(m), powers(2,m), range(1,65), or 2*TM",
    )
    parser.add_argument(
        "--where", action="append", metavar="TEXT", help="what points must satisfy, e.g. 'TM0 <= TM1'"
    )
    parser.add_argument(
        "--objective",
        action="append",
        metavar="NAME",
        help=f"{listed()} of a component X, or {SUMS}; sparse_energy and so on: the same on the data "
        "that the spec describes",
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--pareto", dest="keep", action="store_const", const="front", help="keep the front")
    kept.add_argument("--keep", choices=("front", "all", "top"), help="what to keep (default: front)")
    parser.add_argument("--top", type=int, metavar="N", help="keep the N best by the first objective")
    parser.add_argument("--eps", type=float, default=0.0, metavar="E", help="thin the front to within 1 + E")
    parser.add_argument(
        "--mapping",
        action="append",
        metavar="SPEC",
        help="sweep this mapping instead of the spec's own; repeat it to compare several",
    )
    parser.add_argument(
        "--no-prune",
        action="store_true",
        help="also evaluate points that cannot be on the front, and count why points are excluded",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="device that evaluates the points which pruning leaves (gpu: through JAX)",
    )
    add_search(
        parser,
        "processes",
        "save all kept rows as CSV and parquet, and the best mapping",
        ", with plots and the best mappings",
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Sweep and print the kept rows; exit code 1 if no point fits, 130 if the sweep was interrupted, 3 if it
    stopped at a time or memory limit."""
    from polymodel.sweeps.run import sweep

    if options.top is not None and options.keep not in (None, "top"):
        message = (
            f"--top {options.top} keeps the best by the first objective, which contradicts the other option"
        )
        remedy = "give --top N alone, or leave it out"
        raise SpecError([Diagnostic(message, remedy, code="conflicting-arguments")])
    symbols = named_values(options.symbol, "--symbol") or None
    spec = load_spec(options, swept=symbols or ())
    _check_set(options.set, symbols, spec)
    check_search(options)
    bar = SweepProgress(sys.stderr.write, live=sys.stderr.isatty())
    result = sweep(
        spec,
        symbols,
        mappings=options.mapping,
        where=options.where,
        objectives=options.objective,
        keep="top" if options.top is not None and options.keep is None else options.keep,
        top=options.top,
        eps=options.eps,
        store=options.store,
        resume=not options.no_resume,
        memory=options.memory,
        time_limit=options.seconds,
        workers=options.workers,
        progress=bar,
        prune=False if options.no_prune else None,
        device=options.device,
    )
    bar.finish()
    saved = _save(result, Path(options.out)) if options.out else []
    write_page(result, options)
    for note in result.notes if options.format != "table" and not result.complete else ():
        tell(note + "\n")
    text = _text(result, options.format) + saved_files(saved, options.format)
    if not result.complete:
        return text, INTERRUPTED if result.interrupted else UNFINISHED
    return text, FINE if result.frame["feasible"].any() else INFEASIBLE


def _check_set(texts: Sequence[str], symbols: Mapping[str, Choice] | None, spec: Spec) -> None:
    """Raise SpecError for symbols that are set with `--set` and also swept."""
    from polymodel.spec.faults import path_text

    section = spec.raw_sweep.symbols if symbols is None and spec.raw_sweep is not None else {}
    faults = []
    for text in texts:
        name, _, value = text.partition("=")
        if symbols is not None and name in symbols:
            message = f"--set {text}: --symbol {name} sweeps it over other values"
            faults.append(
                Diagnostic(
                    message,
                    f"leave out one of them: --set {name} or --symbol {name}",
                    code="conflicting-arguments",
                )
            )
        elif name in section:
            message = f"--set {text}: the `sweep:` section sweeps {name} over other values"
            remedy = f"leave out --set {name}, or write --symbol {name}={value} for all that is to be swept"
            path = ("sweep", "symbols", name)
            faults.append(
                Diagnostic(
                    message, remedy, path_text(path), spec.locator.place(path), code="conflicting-arguments"
                )
            )
    if faults:
        raise SpecError(faults)


def _text(found: Sweep, style: str) -> str:
    frame = found.frame
    if style == "json":
        return str(frame.to_json(orient="records", indent=1)) + "\n"
    if style == "csv":
        return str(frame.to_csv(index=False))
    frame = found.ordered
    if frame.empty:
        return f"{found!r}\n\nno point is kept\n"
    linked = (n for n, _ in found.grid.linked)
    columns = ["mapping", *found.grid.names, *linked, *found.objectives, "feasible"]
    if len(found.specs) == 1:
        columns.remove("mapping")
    shown = frame[columns].assign(**{o: _shown(found, frame[o], o) for o in found.objectives})
    shown = shown.rename(columns={o: _heading(found, o) for o in found.objectives})
    lines = [repr(found), "", shown.head(SHOWN).to_string(index=False, float_format=_figure)]
    if len(frame) > SHOWN:
        lines.append(
            f"the best by {found.objectives[0]} first; {len(frame) - SHOWN} more rows: --format csv (in the "
            "order of the grid), or --out DIR"
        )
    return "\n".join(lines) + "\n"


def _figure(number: float) -> str:
    return f"{number:.6g}"


def _heading(found: Sweep, objective: str) -> str:
    unit = axis_unit(found.unit(objective))
    return f"{objective} [{unit}]" if unit else objective


def _shown(found: Sweep, values: pandas.Series, objective: str) -> pandas.Series:
    """Return an objective in display units; integers stay integers where possible."""
    from pandas.api.types import is_integer_dtype

    factor = in_units(found.unit(objective))[1]
    if factor == 1 / 8 and is_integer_dtype(values) and not (values % 8).any():
        return values // 8
    return values if factor == 1 else values * factor


def _save(found: Sweep, folder: Path) -> list[Path]:
    """Save the kept rows and the best mapping. Return the files."""
    from polymodel.spec.files import write_text
    from polymodel.sweeps.stored import write_rows

    result = [folder / "sweep.csv"]
    with writing(folder):
        write_text(result[0], found.frame.to_csv(index=False))
        if installed("pyarrow"):
            result.append(folder / "sweep.parquet")
            write_rows(result[-1], [found.columns])
        if found.frame["feasible"].any():
            result.append(folder / "best.yaml")
            write_text(result[-1], found.mapping_yaml(found.best()))
    return result


class SweepProgress(ProgressLine):
    """The progress line of a sweep: share done, points, rate, time left."""

    def __init__(self, write: Callable[[str], object], live: bool = True) -> None:
        super().__init__(write, live)
        self.first: tuple[int, float] | None = None  # points of earlier runs do not count as work of this run

    def __call__(self, done: int, total: int, seconds: float) -> None:
        if self.first is None:
            self.first = done, seconds
        if not self.due(seconds):
            return
        rate = (done - self.first[0]) / (seconds - self.first[1]) if seconds > self.first[1] else 0.0
        left = (total - done) / rate if rate else 0.0
        text = f"{done:.3g} of {total:.3g} points  {rate:.3g}/s  {left:.0f} s left"
        self.show(done / max(total, 1), text)
