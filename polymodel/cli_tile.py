"""The command `polymodel tile`: how to cut sparse operands for a CGRA, and what each way costs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.report.tiling import Tiling
    from polymodel.sparse.tensor import SparseTensor
    from polymodel.tiling.fit import Fit
    from polymodel.tiling.model import Launch
    from polymodel.tiling.operands import Second

FINE, INFEASIBLE = 0, 1
FORMATS = ("table", "json", "csv", "html")
_COMPARED = 1_000_000  # places of A or B; more are compared where it is asked for
_CAPACITY = 128


def add_tile_command(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """`add` makes a parser of a name and what it does."""
    parser = add(
        "tile", "Cut sparse operands into tiles for a CGRA: kernels, configuration, run time, bound."
    )
    parser.add_argument("file", metavar="FILE", help="operand A: .mtx, .mtx.gz, .tns or .tns.gz")
    _add_task(parser)
    _add_machine(parser)
    _add_output(parser)
    parser.set_defaults(run=_waited)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--op", choices=("add", "multiply", "mul", "matmul"), default="add",
        help="element by element, or a product of matrices (default: add)",
    )  # fmt: skip
    parser.add_argument(
        "--with", dest="second", metavar="FILE|HOW",
        help="operand B: a file, rolled[:ROWS], transposed or nothing (default: rolled:5)",
    )  # fmt: skip
    parser.add_argument(
        "--ranks", metavar="I,J", help="the two ranks to cut, rows first (default: the first)"
    )
    parser.add_argument(
        "--names", metavar="NAMES",
        help="of the file's ranks, e.g. I,J,K; a .tns file with as many columns as names has no values",
    )  # fmt: skip
    parser.add_argument(
        "--tiler", default="best", metavar="NAME",
        help="who cuts: best (default), simple, qtree, btree, strips, ...; also NAME+merge, NAME+fixpoint",
    )  # fmt: skip
    parser.add_argument(
        "--objective", choices=("cycles", "tiles", "total"), default="cycles",
        help="what best looks for: run cycles (default), kernels, or configuration and run together",
    )  # fmt: skip
    parser.add_argument(
        "--compat", choices=("tiler-swift",), help="repeat that tool, with the defects behind its figures"
    )
    parser.add_argument("--estimate", action="store_true", help="from a density model alone, without looking")
    parser.add_argument("--tune", action="store_true", help="let the model's figure decide the next cut")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fit", default="elements", metavar="WHAT",
        help="what the capacity counts: elements (default), words of DCSR, or a format's bits, e.g. CSR",
    )  # fmt: skip
    parser.add_argument(
        "--capacity",
        type=int,
        default=_CAPACITY,
        metavar="N",
        help=f"of a tile's memory (default: {_CAPACITY})",
    )
    parser.add_argument(
        "--run", dest="which", choices=("nonempty", "all"), default="nonempty",
        help="which tiles are launched: those that can have a result (default), or all",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=int, metavar="CYCLES", help="to configure one kernel (default: 824, 907)"
    )
    parser.add_argument(
        "--clock", type=float, metavar="MHZ", help="turns cycles into seconds (default: 1000)"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", action="store_true", help="with every tiler, merged ones too")
    parser.add_argument("--plot", metavar="FILE", help="draw the matrix with its tiles: .png, .svg, .pdf")
    parser.add_argument("--export", metavar="DIR", help="write every launched tile as .mtx, with an index")
    parser.add_argument(
        "--most", type=int, default=20_000, metavar="N", help="tiles to export (default: 20000)"
    )
    parser.add_argument("--out", metavar="DIR", help="also save tables as CSV and JSON, and the pictures")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")


def _waited(options: argparse.Namespace) -> tuple[str, int]:
    from polymodel.cli_common import waiting

    with waiting("tiling"):
        return run_tile(options)


def run_tile(options: argparse.Namespace) -> tuple[str, int]:
    """Cut, compare, draw and write; exit code 1 if tiles do not fit (as Tiler-Swift's may)."""
    from polymodel.report.tiling import tile

    fit = _fit(options)
    found = tile(
        _first(options),
        _second(options.second),
        op=options.op,
        fit=fit,
        tiler=options.tiler,
        objective=options.objective,
        ranks=_ranks(options.ranks),
        launch=_launch(options),
        compat=options.compat,
    )
    names = _tilers(options, found)
    text = _text(found, names, options)
    saved = _saved(found, names, options)
    if saved:
        told = f"saved {', '.join(map(str, saved))}\n"
        if options.format == "table":
            text += f"\n{told}"
        else:
            sys.stderr.write(told)
    return text, INFEASIBLE if found.costs.overflowing else FINE


def _ranks(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _fit(options: argparse.Namespace) -> Fit:
    from polymodel.tiling.fit import Elements, Words
    from polymodel.tiling.stored import stored

    known: dict[str, Callable[[int], Fit]] = {"elements": Elements, "words": Words}
    if options.fit in known:
        return known[options.fit](options.capacity)
    return stored(options.fit, options.capacity)


def _first(options: argparse.Namespace) -> str | SparseTensor:
    """A: the file, or what it holds where its ranks are named."""
    from polymodel.sparse.files import read_tensor

    names = _ranks(options.names)
    return str(options.file) if names is None else read_tensor(options.file, ranks=names)


def _second(text: str | None) -> str | SparseTensor | Second | None:
    """B: a file, or how it is made of A."""
    from polymodel.tiling.operands import Alone, Rolled, Transposed

    if text is None:
        return None
    word, colon, number = text.partition(":")
    if word == "rolled":
        try:
            return Rolled(int(number)) if colon else Rolled()
        except ValueError:
            fault = f"--with {text}: {number!r} is no whole number of rows"
            raise SpecError([Diagnostic(fault, "write e.g. --with rolled:5")]) from None
    plain: dict[str, Second] = {"transposed": Transposed(), "nothing": Alone()}
    if text in plain:
        return plain[text]
    if "." not in text:
        fault = f"--with {text}: neither a file nor a way to make B of A"
        raise SpecError([Diagnostic(fault, "name a .mtx or .tns file, rolled[:ROWS], transposed or nothing")])
    return text


def _launch(options: argparse.Namespace) -> Launch:
    from polymodel.tiling.model import Launch

    usual = Launch()
    return Launch(
        config_add=usual.config_add if options.config is None else options.config,
        config_multiply=usual.config_multiply if options.config is None else options.config,
        run=options.which,
        clock_mhz=usual.clock_mhz if options.clock is None else options.clock,
    )


def _tilers(options: argparse.Namespace, found: Tiling) -> tuple[str, ...] | None:
    """Whom to compare with: the usual ones (None), all with --compare, nobody where that takes long."""
    from polymodel.report.tiling_tables import every

    if options.compare:
        return every(found.task)
    return None if found.pattern.points <= _COMPARED else ()


def _text(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> str:
    import json

    from polymodel.report.page import page
    from polymodel.report.tiling_text import as_data, comparison_text, tiling_html

    table = found.summary_table(names)
    if options.format == "csv":
        return table.to_csv()
    if options.format == "json":
        told = {**as_data(found), "summary": table.records(), "advice": list(found.advice(names))}
        return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    if options.format == "html":
        return page("polymodel tile", tiling_html(found, names))
    parts = [str(found), comparison_text(found, names)]
    if names == ():
        parts.append(f"more than {_COMPARED:,} places: add --compare to try the other tilers\n")
    parts.append(
        "\n".join(["What to do next", *(f"- {line}" for line in _next(found, names, options))]) + "\n"
    )
    return "\n".join(parts)


def _next(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> list[str]:
    """What the figures mean, and options that were not used."""
    lines = list(found.advice(names))
    if options.objective == "cycles" and options.compat is None:
        lines.append("--objective total chooses by configuration and run together, tiles by kernels")
    if not options.plot and not options.out:
        lines.append("--plot tiles.png draws the tiles, --out DIR saves the tables and all pictures")
    if not options.export:
        lines.append("--export DIR writes the operands of every kernel as files, with an index")
    return lines


def _saved(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> list[Path]:
    from polymodel.report.tiling_files import save, save_picture

    made: list[Path] = []
    if options.plot:
        made.append(save_picture(options.plot, lambda: found.plot().figure))
    if options.out:
        made += save(found, options.out, names)
    if options.export:
        made.append(found.export(options.export, most=options.most))
    return made
