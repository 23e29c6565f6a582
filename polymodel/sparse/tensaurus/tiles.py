"""Hardware tiles and what they make move between HBM and the chip.

The output buffer (MSU) holds a tile of Y, the scratchpads (SPM) tiles of the dense operands, each one side
of a double buffer. Tiles are visited by a nest of loops; a tile is loaded when it is not the one of the
visit before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.tensaurus.kernels import Kernel
from polymodel.sparse.tensaurus.machine import Machine

LOOPS = ("across", "kept", "i", "j", "k")


@dataclass(frozen=True)
class Tiles:
    """Sizes of hardware tiles; None takes the default of `chosen_tiles`.

    `across`: elements of F, U or K at once; `kept`: of V; `i`, `j`, `k`: coordinates of the sparse tensor's
    ranks. `order`: loops over tiles, outermost first; not published: outputs stay until they are done.
    """

    across: int | None = None
    kept: int | None = None
    i: int | None = None
    j: int | None = None
    k: int | None = None
    order: tuple[str, ...] = LOOPS


@dataclass(frozen=True)
class Nest:
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
        """How often the sparse tensor is streamed: once per tile of the ranks that it has not."""
        return self.trips("across") * self.trips("kept")

    def visits(self, ranks: tuple[str, ...]) -> int:
        """Loads of tiles of a tensor with these ranks: one per iteration of the loops from the outermost
        down to the innermost that indexes it and has more than one iteration."""
        deepest = max((n for n, r in enumerate(self.order) if r in ranks and self.trips(r) > 1), default=-1)
        return prod(self.trips(r) for r in self.order[: deepest + 1])

    def elements(self, ranks: tuple[str, ...]) -> int:
        """Elements of a tensor with these ranks that all its loads bring: tiles of one rank add up to the
        rank."""
        own = prod(self.trips(r) for r in ranks)
        return self.visits(ranks) // own * self.whole(ranks)

    def whole(self, ranks: tuple[str, ...]) -> int:
        return prod(self.sizes[r] for r in ranks)

    def largest(self, ranks: tuple[str, ...]) -> int:
        """Elements of one full tile."""
        return prod(self.tiles[r] for r in ranks)


def operands(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Dense tensors and the output, with the loops that index them."""
    if kernel.name == "MTTKRP":
        return {"C": ("k", "across"), "B": ("j", "across"), "Y": ("i", "across")}
    if kernel.name == "TTMc":
        return {"C": ("k", "across"), "B": ("j", "kept"), "Y": ("i", "kept", "across")}
    return {"B": ("j", "across"), "Y": ("i", "across")}


def nest(
    kernel: Kernel, shape: tuple[int, ...], across: int, kept: int, machine: Machine, tiles: Tiles
) -> Nest:
    """The loops over tiles. SpecError tells of tiles that do not fit the buffers, and of unknown loops."""
    sizes = dict(zip(("i", "j", "k"), (*shape, 1), strict=False)) | {"across": across, "kept": kept}
    faults = [
        Diagnostic(f"tile {name} is {value}", f"1 to {sizes[name]}")
        for name in LOOPS
        if (value := getattr(tiles, name)) is not None and not 1 <= value <= sizes[name]
    ]
    if sorted(tiles.order) != sorted(LOOPS):
        faults.append(
            Diagnostic(f"no order of tile loops: {list(tiles.order)}", f"each of {list(LOOPS)} once")
        )
    if faults:
        raise SpecError(faults)
    chosen = chosen_tiles(kernel, sizes, machine, tiles)
    found = Nest(sizes, {name: int(getattr(chosen, name)) for name in LOOPS}, tiles.order)
    faults = _too_large(kernel, found, machine)
    if faults:
        raise SpecError(faults)
    return found


def chosen_tiles(kernel: Kernel, sizes: Mapping[str, int], machine: Machine, tiles: Tiles) -> Tiles:
    """Tiles with the defaults filled in.

    All columns at once; OLEN of V (section 5.2); as many rows of Y as a side of the MSU holds; B and C share
    a side of each scratchpad evenly, what one leaves goes to the other.
    """
    word = machine.data_bits / 8
    across = tiles.across or min(machine.width if kernel.across else 1, sizes["across"])
    kept = tiles.kept or min(machine.olen, sizes["kept"])
    i = tiles.i or _within(machine.msu_bytes / (word * across * kept), sizes["i"])
    given = replace(tiles, across=across, kept=kept, i=i)
    rows = _scratchpad(kernel, machine)
    if not kernel.factored:
        return replace(given, j=tiles.j or _within(rows / word / _lanes(kernel, machine), sizes["j"]), k=1)
    # Words that one row of C and one of B take in a scratchpad.
    c, b = machine.vlen, kept if kernel.kept else machine.vlen
    room = rows / word
    j = tiles.j or _within((room - c * tiles.k if tiles.k else room / 2) / b, sizes["j"])
    k = tiles.k or _within((room - b * j) / c, sizes["k"])
    if tiles.j is None and tiles.k is None:
        j = _within((room - c * k) / b, sizes["j"])
    return replace(given, j=j, k=k)


def _within(room: float, size: int) -> int:
    return max(1, min(size, int(room)))


def _lanes(kernel: Kernel, machine: Machine) -> int:
    return machine.vlen if kernel.across else 1


def _scratchpad(kernel: Kernel, machine: Machine) -> int:
    """Bytes of the smallest scratchpad in use: SpMV uses the first column alone."""
    return machine.spm_bytes if kernel.across else machine.first_spm_bytes


def _too_large(kernel: Kernel, found: Nest, machine: Machine) -> list[Diagnostic]:
    """What does not fit a side of the MSU or of a scratchpad. A column holds its lanes of the fibers across,
    and all of the fibers that its registers keep."""
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
            f"tiles take {need[n]:.0f} bytes of a side of the {n}, which has {have[n]}", "smaller tiles"
        )
        for n in need
        if need[n] > have[n]
    ]
    for loop, most, what in (("across", machine.width, "columns times VLEN"), ("kept", machine.olen, "OLEN")):
        if found.tiles[loop] > most:
            faults.append(Diagnostic(f"tile {loop} is {found.tiles[loop]}", f"at most {what}, {most}"))
    return faults
