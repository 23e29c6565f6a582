"""The command `polymodel sparse`: the predictions of density models for real tensors, beside exact counts."""

from __future__ import annotations

import argparse
from pathlib import Path

from polymodel.cli.codes import FINE
from polymodel.cli.options import add_format
from polymodel.cli.output import saved_files, write_file
from polymodel.cli.progress import waiting
from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.libraries import require

NAME, ABOUT = "sparse", "What density models expect of real tensors, beside exact counts."
TABLE = "predictions.csv"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for tensors, density models and outputs."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=".mtx, .mtx.gz, .tns or .tns.gz")
    parser.add_argument(
        "--fit", action="store_true",
        help="of one matrix: which density model describes it best, and the errors of all that were tried",
    )  # fmt: skip
    parser.add_argument(
        "--tiles", metavar="SIZES",
        help="sizes of tiles, in every rank (default: 16,128; with --fit 8,32,128)",
    )  # fmt: skip
    parser.add_argument(
        "--slices", type=int, metavar="N",
        help="parts over which rows are distributed, each row to the part with the least load (default: 8); "
        "with --fit parts of ceil(rows / N) consecutive rows, which may be fewer than N (default: 16)",
    )  # fmt: skip
    parser.add_argument(
        "--ranks",
        metavar="NAMES",
        help="of the files, e.g. I,J,K; a .tns file with as many columns as ranks has no values",
    )
    add_format(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="also save the tables as CSV, and without --fit pictures of every matrix"
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the predictions of density models for real tensors, beside exact counts of their data."""
    with waiting("counting"):
        return (_fitted if options.fit else _predicted)(options), FINE


def _fitted(options: argparse.Namespace) -> str:
    """Print the density model fitted to one matrix."""
    from polymodel.report.density_fit import fit_density
    from polymodel.sparse.density.choice import TILES, UNITS
    from polymodel.view.answer import formatted_tables, notes, sections_of

    if len(options.files) > 1:
        fault = f"--fit chooses the model of one matrix, and {len(options.files)} are named"
        raise SpecError([Diagnostic(fault, "name one", code="wrong-count")])
    tiles = TILES if options.tiles is None else _sizes(options.tiles)
    units = UNITS if options.slices is None else options.slices
    found = fit_density(options.files[0], tiles=tiles, units=units, ranks=_ranks(options))
    shown, more = sections_of(found), notes(found.notes)
    plain = options.format == "table"
    text = f"{found.title}\n\n{found}" if plain else ""
    if not plain:
        text = formatted_tables(shown, options.format, f"polymodel sparse: {found.title}", more)
    saved = found.to_csv(options.out) if options.out else ()
    return text + (saved_files(list(saved), options.format) if saved else "")


def _ranks(options: argparse.Namespace) -> tuple[str, ...] | None:
    return tuple(options.ranks.split(",")) if options.ranks is not None else None


def _predicted(options: argparse.Namespace) -> str:
    from polymodel.api.sparse import predict
    from polymodel.sparse.predicted import SLICES, TILES
    from polymodel.view.answer import formatted_tables, notes, sections_of

    if options.out:
        require("matplotlib")
    ranks = _ranks(options)
    tiles = TILES if options.tiles is None else _sizes(options.tiles)
    slices = SLICES if options.slices is None else options.slices
    found = predict(*options.files, tiles=tiles, slices=slices, ranks=ranks)
    plain = options.format == "table"
    more = notes(found.notes)
    shown = sections_of(found)
    text = str(found) if plain else formatted_tables(shown, options.format, "polymodel sparse", more)
    if options.out:
        files = [write_file(Path(options.out) / TABLE, found.to_csv())]
        files += _pictures(Path(options.out), options.files, ranks)
        text += saved_files(files, options.format)
    return text


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        fault = Diagnostic(
            f"--tiles {text}: whole numbers are expected", "write e.g. --tiles 16,128", code="not-an-integer"
        )
        raise SpecError([fault]) from None


def picture_names(tensor: str) -> dict[str, str]:
    """Return the file names of the pictures of a tensor: nonzeros per row, and for a matrix also their
    positions."""
    return {name: f"{tensor}_{name}.svg" for name in ("rows", "spy")}


def _pictures(folder: Path, files: list[str], ranks: tuple[str, ...] | None) -> list[Path]:
    from polymodel.report.plots_sparse import plot_occupancies, plot_spy
    from polymodel.sparse.files import read_tensor
    from polymodel.spec.files import whole
    from polymodel.view.figures import write_figure

    made = []
    for file in files:
        tensor = read_tensor(file, ranks=ranks)
        plots = {"rows": plot_occupancies, **({"spy": plot_spy} if len(tensor.ranks) == 2 else {})}
        for name, plot in plots.items():
            path = folder / picture_names(tensor.name)[name]
            with writing(path), whole(path) as fresh:
                drawn = plot(tensor)  # type: ignore[operator]  # of several signatures
                write_figure(drawn.get_figure(root=True), fresh)
            made.append(path)
    return made
