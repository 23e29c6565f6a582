"""A tiling as files: its tables and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError, writing

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

    from polymodel.report.tiling import Tiling

_DOTS = 150  # per inch, of what is saved as pixels


def save(found: Tiling, folder: str | PathLike[str], tilers: Sequence[str] | None = None) -> tuple[Path, ...]:
    """tiles.csv, tiling.json and summary.csv, and the pictures tiles, tilers and comparison as SVG."""
    target = Path(folder)
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    texts = {
        "tiles.csv": found.to_csv(),
        "tiling.json": found.to_json(),
        "summary.csv": found.summary_table(tilers).to_csv(),
    }
    for name, text in texts.items():
        with writing(target / name):
            (target / name).write_text(text, encoding="utf-8")
    pictures = {
        "tiles.svg": lambda: found.plot().figure,
        "tilers.svg": lambda: found.plot_tilers(tilers),
        "comparison.svg": lambda: found.plot_comparison(tilers),
    }
    drawn = [save_picture(target / name, draw) for name, draw in pictures.items()]
    return (*(target / name for name in texts), *drawn)


def save_picture(path: str | PathLike[str], draw: Callable[[], FigureBase]) -> Path:
    """Draw and save, in the format that the ending tells. SpecError for other endings, before drawing."""
    import matplotlib.pyplot as plt
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure

    file = Path(path)
    if file.suffix.lower().lstrip(".") not in FigureCanvasBase.get_supported_filetypes():
        fault = f"{file}: the ending tells no format of pictures"
        raise SpecError([Diagnostic(fault, "write e.g. tiles.png, tiles.svg or tiles.pdf")])
    figure = draw()
    assert isinstance(figure, Figure)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=_DOTS)
    plt.close(figure)
    return file
