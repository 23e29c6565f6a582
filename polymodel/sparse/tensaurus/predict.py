"""Predict time and energy of one kernel on one tensor on Tensaurus from its counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.tensaurus.machine import (
    Machine,
    TensorKernel,
    TileLoops,
    Tiles,
    kernel_of,
    nest,
    operands,
)
from polymodel.sparse.tensaurus.report import (
    KernelStage,
    Memory,
    Number,
    TensaurusReport,
    TensorTransfer,
    Way,
)
from polymodel.sparse.tensaurus.statistics import (
    ExpectedStatistics,
    FiberCounts,
    Statistics,
    WorkShare,
    of_data,
    of_model,
)
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

# Default length of the dense fibers: F is not published, and 32 fills the columns once.
ACROSS = 32


def tensaurus(
    kernel: str,
    a: SparseTensor | DensityModel,
    *,
    F: int | None = None,
    U: int | None = None,
    V: int | None = None,
    K: int | None = None,
    machine: Machine | None = None,
    tiles: Tiles | None = None,
    slices: Literal["own", "kept"] = "own",
) -> TensaurusReport:
    """Return the costs of one kernel on Tensaurus: work, balance, traffic, time and energy.

    `kernel`: MTTKRP, TTMc, SpMM or SpMV (SpMTTKRP, GEMM and so on are the same). `a`: the sparse tensor, or a
    density model of it; its first rank is that of the slices. The other operands are dense: F columns of B
    and C (MTTKRP), U of C and V of B (TTMc, 4 by default), K of B (SpMM), 32 each by default. A tensor with
    density 1 gives the dense kernels.

    `slices`: in `stages`, the slices of T are balanced by T's `own` nonzeros, as in the specification, or
    `kept` as in A, as in the hardware (whose own time always keeps them). Numbers are exact for data,
    expected for a model. Raises SpecError for unknown kernels, other numbers of ranks, sizes of other
    kernels, and tiles that do not fit.
    """
    result = kernel_of(kernel)
    _check_kinds(a, machine, tiles)
    given = {"F": F, "U": U, "V": V, "K": K}
    shape = a.shape
    _check(result, shape, given, slices)
    across = (given[result.across] or ACROSS) if result.across else 1
    kept = (V or (machine or Machine()).olen) if result.kept else 1
    chosen = machine or Machine()
    loops = nest(result, shape, across, kept, chosen, tiles or Tiles())
    _check_indices(loops, chosen)
    per_fiber = tuple(n for n, _ in _second_einsum_steps(result, loops))
    if isinstance(a, SparseTensor):
        counted = of_data(result, FiberCounts(a), loops.sparse_tile, chosen.rows, per_fiber, slices == "own")
    else:
        counted = of_model(result, ExpectedStatistics(a), loops.sparse_tile, chosen.rows, per_fiber)
    sizes = {**dict(zip(result.ranks, shape, strict=True)), **_dense_sizes(result, across, kept)}
    return _report(result, counted, loops, chosen, sizes)


def _dense_sizes(kernel: TensorKernel, across: int, kept: int) -> dict[str, int]:
    return {r: n for r, n in ((kernel.across, across), (kernel.kept, kept)) if r}


def _check(kernel: TensorKernel, shape: tuple[int, ...], given: Mapping[str, object], slices: str) -> None:
    faults = (
        []
        if slices in ("own", "kept")
        else [Diagnostic(f"slices={slices!r}", "own or kept", code="not-positive-integer")]
    )
    if len(shape) != kernel.order:
        takes = f"{kernel.name} takes a tensor of {kernel.order} ranks ({', '.join(kernel.ranks)})"
        what = f"{takes}, this has {len(shape)}"
        remedy = "choose another kernel, or flatten ranks"
        faults.append(Diagnostic(what, remedy, "tensor", code="wrong-count"))
    for name, value in given.items():
        if value is None:
            continue
        if name not in kernel.dense:
            has = f"it has {', '.join(kernel.dense)}" if kernel.dense else "it has no dense fibers"
            faults.append(Diagnostic(f"{kernel.name} has no dense rank {name}", has, code="unknown-name"))
        elif not isinstance(value, (int, np.integer)) or value < 1:
            message = f"{name} is {value!r}"
            faults.append(Diagnostic(message, "a whole number of at least 1", code="not-positive-integer"))
    if faults:
        raise SpecError(faults)


def _check_kinds(a: object, machine: object, tiles: object) -> None:
    if not isinstance(a, (SparseTensor, DensityModel)):
        how = "pass pm.read_tensor(FILE), or a density model such as Uniform.of(ranks, shape, nnz=...)"
        raise not_a("sparse tensor or density model", "tensaurus", a, how)
    if not isinstance(machine, Machine | None):
        raise not_a("machine", "tensaurus", machine, "write e.g. machine=Machine(rows=16)")
    if not isinstance(tiles, Tiles | None):
        raise not_a("record of tiles", "tensaurus", tiles, "write e.g. tiles=Tiles(i=256)")


def _check_indices(loops: TileLoops, machine: Machine) -> None:
    most = 1 << machine.index_bits
    faults = [
        Diagnostic(
            f"tile {name} of {loops.tiles[name]} needs more than {machine.index_bits} index bits",
            f"tiles=Tiles({name}={most}) at most, or more bits: Machine(index_bits=...)",
            code="number-too-large",
        )
        for name in "ijk"
        if loops.tiles[name] > most
    ]
    if faults:
        raise SpecError(faults)


def _second_einsum_steps(kernel: TensorKernel, loops: TileLoops) -> Iterator[tuple[int, int]]:
    """Yield the steps per fiber of the second Einsum, and the number of passes over A that have them."""
    if not kernel.factored:
        yield 0, loops.passes
        return
    whole, rest = divmod(loops.sizes["kept"], loops.tiles["kept"])
    yield loops.tiles["kept"], whole * loops.trips("across")
    if rest:
        yield rest, loops.trips("across")


def _report(
    kernel: TensorKernel, counted: Statistics, loops: TileLoops, machine: Machine, sizes: dict[str, int]
) -> TensaurusReport:
    across, kept = loops.sizes["across"], loops.sizes["kept"]
    first, second = kernel.multiplies(counted.nnz, counted.fibers, across, kept)
    again, meets = kernel.multiplies(counted.nnz * loops.trips("kept"), counted.tiled.fibers, across, kept)
    repeats = [n for _, n in _second_einsum_steps(kernel, loops)]
    steps = sum(s * n for s, n in zip(counted.tiled.steps, repeats, strict=True))
    flows = tuple(_flows(kernel, counted, loops, machine))
    hbm = sum(f.bits for f in flows if f.memory == "HBM")
    once = {name: loops.largest(ranks) * machine.data_bits / 8 for name, ranks in operands(kernel).items()}
    last = once.pop("Y")
    stages = [_stage("T" if kernel.factored else "Y", counted.first, first, loops, machine, 1, kernel)]
    if counted.second is not None:
        stages.append(_stage("Y", counted.second, second, loops, machine, kept, kernel))
    return TensaurusReport(
        kernel=kernel.name,
        label=counted.label,
        sizes=sizes,
        machine=machine,
        nest=loops,
        nnz=counted.nnz,
        fibers=counted.fibers,
        slices=counted.tiled.slices,
        stages=tuple(stages),
        multiplies=first + second,
        executed=again + meets,
        flows=flows,
        steps=steps,
        compute_seconds=steps * machine.step_seconds,
        memory_seconds=hbm / 8 / machine.bandwidth,
        first_seconds=sum(once.values()) / machine.bandwidth,
        last_seconds=last / machine.bandwidth,
    )


def _stage(
    einsum: str,
    share: WorkShare,
    multiplies: Number,
    loops: TileLoops,
    machine: Machine,
    each: int,
    kernel: TensorKernel,
) -> KernelStage:
    """Return the steps of one Einsum: `each` per unit of load and block of columns."""
    times = each * -(-loops.sizes["across"] // machine.width)
    lower, upper = share.bounds(machine.rows)
    lanes = machine.rows * (machine.width if kernel.across else 1)
    return KernelStage(
        einsum=einsum,
        multiplies=multiplies,
        loads=share.loads,
        largest=share.largest,
        imbalance=share.imbalance,
        slip=share.largest * times,
        lockstep=share.lockstep * times,
        ideal=multiplies / lanes,
        lower=lower,
        upper=upper,
        label=share.label,
        lockstep_label=share.lockstep_label,
    )


def _flows(
    kernel: TensorKernel, counted: Statistics, loops: TileLoops, machine: Machine
) -> Iterator[TensorTransfer]:
    """Yield all traffic. The `form` texts name trip counts n_x of tile loops; docs/sparse/tensaurus.md
    explains each."""
    label, word = counted.label, machine.data_bits
    across, kept, tiled = loops.sizes["across"], loops.sizes["kept"], counted.tiled
    slots = tiled.entries * loops.passes
    entry = machine.entry_bits(kernel.order)
    yield TensorTransfer(
        "HBM",
        "read",
        "A",
        slots * machine.rows,
        slots * entry,
        label,
        "passes x CISS entries of all tiles x entry bits",
    )
    dense = partial(_dense_flow, word=word)
    shape = operands(kernel)
    for name, ranks in shape.items():
        if name != "Y":
            yield dense("HBM", "read", name, loops.elements(ranks), form="tile loads, A's loops in between")
            copies = machine.columns if kernel.across and "across" not in ranks else 1
            written = loops.elements(ranks) * copies
            yield dense("SPM", "write", name, written, form="tile loads, B of TTMc to every column")
    final = loops.elements(shape["Y"])
    partials = final - loops.whole(shape["Y"])
    yield dense("HBM", "write", "Y", final, form="once per visit of an output tile")
    if partials:
        yield dense("HBM", "read", "Y", partials, form="partial sums of later visits")
    for name, elements, form in _reads(kernel, counted, loops, machine):
        yield TensorTransfer("SPM", "read", name, elements, elements * word, label, form)
    flushed = tiled.slices * across * kept
    yield TensorTransfer(
        "MSU", "write", "Y", flushed + partials, (flushed + partials) * word, label, "slices of tiles x F V"
    )
    back = (tiled.slices - counted.rows) * across * kept + final
    yield TensorTransfer(
        "MSU", "read", "Y", back, back * word, label, "slices met before x F V, and what goes to HBM"
    )
    made = counted.nnz * across * loops.trips("kept")
    sums = tiled.fibers * across * kept if kernel.factored else made
    if kernel.factored:
        yield TensorTransfer("TSR", "write", "T", made, made * word, label, "one per multiplication of T")
        yield TensorTransfer("TSR", "read", "T", sums, sums * word, label, "one per multiplication of Y")
    yield TensorTransfer("OSR", "write", "Y", sums, sums * word, label, "one per multiplication into Y")


def _dense_flow(
    memory: Memory, way: Way, tensor: str, elements: int, *, word: int, form: str
) -> TensorTransfer:
    return TensorTransfer(memory, way, tensor, elements, elements * word, "exact", form)


def _columns(loops: TileLoops, machine: Machine) -> int:
    """Return the number of columns in use, summed over the tiles across."""
    whole, rest = divmod(loops.sizes["across"], loops.tiles["across"])
    return whole * -(-loops.tiles["across"] // machine.vlen) + -(-rest // machine.vlen)


def _reads(
    kernel: TensorKernel, counted: Statistics, loops: TileLoops, machine: Machine
) -> Iterator[tuple[str, Number, str]]:
    """Yield the elements that PEs read from scratchpads."""
    across, kept = loops.sizes["across"], loops.sizes["kept"]
    if not kernel.factored:
        yield "B", counted.nnz * across, "nonzeros x fiber"
        return
    yield "C", counted.nnz * across * loops.trips("kept"), "nonzeros x fiber, for each tile of V"
    fibers = counted.tiled.fibers
    if kernel.kept:
        yield "B", fibers * kept * _columns(loops, machine), "fibers of all tiles x V, in every column"
    else:
        yield "B", fibers * across, "fibers of all tiles x F"
