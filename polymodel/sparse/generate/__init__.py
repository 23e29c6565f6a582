"""Matrices and tensors with the structures of real ones: seeded, or boundary maps that are known exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.files.readers import default_ranks
from polymodel.sparse.generate import complexes, drawn
from polymodel.sparse.tensor import Ints, SparseTensor
from polymodel.spec.faults import as_whole, shown, suggestion

# The most positions that are examined to generate one tensor; more are refused before anything is drawn.
MOST_PLACES = 10**8


@dataclass(frozen=True)
class Option:
    """A whole number that a kind accepts: its bounds, and its default (None: it is required)."""

    low: int
    high: int = 10**9
    default: int | None = None


@dataclass(frozen=True)
class Kind:
    """How to generate one kind: its options, and an estimate of the points that it examines."""

    make: Callable[..., Any]
    options: Mapping[str, Option]
    places: Callable[[Mapping[str, int]], int] = lambda _: 0
    exact: bool = False


_PERCENT, _SIZE = Option(0, 100, 100), Option(1)
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "banded": Kind(
            drawn.banded,
            {
                "rows": _SIZE, "columns": Option(1, default=0), "width": Option(0, default=0),
                "percent": _PERCENT,
            },
            lambda o: o["rows"] * (2 * o["width"] + 1),
        ),
        "blocked": Kind(
            drawn.blocked,
            {"blocks": _SIZE, "block": _SIZE, "reach": Option(0), "percent": _PERCENT},
            lambda o: o["blocks"] * o["block"] ** 2 * (2 * o["reach"] + 1),
        ),
        "power-law": Kind(
            drawn.power_law,
            {"entries": Option(0), "skew": Option(1, 99, 76), "symmetric": Option(0, 1, 0)},
            lambda o: 2 * o["entries"],
        ),
        "stencil": Kind(
            drawn.stencil,
            {"height": _SIZE, "width": _SIZE, "points": Option(5, 9, 5), "percent": _PERCENT},
            lambda o: o["height"] * o["width"] * o["points"],
        ),
        "incidence": Kind(
            drawn.incidence,
            {
                "rows": _SIZE, "columns": _SIZE, "least": Option(1, default=2), "most": Option(1, default=4),
                "window": Option(1, default=0), "repeat": Option(1, default=1), "empty": Option(0, 99, 0),
            },
            lambda o: o["rows"] * o["window"],
        ),
        "staircase": Kind(
            drawn.staircase,
            {
                "stages": _SIZE, "rows": _SIZE, "columns": _SIZE, "percent": Option(0, 100, 10),
                "coupling": Option(0, default=0),
            },
            lambda o: (o["stages"] * o["rows"] + o["coupling"]) * o["stages"] * o["columns"],
        ),
        "chessboard": Kind(
            complexes.chessboard,
            {"rows": _SIZE, "columns": _SIZE, "dimension": Option(1, default=1)},
            exact=True,
        ),
        "matching": Kind(
            complexes.matching, {"points": Option(4), "dimension": Option(1, default=1)}, exact=True
        ),
        "simplex": Kind(
            complexes.simplex, {"points": Option(2), "dimension": Option(1, default=1)}, exact=True
        ),
    }
)  # fmt: skip


def generate_tensor(
    kind: str,
    seed: int = 0,
    *,
    shape: Sequence[int] | None = None,
    name: str | None = None,
    ranks: Sequence[str] | None = None,
    **options: int,
) -> SparseTensor:
    """Return a matrix with the structure of a kind of real ones; equal arguments give equal matrices.

    Kinds and their options, all whole numbers:

    - `banded`: `rows`, `columns` (as many), within `width` of the diagonal (0) `percent` of the places
      (100)
    - `blocked`: dense blocks as of finite elements: `blocks` nodes of `block` unknowns, each linked with
      `percent` (100) of the `reach` before it, symmetric
    - `power-law`: `entries` in a tensor of any order, `shape`; in each rank a bit of a coordinate is 0 in
      `skew` (76) of 100; `symmetric` (0): `entries` below the diagonal, mirrored
    - `stencil`: a grid of `height` x `width` cells, each linked with its neighbours: 5, 7 or 9 `points`
      (5), `percent` of the links (100)
    - `incidence`: `rows` x `columns`, each row with `least` (2) to `most` (4) entries in a `window` of
      columns (all) that moves down with the rows, repeated up to `repeat` (1) times; `empty` (0) per cent
      of the rows are empty
    - `staircase`: a linear programme of `stages` of `rows` x `columns`, `percent` (10) full, each linked
      with the one before, and `coupling` (0) rows over all
    - `chessboard` (`rows` x `columns`, no more columns than rows), `matching` (of `points`), `simplex` (of
      `points`): boundary maps of the complexes' simplices of a `dimension` (1: pairs) with entries -1 and
      1; exact, no seed is used

    Values of the others are drawn from 1 to 9. Its name is the kind's, ranks are I, J, K ... if none are
    given. Raises SpecError for wrong arguments, with all faults; Refused where too much would be made.
    """
    read = Arguments()
    read.name("name", name)
    start = as_whole(seed)
    if start is None or start < 0:
        read.add("seed", f"{shown(seed)} is not a seed", "give a whole number from 0 on", code="wrong-type")
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        near = suggestion(str(kind), KINDS, f"one of {', '.join(KINDS)}")
        read.add("kind", f"there is no kind {shown(kind)} of matrices", near, code="unknown-choice")
        read.raise_if_any()
        raise AssertionError("a fault was told")
    given = _options(read, kind, known, options)
    sizes = _shape(read, kind, shape)
    if given.get("symmetric") and len(set(sizes)) + len(sizes) != 3:
        message = f"{list(sizes)} is not a square matrix"
        read.add("shape", message, "a symmetric one is, e.g. [400, 400]", code="shape-mismatch")
    read.raise_if_any()
    if known.places(given) > MOST_PLACES:
        message = f"{known.places(given):.3g} places for a {kind} matrix"
        raise Refused(message, "ask for a smaller one", code="too-large")
    sizes, coords, values = _made(kind, known, given, sizes, start or 0)
    names = read.names("ranks", ranks) if ranks is not None else default_ranks(len(sizes))
    read.raise_if_any()
    return SparseTensor.from_coo(name or kind, names, sizes, coords, values)


def _made(
    kind: str, known: Kind, given: Mapping[str, int], shape: tuple[int, ...], seed: int
) -> tuple[tuple[int, ...], Ints, Ints]:
    """Return sizes, coordinates and values; coordinates are drawn before values."""
    if known.exact:
        sizes, coords, values = known.make(**given)
        return sizes, coords, values
    draw = np.random.Generator(np.random.PCG64(seed))
    coords = known.make(draw, **({"shape": shape, **given} if shape else given))
    sizes = shape or _sizes(kind, given)
    coords = np.array(np.unravel_index(distinct_numbers(np.ravel_multi_index(tuple(coords), sizes)), sizes))
    drawn_values: Ints = draw.integers(1, 10, size=(coords.shape[1],))
    return sizes, coords, drawn_values


def _options(read: Arguments, kind: str, known: Kind, options: Mapping[str, object]) -> dict[str, int]:
    """Return the given options and the defaults, and record faults."""
    for name in options:
        if name not in known.options:
            near = suggestion(name, known.options, f"it takes {', '.join(known.options)}")
            read.add(name, f"a {kind} matrix has no option {name}", near, code="unknown-key")
    result = {}
    for name, option in known.options.items():
        if name in options:
            result[name] = read.whole(name, options[name], option.low, option.high)
        elif option.default is None:
            message = f"a {kind} matrix needs {name}"
            read.add(name, message, f"write {name}=..., from {option.low} on", code="missing-argument")
            result[name] = option.low
        else:
            result[name] = option.default
    if kind == "banded":
        result["columns"] = result["columns"] or result["rows"]
    if kind == "incidence":
        result["window"] = result["window"] or result["columns"]
    for right, argument, told, remedy in _CHECKS.get(kind, ()):
        if not read.faults and not right(result):
            read.add(argument, told.format(**result), remedy, code="out-of-range")
    return result


Check = tuple[Callable[[Mapping[str, int]], bool], str, str, str]
# For a kind: a condition on its options, and for a violation the option, the message and the remedy.
_CHECKS: Mapping[str, Sequence[Check]] = MappingProxyType(
    {
        "stencil": [
            (lambda o: o["points"] % 2 == 1, "points", "{points} points are not stencil", "5, 7 or 9")
        ],
        "incidence": [
            (
                lambda o: o["least"] <= o["most"] <= o["window"] <= o["columns"], "window",
                "least {least}, most {most}, window {window} and columns {columns} fall",
                "give least <= most <= window <= columns",
            ),
        ],
        "chessboard": [
            (
                lambda o: o["columns"] <= o["rows"], "columns", "{rows} x {columns}: more columns than rows",
                "turn the board",
            ),
            (
                lambda o: o["dimension"] < o["columns"], "dimension",
                "no simplex of dimension {dimension}: a board of {columns} columns holds {columns} rooks",
                "give a lower one",
            ),
        ],
        "matching": [
            (
                lambda o: 2 * (o["dimension"] + 1) <= o["points"], "dimension",
                "no simplex of dimension {dimension}: {points} points have too few pairs apart",
                "give a lower one",
            ),
        ],
        "simplex": [
            (
                lambda o: o["dimension"] < o["points"], "dimension",
                "no simplex of dimension {dimension} has {points} points", "give a lower one",
            ),
        ],
    }
)  # fmt: skip


def _shape(read: Arguments, kind: str, shape: Iterable[int] | None) -> tuple[int, ...]:
    """Return the checked sizes of a power law's ranks; other kinds take no shape."""
    if kind != "power-law":
        if shape is not None:
            message = f"a {kind} matrix takes no shape"
            remedy = f"it takes {', '.join(KINDS[kind].options)}"
            read.add("shape", message, remedy, code="ineffective-argument")
        return ()
    if shape is None:
        read.add("shape", f"a {kind} tensor needs a shape", "write e.g. [400, 300]", code="missing-argument")
        return ()
    return read.ranks(default_ranks(len(tuple(shape))) if read.several("shape", shape) else (), shape)[1]


def _sizes(kind: str, given: Mapping[str, int]) -> tuple[int, int]:
    if kind == "blocked":
        return (given["blocks"] * given["block"],) * 2
    if kind == "stencil":
        return (given["height"] * given["width"],) * 2
    if kind == "staircase":
        return given["stages"] * given["rows"] + given["coupling"], given["stages"] * given["columns"]
    return given["rows"], given["columns"]
