"""The report for a terminal: totals first, then their composition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polymodel.cost.records import violation_lines
from polymodel.errors import Refused
from polymodel.quantities import data_unit, engineering
from polymodel.report import tables as costed
from polymodel.report.sparse_pointers import capacity_lines, pointers, sparse_figures, verdict
from polymodel.report.tables import says_sparse, says_tiles
from polymodel.reuse import Reuse
from polymodel.view.answer import Facts, Line, Section, notes, printed
from polymodel.view.table import Table

if TYPE_CHECKING:
    from polymodel.report.report import Report


def headline(report: Report) -> list[tuple[str, str]]:
    """The main figures, as (name, text)."""
    costs, problem = report.costs, report.problem
    own = {"workload": problem.cascade.name, "architecture": problem.hierarchy.name}
    own["mapping"] = problem.tree.name
    result = [(k, report.names.get(k) or n) for k, n in own.items() if report.names.get(k) or n]
    result += [
        ("latency", costed.time_taken(costs)),
        ("energy", engineering(report.total_energy, "J")),
        ("operations", engineering(sum(t.operations for t in costs.latency))),
    ]
    if report.total_area:
        result.append(("area", engineering(report.total_area, "m^2")))
    overlap = "overlap compute" if costs.assume_overlap else "wait where buffering is single, else overlap"
    result.append(("transfers", overlap))
    free = dict.fromkeys(
        f"{i.component} {i.action}" for i in costs.energy if i.count and i.provenance == "default"
    )
    if free and report.total_energy:
        result.append(("costs nothing", f"{', '.join(free)}: no energy is given"))
    result.append(("counted by", f"engine {report.analysis.engine} in {engineering(report.seconds, 's')}"))
    return result


def sections(report: Report, *, live: bool = False) -> list[tuple[str, Table, tuple[str, ...]]]:
    """Return title, table and the columns to add up, in reading order."""
    table = report.table
    working = table("working_sets", live=live)
    checked = working.where(lambda r: bool(r["checked"]))
    tiles = table("tiles", live=live)
    tile_columns = ["einsum", "component", "tensor", "reuse", "tile_elements", "tile_bits"]
    life_columns = ["component", "tensor", "alive_in", "crosses_branches", "visits", "tile_bits"]
    if any(v is not None for v in tiles.column("live_bits")):
        tile_columns.append("live_bits")
        life_columns.append("live_bits")
    tile_columns += ["visits", "instances"]
    bits = ("read_bits", "write_bits", "fill_bits", "drain_bits")
    joules = ("dynamic_J", "leakage_J", "energy_J")
    summary = table("summary")
    shown = ["einsum", "n_instances", "operations", "latency_s", "cycles", "energy_J", "limiting", "feasible"]
    if all(v is None for v in summary.column("cycles")):
        shown.remove("cycles")
    fused = table("fusion")
    overlapped = table("pipelines")
    fusing = "Fusion (recomputed operations, and reads because of them)"
    return [
        ("Per Einsum", summary.only(*shown), ()),
        *([("Pipelines (stages overlap)", overlapped, ())] if overlapped.rows else []),
        *([(fusing, fused, ())] if fused.rows else []),
        ("Energy by component", costed.energy_by_component(report.costs), joules),
        (
            f"Working sets (peak {data_unit()} in the busiest instance)",
            checked.only("component", "einsum", "bits", "capacity_bits", "utilisation", "fits", "residents"),
            (),
        ),
        ("Tiles", tiles.only(*tile_columns), ()),
        ("Lifetimes", table("lifetimes", live=live).only(*life_columns), ()),
        ("Accesses (all instances)", table("accesses").only("einsum", "component", "tensor", *bits), bits),
        ("Reuse (traffic under each policy)", _reuse(report), ()),
        ("What limits", table("bottleneck"), ()),
    ]


def _reuse(report: Report) -> Table:
    """Return the reuse of all buffets except backing nodes, which have no link to a parent."""
    backing = {(b.node, b.tensor) for b in report.analysis.buffets if b.parent is None}
    inner = report.table("reuse").where(lambda r: (r["node"], r["tensor"]) not in backing)
    moved = ("moved_bits", *(f"{policy}_bits" for policy in Reuse), "gap_bits")
    return inner.only("einsum", "component", "tensor", "reuse", "reuse_factor", *moved)


def report_text(
    report: Report, *, live: bool = False, more: Sequence[tuple[str, str]] | None = None, fits: str = ""
) -> str:
    """The whole report as text, exact figures rounded to four digits.

    `more`: the sparse figures at the top, or how to obtain them. `fits`: the verdict on capacities.
    """
    state = fits or ("yes" if report.feasible else "NO")
    figures = (*headline(report), *(pointers(report) if more is None else more), ("feasible", state))
    tables = (Section(title, table, total) for title, table, total in sections(report, live=live))
    return printed([
        Facts(figures),
        *(capacity_lines(report) if fits else (Line(x, "bad") for x in violation_lines(report.violations))),
        *(block for section in tables for block in (Line(), section)),
        *notes(report.notes),
    ])  # fmt: skip


def whole_text(report: Report, live: bool = False) -> str:
    """Return the report, followed by the sparse report and tiles if the spec describes zeros."""
    text = report_text(report, live=live, more=sparse_figures(report), fits=verdict(report)[1])
    if says_sparse(report.problem):
        text += f"\nOn sparse data\n{report.sparse}"
    if says_tiles(report.problem):
        try:
            text += f"\nCut into tiles\n{report.tiling}"
        except Refused as refusal:
            text += f"\nNot cut into tiles: {refusal}\n"
    return text
