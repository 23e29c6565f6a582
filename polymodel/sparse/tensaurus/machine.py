"""Describe the machine of the Tensaurus paper: its kernels, its widths, and its hardware tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from math import prod
from typing import TypeVar

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass

# The ranks of the four kernels, and the number of multiplications that they need.
#
# SF3, the common pattern: `fiber_out = sum over D1 of fiber1 op sum over D0 of scalar * fiber0`, op Hadamard
# (MTTKRP) or Kronecker (TTMc); the matrix kernels use the inner sum only (paper, section 3).

Count = TypeVar("Count", int, float)
# The names that callers and the paper use for them.
_NAMES = {
    "MTTKRP": ("MTTKRP", "SpMTTKRP", "DMTTKRP"),
    "TTMc": ("TTMc", "SpTTMc", "DTTMc"),
    "SpMM": ("SpMM", "GEMM"),
    "SpMV": ("SpMV", "GEMV"),
}


@dataclass(frozen=True)
class TensorKernel:
    """One kernel. `ranks`: those of the sparse tensor, slices first. `across`: the rank of the dense fibers
    that is distributed over the columns. `kept`: the rank of the dense fibers that each output register
    holds. Both are "" where there is none."""

    name: str
    ranks: tuple[str, ...]
    across: str = ""
    kept: str = ""

    @property
    def order(self) -> int:
        return len(self.ranks)

    @property
    def dense(self) -> tuple[str, ...]:
        return tuple(r for r in (self.across, self.kept) if r)

    @property
    def factored(self) -> bool:
        """True if T is computed first: fibers of the sparse tensor are reduced before the second product."""
        return self.order == 3

    def multiplies(self, nnz: Count, fibers: Count, across: int, kept: int = 1) -> tuple[Count, Count]:
        """Return the multiplications of the first Einsum and of the second, with T computed once.

        MTTKRP F nnz, F N_ij; TTMc U nnz, U V N_ij; SpMM K nnz, 0; SpMV nnz, 0. `fibers`: N_ij, the number of
        nonempty (i, j) fibers.
        """
        return across * nnz, across * kept * fibers if self.factored else 0 * fibers


KERNELS = {
    k.name: k
    for k in (
        TensorKernel("MTTKRP", ("I", "J", "K"), "F"),
        TensorKernel("TTMc", ("I", "J", "K"), "U", "V"),
        TensorKernel("SpMM", ("I", "J"), "K"),
        TensorKernel("SpMV", ("I", "J")),
    )
}


def kernel_of(name: str) -> TensorKernel:
    """Return the kernel with this name, in any case. SpMTTKRP, DMTTKRP, GEMM and so on are names of the same
    kernels."""
    for known, names in _NAMES.items():
        if str(name).lower() in (n.lower() for n in names):
            return KERNELS[known]
    message = f"no kernel {name}"
    raise SpecError([Diagnostic(message, f"one of {', '.join(KERNELS)}", "kernel", code="unknown-choice")])


# The machine of the Tensaurus paper, and the widths that the paper leaves open.
#
# Source: Srivastava et al., "Tensaurus: A Versatile Accelerator for Mixed Sparse-Dense Tensor Computations",
# HPCA 2020, sections 4 to 7.1 and table 2. `arch/tensaurus.yaml` is the same machine as an architecture.

KIB = 1024
# Lanes are counted one by one.
_MOST = 65_536
# Table 2: square millimetres and milliwatts at 28 nm.
AREA_MM2 = {"PE": 0.625, "Xbar": 0.066, "SPM": 0.832, "MSU": 0.759, "TLU": 0.009, "MLU": 0.009}
POWER_MW = {"PE": 402.3, "Xbar": 24.27, "SPM": 296.05, "MSU": 247.03, "TLU": 6.28, "MLU": 6.28}
# Joules per bit of HBM2, upper end: 450 pJ per 64 bits (Jouppi et al., ISCA 2021, table 2).
HBM_JOULES_PER_BIT = 450e-12 / 64


@dataclass(frozen=True)
class Machine:
    """The parameters of the machine. Sizes are bytes of one side of a double buffer; rates are per second.

    `data_bits` 32 and `index_bits` 16 are not published, but chosen. With them a lane of CISS has 64 bits for
    tensors with three ranks, which the paper's DDR4 example needs (1.9 of 16 GB/s for extended CSR: 8 useful
    bytes of a 64-byte burst). Indices are relative to a hardware tile, so that 16 bits suffice.
    """

    rows: int = 8
    columns: int = 8
    vlen: int = 4
    olen: int = 4
    clock: float = 2e9
    cycles_per_step: int = 2
    bandwidth: float = 128e9
    spm_bytes: int = 16 * KIB
    first_spm_bytes: int = 32 * KIB
    msu_bytes: int = 128 * KIB
    data_bits: int = 32
    index_bits: int = 16

    def __post_init__(self) -> None:
        bad = []
        for f in fields(self):
            value, rate = getattr(self, f.name), isinstance(f.default, float)
            if (
                not isinstance(value, (int, float, np.number) if rate else (int, np.integer))
                or not 0 < value < math.inf
            ):
                wanted = "a finite number above 0" if rate else "a whole number of at least 1"
                bad.append(Diagnostic(f"{f.name} of the machine is {value!r}", wanted, code="not-a-number"))
            elif f.name in ("rows", "columns", "vlen", "olen") and value > _MOST:
                message = f"{f.name} of the machine is {value}"
                bad.append(Diagnostic(message, f"at most {_MOST}", code="out-of-range"))
        if bad:
            raise SpecError(bad)

    @property
    def width(self) -> int:
        """The number of elements of a dense fiber that all columns process at once."""
        return self.columns * self.vlen

    @property
    def step_seconds(self) -> float:
        """Time of one multiply-accumulate of a PE: every other cycle is used for the scratchpad (section
        7.1)."""
        return self.cycles_per_step / self.clock

    @property
    def peak(self) -> float:
        """Operations per second: a multiplication and an addition per lane and step."""
        return self.rows * self.width * 2 * self.clock / self.cycles_per_step

    @property
    def ridge(self) -> float:
        """Operations per byte at which the compute roof meets the bandwidth."""
        return self.peak / self.bandwidth

    @property
    def area_mm2(self) -> float:
        return math.fsum(AREA_MM2.values())

    @property
    def power_watts(self) -> float:
        return math.fsum(POWER_MW.values()) / 1000

    def lane_bits(self, order: int) -> int:
        """Return the bits of one lane of a CISS entry: value, and all indices but that of the slice (section
        4)."""
        return self.data_bits + (order - 1) * self.index_bits

    def entry_bits(self, order: int) -> int:
        return self.rows * self.lane_bits(order)

    def energies(
        self, macs: float, spm_words: float, msu_words: float, hbm_bits: float, seconds: float
    ) -> dict[str, float]:
        """Return joules by component. Table 2 gives power at full speed: a multiply-accumulate of the PEs,
        and one word of SPM and MSU, cost that power divided by the rate of multiply-accumulates. Crossbars
        and loaders have that power all the time."""
        rate = self.peak / 2
        return {
            "PE": macs * POWER_MW["PE"] / 1000 / rate,
            "SPM": spm_words * POWER_MW["SPM"] / 1000 / rate,
            "MSU": msu_words * POWER_MW["MSU"] / 1000 / rate,
            **{name: seconds * POWER_MW[name] / 1000 for name in ("Xbar", "TLU", "MLU")},
            "HBM": hbm_bits * HBM_JOULES_PER_BIT,
        }


# Hardware tiles, and their traffic between HBM and the chip.
#
# The output buffer (MSU) holds a tile of Y and the scratchpads (SPM) tiles of the dense operands, each on one
# side of a double buffer. A loop nest visits the tiles; a tile is loaded unless the previous visit used it.

LOOPS = ("across", "kept", "i", "j", "k")


@dataclass(frozen=True)
class Tiles:
    """Sizes of hardware tiles; None selects the default of `chosen_tiles`.

    `across`: elements of F, U or K at once. `kept`: elements of V. `i`, `j`, `k`: coordinates of the sparse
    tensor's ranks. `order`: loops over tiles, outermost first; it is not published, and the default keeps
    outputs until they are finished.
    """

    across: int | None = None
    kept: int | None = None
    i: int | None = None
    j: int | None = None
    k: int | None = None
    order: tuple[str, ...] = LOOPS


@dataclass(frozen=True)
class TileLoops:
    """Loops over tiles with whole sizes and tile sizes, outermost first. Sizes are at least 1."""

    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    order: tuple[str, ...] = LOOPS

    def trips(self, loop: str) -> int:
        return -(-self.sizes[loop] // self.tiles[loop])

    @property
    def sparse_tile(self) -> tuple[int, int, int]:
        return self.tiles["i"], self.tiles["j"], self.tiles["k"]

    @property
    def passes(self) -> int:
        """How often the sparse tensor is streamed: once per tile of the ranks that it does not have."""
        return self.trips("across") * self.trips("kept")

    def visits(self, ranks: tuple[str, ...]) -> int:
        """Return the number of loads of tiles of a tensor with these ranks: one per iteration of the loops
        from the outermost one to the innermost one that indexes it and has more than one iteration."""
        deepest = max((n for n, r in enumerate(self.order) if r in ranks and self.trips(r) > 1), default=-1)
        return prod(self.trips(r) for r in self.order[: deepest + 1])

    def elements(self, ranks: tuple[str, ...]) -> int:
        """Return the number of elements that all loads of a tensor with these ranks bring. The tiles of one
        rank add up to the rank."""
        own = prod(self.trips(r) for r in ranks)
        return self.visits(ranks) // own * self.whole(ranks)

    def whole(self, ranks: tuple[str, ...]) -> int:
        return prod(self.sizes[r] for r in ranks)

    def largest(self, ranks: tuple[str, ...]) -> int:
        """Return the number of elements of one full tile."""
        return prod(self.tiles[r] for r in ranks)


def operands(kernel: TensorKernel) -> dict[str, tuple[str, ...]]:
    """Return the dense tensors and the output, with the loops that index them."""
    if kernel.name == "MTTKRP":
        return {"C": ("k", "across"), "B": ("j", "across"), "Y": ("i", "across")}
    if kernel.name == "TTMc":
        return {"C": ("k", "across"), "B": ("j", "kept"), "Y": ("i", "kept", "across")}
    return {"B": ("j", "across"), "Y": ("i", "across")}


def nest(
    kernel: TensorKernel, shape: tuple[int, ...], across: int, kept: int, machine: Machine, tiles: Tiles
) -> TileLoops:
    """Return the loops over tiles. Raises SpecError for tiles that do not fit the buffers, and for unknown
    loops."""
    sizes = dict(zip(("i", "j", "k"), (*shape, 1), strict=False)) | {"across": across, "kept": kept}
    faults = [
        Diagnostic(f"tile {name} is {value}", f"1 to {sizes[name]}", code="not-positive-integer")
        for name in LOOPS
        if (value := getattr(tiles, name)) is not None and not 1 <= value <= sizes[name]
    ]
    if sorted(tiles.order) != sorted(LOOPS):
        message = f"no order of tile loops: {list(tiles.order)}"
        faults.append(Diagnostic(message, f"each of {list(LOOPS)} once", code="unknown-choice"))
    if faults:
        raise SpecError(faults)
    chosen = chosen_tiles(kernel, sizes, machine, tiles)
    result = TileLoops(sizes, {name: int(getattr(chosen, name)) for name in LOOPS}, tiles.order)
    faults = _too_large(kernel, result, machine)
    if faults:
        raise SpecError(faults)
    return result


def chosen_tiles(kernel: TensorKernel, sizes: Mapping[str, int], machine: Machine, tiles: Tiles) -> Tiles:
    """Return the tiles with defaults filled in.

    The defaults are all columns at once, OLEN elements of V (section 5.2), and as many rows of Y as one side
    of the MSU holds. B and C share one side of each scratchpad evenly; space that one does not use goes to
    the other.
    """
    word = machine.data_bits / 8
    across = tiles.across or min(machine.width if kernel.across else 1, sizes["across"])
    kept = tiles.kept or min(machine.olen, sizes["kept"])
    i = tiles.i or _within(machine.msu_bytes / (word * across * kept), sizes["i"])
    given = replace(tiles, across=across, kept=kept, i=i)
    rows = _scratchpad(kernel, machine)
    if not kernel.factored:
        return replace(given, j=tiles.j or _within(rows / word / _lanes(kernel, machine), sizes["j"]), k=1)
    # Words that one row of C and one row of B take in a scratchpad.
    c, b = machine.vlen, kept if kernel.kept else machine.vlen
    room = rows / word
    j = tiles.j or _within((room - c * tiles.k if tiles.k else room / 2) / b, sizes["j"])
    k = tiles.k or _within((room - b * j) / c, sizes["k"])
    if tiles.j is None and tiles.k is None:
        j = _within((room - c * k) / b, sizes["j"])
    return replace(given, j=j, k=k)


def _within(room: float, size: int) -> int:
    return max(1, min(size, int(room)))


def _lanes(kernel: TensorKernel, machine: Machine) -> int:
    return machine.vlen if kernel.across else 1


def _scratchpad(kernel: TensorKernel, machine: Machine) -> int:
    """Return the bytes of the smallest scratchpad in use. SpMV uses only the first column."""
    return machine.spm_bytes if kernel.across else machine.first_spm_bytes


def _too_large(kernel: TensorKernel, found: TileLoops, machine: Machine) -> list[Diagnostic]:
    """Return faults for tiles that exceed one side of the MSU or of a scratchpad. A column holds its lanes of
    the fibers across, and the whole fibers that its registers hold."""
    word = machine.data_bits / 8
    shape = operands(kernel)
    need = {"MSU": found.largest(shape["Y"]) * word, "SPM": 0.0}
    per_column = -(-found.tiles["across"] // machine.columns) if kernel.across else 1
    for name, ranks in shape.items():
        if name != "Y":
            words = per_column if "across" in ranks else found.tiles["kept"]
            need["SPM"] += found.tiles[ranks[0]] * words * word
    have = {"MSU": machine.msu_bytes, "SPM": _scratchpad(kernel, machine)}
    faults = [
        Diagnostic(
            f"tiles take {need[n]:.0f} bytes of a side of the {n}, which has {have[n]}",
            "smaller tiles",
            code="over-capacity",
        )
        for n in need
        if need[n] > have[n]
    ]
    for loop, most, what in (("across", machine.width, "columns times VLEN"), ("kept", machine.olen, "OLEN")):
        if found.tiles[loop] > most:
            message = f"tile {loop} is {found.tiles[loop]}"
            faults.append(Diagnostic(message, f"at most {what}, {most}", code="out-of-range"))
    return faults
