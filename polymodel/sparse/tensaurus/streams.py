"""Compute which fraction of a memory's bandwidth reaches the processing elements, for several formats and
numbers of elements.

There are two losses. Storage: bits other than a nonzero with its own coordinates (pointers, headers,
padding). Access: P elements that each follow their own slice take turns, so that one element of one stream is
used of every burst, unless bursts of that many streams are kept. CISS places the data that all elements need
next side by side, in one stream. Source: Tensaurus (HPCA 2020), section 4, figure 3e, which measures the same
for DDR4. Row activations and refresh are not modelled, so these are upper bounds of what a memory delivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.model import DensityModel, Label
from polymodel.sparse.formats.footprints import footprint
from polymodel.sparse.formats.whole import Named, NamedFormat, Widths
from polymodel.sparse.tensaurus.statistics import ExpectedStatistics, FiberCounts, tile_times
from polymodel.sparse.tensor import SparseTensor

FormatName = Literal["COO", "CSR", "CSF", "extended CSR", "CISS"]


@dataclass(frozen=True)
class Channel:
    """A memory: bytes per second, bytes of a burst, and the number of bursts that are kept for streams that
    take turns."""

    peak: float
    burst: int = 64
    kept: int = 1


# The paper's example: 64 bits at 2 GT/s, bursts of eight.
DDR4 = Channel(16e9, 64)


@dataclass(frozen=True)
class Efficiency:
    """One format read by `elements` processing elements. `useful`: bits of values with their own coordinates
    (all but the slice's).

    `storage`: useful bits over all bits. `access`: used bytes over fetched bytes. `bandwidth`: useful bytes
    per second.
    """

    format: FormatName
    elements: int
    bits: int | float
    useful: int | float
    storage: float
    access: float
    bandwidth: float
    label: Label

    @property
    def efficiency(self) -> float:
        return self.storage * self.access


def bandwidth(
    a: SparseTensor | DensityModel,
    elements: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    channel: Channel = DDR4,
    widths: Widths | None = None,
) -> tuple[Efficiency, ...]:
    """Return the efficiency of COO, CSR (matrices), extended CSR and CSF (tensors) and CISS, for several
    numbers of elements.

    Extended CSR has a pointer per slice, and for each nonzero its value and its coordinates except the
    slice's. `widths`: by default 32-bit values and pointers and 16-bit coordinates. Results are exact for
    data, expected for a model.
    """
    faults = [
        Diagnostic(f"{n} processing elements", "at least 1", code="not-positive-integer")
        for n in elements
        if n < 1
    ]
    if not 2 <= len(a.ranks) <= 3:
        message = f"a tensor of {len(a.ranks)} ranks"
        faults.append(Diagnostic(message, "Tensaurus takes two or three", code="wrong-count"))
    if faults:
        raise SpecError(faults)
    chosen = widths or Widths(index=16)
    index = chosen.index if chosen.index is not None else 16
    lane = chosen.data + (len(a.ranks) - 1) * index
    nnz = a.nnz if isinstance(a, SparseTensor) else a.expected_nnz
    label: Label = "exact" if isinstance(a, SparseTensor) else "expected"
    sizes = _sizes(a, chosen, lane, index)
    result = []
    for number in elements:
        slots = _ciss_slots(a, number)
        for name, (bits, unit) in {**sizes, "CISS": (slots * lane, 0)}.items():
            storage = nnz * lane / bits if bits else 0.0
            access = min(1.0, unit / 8 / channel.burst) if unit and number > channel.kept else 1.0
            speed = channel.peak * storage * access
            result.append(Efficiency(name, number, bits, nnz * lane, storage, access, speed, label))
    return tuple(result)


def _sizes(
    a: SparseTensor | DensityModel, widths: Widths, lane: int, index: int
) -> dict[FormatName, tuple[int | float, int]]:
    """Map each format to all its bits, and to the bits that an element reads at a time."""
    nnz = a.nnz if isinstance(a, SparseTensor) else a.expected_nnz

    def bits(kind: Named) -> int | float:
        total = footprint(a, NamedFormat(kind, widths)).total
        return total if isinstance(total, int) else float(total)

    result: dict[FormatName, tuple[int | float, int]] = {"COO": (bits("COO"), lane + index)}
    if len(a.ranks) == 2:
        result["CSR"] = bits("CSR"), lane
    else:
        result["extended CSR"] = (a.shape[0] + 1) * widths.pointer + nnz * lane, lane
        result["CSF"] = bits("CSF"), widths.data + index
    return result


def _ciss_slots(a: SparseTensor | DensityModel, lanes: int) -> int | float:
    """Return the slots of all lanes: nonzeros, headers and padding."""
    i, j, *k = a.shape
    whole = i, j, k[0] if k else 1
    if isinstance(a, SparseTensor):
        return int(tile_times(FiberCounts(a).slices(whole), lanes, 0).entries.sum()) * lanes
    model = ExpectedStatistics(a)
    dealt = model.deal(whole[0], whole[1:], lanes, 1, 0.0)
    return model.nnz + model.rows + lanes * (dealt.largest - dealt.mean_slots)
