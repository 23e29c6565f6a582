"""Define the records of a prediction: stages, flows, times and energies, and all of it as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.sparse.density.model import Label
from polymodel.sparse.tensaurus.machine import KERNELS, Machine, TileLoops
from polymodel.view.answer import Answer, Block, Facts, Line, declared
from polymodel.view.table import Column, Table

Number = int | float
Bound = Literal["compute", "memory"]
Memory = Literal["HBM", "SPM", "MSU", "TSR", "OSR"]
Way = Literal["read", "write"]


@dataclass(frozen=True)
class Row:
    """One number: its name, unit, certainty label (exact, expected or bound) and how it is computed."""

    name: str
    value: Number | str
    unit: str = ""
    label: str = ""
    form: str = ""


@dataclass(frozen=True)
class KernelStage:
    """One Einsum of the kernel under the partitioning of the specification, before hardware tiling.

    `multiplies`: effectual ones. `loads`: work of each row of PEs in units of one pass (nonzeros of its
    slices, or fibers); empty where only expected. Times count steps of one multiply-accumulate per lane:
    `slip` if rows run independently, `lockstep` if they run together, `ideal` is multiplies divided by lanes.
    `lower`, `upper`: bounds of the largest load of any greedy assignment.
    """

    einsum: str
    multiplies: Number
    loads: tuple[int, ...]
    largest: Number
    imbalance: float
    slip: Number
    lockstep: Number
    ideal: float
    lower: Number
    upper: Number
    label: Label
    lockstep_label: Label


@dataclass(frozen=True)
class TensorTransfer:
    """Elements and bits of one tensor that pass one memory in one direction, for all hardware tiles
    together."""

    memory: Memory
    way: Way
    tensor: str
    elements: Number
    bits: Number
    label: Label
    form: str


@dataclass(frozen=True, repr=False)
class TensaurusReport(Answer):
    """The prediction for one kernel on one tensor, in seconds, joules and bits. `label`: that of the counts.

    `steps`: those of the busiest lanes, summed over hardware tiles and passes. `executed`: multiplications
    that tiling makes necessary (fibers that lie in several tiles of k are multiplied with B in each, and T is
    recomputed for each tile of V).
    """

    kernel: str
    label: Label
    sizes: Mapping[str, int]
    machine: Machine
    nest: TileLoops
    nnz: Number
    fibers: Number
    slices: Number
    stages: tuple[KernelStage, ...]
    multiplies: Number
    executed: Number
    flows: tuple[TensorTransfer, ...]
    steps: Number
    compute_seconds: float
    memory_seconds: float
    first_seconds: float
    last_seconds: float

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={n:,}" for r, n in self.sizes.items())
        what = f"{self.gops:.4g} GOP/s, {self.bound}-bound, {self.label}"
        return f"TensaurusReport({self.kernel}: {sizes}, {_shown(self.nnz)} nonzeros; {what})"

    @declared(title="Kernel on the Tensaurus accelerator", name="tensaurus")
    def figures(self) -> Table:
        """Every number of the prediction: value, unit, label (exact, expected, bound) and how it is
        computed."""
        columns = Column("quantity"), Column("value"), Column("unit"), Column("label"), Column("how")
        rows = tuple((r.name, r.value, r.unit, r.label, r.form) for r in self.rows())
        return Table("tensaurus", columns, rows)

    def content(self, live: bool = True) -> list[Block]:
        """A dozen lines; the table has everything."""
        return [Line(self.title), Facts(self._lines(), indent="  ")]

    def __str__(self) -> str:
        return super().__str__().rstrip()

    def _lines(self) -> list[tuple[str, str]]:
        time, joules = partial(engineering, unit="s"), partial(engineering, unit="J")
        return [
            ("work", f"{_shown(self.multiplies)} multiplications, {_shown(self.executed)} with tiles"),
            ("fibers", f"{_shown(self.fibers)}, {_shown(self.slices)} slices in tiles"),
            *(
                (
                    f"stage {s.einsum}",
                    f"slip {_shown(s.slip)}, lock-step {_shown(s.lockstep)}, ideal {_shown(s.ideal)} "
                    f"steps; imbalance {s.imbalance:.3f}",
                )
                for s in self.stages
            ),
            ("HBM", f"{engineering(self.hbm_bytes, 'B')}, {self.intensity:.3g} operations per byte"),
            ("time", f"{time(self.seconds)}: compute {time(self.compute_seconds)}, "
                     f"HBM {time(self.memory_seconds)}"),
            ("throughput", f"{self.gops:.4g} of {self.machine.peak / 1e9:g} GOP/s"),
            ("bound", f"{self.bound} (roof), {self.limiting} (time)"),
            ("energy", f"{joules(sum(self.energy.values()))}, of HBM {joules(self.energy['HBM'])}"),
            ("tiles", ", ".join(f"{n} {s:,}" for n, s in self._tiles())),
        ]  # fmt: skip

    @property
    def operations(self) -> Number:
        """A multiplication and an addition for each effectual multiplication."""
        return 2 * self.multiplies

    @property
    def seconds(self) -> float:
        """Time in seconds. Transfers overlap with compute, except for the first operand tiles and the last
        output tile."""
        return max(self.memory_seconds, self.first_seconds + self.compute_seconds + self.last_seconds)

    @property
    def gops(self) -> float:
        """Effectual operations per nanosecond."""
        return self.operations / self.seconds / 1e9

    @property
    def executed_gops(self) -> float:
        return 2 * self.executed / self.seconds / 1e9

    @property
    def utilisation(self) -> float:
        """Executed operations over the peak."""
        return self.executed_gops * 1e9 / self.machine.peak

    def moved(self, memory: str, tensor: str | None = None, way: str | None = None) -> Number:
        """Return the bits that pass a memory, for all tensors or one, and for both directions or one."""
        return sum(
            f.bits
            for f in self.flows
            if f.memory == memory and tensor in (None, f.tensor) and way in (None, f.way)
        )

    @property
    def hbm_bytes(self) -> float:
        return self.moved("HBM") / 8

    @property
    def intensity(self) -> float:
        """Effectual operations per byte of HBM."""
        return self.operations / self.hbm_bytes

    @property
    def attainable(self) -> float:
        """Operations per second that the roofline allows at this intensity."""
        return min(self.machine.peak, self.intensity * self.machine.bandwidth)

    @property
    def bound(self) -> Bound:
        """The roof at this intensity: memory left of the ridge, compute right of it."""
        return "memory" if self.intensity < self.machine.ridge else "compute"

    @property
    def limiting(self) -> Bound:
        """The longer of compute time (with headers, imbalance and idle columns) and memory time."""
        return "memory" if self.memory_seconds > self.compute_seconds else "compute"

    @property
    def energy_of_power(self) -> float:
        """Joules of the chip at its published power for the whole time, HBM not included."""
        return self.machine.power_watts * self.seconds

    @property
    def energy(self) -> Mapping[str, float]:
        """Joules by component: actions of PE, SPM and MSU, time for the rest of the chip, bits of HBM."""
        words = {n: self.moved(n) / self.machine.data_bits for n in ("SPM", "MSU")}
        return self.machine.energies(
            self.executed, words["SPM"], words["MSU"], self.moved("HBM"), self.seconds
        )

    def rows(self) -> tuple[Row, ...]:
        """Everything as a tidy table."""
        return (*self._parameters(), *self._work(), *self._stages(), *self._moves(), *self._costs())

    def _parameters(self) -> Iterator[Row]:
        yield Row("kernel", self.kernel)
        for name, size in self.sizes.items():
            yield Row(f"size {name}", size, "", "exact", "given")
        for name, size in self._tiles():
            yield Row(f"tile {name}", size, "", "exact", "parameter")
        yield Row("data bits", self.machine.data_bits, "bit", "exact", "parameter, not published")
        yield Row("index bits", self.machine.index_bits, "bit", "exact", "parameter, not published")
        yield Row("peak", self.machine.peak / 1e9, "GOP/s", "exact", "rows columns VLEN 2 / step time")
        yield Row("ridge", self.machine.ridge, "OP/byte", "exact", "peak / bandwidth")

    def _tiles(self) -> Iterator[tuple[str, int]]:
        """Sizes of hardware tiles by the kernel's names of the ranks."""
        kernel = KERNELS[self.kernel]
        names = {"across": kernel.across, "kept": kernel.kept, **{r.lower(): r for r in kernel.ranks}}
        return ((names[n], size) for n, size in self.nest.tiles.items() if names.get(n))

    def _work(self) -> Iterator[Row]:
        yield Row("nonzeros", self.nnz, "element", self.label)
        yield Row("fibers", self.fibers, "fiber", self.label, "nonempty (i, j)")
        yield Row("slices in tiles", self.slices, "slice", self.label, "headers of CISS")
        yield Row("multiplies", self.multiplies, "operation", self.label, "closed form of the kernel")
        what = "with what hardware tiles repeat"
        yield Row("multiplies executed", self.executed, "operation", self.label, what)
        yield Row("operations", self.operations, "operation", self.label, "2 multiplies")

    def _stages(self) -> Iterator[Row]:
        for s in self.stages:
            for name, value, unit, label in (
                ("multiplies", s.multiplies, "operation", s.label),
                ("largest load", s.largest, "element", s.label),
                ("imbalance", s.imbalance, "", s.label),
                ("slip steps", s.slip, "step", s.label),
                ("lock-step steps", s.lockstep, "step", s.lockstep_label),
                ("ideal steps", s.ideal, "step", s.label),
                ("largest load at least", s.lower, "element", "bound"),
                ("largest load at most", s.upper, "element", "bound"),
            ):
                yield Row(f"{s.einsum}: {name}", value, unit, label)
            for row, load in enumerate(s.loads):
                yield Row(f"{s.einsum}: load of PE row {row}", load, "element", s.label)

    def _moves(self) -> Iterator[Row]:
        for f in self.flows:
            yield Row(f"{f.memory} {f.way} {f.tensor}", f.bits, "bit", f.label, f.form)
        yield Row("HBM bytes", self.hbm_bytes, "byte", self.label)
        yield Row("intensity", self.intensity, "OP/byte", self.label, "operations / HBM bytes")

    def _costs(self) -> Iterator[Row]:
        for name, seconds in (
            ("compute", self.compute_seconds),
            ("HBM", self.memory_seconds),
            ("first operand tiles", self.first_seconds),
            ("last output tile", self.last_seconds),
            ("all", self.seconds),
        ):
            yield Row(f"time of {name}", seconds, "s", self.label)
        yield Row("throughput", self.gops, "GOP/s", self.label, "effectual operations / time")
        yield Row("throughput executed", self.executed_gops, "GOP/s", self.label)
        yield Row("utilisation", self.utilisation, "", self.label, "executed operations / peak")
        yield Row("attainable", self.attainable / 1e9, "GOP/s", self.label, "the roof above the intensity")
        yield Row("roof", self.bound, "", self.label, "intensity against the ridge")
        yield Row("limiting", self.limiting, "", self.label, "longer of compute and HBM time")
        for name, joules in self.energy.items():
            yield Row(f"energy of {name}", joules, "J", self.label, "actions")
        yield Row("energy of chip, published power", self.energy_of_power, "J", self.label, "power x time")


def _shown(count: Number) -> str:
    """Format counts in full, and expected counts to six digits or to the unit."""
    if isinstance(count, int):
        return f"{count:,}"
    return f"{count:,.0f}" if count >= 1e6 else f"{count:,.6g}"
