"""A table as plain data: named columns with units, rows of numbers and words.

Text, CSV and JSON are made from it without pandas; a DataFrame is made on request.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from polymodel.errors import masked
from polymodel.frozen import dataclass
from polymodel.integers import LONG, is_whole
from polymodel.objectives import BY_WORD
from polymodel.quantities import data_unit, engineering

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray


# The meaning of every column of the tables, one line each; pages show it at the column headings.

TERMS = {
    "einsum": "the tensor operation that a row is booked to",
    "component": "the memory, toll, fanout link or compute unit",
    "tensor": "the tensor that is held or moved",
    "node": "number of the storage node in the LoopTree, from the top",
    "n_instances": "how many times the Einsum is executed",
    "operations": "executed operations, never padded ones",
    "effectual": "operations whose result may be nonzero",
    "ineffectual": "operations that are executed, though a factor is zero",
    "gated": "cycles that are spent without a transfer or an operation: they take time, but no energy",
    "skipped": "left out because the leader is zero: takes neither time nor energy",
    "absent": "zeros that compressed storage leaves out",
    "actual": "elements that are moved",
    "metadata_bits": "coordinates, pointers and masks that a format stores in addition to the values",
    "needed_bits": "bits that the memory must provide, by its rule (`fit:`)",
    "refetched": "transfers of elements that did not fit into an overbooked tile",
    "quantile_bits": "bits that a tile does not exceed with the confidence given",
    "p_overflow": "probability that tiles at random places do not fit; of data 1 if the fullest do not",
    "label": "exact (given data), expected (density model), bound (at most), lower bound or estimate",
    "latency_s": "time; transfers overlap compute unless the architecture says otherwise",
    "cycles": "time times the clock, where the architecture gives one",
    "energy_J": "dynamic energy and leakage",
    "dynamic_J": "energy of actions",
    "leakage_J": "leak power of all instances times the latency",
    "share": "part of the total",
    "limiting": "the component that takes longest",
    "feasible": "whether everything fits where the mapping puts it",
    "assume_overlap": "whether transfers overlap compute",
    "reuse": "the policy of the storage node: refill, slide or keep_previous",
    "tile_elements": "elements of the largest tile that the node holds at a time, in one instance",
    "tile_bits": "bits of the largest tile that the node holds at a time, in one instance",
    "average_elements": "mean tile over all visits",
    "average_bits": "mean tile over all visits",
    "total_elements": "sum of the tiles over all visits",
    "live_elements": "peak of the elements between their first and last use",
    "live_bits": "peak of the bits between first and last use: the contents of a just-in-time buffer",
    "visits": "number of tiles: values of the loop counters above the node, times instances",
    "instances": "instances of the node due to spatial loops above it",
    "instances_used": "instances that do any work",
    "first_einsum": "the first Einsum that uses the tile in a visit",
    "last_einsum": "the last Einsum that uses the tile in a visit",
    "alive_in": "Einsums that run between the tile's first and last use in a visit, also between iterations",
    "crosses_branches": "whether the tile is live in more than one branch of a split",
    "residencies": "number of times that a tile is brought in and replaced",
    "read_bits": "bits read there, for compute and for other memories, all instances and executions",
    "write_bits": "bits written there, all instances and executions",
    "fill_bits": "the part of the writes that comes from the parent memory",
    "drain_bits": "the part of the reads that goes to the parent memory",
    "distinct_elements": "number of different elements held at any time",
    "accesses_per_element": "reads and writes per different element",
    "reuse_factor": "reads served downwards per element filled",
    "moved_bits": "fills and drains on the link to the parent under this mapping",
    "gap_bits": "traffic beyond that under keep_previous: a better placement could save it",
    "left_out": "the reason why a policy has no figure",
    "measure": "tile: whole while resident; live: from first to last use; reserved: without lifetimes",
    "phase": "one iteration of the innermost temporal loop of an Einsum, in order of time",
    "total_bits": "bits of all tensors there",
    "bits": "the peak over the phases, in the busiest instance",
    "capacity_bits": "size of the memory",
    "checked": "whether the capacity is checked against this measure",
    "fits": "whether the peak is within the capacity",
    "residents": "tensors in the memory at the peak, each with its bits",
    "utilisation": "used share of the available capacity",
    "rank": "1 is the component that takes longest",
    "slack_s": "how much longer the component could take before it limited the Einsum",
    "next_limiter": "the component that would limit the Einsum if this one were infinitely fast",
    "speedup": "how much faster the Einsum would get until the next component limits it",
    "intensity_operations_per_bit": "operations per bit moved at the memory",
    "attainable_operations_per_s": "the roof at this intensity",
    "achieved_operations_per_s": "operations over latency",
    "stage": "number of the branch of the pipeline, from the left; total: all of them",
    "slots": "steps of the pipeline in which the stage works; total: all steps",
    "fill_slots": "slots before the last stage begins",
    "steady_slots": "slots in which every stage may work",
    "drain_slots": "slots after the first stage has ended",
    "fill_s": "busy time in slots before the last stage begins",
    "steady_s": "busy time in slots in which every stage may work",
    "drain_s": "busy time in slots after the first stage has ended",
    "busy_s": "time in which the stage works; total: the latency of the pipeline",
    "sets_s": "time of the slots in which this stage is the slowest",
    "inferred_by": "loops that execute only the part of the Einsum that consumers need and that is not held",
    "repeated_by": "loops that execute all of the Einsum in every iteration",
    "iterations": "points of the iteration space",
    "executed_iterations": "different points that execute; consumers may not need all",
    "recompute_factor": "operations over different iterations executed; 1 where nothing is recomputed",
    "retained_read_bits": "the same reads if storage above all these loops kept the results",
    "extra_read_bits": "reads due to recomputation, in addition to these",
    "provenance": "where the number comes from",
    "elasticity_growing": "relative change of the cost per relative growth of the number",
    "elasticity_shrinking": "relative change of the cost per relative decrease of the number",
    "ratio": "b over a",
    "fused": "intermediates that never reach the backing storage",
    "chosen": "formats, actions and rules on what fits that were chosen for sparse data",
    "fused_loops": "loops that several Einsums share, with their tile shapes",
    "edp": "energy times latency",
    "sparse_energy": "energy on sparse data, by the densities of the workload",
    "sparse_latency": "latency on sparse data",
    "sparse_edp": "their product",
    "confirmed": "whether the figures are those of evaluate; else peaks may be lower than shown",
    "computes": "innermost iterations that compute, on the actual data",
    "multiplies": "products of two values",
    "adds": "updates of an output that was updated before",
    "term_adds": "additions of the terms of a sum",
    "updates": "times an output is written or added to",
    "outputs": "different outputs that are touched, those whose value is zero included",
    "zeros": "outputs whose computed value is zero",
    "lock_step": "different time stamps: all space points advance together",
    "slip": "most time stamps at one space point: each advances as soon as it is free",
    "ideal": "computes over the space points that compute",
    "space_points": "space points at which anything is computed",
    "imbalance": "largest over mean computes along the outermost space rank",
    "collisions": "computes that share place and time with another",
    "intersect_coords": "coordinates that co-iteration reads, matched or not",
    "driver_coords": "coordinates of the only tensor that has the rank",
    "lookup_coords": "coordinates looked up one by one",
    "output_read_coords": "coordinates of the output read while it is populated",
    "output_write_coords": "coordinates of the output written while it is populated",
    "share_of_mean": "nonzeros of the part over the mean of all parts",
    # Costs and accesses.
    "read_elements": "elements read there, for compute and for other memories, all instances and executions",
    "write_elements": "elements written there, all instances and executions",
    "fill_elements": "the part of the writes that comes from the parent memory",
    "drain_elements": "the part of the reads that goes to the parent memory",
    "action": "the action that takes energy: read, write, compute, leak, hops and their gated kinds",
    "count": "number of events, all instances and executions",
    "note": "assumptions where the spec leaves something open",
    "unit": "unit of the figure",
    "energy_per_unit_J": "energy of one event",
    "memory": "the memory that the row is about",
    "compute": "the compute unit that the roof belongs to",
    "bandwidth_bits_per_s": "bits per second of the memory, all instances in use",
    "peak_operations_per_s": "operations per second of the compute units in use",
    "area_per_instance_m2": "area of one instance",
    "area_m2": "area of all instances",
    "einsums": "the Einsums of the stage",
    "dense_latency_s": "time without any use of zeros",
    "dense_energy_J": "energy without any use of zeros",
    "energy_ratio": "sparse over dense energy",
    "dense_edp_Js": "energy times latency without any use of zeros",
    "edp_Js": "energy times latency",
    "dense": "the count without any use of zeros",
    "busiest": "operations of the instance with the most",
    "busiest_label": "certainty label of the figure of the busiest instance",
    "energy_label": "certainty label of operations and energy; `label` is that of latencies",
    "kind": "which kind of access, intersection or work the row counts",
    "actual_bits": "bits of the values that are moved",
    "metadata_label": "certainty label of the metadata",
    "format": "format in which the tensor is stored there",
    "points": "places of the tile, zeros included",
    "dense_bits": "bits without compression",
    "payload_bits": "bits of the values that the format stores",
    "confidence": "probability with which the quantile is not exceeded",
    "tensors": "tensors whose fibers are intersected",
    "place": "where they are intersected",
    "coordinates": "coordinates that are read there, or that a part has",
    "time": "seconds, in the first row of a memory or unit",
    # Tiles of sparse operands.
    "op": "add or multiply, element by element",
    "a": "the first operand",
    "b": "the second operand",
    "output": "the result",
    "capacity": "the largest tile, in the unit of the row",
    "tiler": "the algorithm that made the tiles",
    "tiles": "number of tiles",
    "tile_bound": "no cutting has fewer tiles with entries",
    "kernels": "tiles that are launched, each configured and run",
    "kernel_bound": "no cutting launches fewer kernels",
    "over_bound": "tiles with entries, divided by the least possible number",
    "config_cycles": "cycles to configure the array for all kernels",
    "run_cycles": "cycles that kernels run",
    "total_cycles": "cycles to configure and to run",
    "cycle_bound": "no cutting takes fewer cycles to configure and to run",
    "config_share": "part of the cycles that configuration takes",
    "tile": "number of the tile, or its sizes along i, k and j",
    "row": "first row of the tile",
    "col": "first column of the tile",
    "height": "rows of the tile",
    "width": "columns of the tile",
    "nnz": "nonzeros",
    "nnz_a": "nonzeros of A in the tile",
    "nnz_b": "nonzeros of B in the tile",
    "nnz_out": "nonzeros that the tile's result may have",
    "load": "used capacity of the tile, in the unit of the capacity",
    "words": "words that are moved, or that a tile takes",
    "words_a": "words of A's part",
    "words_b": "words of B's part",
    "words_out": "words of the result's part",
    "launched": "whether the tile becomes a kernel",
    "parent": "the memory that tiles come from",
    "role": "which operand the tensor is",
    "in_words": "words that tiles bring in",
    "read_words": "words that the array reads",
    "written_words": "words that the array writes",
    "out_words": "words that leave",
    "word_bits": "bits of one word",
    # Products of matrices in tiles.
    "strategy": "how tiles are chosen: uniform, panels, dynamic, overbooked",
    "order": "loops over tiles, outermost first",
    "capacity_words": "words of the buffer",
    "pairs": "pairs of tiles that are multiplied",
    "streamed_words": "words of tiles that exceed their buffer, read again at each use",
    "least_words": "words that any tiling has to move once",
    "quantity": "what the figure is",
    "value": "the figure",
    "total_words": "words of A, B and Z that are moved",
    "tiled_words": "words of all tiles, each once",
    "largest_words": "words of the fullest tile",
    "over": "tiles that exceed the buffer",
    "launches": "how often the array is configured and started",
    **{f"{x}_fetches": f"how often a tile of {x} is brought in" for x in "AB"},
    "Z_visits": "how often a tile of Z is worked on",
    **{f"{x}_read_words": f"words of {x} that are brought in" for x in "ABZ"},
    "Z_write_words": "words of Z that go out",
    **{f"{x}_largest_words": f"words of the fullest tile of {x}" for x in "ABZ"},
    **{f"{x}_over": f"tiles of {x} that exceed their buffer" for x in "ABZ"},
    **{f"{x}_words": f"words of {x} in this piece" for x in "ABZ"},
    **{f"{x}_tile": f"number of the tile along {x}" for x in "ikj"},
    # Executions on data.
    "loop_order": "ranks of the loops, outermost first",
    "part": "number of the part of a partitioned rank",
    "nonzeros": "nonzeros of the part",
    "space_ranks": "ranks that run in space",
    "space_point": "their coordinates",
    "stamps": "different time stamps at which the point computes",
    "share_of_largest": "computes over those of the busiest point",
}


# Tables and their columns.

# units that the heading already says
PLAIN = frozenset({"element", "operation", "stamp", "cycle", "element/element"})

RATIO = "b/a"

Cell = int | float | str | bool | None


_NAMED = re.compile(r"\w+=\d+( \w+=\d+)*")  # cells with several figures, each after its name
_PRINTED = 60  # rows of a table in a terminal


@dataclass(frozen=True)
class Column:
    """A column; the unit is also a suffix of the name where the name would not show it.

    `given`: the name is one of the spec's, such as a rank variable, and printed verbatim. `words`: the
    column's meaning, unless the glossary has it. `formula`: its cells are closed forms.
    """

    name: str
    unit: str = ""
    given: bool = False
    words: str = ""
    formula: bool = False

    @property
    def meaning(self) -> str:
        """The meaning of the column, in one line; empty if unknown."""
        objective = BY_WORD.get(self.name)
        return self.words or TERMS.get(self.name) or (objective.meaning if objective is not None else "")

    def shown(self, value: Cell) -> str:
        """One cell of the column for readers."""
        return shown(value, self)

    @property
    def heading(self) -> str:
        """The name without its unit, which the cells of a printed table have."""
        if self.name == "bits":
            return data_unit()
        ends = {
            "bit": "_bits", "bit/s": "_bits_per_s", "J": "_J", "J s": "_Js", "s": "_s",
            "W": "_W", "m^2": "_m2", "operation/bit": "_operations_per_bit",
            "operation/s": "_operations_per_s",
        }  # fmt: skip
        words, of, name = self.name.removesuffix(ends.get(self.unit, "")).partition(":")
        return f"{words if self.given else words.replace('_', ' ')}{of}{name}"


@dataclass(frozen=True)
class Table:
    """One table. Exact integers are ints; None is a figure that was not requested or does not exist."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def units(self) -> dict[str, str]:
        return {c.name: c.unit for c in self.columns if c.unit}

    @property
    def headings(self) -> list[str]:
        """The columns' headings; equal ones have their units appended."""
        plain = [c.heading for c in self.columns]
        units = [data_unit() if c.unit == "bit" else c.unit * (c.unit not in PLAIN) for c in self.columns]
        return [f"{h} {u}".rstrip() if plain.count(h) > 1 else h for h, u in zip(plain, units, strict=True)]

    def column(self, name: str) -> tuple[Cell, ...]:
        """All cells of one column. Raises KeyError for an unknown name."""
        for i, c in enumerate(self.columns):
            if c.name == name:
                return tuple(row[i] for row in self.rows)
        raise KeyError(f"table {self.name} has no column {name}")

    def records(self) -> list[dict[str, Cell]]:
        """One dictionary per row."""
        names = [c.name for c in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def only(self, *names: str) -> Table:
        """The same rows with these columns, in this order."""
        at = [next(i for i, c in enumerate(self.columns) if c.name == n) for n in names]
        rows = tuple(tuple(row[i] for i in at) for row in self.rows)
        return Table(self.name, tuple(self.columns[i] for i in at), rows, self.notes)

    def first(self, many: int) -> Table:
        """At most `many` rows, without the notes."""
        return Table(self.name, self.columns, self.rows[:many])

    def bare(self) -> Table:
        """The same without the notes."""
        return Table(self.name, self.columns, self.rows)

    def of(self, name: str) -> Table:
        """The rows whose first cell is `name`, without that column and the notes."""
        rows = tuple(row[1:] for row in self.rows if row[0] == name)
        return Table(self.name, self.columns[1:], rows)

    def without_empty(self, empty: tuple[Cell, ...] = (None, "")) -> Table:
        """Without the columns that are empty in all rows."""
        said = [any(row[i] not in empty for row in self.rows) for i in range(len(self.columns))]
        return self.only(*(c.name for c, s in zip(self.columns, said, strict=True) if s))

    def where(self, keep: Callable[[dict[str, Cell]], bool]) -> Table:
        """The rows that `keep` accepts."""
        rows = tuple(row for row, r in zip(self.rows, self.records(), strict=True) if keep(r))
        return Table(self.name, self.columns, rows, self.notes)

    def frame(self) -> pandas.DataFrame:
        """The table as a DataFrame, units in `attrs["units"]`, notes in `attrs["notes"]`."""
        import pandas

        data = {c.name: frame_column(self.column(c.name)) for c in self.columns}
        frame = pandas.DataFrame(data, columns=list(data))
        frame.attrs["units"] = self.units
        if self.notes:
            frame.attrs["notes"] = list(self.notes)
        return frame

    def __repr__(self) -> str:
        """The table as text, at most 60 rows of it."""
        head = f"{self.name}: {len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        more = len(self.rows) - _PRINTED
        rest = [f"... {more} more rows in .frame()"] if more > 0 else []
        shown_rows = self.first(_PRINTED).text(indent="")
        return "\n".join([head, shown_rows, *rest, *(f"note: {n}" for n in self.notes)])

    def _repr_html_(self) -> str:
        from polymodel.view.html import table_html

        return table_html(self)

    def to_csv(self) -> str:
        """CSV text with a header line."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([c.name for c in self.columns])
        writer.writerows([["" if v is None else v for v in row] for row in self.rows])
        return out.getvalue()

    def text(self, *, total: tuple[str, ...] = (), indent: str = "  ") -> str:
        """Aligned columns under a rule; `total`: columns that are summed in a last row."""
        cells = [[shown(v, c) for v, c in zip(row, self.columns, strict=True)] for row in self.rows]
        if total and len(self.rows) > 1:
            cells.append(self._sums(total))
        heads = self.headings
        right = [self.numeric(i) for i in range(len(self.columns))]
        widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(heads)]

        def line(row: list[str]) -> str:
            parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, widths, right, strict=True)]
            return indent + "  ".join(parts).rstrip()

        rule = indent + "  ".join("-" * w for w in widths)
        body = [line(row) for row in cells]
        if total and len(self.rows) > 1:
            body.insert(len(body) - 1, rule)
        return masked("\n".join([line(heads), rule, *body]))

    def numeric(self, at: int) -> bool:
        """Whether a column has numbers, which are right-aligned."""
        return any(isinstance(row[at], (int, float)) and not isinstance(row[at], bool) for row in self.rows)

    def _sums(self, names: tuple[str, ...]) -> list[str]:
        result = ["total"] + [""] * (len(self.columns) - 1)
        for i, c in enumerate(self.columns):
            if c.name in names:
                numbers = [v for v in self.column(c.name) if isinstance(v, (int, float))]
                whole = all(isinstance(v, int) for v in numbers)
                result[i] = shown(sum(numbers) if whole else math.fsum(numbers), c)
        return result


def table_of(
    name: str,
    records: Sequence[Mapping[str, Cell]],
    units: Mapping[str, str] = MappingProxyType({}),
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> Table:
    """A table with one record per row; `columns`: those of a table without rows."""
    names = list(columns or (records[0] if records else ()))
    rows = tuple(tuple(r[n] for n in names) for r in records)
    return Table(name, tuple(Column(n, units.get(n, "")) for n in names), rows, notes)


def shown(value: Cell, column: Column) -> str:
    """One cell for readers."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _amounts(value, column.unit) if column.unit and _NAMED.fullmatch(value) else value
    if column.unit == RATIO:
        return f"{value:.4g}"
    if column.unit == "1":
        # adding 0.0 turns -0.0, to which a tiny negative share is rounded, into 0.0
        return "inf" if math.isinf(value) else f"{round(100 * value, 1) + 0.0:.1f} %"
    if not column.unit and isinstance(value, int):
        return str(value)
    return engineering(value, "" if column.unit in PLAIN else column.unit)


def _amounts(text: str, unit: str) -> str:
    """`A=32768 B=512` as `A 32.77 kb, B 512 b`."""
    pairs = (entry.partition("=") for entry in text.split())
    return ", ".join(f"{name} {engineering(int(number), unit)}" for name, _, number in pairs)


def frame_column(values: Sequence[object]) -> object:
    """A column for a DataFrame that loses no digit: integers with gaps are nullable, wide ones Python's own.

    Integers beside floats are floats, as the column is.
    """
    import numpy as np
    import pandas

    array = np.asarray(values)
    if array.dtype.kind in "bfSU" or (array.dtype.kind == "i" and _sums_fit(array)):
        return values
    whole = is_whole(values)
    if whole and sum(abs(v) for v in values if type(v) is int) >= LONG:
        return pandas.Series(list(values), dtype="object")
    if whole and None in values:
        return pandas.array([v if type(v) is int else None for v in values], dtype="Int64")
    return values


def _sums_fit(array: NDArray[np.int64]) -> bool:
    """True if no sum over elements exceeds int64, which a DataFrame's sum would not report."""
    return not array.size or max(int(array.max()), -int(array.min())) * array.size < LONG
