"""The command `polymodel tile`: tile sparse operands for a CGRA, and compare the cost of tilings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.output import saved_files
from polymodel.cli.parser import read_numbers
from polymodel.cli.progress import waiting
from polymodel.cli.tile_options import (
    BUFFER,
    CAPACITY,
    CHAINED,
    NUMBERS,
    PRODUCT,
    SHAPED,
    capacities_of,
    check_idle,
    checked_product,
    factor_of,
    first_of,
    fit_of,
    launch_of,
    most_of,
    objective_of,
    ranks_of,
    second_of,
    sizes_of,
)
from polymodel.cli.tile_options import add_options as add_options
from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.libraries import require

if TYPE_CHECKING:
    from polymodel.api.chain import Association
    from polymodel.api.matmul import Named
    from polymodel.report.tiling.estimates import TilingEstimates
    from polymodel.report.tiling.matmul import MatmulTiling
    from polymodel.report.tiling.tile import Tiling
    from polymodel.view.answer import Answer
    from polymodel.view.table import Table


NAME = "tile"
ABOUT = "Cut sparse operands into tiles for a CGRA: kernels, configuration, run time, bound."

_COMPARED = 1_000_000  # positions of A or B; larger ones are compared only on request


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Tile, estimate, tune or compare, as the options request."""
    # A chain may have five different buffer capacities.
    known = {n: kind for n, kind in NUMBERS.items() if n != "capacity" or options.op != "chain"}
    read_numbers(options, known)
    asked = [name for name in ("estimate", "tune", "published") if getattr(options, name)]
    asked += [f"op {options.op}"] if options.op in ("matmul", "chain") else []
    if len(asked) > 1:
        fault = f"{' and '.join(f'--{name}' for name in asked)} do not go together"
        raise SpecError([Diagnostic(fault, "ask for one of them", code="conflicting-arguments")])
    _one_file(options)
    if options.plot or (options.out and (not asked or options.published)):
        require("matplotlib")
    if options.plot or options.out or options.export:
        from polymodel.report.tiling.files import check_targets

        check_targets(options.plot, [folder for folder in (options.out, options.export) if folder])
    runs = {
        "estimate": run_estimate,
        "tune": run_tune,
        "published": run_published,
        "op matmul": run_matmul,
        "op chain": run_chain,
    }
    with waiting("tiling"):
        return runs[asked[0]](options) if asked else run_tile(options)


def _one_file(options: argparse.Namespace) -> None:
    """Return `file` for the modes that tile one matrix."""
    if len(options.files) > 1 and not options.published and options.op != "chain":
        fault = f"{len(options.files)} files are named: {', '.join(options.files)}"
        remedy = "name one, operand A; operand B is named by --with"
        raise SpecError([Diagnostic(fault, remedy, code="wrong-count")])
    options.file = next(iter(options.files), None)


def run_published(options: argparse.Namespace) -> tuple[str, int]:
    """Print Tiler-Swift's published figures beside those of this package, for several matrices."""
    from polymodel.api.tilings import tiler_swift_comparison
    from polymodel.report.tiling.files import save_charts, save_picture

    task = ("op", "with", "ranks", "names", "tiler", "objective", "compat", "fit", "run", "clock")
    idle = (*task, "compare", "export", "simulate", *PRODUCT, *CHAINED, *SHAPED)
    check_idle(options, "--published", idle)
    capacity = CAPACITY if options.capacity is None else options.capacity
    result = tiler_swift_comparison(options.files, capacity=capacity, launch=launch_of(options))
    tables = {name: result.table(name) for name in result.tables}
    saved = [] if options.plot is None else [save_picture(options.plot, result.plot_means)]
    saved += _tables_saved(tables, options)
    if options.out:
        saved += save_charts(result, options.out)
    return _shown(result, tables, options) + saved_files(saved, options.format), FINE


def run_tune(options: argparse.Namespace) -> tuple[str, int]:
    """Iterate between tiler and cost model, and print the best tiling found."""
    from polymodel.api.tilings import tune_tiling

    check_idle(options, "--tune", ("tiler", "compat", "compare", "simulate", *PRODUCT, *CHAINED, *SHAPED))
    found = tune_tiling(
        first_of(options), second_of(options.second), op=options.op, fit=fit_of(options),
        objective=objective_of(options, "total"), ranks=ranks_of(options.ranks), launch=launch_of(options),
        names=ranks_of(options.names),
    )  # fmt: skip
    text = _shown(found, {"steps": found.table()}, options)
    saved = _other_files(found, {"steps": found.table()}, options)
    if options.export:
        saved.append(found.tiling.export(options.export, most=most_of(options)))
    return text + saved_files(saved, options.format), FINE


def run_estimate(options: argparse.Namespace) -> tuple[str, int]:
    """Print the expected results of tilers under density models, beside their results on the data of a
    file.
    """
    idle = ("ranks", "compat", "compare", "tune", "export", "objective", "simulate", *PRODUCT, *CHAINED)
    check_idle(options, "--estimate", idle)
    result = _estimates(options)
    tables = {"estimates": result.table()}
    saved = _other_files(result, tables, options)
    return _shown(result, tables, options) + saved_files(saved, options.format), FINE


def _estimates(options: argparse.Namespace) -> TilingEstimates:
    from polymodel.api.tilings import estimate_shape, estimate_tiling
    from polymodel.sparse.tensor import SparseTensor

    second = second_of(options.second)
    faults = []
    if isinstance(second, (str, SparseTensor)):
        message = f"--with {options.second}: an estimate does not use data of B"
        faults.append(Diagnostic(message, "rolled, ...", code="conflicting-arguments"))
        second = None
    if (options.shape is None) != (options.density is None):
        message = "a shape needs a density, and a density a shape"
        faults.append(Diagnostic(message, "give both, or a file", code="conflicting-arguments"))
    if (options.file is None) == (options.shape is None and options.density is None):
        message = "estimates are made of a file, or of a shape and a density"
        faults.append(Diagnostic(message, "give one", code="conflicting-arguments"))
    if faults:
        raise SpecError(faults)
    fit, launch = fit_of(options), launch_of(options)
    tilers = None if options.tiler == "best" else (options.tiler,)
    if options.shape is None:
        return estimate_tiling(
            first_of(options), op=options.op, fit=fit, tilers=tilers, second=second, launch=launch,
            names=ranks_of(options.names),
        )  # fmt: skip
    shape = sizes_of(options.shape, "shape", "1000,1000")
    return estimate_shape(
        shape, options.density, op=options.op, fit=fit, tilers=tilers, second=second, launch=launch
    )


def run_matmul(options: argparse.Namespace) -> tuple[str, int]:
    """Tile a matrix product with reuse of tiles; exit code 1 if tiles exceed their buffers."""
    idle = ("fit", "ranks", "run", "compat", "compare", "export", *CHAINED, *SHAPED)
    check_idle(options, "--op matmul", idle)
    checked_product(options)
    result = _product(options)
    code = FINE if result.fits else INFEASIBLE
    if options.simulate:
        return _simulated(result, options), code
    tables = {name: result.table(name) for name in result.tables}
    text = _shown(result, tables, options)
    saved = _other_files(result, tables, options)
    return text + saved_files(saved, options.format), code


def _product(options: argparse.Namespace) -> MatmulTiling:
    from polymodel.api.matmul import tile_matmul

    tile = None if options.tile is None else sizes_of(options.tile, "tile", "32,32,32")
    # tile_matmul checks the name and lists the available names.
    usual = "search" if tile is None else "uniform"
    strategy = cast("Named", usual if options.tiler == "best" else options.tiler)
    capacity = options.capacity
    if capacity is None and (tile is None or options.tiler == "overbooked"):
        capacity = BUFFER
    return tile_matmul(
        first_of(options), factor_of(options.second), tile=tile, capacity=capacity,
        strategy=strategy, order=options.order,
        objective="words" if options.objective == "words" else "time",
        launch=launch_of(options), pes=options.pes or 1, bandwidth=options.bandwidth,
        names=ranks_of(options.names), time_limit=options.seconds,
    )  # fmt: skip


def run_chain(options: argparse.Namespace) -> tuple[str, int]:
    """Tile two consecutive matrix products in panels that the first passes to the second."""
    from polymodel.api.chain import tile_chain

    task = ("with", "ranks", "tiler", "objective", "compat", "fit", "run", "clock", "tile")
    check_idle(options, "--op chain", (*task, "compare", "export", "plot", "simulate", *SHAPED))
    if len(options.files) != 3:
        fault = f"--op chain multiplies three matrices, and {len(options.files)} are named"
        raise SpecError([Diagnostic(fault, "name A, B and C", "FILE", code="wrong-count")])
    capacity = capacities_of(options.capacity)
    result = tile_chain(
        *options.files, capacity=capacity, order=cast("Association", options.order or "(AB)C"),
        pes=options.pes or 2, split=options.split, bandwidth=options.bandwidth, launch=launch_of(options),
        keep_configured=options.keep_configured, buffers=options.buffers or 2,
        names=ranks_of(options.names),
    )  # fmt: skip
    tables = {name: result.table(name) for name in result.tables}
    saved = _tables_saved(tables, options)
    return _shown(result, tables, options) + saved_files(saved, options.format), FINE


def _simulated(found: Tiling | MatmulTiling, options: argparse.Namespace) -> str:
    """Simulate the launched tiles token by token, and print and save the result."""
    ran = found.simulate(most=options.simulate, seed=options.seed or 0)
    tables = {name: ran.table(name) for name in ran.tables}
    saved = _other_files(found, tables, options)
    return _shown(ran, tables, options) + saved_files(saved, options.format)


def _shown(found: Answer, tables: dict[str, Table], options: argparse.Namespace) -> str:
    from polymodel.view.files import json_rows, json_text

    if options.format == "csv":
        return next(iter(tables.values())).to_csv()
    if options.format == "json":
        rows = {name: json_rows(table) for name, table in tables.items()}
        return json_text({**rows, "notes": list(found.notes)})
    if options.format == "html":
        from polymodel.view.html import page

        return page("polymodel tile", found.head())
    return str(found)


def _other_files(found: Answer, tables: dict[str, Table], options: argparse.Namespace) -> list[Path]:
    from polymodel.report.tiling.files import save_picture

    made: list[Path] = []
    if options.plot:
        made.append(save_picture(options.plot, lambda: found.plot().figure))
    return made + _tables_saved(tables, options)


def _tables_saved(tables: dict[str, Table], options: argparse.Namespace) -> list[Path]:
    from polymodel.spec.files import write_text

    made: list[Path] = []
    if options.out:
        folder = Path(options.out)
        for name, table in tables.items():
            with writing(folder / f"{name}.csv"):
                folder.mkdir(parents=True, exist_ok=True)
                write_text(folder / f"{name}.csv", table.to_csv())
            made.append(folder / f"{name}.csv")
    return made


def run_tile(options: argparse.Namespace) -> tuple[str, int]:
    """Tile, compare, draw and write; exit code 1 if tiles do not fit (those of Tiler-Swift may not)."""
    from polymodel.api.tilings import tile

    idle = (*PRODUCT, *CHAINED, *SHAPED)
    if options.simulate:
        check_idle(options, "--simulate", (*idle, "compare", "export"))
    check_idle(options, "element-wise operations", idle)
    result = tile(
        first_of(options),
        second_of(options.second),
        op=options.op,
        fit=fit_of(options),
        tiler=options.tiler,
        objective=objective_of(options, "total"),
        ranks=ranks_of(options.ranks),
        names=ranks_of(options.names),
        launch=launch_of(options),
        compat=options.compat,
    )
    if options.simulate:
        return _simulated(result, options), INFEASIBLE if result.costs.overflowing else FINE
    names = _tilers(options, result)
    text = _text(result, names, options)
    text += saved_files(_saved(result, names, options), options.format)
    return text, INFEASIBLE if result.costs.overflowing else FINE


def _tilers(options: argparse.Namespace, found: Tiling) -> tuple[str, ...] | None:
    """Return the tilers to compare with: the default ones (None), all with --compare, none where that takes
    long."""
    from polymodel.report.tiling.tables import every

    if options.compare:
        return every(found.task)
    return None if found.pattern.points <= _COMPARED else ()


def _text(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> str:
    from polymodel.report.tiling.text import as_data, compared_blocks, comparison_text
    from polymodel.view.files import json_rows, json_text

    table = found.summary_table(names)
    if options.format == "csv":
        return table.to_csv()
    if options.format == "json":
        return json_text({**as_data(found), "summary": json_rows(table), "advice": list(found.advice(names))})
    if options.format == "html":
        from polymodel.view.html import page

        return page("polymodel tile", compared_blocks(found, names))
    parts = [str(found), comparison_text(found, names)]
    if names == ():
        parts.append(f"more than {_COMPARED:,} places: add --compare to see the other tilers in the table\n")
    parts.append(
        "\n".join(["What to do next", *(f"- {line}" for line in _next(found, names, options))]) + "\n"
    )
    return "\n".join(parts)


def _next(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> list[str]:
    """Return hints about the meaning of the figures, and about options that were not used."""
    lines = list(found.advice(names))
    if options.objective in (None, "total") and options.compat is None:
        lines.append("--objective tiles chooses by kernels, cycles by the run without configuration")
    if not options.plot and not options.out:
        lines.append("--plot tiles.png draws the tiles, --out DIR saves the tables and all pictures")
    if not options.export:
        lines.append("--export DIR writes the operands of every kernel as files, with an index")
    return lines


def _saved(found: Tiling, names: tuple[str, ...] | None, options: argparse.Namespace) -> list[Path]:
    from polymodel.report.tiling.files import save, save_picture

    made: list[Path] = []
    if options.plot:
        made.append(save_picture(options.plot, lambda: found.plot().figure))
    if options.out:
        made += save(found, options.out, names, getattr(options, "command", ""))
    if options.export:
        made.append(found.export(options.export, most=most_of(options)))
    return made
