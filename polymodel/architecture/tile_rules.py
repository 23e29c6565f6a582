"""`data_tiles:` of a memory, resolved: plain frozen data. The room `tiling` decides what the words mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from polymodel.architecture.numbers import Numbers
from polymodel.spec.faults import Path
from polymodel.spec.tiles_schema import DataTiles

# One buffer each for A, B and the output.
OPERANDS = 3


@dataclass(frozen=True)
class TileRules:
    """How operands are cut for one memory, and what launching a tile costs.

    `capacity` and `word_bits` are None where the memory's size and the Einsum's widest value decide.
    `config_add`, `config_multiply`, `ramp`, `empty`: cycles.
    """

    fit: Literal["elements", "words", "stored"] = "elements"
    format: Any = None
    capacity: int | None = None
    word_bits: int | None = None
    tiler: str = "best"
    objective: Literal["tiles", "cycles", "total"] = "total"
    run: Literal["nonempty", "all"] = "nonempty"
    config_add: int = 824
    config_multiply: int = 907
    ramp: int = 8
    empty: int = 10

    def __hash__(self) -> int:
        return hash((self.fit, self.capacity, self.tiler))  # a format may be a list as written


def capacity_of(rules: TileRules, size_bits: float, buffering: str, widest: int) -> int:
    """What one operand's buffer takes, in the fit's unit; 0 if the memory is too small for any.

    The memory has equal buffers for A, B and the output, each twice if it is double-buffered: the next tile
    is loaded into one half while the other is worked on.
    """
    if rules.capacity is not None:
        return rules.capacity
    buffers = OPERANDS * (2 if buffering == "double" else 1)
    unit = 1 if rules.fit == "stored" else (rules.word_bits or widest)
    return 0 if math.isinf(size_bits) else int(size_bits // (buffers * unit))


def resolve_tiles(
    section: DataTiles | None, size_bits: float, path: Path, numbers: Numbers
) -> TileRules | None:
    """The rules of one memory; every fault is added to `numbers.faults`."""
    if section is None:
        return None
    costs: Path = (*path, "configuration")
    if section.capacity is None and math.isinf(size_bits):
        fault = "the memory is unbounded, so nothing has to be cut to fit it"
        numbers.faults.add(path, fault, "write capacity:, or the memory's size:", key=True)
    return TileRules(
        fit=section.fit,
        format=section.format,
        capacity=_whole(section.capacity, (*path, "capacity"), numbers),
        word_bits=_whole(section.word_bits, (*path, "word_bits"), numbers),
        tiler=section.tiler,
        objective=section.objective,
        run=section.run,
        config_add=_cycles(section.configuration.add, (*costs, "add"), numbers),
        config_multiply=_cycles(section.configuration.multiply, (*costs, "multiply"), numbers),
        ramp=_cycles(section.ramp, (*path, "ramp"), numbers),
        empty=_cycles(section.empty, (*path, "empty"), numbers),
    )


def _whole(given: int | float | str | None, path: Path, numbers: Numbers) -> int | None:
    return None if given is None else numbers.whole(given, path, str(path[-1]))


def _cycles(given: int | float | str, path: Path, numbers: Numbers) -> int:
    found = numbers.at_least_zero(given, path, "cycles")
    if found != int(found):
        numbers.faults.add(path, f"{found:g} is no whole number of cycles", "write 0, 1, 2, ...")
    return int(found)
