"""Launched tiles of a tiling or a product, all of them or a sample, simulated one by one and compared with
the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.blocks import Kind
from polymodel.tiling.cost.model import CutCosts, Launch
from polymodel.tiling.matmul.dynamic import Dynamic
from polymodel.tiling.matmul.panels import RowPanels
from polymodel.tiling.matmul.product import EntryCoordinates
from polymodel.tiling.matmul.streams import boxes_of, kind_of
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.plane.pattern import Ints
from polymodel.tiling.simulate.dataflows import TileOperand, simulate
from polymodel.tiling.simulate.terms import TileTerms, by_rule, measured, modelled

CYCLES = 2 * 10**6  # tiles simulated in one call, which takes about half a minute
Operands = Callable[[int], tuple[TileOperand, TileOperand]]


@dataclass(frozen=True)
class SimulatedLaunch:
    """One launched tile: its number, the entries of A and of B, and its cycles according to the model, to the
    rules of the blocks, and to the simulation."""

    tile: int
    nnz_a: int
    nnz_b: int
    modelled: TileTerms
    ruled: TileTerms
    simulated: TileTerms


def chosen(launched: Ints, most: object, seed: object) -> list[int]:
    """A random sample of at most this many launched tiles, in their order."""
    faults: list[Diagnostic] = []
    many = _whole("most", most, 1, "positive integer", faults)
    start = _whole("seed", seed, 0, "whole number", faults)
    if faults:
        raise SpecError(faults)
    if launched.size <= many:
        result: list[int] = launched.tolist()
        return result
    drawn: list[int] = np.sort(np.random.default_rng(start).choice(launched, many, replace=False)).tolist()
    return drawn


def _whole(name: str, given: object, least: int, kind: str, faults: list[Diagnostic]) -> int:
    value = plainly(given)
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    message = f"{name}={value!r} is not a {kind}"
    faults.append(Diagnostic(message, f"write e.g. {name}={max(least, 200)}", code="not-positive-integer"))
    return least


def of_cut(costs: CutCosts, most: object, seed: object) -> tuple[SimulatedLaunch, ...]:
    """Tiles of a tiling for element-wise operations."""
    pattern, rects = costs.pattern, costs.cut.rects
    if pattern.levels != 2:
        what = f"{pattern.name} has {pattern.levels} rank{'s' if pattern.levels > 1 else ''}"
        message = f"{what}: the simulated dataflows are of matrices"
        raise Refused(message, "give matrices", code="unsupported-shape")
    order = np.argsort(costs.cut.ids, kind="stable")
    ends = np.cumsum(np.bincount(costs.cut.ids, minlength=costs.tiles))

    def operands(tile: int) -> tuple[TileOperand, TileOperand]:
        points = order[ends[tile - 1] if tile else 0 : ends[tile]]
        shape = int(rects.height[tile]), int(rects.width[tile])
        row, col = pattern.rows[points] - rects.row[tile], pattern.cols[points] - rects.col[tile]
        sides = (pattern.in_a[points], pattern.in_b[points])
        a, b = (TileOperand.ones(row[side], col[side], shape) for side in sides)
        return a, b

    tiles = chosen(np.flatnonzero(costs.runs), most, seed)
    return tuple(_run(costs.op, tiles, operands, costs.launch))


def of_product(
    source: UniformTiles | RowPanels | Dynamic, launch: Launch, most: object, seed: object
) -> tuple[SimulatedLaunch, ...]:
    """Launches of a product: pairs of tiles, or a panel and the rows of B that it references."""
    product = source.product
    boxes = boxes_of(source)
    tiles = chosen(np.arange(boxes.shape[0]), most, seed)

    def operands(tile: int) -> tuple[TileOperand, TileOperand]:
        i, i_end, k, k_end, j, j_end = boxes[tile].tolist()
        return _part(product.a, (i, i_end), (k, k_end)), _part(product.b, (k, k_end), (j, j_end))

    return tuple(_run(kind_of(product), tiles, operands, launch))


def _run(kind: Kind, tiles: list[int], operands: Operands, launch: Launch) -> Iterator[SimulatedLaunch]:
    made = [(tile, *operands(tile)) for tile in tiles]
    ruled = [by_rule(kind, a, b) for _, a, b in made]
    cycles = sum(terms.cycles for terms in ruled)
    if cycles > CYCLES:
        what = f"{len(tiles):,} tiles take {cycles:,} cycles, more than {CYCLES:,} that are simulated at once"
        raise Refused(what, "simulate fewer tiles (most=), or smaller ones", code="too-large")
    for (tile, a, b), terms in zip(made, ruled, strict=True):
        simulated = measured(simulate(kind, a, b))
        yield SimulatedLaunch(
            tile, int(a.rows.size), int(b.rows.size), modelled(kind, a, b, launch), terms, simulated
        )


def _part(whole: EntryCoordinates, rows: tuple[int, int], cols: tuple[int, int]) -> TileOperand:
    piece = slice(int(whole.starts[rows[0]]), int(whole.starts[rows[1]]))
    row, col = whole.rows[piece], whole.cols[piece]
    inside = (col >= cols[0]) & (col < cols[1])
    shape = rows[1] - rows[0], cols[1] - cols[0]
    return TileOperand.ones(row[inside] - rows[0], col[inside] - cols[0], shape)
