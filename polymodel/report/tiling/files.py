"""A tiling as files: its tables and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from polymodel.errors import Diagnostic, SpecError, masked, writing
from polymodel.report.tiling.swift import Quantity
from polymodel.report.tiling.text import compared_blocks
from polymodel.spec.files import whole
from polymodel.tiling.fits.fit import Op
from polymodel.view.answer import made_part
from polymodel.view.figures import without_trace, write_figure
from polymodel.view.files import ensure_folder, saved_text

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

    from polymodel.report.tiling.swift import TilerSwift
    from polymodel.report.tiling.tile import Tiling

_DOTS = 150  # per inch, of what is saved as pixels
TEXTS = ("tiles.csv", "tiling.json", "summary.csv", "tiling.html", "tiling.txt")
PICTURES = ("tiles.svg", "tilers.svg", "comparison.svg")
CHARTS = (*(f"{op}_{quantity}.svg" for op in get_args(Op) for quantity in get_args(Quantity)), "means.svg")


def save(
    found: Tiling, folder: str | PathLike[str], tilers: Sequence[str] | None = None, command: str = ""
) -> tuple[Path, ...]:
    """tiles.csv, tiling.json, summary.csv, tiling.html and tiling.txt, and the pictures tiles, tilers and
    comparison as SVG."""
    from polymodel.view.html import page

    target = ensure_folder(folder)
    texts = (
        found.to_csv(),
        found.to_json(),
        found.summary_table(tilers).to_csv(),
        page(found.title, compared_blocks(found, tilers), [made_part(command)]),
        masked(str(found)),
    )
    for name, text in zip(TEXTS, texts, strict=True):
        saved_text(text, target / name)
    pictures: tuple[Callable[[], FigureBase], ...] = (
        lambda: found.plot().figure,
        lambda: found.plot_tilers(tilers),
        lambda: found.plot_comparison(tilers),
    )
    drawn = [save_picture(target / name, draw) for name, draw in zip(PICTURES, pictures, strict=True)]
    return (*(target / name for name in TEXTS), *drawn)


def save_charts(found: TilerSwift, folder: str | PathLike[str]) -> tuple[Path, ...]:
    """Tiler-Swift's four charts and its means, redrawn, as SVG."""
    target = Path(folder)
    pictures: list[Callable[[], FigureBase]] = [
        partial(found.plot, quantity, op) for op in get_args(Op) for quantity in get_args(Quantity)
    ]
    pictures.append(found.plot_means)
    return tuple(save_picture(target / name, draw) for name, draw in zip(CHARTS, pictures, strict=True))


def check_targets(picture: str | None, folders: Sequence[str]) -> None:
    """Raise SpecError for invalid file endings of pictures and for impossible folders, before a long search
    begins."""
    faults = []
    if picture is not None:
        faults += _ending(Path(picture))
    for folder in folders:
        if Path(folder).exists() and not Path(folder).is_dir():
            message = f"cannot write {folder}: File exists"
            faults.append(Diagnostic(message, "name a folder, not a file", code="unwritable-file"))
    if faults:
        raise SpecError(faults)


def _ending(file: Path) -> list[Diagnostic]:
    """Return the fault in the file ending of a picture, if any."""
    without_trace()
    from matplotlib.backend_bases import FigureCanvasBase

    if file.suffix.lower().lstrip(".") in FigureCanvasBase.get_supported_filetypes():
        return []
    fault = f"{file}: the ending names no format of pictures"
    return [Diagnostic(fault, "write e.g. tiles.png, tiles.svg or tiles.pdf", code="unknown-format")]


def save_picture(path: str | PathLike[str], draw: Callable[[], FigureBase]) -> Path:
    """Draw and save a picture in the format given by the file ending. Raises SpecError for other endings,
    before drawing."""
    without_trace()
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    file = Path(path)
    if faults := _ending(file):
        raise SpecError(faults)
    figure = draw()
    assert isinstance(figure, Figure)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as fresh:
            write_figure(figure, fresh, _DOTS)
    plt.close(figure)
    return file
