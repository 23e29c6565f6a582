"""docs/sparse/density.md beside matrices of a public collection: which model is chosen, and how near it is.

They are not part of the repository, so this is checked where their folder is named (`--data`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polymodel as pm
from polymodel.sparse.density import Actual
from polymodel.sparse.density.choice import FAR, NEAR
from polymodel.sparse.tensor import SparseTensor
from tests.documents.page import ROOT
from tests.reference.common import Outcome, comparing
from tests.reference.tiling_matrices import matrix, reading
from tests.sparse.off_shapes import errors
from tests.sparse.structures import COLUMNS, told, worst
from tests.tiling.original import EXACT

PAGE = ROOT / "docs" / "sparse" / "density.md"
MATRICES = ("1138_bus", "add32", "bcsstk13", "ca-GrQc", "cage8", "jagmesh7", "lp_e226")
SIX = ("rel5", "relat5", *EXACT)
ROOM = (NEAR, NEAR, FAR, NEAR, FAR)


def check(folder: Path) -> Iterator[Outcome]:
    """One outcome per matrix in this folder, and one for the largest errors at other shapes."""
    page = PAGE.read_text(encoding="utf-8")
    largest = {"nonempty tiles": 0.0, "fullest tile": 0.0, "greatest load": 0.0}
    for name, tensor in named(folder):
        outcome = Outcome(f"density of {name}")
        with comparing(outcome):
            found = pm.fit_density(tensor)
            _row(outcome, page, name, tensor, found)
            for what, (error, _) in errors(Actual.of(tensor), found.model).items():
                largest[what] = max(largest[what], abs(error))
        yield outcome
    outcome = Outcome("density of tiles and units that no fit was asked about")
    said = ", ".join(f"{100 * error:.1f} % in the {what}" for what, error in largest.items())
    _holds(outcome, f"the page does not say {said!r}", said in " ".join(page.split()))
    yield outcome


def named(folder: Path) -> list[tuple[str, SparseTensor]]:
    """The matrices of this folder that the page names."""
    with reading(folder):
        result = [(name, matrix(name, folder / "here")) for name in MATRICES]
        return result + [(name, matrix(f"ts_{name}", folder / "here", name)) for name in SIX]


def _row(outcome: Outcome, page: str, name: str, tensor: SparseTensor, found: pm.DensityFit) -> None:
    """The row of the page, and that every error in it is small enough."""
    row = told(name, tensor, found)[1]
    _holds(outcome, f"the page does not have {row!r}", row in page)
    for column, error, room in zip(COLUMNS, worst(found), ROOM, strict=True):
        near = error is None or abs(error) <= room
        _holds(outcome, f"{column}: {error} is beyond {room}", near)


def _holds(outcome: Outcome, otherwise: str, true: bool) -> None:
    outcome.checked += 1
    if not true:
        outcome.mismatches.append(otherwise)
