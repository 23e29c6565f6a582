"""Numbers that the Tensaurus paper states, and identities of the data of TeAAL's artifact.

Facts are compared where the model makes them: machine, area, power, CISS entries, multiplications of dense
kernels, their throughput (within 3 %), what bounds which tensor. What cannot be computed is noted: ratios to
baselines, and tensors whose clustering uniform data lacks. Of the artifact: what its own columns must agree
on, and how far its times and traffic are from the published ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import polymodel as pm
from polymodel.sparse.density import Uniform
from polymodel.sparse.formats import RankLevels, footprint, teaal_format
from polymodel.sparse.tensaurus import DDR4, Machine, TensaurusReport, bandwidth, tensaurus
from polymodel.sparse.tensaurus.anchors import dense, modes, uniform
from polymodel.sparse.tensaurus.machine import AREA_MM2, POWER_MW
from polymodel.spec.numbers import evaluate_number
from polymodel.spec.teaal.records import RankFormat, TensorFormat
from tests.reference.common import Outcome, comparing, sections

NEAR = 0.03
# Rows of the artifact's matrices (SuiteSparse); of others, the number that the identity implies.
ROWS = {
    "wiki-Vote": 8297,
    "p2p-Gnutella31": 62586,
    "ca-CondMat": 23133,
    "poisson3Da": 13514,
    "email-Enron": 36692,
}
# Not the machine's, or ratios to what is not published.
FOREIGN = {"t2s_tensor_throughput_gops", "geomean_speedup", "energy_benefit"}
# Real data that uniform data does not stand for; see docs/sparse/tensaurus.md.
CLUSTERED = {"nell-2"}


def is_facts(given: Mapping[str, Any]) -> bool:
    """True for files of facts, one per row."""
    rows = given.get("rows")
    return isinstance(rows, list) and bool(rows) and "fact" in rows[0]


def is_artifact(given: Mapping[str, Any]) -> bool:
    """True for files with the data and the identities of the artifact."""
    return "pregenerated" in given and "identities" in given


def check(path: Path) -> list[Outcome]:
    """One outcome for the facts, or one per section of the artifact."""
    given = json.loads(path.read_text(encoding="utf-8"))
    if is_facts(given):
        return [_guarded("tensaurus_facts", given, _facts)]
    return [
        _guarded("micro23_identities", given, _identities),
        _guarded("micro23_times", given, _times),
        _guarded("micro23_traffic", given, _traffic),
    ]


def _guarded(name: str, given: Mapping[str, Any], compare: Callable[[Any, Outcome], None]) -> Outcome:
    with comparing(Outcome(name)) as outcome:
        compare(given, outcome)
    return outcome


def _facts(given: Mapping[str, Any], outcome: Outcome) -> None:
    sections(given, {"rows": list})
    facts = {row["fact"]: row["value"] for row in given["rows"]}
    for name, value in facts.items():
        if name in FOREIGN:
            outcome.notes.append(f"{name}: not computed, baselines are not published")
        elif name in MACHINE:
            _same(outcome, name, MACHINE[name](Machine()), value)
        elif name == "dense_throughput_gops":
            _throughput(outcome, value)
        elif name == "dense_multiplies":
            _multiplies(outcome, value)
        elif name == "bound_class":
            _bounds(outcome, value)
        elif name == "ciss_entry_bits":
            _entry(outcome, value)
        elif name == "ciss_bandwidth_8pe_ddr4":
            _streams(outcome, value)
        elif name not in ("tensors", "ciss_header"):
            outcome.unknown("facts", [name], [])
    _roof(outcome, facts)


MACHINE: dict[str, Callable[[Machine], Any]] = {
    "pe_array": lambda m: [m.rows, m.columns],
    "vlen": lambda m: m.vlen,
    "clock_ghz": lambda m: m.clock / 1e9,
    "scalar_multipliers_plus_adders": lambda m: 2 * m.rows * m.width,
    "pe_duty_factor": lambda m: 1 / m.cycles_per_step,
    "peak_gops": lambda m: m.peak / 1e9,
    "peak_bandwidth_gb_s": lambda m: m.bandwidth / 1e9,
    # Channels of 128 bits at 1 GHz, which the machine knows as one bandwidth.
    "hbm_channels": lambda m: m.bandwidth / (128 / 8 * 1e9),
    "spm_double_buffer_kb": lambda m: [2, m.spm_bytes / 1024],
    "spm_first_column_double_buffer_kb": lambda m: [2, m.first_spm_bytes / 1024],
    "msu_output_double_buffer_kb": lambda m: [2, m.msu_bytes / 1024],
    "olen_equals_vlen": lambda m: m.olen == m.vlen,
    "area_mm2_28nm": lambda m: {**AREA_MM2, "total": round(m.area_mm2, 2)},
    "power_mw_28nm": lambda m: {**POWER_MW, "total": round(m.power_watts * 1000, 2)},
    "spmv_active_columns": lambda m: _matvec_columns(),
}


def _matvec_columns() -> int:
    """Columns that the packaged matrix-vector mapping uses."""
    report = pm.evaluate(pm.load("tensaurus", "matvec"))
    return next(x.instances for x in report.costs.times if x.component == "SPM")


def _same(outcome: Outcome, name: str, ours: Any, theirs: Any) -> None:
    """Numbers, lists of them and dictionaries of them."""
    if isinstance(theirs, Mapping):
        for key, value in theirs.items():
            outcome.equal(f"{name} {key}", ours[key], value)
    elif isinstance(theirs, Sequence) and not isinstance(theirs, str):
        for mine, value in zip(ours, theirs, strict=True):
            outcome.equal(name, mine, value)
    else:
        outcome.equal(name, ours, theirs)


def _near(outcome: Outcome, what: str, ours: float, theirs: float) -> None:
    outcome.checked += 1
    if abs(ours / theirs - 1) > NEAR:
        outcome.mismatches.append(f"{what}: ours {ours:.5g}, published {theirs}, more than 3 % apart")
    else:
        outcome.inform(what, ours, theirs)


def _roof(outcome: Outcome, facts: Mapping[str, Any]) -> None:
    """Peak and ridge from the roofline of the architecture, for a kernel of the library."""
    point = pm.evaluate(pm.load("tensaurus", "mttkrp")).costs.roofline[0]
    # An operation of the roofline is a multiply-accumulate.
    outcome.equal("peak of the architecture", 2 * point.peak, facts["peak_gops"] * 1e9)
    ridge = 2 * point.peak / (point.bandwidth / 8)
    outcome.equal("ridge of the architecture", ridge, facts["peak_gops"] / facts["peak_bandwidth_gb_s"])


def _throughput(outcome: Outcome, value: Mapping[str, float]) -> None:
    for kernel, theirs in value.items():
        report = dense(kernel)
        _near(outcome, f"{kernel} GOP/s", report.gops, theirs)
        outcome.equal(f"{kernel} is compute-bound", report.bound == "compute", True)


def _multiplies(outcome: Outcome, value: Mapping[str, str]) -> None:
    """The closed forms of the paper, evaluated for uneven sizes."""
    i, j, k, f, v = 12, 7, 9, 20, 5
    full = Uniform(("I", "J", "K"), (i, j, k), i * j * k)
    sizes = {"I": i, "J": j, "K": k, "F": f, "F1": v, "F2": f}
    for kernel, form in value.items():
        if kernel.startswith("unfactored"):
            continue
        report = tensaurus("TTMc", full, U=f, V=v) if kernel == "DTTMc" else tensaurus("MTTKRP", full, F=f)
        outcome.equal(f"{kernel} multiplications", report.multiplies, int(evaluate_number(form, sizes)))


def _bounds(outcome: Outcome, value: Mapping[str, Any]) -> None:
    for kernel, classes in value.items():
        for wanted, entries in classes.items():
            for entry in entries:
                _bound(outcome, kernel, wanted, entry)


def _bound(outcome: Outcome, kernel: str, wanted: str, entry: str) -> None:
    if kernel == "dense":
        outcome.equal(f"{entry} is {wanted}-bound", dense(entry).bound == wanted, True)
        return
    reports = list(_reports(kernel, entry))
    if not reports:
        outcome.notes.append(f"{kernel} {entry}: not computed, the matrices are not listed")
        return
    found = sorted({r.bound for r in reports})
    if entry.split("-m")[0].removesuffix(" all modes") in CLUSTERED and found != [wanted]:
        outcome.notes.append(f"{kernel} {entry}: ours {found} for uniform data, published {wanted}")
        return
    outcome.equal(f"{kernel} {entry}: {found}, published {wanted}", found == [wanted], True)


def _reports(kernel: str, entry: str) -> Iterator[TensaurusReport]:
    """All modes that an entry names (`nell-2-m0`, `nell-2 all modes`, `poisson3D`), as uniform data."""
    tensor, _, mode = entry.removesuffix(" all modes").partition("-m")
    if tensor not in ("nell-2", "netflix", "poisson3D"):
        return
    for number, orders in modes().items():
        if mode in ("", str(number)):
            yield from (tensaurus(kernel, uniform(tensor, order)) for order in orders)


def _entry(outcome: Outcome, form: str) -> None:
    outcome.equal(f"entry is {form}", form.startswith("(dw+2*iw)*P"), True)
    for data, index in ((32, 16), (32, 32), (16, 8)):
        m = Machine(data_bits=data, index_bits=index)
        outcome.equal(f"entry bits for dw {data}, iw {index}", m.entry_bits(3), (data + 2 * index) * m.rows)


def _streams(outcome: Outcome, value: Mapping[str, float]) -> None:
    """Upper bounds of what a DDR4 channel delivers; the published ones are measured, and below them."""
    outcome.equal("DDR4 peak GB/s", DDR4.peak / 1e9, value["peak"])
    found: dict[str, float] = {
        e.format: e.bandwidth / 1e9 for e in bandwidth(uniform("poisson3D", (0, 1, 2)), (8,))
    }
    for key, name in (("extended_csr", "extended CSR"), ("ciss", "CISS")):
        outcome.at_most(f"{name} GB/s published", value[key], found[name])
        outcome.inform(f"{name} GB/s", found[name], value[key])


def _identities(given: Mapping[str, Any], outcome: Outcome) -> None:
    """Recompute each identity; it must hold, or fail, as the file says."""
    sections(given, {"pregenerated": dict, "identities": list})
    data = given["pregenerated"]
    gamma, sigma = {r["Matrix"]: r for r in data["gamma"]}, {_shape(r): r for r in data["sigma"]}
    extensor = {r["Matrix"]: r for r in data["extensor"]}
    for entry in given["identities"]:
        name = entry.get("matrix") or _shape(entry)
        if entry["design"] == "gamma":
            ours, theirs = output_bytes(gamma[name]), gamma[name]["Z"]
        elif entry["design"] == "sigma":
            # 512 bytes per nanosecond.
            ours, theirs = (sigma[name]["A"] + sigma[name]["B"]) / 512, sigma[name]["Time"]
        elif entry["design"] == "extensor vs gamma":
            ours, theirs = gamma[name]["Multiplies"], extensor[name]["Multiplies"]
        else:
            outcome.unknown("identities", [entry["design"]], [])
            continue
        what = f"{entry['design']} {name}"
        outcome.equal(f"{what} predicted", ours, entry["predicted"])
        outcome.equal(f"{what} artifact", theirs, entry["artifact"])
        holds = abs(ours / theirs - 1) <= 0.001 if entry["design"] == "sigma" else ours == theirs
        outcome.equal(f"{what} holds", holds, entry["holds"])
        if not holds:
            outcome.notes.append(f"{what}: {theirs} should be {ours}, a defect of the artifact")
    for design, rows in data.items():
        for row in rows:
            if row.get("Adds", 0) > row.get("Multiplies", row.get("Adds", 0)):
                outcome.notes.append(f"{design} {row['Matrix']}: more additions than multiplications")


def _shape(row: Mapping[str, Any]) -> str:
    return f"{row['M']}/{row['N']}/{row['K']}"


def output_bytes(row: Mapping[str, Any]) -> int:
    """Bytes of a product in gamma's format: 12 for each output, which takes a multiplication and no
    addition, and 4 for each row. The bits are our format's."""
    nnz = row["Multiplies"] - row["Adds"]
    rows = ROWS.get(row["Matrix"]) or (row["Z"] - 12 * nnz) // 4
    ranks = (RankFormat("M", "U", pbits=32), RankFormat("N", "C", cbits=32, pbits=64))
    rule = teaal_format(TensorFormat("Z", "CSR", ranks))
    total = footprint(RankLevels(("M", "N"), (rows, rows), (1, rows), (rows, nnz), "exact"), rule).total
    return int(total) // 8


def relative_errors(given: Mapping[str, Any]) -> list[tuple[str, str, float, float, float]]:
    """(model, case, its time, the published time, relative error), where both times are known."""
    found = []
    for label, model, design in (
        *((f"TeAAL {d}", d, d) for d in ("gamma", "extensor", "sigma", "outerspace")),
        ("Sparseloop extensor", "sparseloop", "extensor"),
    ):
        theirs = {_case(r): r["Time"] for r in given["baselines"][design]}
        for row in given["pregenerated"][model]:
            ours, known = row["Time"], theirs.get(_case(row), 0)
            if ours and known:
                found.append((label, _case(row), ours, known, ours / known - 1))
    return found


def _case(row: Mapping[str, Any]) -> str:
    return str(row["Matrix"]) if "Matrix" in row else _shape(row)


def _times(given: Mapping[str, Any], outcome: Outcome) -> None:
    sections(given, {"pregenerated": dict, "baselines": dict, "time_errors": list})
    ours = {(model, case): numbers for model, case, *numbers in relative_errors(given)}
    for entry in given["time_errors"]:
        name = entry["model"], entry["case"]
        keys = ("model_time", "published_time", "rel_error")
        for key, value in zip(keys, ours.pop(name), strict=True):
            outcome.equal(f"{name} {key}", value, entry[key])
    outcome.equal("times in the file that it does not compare", len(ours), 0)
    for model, mean in given["meta"]["mean_abs_rel_time_error"].items():
        errors = [abs(e) for m, _, _, _, e in relative_errors(given) if m == model]
        outcome.equal(f"{model} mean error", fmean(errors), mean)


def _traffic(given: Mapping[str, Any], outcome: Outcome) -> None:
    sections(given, {"pregenerated": dict, "baselines": dict, "extensor_traffic_errors": list})
    for entry in given["extensor_traffic_errors"]:
        ours, theirs = (
            {r["Matrix"]: r for r in given[part][entry["design"]]}[entry["matrix"]][entry["stream"]]
            for part in ("pregenerated", "baselines")
        )
        what = f"{entry['design']} {entry['matrix']} {entry['stream']}"
        outcome.equal(f"{what} bytes", ours, entry["teaal_bytes"])
        outcome.equal(f"{what} published", theirs, entry["published_bytes"])
        outcome.equal(f"{what} error", ours / theirs - 1, entry["rel_error"])
