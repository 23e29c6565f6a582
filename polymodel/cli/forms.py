"""The command `polymodel forms`: the tables of a report as formulas of tile sizes and extents."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from polymodel.cli.codes import FINE
from polymodel.cli.options import REPORTED, add_format, add_html, add_sources
from polymodel.cli.output import check_html, saved_text, warn_without_plots, with_saved_files
from polymodel.cli.parser import pairs, symbols
from polymodel.cli.progress import waiting
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.faults import suggestion

if TYPE_CHECKING:
    from polymodel.report.closed import SymbolicReport
    from polymodel.report.closed_table import SymbolicTable

NAME, ABOUT = "forms", "Print counts, energy and latency as formulas of tile sizes and extents."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sources, which sizes are symbols, what to print, and outputs."""
    add_sources(parser)
    parser.add_argument(
        "--tiles", action="store_true", help="tile sizes that are numbers become symbols as well"
    )
    parser.add_argument("--ranks", action="store_true", help="extents of rank variables become symbols")
    parser.add_argument(
        "--assume", choices=("divides",), help="textbook forms: every tile size divides the enclosing one"
    )
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="value of a symbol of the formulas, e.g. TM0=16; repeat it for several",
    )
    parser.add_argument("--table", metavar="NAME", help="print this table alone (default: summary)")
    parser.add_argument(
        "--objective",
        action="append",
        default=[],
        metavar="NAME",
        help="print this objective as one formula, e.g. accesses:DRAM; repeat it for several",
    )
    parser.add_argument(
        "--minimize",
        metavar="OBJECTIVE",
        help="print its least value over all tile sizes as a formula (with --under), under --assume divides",
    )
    parser.add_argument(
        "--under",
        metavar="FIGURE=CAPACITY",
        help="with --minimize: a figure bounded by a capacity (a symbol or a number), e.g. working_set:GLB=S",
    )
    parser.add_argument(
        "--limit",
        metavar="SYMBOL",
        help="print the objectives as this symbol grows without bound (with --objective)",
    )
    parser.add_argument(
        "--against",
        metavar="SPEC",
        help="print the objectives less those of this spec, and where they are lower (with --objective); "
        "several files or names joined by commas",
    )
    add_format(parser, (*REPORTED, "latex"))
    parser.add_argument("--out", metavar="DIR", help="also save all tables as CSV, JSON, text and one page")
    add_html(parser)


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the requested formulas in the chosen format."""
    from polymodel.api.evaluation import closed_forms
    from polymodel.report.closed import TABLES

    if options.table is not None and options.table not in TABLES:
        message = f"--table {options.table}: closed forms have no such table"
        raise SpecError([Diagnostic(message, f"tables: {', '.join(TABLES)}", code="unknown-name")])
    _check_objectives(options)
    under, at = _capacity(options), symbols(options.at, "--at")
    assume: Literal["divides"] | None = "divides" if options.assume or under else None
    check_html(options.html)
    if options.html or options.out:
        warn_without_plots()
    with waiting("counting"):
        spec = load_spec(options)
        forms = closed_forms(spec, tiles=options.tiles, ranks=options.ranks, assume=assume)
        numbers = {n: v for n, v in symbols(options.set).items() if n in forms.symbols} | at
        forms = forms.at(**numbers) if numbers else forms  # type: ignore[arg-type]  # at refuses fractions
        other = None
        if options.against is not None:
            there = load_spec(options, options.against.split(","))
            other = closed_forms(there, tiles=options.tiles, ranks=options.ranks, assume=assume)
            numbers = {n: v for n, v in numbers.items() if n in other.symbols}
            other = other.at(**numbers) if numbers else other  # type: ignore[arg-type]  # as above
        text, told = _formatted(forms, options, under, other), []
        if options.html:
            forms.to_html(options.html, command=options.command)
            told.append(f"saved {options.html}")
        if options.out:
            told.append(saved_text(forms.save(options.out, command=options.command)))
    return with_saved_files(text, told, options.format == "table"), FINE


def _capacity(options: argparse.Namespace) -> tuple[str, int | str] | None:
    """The figure that `--under` names, and its capacity: a number, or the name of a symbol."""
    from polymodel.spec.numbers import plain_number

    if (options.minimize is None) != (options.under is None):
        here, lacking = ("--minimize", "--under") if options.minimize else ("--under", "--minimize")
        example = {"--under": "--under working_set:GLB=S", "--minimize": "--minimize accesses:DRAM"}[lacking]
        message = f"{here} without {lacking}"
        raise SpecError([Diagnostic(message, f"add e.g. {example}", code="missing-argument")])
    if options.under is None:
        return None
    figure, text = next(iter(pairs([options.under], "--under", words=False).items()))
    number = plain_number(text)
    capacity = text if number is None else int(number)
    fine = capacity > 0 and capacity == number if isinstance(capacity, int) else capacity.isidentifier()
    if not fine:
        message = f"--under {options.under}: {text} is neither a symbol nor a whole number from 1 on"
        raise SpecError([Diagnostic(message, "write e.g. --under working_set:GLB=S", code="wrong-type")])
    return figure, capacity


def _check_objectives(options: argparse.Namespace) -> None:
    """Raise SpecError for options that need an objective and have none."""
    used = [o for o in ("limit", "against") if getattr(options, o) is not None]
    if used and not options.objective:
        raise SpecError(
            [
                Diagnostic(
                    f"--{o} without --objective",
                    "add --objective accesses:DRAM, say",
                    code="missing-argument",
                )
                for o in used
            ]
        )


def _formatted(
    forms: SymbolicReport,
    options: argparse.Namespace,
    under: tuple[str, int | str] | None,
    other: SymbolicReport | None,
) -> str:
    from polymodel.view.answer import Line, Section, formatted_tables, notes, printed

    asked = [forms.table(options.table)] if options.table is not None else []
    asked += [_values(forms, options.objective, options.limit, other)] if options.objective else []
    asked += [_least(forms, options.minimize, *under)] if under else []
    whole = not asked
    if whole and options.format in ("json", "html"):
        return forms.to_json() if options.format == "json" else forms.to_html(command=options.command)
    asked = asked or [forms.table()]
    if options.format == "latex":
        return "\n".join(t.to_latex() for t in asked)
    sections = [Section("", t.shown(), indent="") for t in asked]
    real = "least over real tile sizes: it holds where each lies within its range"
    remarks = notes((*forms.notes, *([real] if under else [])))
    if options.format != "table":
        return formatted_tables(sections, options.format, forms.title, remarks)
    others = [Line(f"other tables: {', '.join(forms.tables[1:])} (--table NAME)")] if whole else []
    spaced = [b for s in sections for b in (Line(), s)]
    return printed([Line(forms.title), *spaced, *others, Line(), *remarks])


def _values(
    forms: SymbolicReport, objectives: list[str], limit: str | None, other: SymbolicReport | None
) -> SymbolicTable:
    """The objectives, each as one formula; with its limit, and its difference from another mapping."""
    if limit is not None and limit not in forms.symbols:
        message = f"--limit {limit}: these closed forms have no such symbol"
        raise SpecError(
            [Diagnostic(message, suggestion(limit, forms.symbols, "symbols"), code="unknown-name")]
        )
    rows: dict[str, object] = {}
    for name in objectives:
        rows[name] = forms.value(name)
        if limit is not None:
            rows[f"{name} for large {limit}"] = forms.limit(name, limit)
        if other is not None:
            rows[f"{name}, less that of the other"] = forms.difference(other, name)
            rows[f"{name} is lower"] = _condition(forms.lower_where(other, name))
    return forms.listed_formulas("objectives", rows)


def _condition(relation: Any) -> str:
    """A SymPy relation as text."""
    if relation.is_Boolean and not relation.args:
        return "everywhere" if relation else "nowhere"
    each = relation.args if relation.func.__name__ == "And" else (relation,)
    return "where " + " and ".join(f"{r.lhs} {r.rel_op} {r.rhs}" for r in each)


def _least(forms: SymbolicReport, objective: str, figure: str, capacity: int | str) -> SymbolicTable:
    """The least value, the point at which it is attained, and its growth with the capacity."""
    least = forms.minimize(objective, figure, capacity)
    rows = {f"least {objective}": least.value}
    if isinstance(capacity, str):
        with suppress(Refused):  # the growth of a root that cannot be expressed by radicals
            rows[f"for large {capacity}"] = least.leading(capacity)
    rows.update(least.at)
    rows.update({f"0 at {name}": root for name, root in least.roots.items()})
    rows.update({f"at least 0 ({i})": e for i, e in enumerate(least.where, 1)})
    return forms.listed_formulas("minimum", rows)
