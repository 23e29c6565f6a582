"""Compare published numbers of the paper and its companions with the model, with every parameter that was
chosen.

Source: Srivastava et al., HPCA 2020 (sections and tables in each record). Nothing here is fitted: sizes and
widths that are not published are the defaults of `Machine`, `Tiles` and `tensaurus`, and each record names
those it uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from math import prod

from polymodel.frozen import dataclass
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensaurus.machine import Machine
from polymodel.sparse.tensaurus.predict import tensaurus
from polymodel.sparse.tensaurus.report import TensaurusReport
from polymodel.sparse.tensaurus.streams import DDR4, Efficiency, bandwidth

# Table 3 (rounded there): shape and nonzeros.
TENSORS = {
    "nell-2": ((12_000, 9_000, 28_000), 77_000_000),
    "netflix": ((480_000, 18_000, 2_000), 100_000_000),
    "poisson3D": ((3_000, 3_000, 3_000), 99_000_000),
}
# Section 7.1, figure 7: the bottleneck of each tensor and mode.
BOUND = {
    "SpMTTKRP": {"nell-2": "mmm", "netflix": "mmm", "poisson3D": "ccc"},
    "SpTTMc": {"nell-2": "ccm", "netflix": "mmm", "poisson3D": "ccc"},
}
# Table 6, GOP/s.
DENSE = {"DMTTKRP": 511.9, "DTTMc": 498.9, "GEMM": 506.5}
# Extents of every rank of the dense tensors, not published: B and C fit the scratchpads once.
EXTENT = 512
# Section 7.2: speed-ups over baselines of which only ratios are published.
SPEEDUPS = {
    "SpMTTKRP": "22.9 over CPU, 3.1 over GPU",
    "SpTTMc": "6.02 over CPU, 0.1 over GPU",
    "SpMM (CNN)": "349.2 over CPU, 1.8 over GPU, 1.9 over Cambricon-X",
    "SpMM (SuiteSparse)": "125.8 over CPU, 0.87 over GPU, 119.7 over Cambricon-X",
    "SpMV": "7.7 over CPU, 0.45 over GPU",
}


@dataclass(frozen=True)
class Record:
    """A published number or class, and the model's result. `error`: the relative error; None for classes, and
    where the model has no result.

    `agrees`: whether the classes are equal, or the error is at most 3 %; None where nothing was computed.
    """

    quantity: str
    published: float | str
    ours: float | str | None
    unit: str
    error: float | None
    agrees: bool | None
    parameters: str
    note: str


@cache
def published() -> tuple[Record, ...]:
    """Return all records: machine, dense kernels, the limits of the sparse ones, CISS, and what cannot be
    computed."""
    return (*_machine(), *_dense(), *_bounds(), *_formats(), *_missing())


def _number(quantity: str, theirs: float, ours: float, unit: str, parameters: str, note: str) -> Record:
    error = ours / theirs - 1
    return Record(quantity, theirs, ours, unit, error, abs(error) <= 0.03, parameters, note)


def _machine() -> Iterator[Record]:
    m = Machine()
    array = f"{m.rows} x {m.columns} PEs, VLEN {m.vlen}, {m.clock / 1e9:g} GHz"
    yield _number("peak", 512, m.peak / 1e9, "GOP/s", array, "every other cycle goes to the scratchpad")
    yield _number("ridge", 4, m.ridge, "OP/byte", f"{m.bandwidth / 1e9:g} GB/s", "peak over bandwidth")
    yield _number("area", 2.3, m.area_mm2, "mm2", "table 2 by component", "a sum")
    yield _number("power", 982.21, m.power_watts * 1000, "mW", "table 2 by component", "a sum")


def dense(kernel: str, extent: int = EXTENT) -> TensaurusReport:
    """Return the report of a dense kernel whose tensor has this extent in every rank; for GEMM the dense rank
    has it, too."""
    order = 2 if kernel in ("GEMM", "GEMV") else 3
    shape = (extent,) * order
    model = Uniform(("I", "J", "K")[:order], shape, prod(shape))
    return tensaurus(kernel, model, K=extent) if kernel == "GEMM" else tensaurus(kernel, model)


_DENSE_NOTE = {
    "DMTTKRP": "lost: headers, first operand tiles, last output tile",
    "DTTMc": "lost in the model as DMTTKRP; the rest of the published loss is not explained",
    "GEMM": "a header for every 512 nonzeros, as slices are short",
}


def _dense() -> Iterator[Record]:
    for kernel, theirs in DENSE.items():
        report = dense(kernel)
        names = ", ".join(f"{n} {s}" for n, s in report.sizes.items())
        yield _number(f"dense {kernel}", theirs, report.gops, "GOP/s", names, _DENSE_NOTE[kernel])


def modes() -> dict[int, tuple[tuple[int, int, int], ...]]:
    """Return, for each mode, the orders of the ranks with that mode's slices first."""
    orders = [(a, b, c) for a, b, c in permutations(range(3))]
    return {m: tuple(o for o in orders if o[0] == m) for m in range(3)}


def uniform(tensor: str, order: tuple[int, int, int]) -> Uniform:
    """Return a tensor of table 3 as uniform data, with its ranks in this order."""
    shape, nnz = TENSORS[tensor]
    return Uniform(("I", "J", "K"), tuple(shape[r] for r in order), nnz)


def clustered(tensor: str, order: tuple[int, int, int], per_fiber: float) -> Hierarchical:
    """Return a tensor of table 3 with about `per_fiber` nonzeros in each nonempty fiber."""
    shape, nnz = TENSORS[tensor]
    i, j, k = (shape[r] for r in order)
    kept = min(1.0, nnz / per_fiber / (i * j))
    return Hierarchical(("I", "J", "K"), (i, j, k), (1.0, kept, nnz / (i * j * k * kept)))


def flips_at(kernel: str, tensor: str, order: tuple[int, int, int]) -> int | None:
    """Return the least power of two of nonzeros per fiber, up to 256, at which clustered data are
    memory-bound; None if there is none.

    It is found by bisection, because more nonzeros per fiber mean fewer operations per byte.
    """
    low, high = 0, 9
    while low < high:
        middle = (low + high) // 2
        if tensaurus(kernel, clustered(tensor, order, float(1 << middle))).bound == "memory":
            high = middle
        else:
            low = middle + 1
    return 1 << low if low < 9 else None


@cache
def _uniform_report(kernel: str, shape: tuple[int, ...], nnz: int) -> TensaurusReport:
    """Return the report of uniform data; orders with equal extents share one."""
    return tensaurus(kernel, Uniform(("I", "J", "K"), shape, nnz))


def _bounds() -> Iterator[Record]:
    names = {"m": "memory", "c": "compute"}
    for kernel, tensors in BOUND.items():
        for tensor, classes in tensors.items():
            for mode, orders in modes().items():
                theirs = names[classes[mode]]
                models = [uniform(tensor, o) for o in orders]
                reports = [_uniform_report(kernel, m.shape, m.nnz) for m in models]
                ours = sorted({r.bound for r in reports})
                found = " or ".join(dict.fromkeys(f"{r.intensity:.2f}" for r in reports))
                note = f"{found} OP/byte" + (", by the order of the other modes" if " or " in found else "")
                if ours != [theirs]:
                    note += _clusters(kernel, tensor, orders)
                yield Record(
                    f"{kernel} {tensor}-m{mode}",
                    theirs,
                    " or ".join(ours),
                    "bound",
                    None,
                    ours == [theirs],
                    "uniform data, dense fibers of 32" + (", V 4" if kernel == "SpTTMc" else ""),
                    note,
                )


def _clusters(kernel: str, tensor: str, orders: tuple[tuple[int, int, int], ...]) -> str:
    at = dict.fromkeys(flips_at(kernel, tensor, o) for o in orders)
    shown = " or ".join(str(n) if n else "more than 256" for n in at)
    return f"; memory-bound if fibers hold {shown} nonzeros or more: clustering, which uniform data lacks"


def _formats() -> Iterator[Record]:
    m = Machine()
    yield Record(
        "CISS entry of a 3-d tensor",
        "(dw + 2 iw) P",
        f"{m.entry_bits(3)} = ({m.data_bits} + 2 x {m.index_bits}) {m.rows}",
        "bit",
        None,
        m.entry_bits(3) == (m.data_bits + 2 * m.index_bits) * m.rows,
        f"dw {m.data_bits}, iw {m.index_bits}: not published",
        "one DDR4 burst of 64 bytes",
    )
    data = uniform("poisson3D", (0, 1, 2))
    found: dict[str, Efficiency] = {e.format: e for e in bandwidth(data, (m.rows,))}
    for name, theirs, note in (
        ("extended CSR", 1.9, "8 bytes used of each burst of 64"),
        ("CISS", 11.2, "an upper bound: row activations and refresh, 30 % by the text, are not modelled"),
    ):
        parameters = f"{DDR4.peak / 1e9:g} GB/s, bursts of {DDR4.burst} bytes, uniform data as poisson3D"
        yield _number(
            f"DDR4 bandwidth of {name}, 8 PEs", theirs, found[name].bandwidth / 1e9, "GB/s", parameters, note
        )


def _missing() -> Iterator[Record]:
    for kernel, theirs in SPEEDUPS.items():
        note = (
            "times of the baselines and most of their data are not published, only geometric means of ratios"
        )
        yield Record(f"speed-up {kernel}", theirs, None, "ratio", None, None, "", note)
    note = "the matrices are not listed; any matrix can be asked for with tensaurus('SpMM', matrix)"
    yield Record("SpMM SuiteSparse, GraphSAGE", "memory", None, "bound", None, None, "", note)


def table() -> str:
    """Return the records as a Markdown table, for docs/sparse/tensaurus.md."""
    lines = [
        "| quantity | published | ours | error | parameters chosen | note |",
        "|---|---|---|---|---|---|",
    ]
    for r in published():
        ours = "not computed" if r.ours is None else _shown(r.ours)
        error = (
            f"{r.error:+.1%}" if r.error is not None else {True: "same", False: "differs", None: ""}[r.agrees]
        )
        unit = "" if r.unit in ("bound", "ratio") else f" {r.unit}"
        theirs = _shown(r.published) + (unit if not isinstance(r.published, str) else "")
        ours += unit if r.ours is not None else ""
        lines.append("| " + " | ".join((r.quantity, theirs, ours, error, r.parameters, r.note)) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


def size_table() -> str:
    """Return the throughput of the dense kernels by extent, for the same page."""
    extents = (64, 128, 256, 512, 1024)
    lines = [
        "| kernel | published | " + " | ".join(str(n) for n in extents) + " |",
        "|---" * (len(extents) + 2) + "|",
    ]
    for kernel, theirs in DENSE.items():
        lines.append(
            f"| {kernel} | {theirs} | "
            + " | ".join(f"{dense(kernel, n).executed_gops:.1f}" for n in extents)
            + " |"
        )
    return "\n".join(lines) + "\n"
