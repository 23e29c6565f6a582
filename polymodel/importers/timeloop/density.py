"""Densities of data spaces: Timeloop's distributions as density models of ours."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from polymodel.importers.timeloop.reading import Fields, Reading, number_of
from polymodel.spec.source import Node

_LARGEST_GROUP = 1024


def density_of(reading: Reading, node: Node, path: str, shape: Sequence[tuple[str, int]]) -> object:
    """What stands under `densities:` of a workload; None (left out, or a fault) if there is no counterpart.

    `shape`: (rank, size) of the data space, outermost first.
    """
    if node.kind == "scalar":
        return _share(reading, node, path)
    fields = Fields(reading, node, path)
    kind = fields.text("distribution").lower().replace("_", "-")
    share = fields.take("density")
    value = _share(reading, share, f"{path}.density") if share is not None else None
    if kind in ("", "uniform", "random", "hypergeometric") and value is not None:
        return value
    if kind == "fixed-structured" and value is not None:
        return _structured(reading, node, path, value, shape)
    if kind == "banded":
        width = fields.count("band_width", "band_half_width", "half_width")
        if width is not None and len(shape) >= 2:
            reading.note(node, f"a band of width {width} over the last two ranks is assumed", "", path)
            return {"banded": {"width": width, "ranks": [r for r, _ in shape[-2:]]}}
    if kind in ("", "uniform", "random", "hypergeometric", "fixed-structured") and share is None:
        reading.fault(node, "`density` is missing", "add e.g. `density: 0.5`", path)
        return None
    remedy = "write `densities: {T: {actual: file.mtx}}` or another model (docs/sparse/density.md)"
    reading.whole(node)
    what = f"the distribution {kind or 'of this data space'} has no counterpart"
    reading.leave(node, what, remedy, path, key="densities", changes="sparse counts")
    return None


def _share(reading: Reading, node: Node, path: str) -> int | float | None:
    value = number_of(reading, node, reading.variables, path)
    if value is not None and not 0 <= value <= 1:
        reading.fault(node, f"a density of {value}", "use a number from 0 to 1", path)
        return None
    return value


def _structured(
    reading: Reading, node: Node, path: str, value: int | float, shape: Sequence[tuple[str, int]]
) -> object:
    """So many of each group of the last rank whose size the group divides; else uniform, and told."""
    share = Fraction(value).limit_denominator(_LARGEST_GROUP)
    for rank, size in reversed(shape):
        if size % share.denominator == 0 and abs(float(share) - value) < 1e-9:
            n, m = share.numerator, share.denominator
            if n == m:
                return 1
            reading.note(node, f"the structure is not said: {n} of {m} along {rank} are assumed", "", path)
            return {"fixed_structured": {"n": n, "m": m, "rank": rank}}
    reading.note(node, f"no rank has groups of density {value}: uniform density is assumed", "", path)
    return value
