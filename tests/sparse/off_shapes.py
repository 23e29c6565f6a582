"""How far models are off at shapes of tiles and numbers of units that `fit_density` does not compare."""

from __future__ import annotations

import polymodel as pm
from polymodel.sparse.density import Actual
from polymodel.sparse.density.choice import FAR, NEAR
from polymodel.sparse.density.model import DensityModel

# None of them is compared by `fit_density`.
TILES = (
    (13, 7), (20, 20), (48, 20), (40, 160), (160, 40), (96, 96), (256, 256), (1, 64), (64, 1), (3, 500),
)  # fmt: skip
UNITS = (10, 24, 128)
Error = tuple[float, str]


def errors(data: Actual, model: DensityModel) -> dict[str, Error]:
    """The largest error of each quantity over the shapes, as a share, and the shape that has it."""
    rows, columns = data.shape
    tiles = [(min(high, rows), min(wide, columns)) for high, wide in TILES]
    loads = [((-(-rows // units), columns), f"{units} units") for units in UNITS]
    named = [(tile, f"{tile[0]} x {tile[1]}") for tile in tiles]

    def largest(shapes: list[tuple[tuple[int, int], str]], answer: str) -> Error:
        found = [
            (float(getattr(model, answer)(shape)) / float(getattr(data, answer)(shape)) - 1, name)
            for shape, name in shapes
        ]
        return max(found, key=lambda error: abs(error[0]))

    return {
        "nonempty tiles": largest(named, "expected_tiles"),
        "fullest tile": largest(named, "expected_max"),
        "greatest load": largest(loads, "expected_max"),
    }


def beyond(found: dict[str, Error]) -> float:
    """The largest error in relation to its tolerance."""
    room = {"nonempty tiles": NEAR, "fullest tile": FAR, "greatest load": FAR}
    return max(abs(error) / room[what] for what, (error, _) in found.items())


def row(name: str, tensor: pm.SparseTensor, fitted: pm.DensityFit) -> tuple[float, str]:
    """The relation of the largest error to its tolerance, and a row of a table of docs/sparse/density.md."""
    found = errors(Actual.of(tensor), fitted.model)
    cells = []
    for error, shape in found.values():
        shown = f"{round(100 * error, 1) + 0.0:+.1f} %".replace("+0.0", "0.0")
        cells.append(shown if shown == "0.0 %" else f"{shown} ({shape})")
    return beyond(found), f"| {name} | {tensor.nnz:,} | `{fitted.name}` | {' | '.join(cells)} |"
