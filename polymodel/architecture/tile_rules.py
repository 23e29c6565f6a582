"""`data_tiles:` of a memory, resolved: plain frozen data. The room `tiling` decides what the words mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from polymodel.architecture.numbers import Numbers
from polymodel.spec.faults import Path
from polymodel.spec.tiles_schema import DataTiles, ProductTiles

# One buffer each for A, B and the output.
OPERANDS = 3
# Whatever is summed over tiles then stays within 64 bits.
MOST_CYCLES, MOST_CAPACITY = 10**9, 2**62


@dataclass(frozen=True)
class ProductRules:
    """How products of two matrices are cut. `capacity` (words of a buffer) is None where the rules of the
    memory decide, `order` where the best one is taken; `tile`: sizes along i, k and j of uniform tiles.
    """

    strategy: Literal["uniform", "panels", "dynamic", "overbooked", "search"] = "search"
    tile: tuple[int, int, int] | None = None
    capacity: int | None = None
    order: str | None = None
    objective: Literal["words", "time"] = "time"
    pes: int = 1
    bandwidth: float = 1.0
    overbook: float = 0.1
    time_limit: float = 30.0


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
    ranks: tuple[str, ...] | None = None
    product: ProductRules = ProductRules()

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
        ranks=section.ranks,
        product=_product(section.product, (*path, "product"), numbers),
    )


def words_of(rules: TileRules, size_bits: float, buffering: str, widest: int) -> int | None:
    """Words of each operand's buffer for products; 0 if the memory holds none, None if nothing says how many.

    The capacity of products, else that in words, else what follows from the memory's size.
    """
    if rules.product.capacity is not None:
        return rules.product.capacity
    if rules.fit == "words" and rules.capacity is not None:
        return rules.capacity
    if math.isinf(size_bits):
        return None
    return capacity_of(replace(rules, fit="words", capacity=None), size_bits, buffering, widest)


def _product(section: ProductTiles, path: Path, numbers: Numbers) -> ProductRules:
    tile = None
    if section.tile is not None:
        i, k, j = (
            _whole(t, (*path, "tile", at), numbers, "tile size") or 1 for at, t in enumerate(section.tile)
        )
        tile = i, k, j
    overbook = numbers.at_least_zero(section.overbook, (*path, "overbook"), "overbook")
    if overbook >= 1:
        numbers.faults.add((*path, "overbook"), f"{overbook:g} is no share of tiles", "write e.g. 0.1")
    return ProductRules(
        strategy=section.strategy or ("search" if tile is None else "uniform"),
        tile=tile,
        capacity=_whole(section.capacity, (*path, "capacity"), numbers),
        order=section.order,
        objective=section.objective,
        pes=numbers.whole(section.pes, (*path, "pes"), "pes"),
        bandwidth=numbers.positive(section.bandwidth, (*path, "bandwidth"), "bandwidth", finite=True),
        overbook=overbook,
        time_limit=numbers.positive(section.time_limit, (*path, "time_limit"), "time limit"),
    )


def _whole(
    given: int | float | str | None, path: Path, numbers: Numbers, what: str | None = None
) -> int | None:
    """`what`: left out, the key."""
    if given is None:
        return None
    name = what or str(path[-1])
    found = numbers.whole(given, path, name)
    if found > MOST_CAPACITY:
        numbers.faults.add(path, f"{name} {found:g} is more than 2^62", "write a smaller number")
    return found


def _cycles(given: int | float | str, path: Path, numbers: Numbers) -> int:
    found = numbers.at_least_zero(given, path, "cycles")
    if found != int(found):
        numbers.faults.add(path, f"{found:g} is no whole number of cycles", "write 0, 1, 2, ...")
    elif found > MOST_CYCLES:
        numbers.faults.add(path, f"{found:g} cycles are more than 10^9", "write a smaller number")
    return int(found)
