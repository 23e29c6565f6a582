"""Files that other tools publish: a line for each kind, with how many load as they lie and what is equal.

Compared are, of Timeloop's stored runs, operations, cycles of dense runs and the reads, fills and updates of
every level and tensor; of the mappings that AccelForge's mapper found, operations of every Einsum and, where
its machine holds everything on chip, sizes of tensors.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import polymodel as pm
from polymodel.analysis.result import Analysis
from polymodel.errors import PolymodelError
from polymodel.polyhedra.sets import size
from tests.reference.common import Outcome

INPUT = "parsed-processed-input.yaml"
FOUND = "regression_reference.json"
SUFFIXES = (".yaml", ".yml", ".jinja2")
MOST_WORDS = 40  # variables that a template may lack
_KINDS = (
    ("AccelForge architectures", r"^arch:"),
    ("AccelForge workloads", r"^(workload|renames):"),
    ("AccelForge mappings", r"^mapping:\s*\n\s+nodes:"),
    ("Timeloop architectures", r"^architecture:"),
    ("Timeloop problems", r"^(problem|problem_base\w*):"),
)
_NO_SPECS = "AccelForge files that are no specs"  # each with the reason why it is refused
_COUNTS = {"reads": "reads_fill", "fills": "writes_fill", "updates": "writes_drain"}


@dataclass
class Kind:
    """The files of one kind: how many load, and why the others are refused."""

    name: str
    loaded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    known: list[str] = field(default_factory=list)  # figures that differ as docs/differences.md says
    open: int = 0  # templates for which made-up values of variables are no use
    outcome: Outcome = field(default_factory=lambda: Outcome(""))

    def finished(self) -> Outcome:
        """Its line."""
        every = self.loaded + self.refused.total()
        self.outcome.name = f"{self.name}: {self.loaded} of {every} loaded"
        if self.open:
            self.outcome.name += f", {self.open} templates need values"
        if self.known:
            self.outcome.uncomputed.append(
                f"{len(self.known)} numbers differ as listed: {'; '.join(self.known)}"
            )
        self.outcome.uncomputed += [f"refused {n}: {why}" for why, n in self.refused.most_common()]
        if not self.outcome.checked and not self.outcome.uncomputed:
            self.outcome.uncomputed.append("no figures beside them")
        return self.outcome


def check(root: Path) -> list[Outcome]:
    """One outcome per kind of file, and one for the rest."""
    kinds = {name: Kind(name) for name in ("Timeloop stored runs", *(n for n, _ in _KINDS), _NO_SPECS)}
    rest: Counter[str] = Counter()
    for path in sorted(p for p in root.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.name == INPUT:
            _run(path, kinds["Timeloop stored runs"])
            continue
        kind = next((name for name, mark in _KINDS if re.search(mark, text, re.MULTILINE)), None)
        if kind is None and "accelforge" in path.parts:
            _load(path, kinds[_NO_SPECS])
        elif kind is None:
            rest[path.suffix] += 1
        else:
            _load(path, kinds[kind])
    for path in sorted(root.rglob(FOUND)):
        _found(path, kinds["AccelForge workloads"])
    others = ", ".join(f"{n} {suffix}" for suffix, n in rest.items())
    listed = [Outcome("other files", uncomputed=[f"parts of others, or results: {others}"])] if rest else []
    return [*(k.finished() for k in kinds.values() if k.loaded or k.refused), *listed]


def _load(path: Path, kind: Kind) -> pm.Imported | None:
    """Import a file with whatever variables it lacks."""
    given: dict[str, Any] = {}
    while True:
        try:
            if kind.name.startswith("Timeloop"):
                found = pm.import_timeloop(path, variables=given)
            else:
                found = pm.import_accelforge(path, **given)
        except PolymodelError as fault:
            lacking = re.search(r"'(\w+)' is undefined", str(fault))
            if lacking and len(given) < MOST_WORDS and lacking[1] not in given:
                given[lacking[1]] = _guess(path, lacking[1])
                continue
            if given:
                kind.open += 1
            else:
                kind.refused[_reason(fault)] += 1
            return None
        kind.loaded += 1
        return found


def _guess(path: Path, name: str) -> object:
    """A value for a variable of a template: a folder beside it for a design, else a small number."""
    if name == "architecture":
        return next((p.parent.name for p in sorted(path.parent.glob("*/arch.yaml"))), "none")
    return False if name == "DECODE" else 8


def _reason(fault: PolymodelError) -> str:
    diagnostics = getattr(fault, "diagnostics", ())
    return str(diagnostics[0].message if diagnostics else fault)[:160]


def _run(path: Path, kind: Kind) -> None:
    """A stored run, first as it lies, then with the mapping and the energies beside it."""
    if _load(path, kind) is None:
        return
    beside = [*path.parent.glob("*.map.yaml"), *path.parent.glob("*.ERT.yaml")]
    stats = next(iter(sorted(path.parent.glob("*.stats.txt"))), None)
    if stats is None:
        return
    where, told = path.parent.name, stats.read_text(encoding="utf-8", errors="replace")
    if where.startswith(("ref", "default")):
        where = path.parent.parent.parent.name if where.startswith("default") else path.parent.parent.name
    imported = pm.import_timeloop(path, *beside)
    report = pm.evaluate(imported.spec)
    windowed = {a.tensor for e in report.spec.workload for a in e.accesses if _slides(a)}
    for what, ours, theirs, known in _figures(report.analysis, told, windowed):
        if known and ours != theirs:
            kind.known.append(f"{where} {what} ours {ours}, theirs {theirs}")
        else:
            kind.outcome.equal(f"{where} {what}", _plain(ours), theirs)
    if "Algorithmic Computes" not in told:
        _energies(report, told, windowed, where, kind)
    else:
        left = imported.changed or any("uniform density is assumed" in d.message for d in imported.notes)
        for what, expected, theirs in _sparse_figures(report, told):
            if abs(expected - theirs) < 1:  # there they are rounded
                kind.outcome.checked += 1
            elif left:
                kind.known.append(f"{where} {what} ours {expected:.1f}, theirs {theirs}")
            else:
                kind.outcome.equal(f"{where} {what}", expected, theirs)


def _energies(report: Any, told: str, windowed: set[str], where: str, kind: Kind) -> None:
    """Joules of what moves at each level, without drains; there, parts of vector accesses are whole ones."""
    for name, tensor, block in _blocks(told):
        stated = re.search(r"Energy \(total\)\s*: ([\d.]+) pJ", block)
        row = next((t for t in report.analysis.traffic if (t.component, t.tensor) == (name, tensor)), None)
        if stated is None or row is None or tensor in windowed:
            continue  # where windows slide, counts differ already
        bits = next(a.bits_per_value for e in report.spec.workload for a in e.accesses if a.tensor == tensor)
        part = report.spec.arch[name]
        read, write = part.action("read").energy, part.action("write").energy
        ours = 1e12 * bits * (row.reads_fill * read + (row.writes_fill + row.writes_drain) * write)
        theirs, level = float(stated[1]), re.search(rf"=== {re.escape(name)} ===(.*?)STATS", told, re.DOTALL)
        vector = re.search(r"Vector access energy\s*: ([\d.]+)", level[1] if level else "")
        used = re.search(r"Utilized instances \(max\)\s*: (\d+)", block)
        most = 2 * float(vector[1]) * int(used[1]) if vector and used else 0.0
        if abs(ours - theirs) <= max(0.0051, 1e-5 * theirs):  # two digits of pJ, prices of six digits
            kind.outcome.checked += 1
        elif 0 < theirs - ours <= most:
            kind.known.append(f"{where} {name} {tensor} ours {ours:.2f} pJ, theirs {theirs}")
        else:
            kind.outcome.equal(f"{where} {name} {tensor} pJ", ours, theirs)


def _sparse_figures(report: Any, told: str) -> Iterator[tuple[str, float, int]]:
    """What is moved of each tensor at each level, of one instance: (what, ours, theirs)."""
    table = report.sparse.accesses
    for name, tensor, block in _blocks(told):
        rows = table[(table["component"] == name) & (table["tensor"] == tensor)]
        moved = {row.kind: float(row.actual) for row in rows.itertuples()}
        used = re.search(r"Utilized instances \(max\)\s*: (\d+)", block)
        for what, column in _COUNTS.items():
            stated = re.search(rf"Actual scalar {what} \(per-instance\)\s*: (\d+)", block)
            if stated and used:
                yield f"{name} {tensor} actual {what}", moved.get(column, 0.0) / int(used[1]), int(stated[1])


def _blocks(told: str) -> Iterator[tuple[str, str, str]]:
    """(level, our name of the tensor, what is said of it)."""
    for level in re.split(r"\nLevel \d+\n-+\n", told)[1:]:
        name = re.search(r"=== (\S+) ===", level)
        for block in re.split(r"\n    (?=\w+:\n)", level.split("STATS", 1)[-1].split("Networks\n")[0])[1:]:
            theirs = block.split(":")[0]
            yield name[1] if name else "", {"Inputs": "Input", "Outputs": "Output"}.get(theirs, theirs), block


def _plain(value: Fraction) -> int | Fraction:
    return int(value) if value.denominator == 1 else value


def _slides(access: Any) -> bool:
    return any(len(expr.variables) > 1 for expr in access.projection)


def _figures(analysis: Analysis, told: str, windowed: set[str]) -> Iterator[tuple[str, Fraction, int, bool]]:
    """(what, ours, theirs, whether it may differ for a known reason)."""
    (unit,) = analysis.compute
    sparse = "Algorithmic Computes" in told
    for what, ours, pattern in (
        ("operations", unit.operations, r"^(?:Algorithmic )?Computes = (\d+)"),
        ("cycles", unit.busiest, r"^Cycles: (\d+)"),
    ):
        stated = re.search(pattern, told, re.MULTILINE)
        if stated and not (sparse and what == "cycles"):
            yield what, Fraction(ours), int(stated[1]), False
    for name, tensor, block in _blocks(told):
        key = (name, tensor)
        buffet = next((b for b in analysis.buffets if (b.component, b.tensor) == key), None)
        row = next((t for t in analysis.traffic if (t.component, t.tensor) == key), None)
        for what, column in _COUNTS.items():
            stated = re.search(rf"(?:Algorithmic scalar|Scalar) {what} \(per-instance\)\s*: (\d+)", block)
            if stated:
                ours = Fraction(getattr(row, column), buffet.instances) if row and buffet else Fraction(0)
                yield (
                    f"{name} {tensor} {what}",
                    ours,
                    int(stated[1]),
                    tensor in windowed and what != "updates",
                )


def _found(path: Path, kind: Kind) -> None:
    """What AccelForge's mapper found: operations, and sizes of tensors where all of them are held on chip."""
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    files = {p.stem: p for p in path.parent.rglob("*.yaml")}
    for key, figures in known.items():
        arch, name, words, _ = key.split("|")
        given = dict(w.split("=") for w in words.split(",") if w)
        values = {
            k: {"True": True, "False": False}.get(v, v if not v.isdigit() else int(v))
            for k, v in given.items()
        }
        if name not in files:
            continue
        cascade = pm.import_accelforge(files[name], **values).spec.workload
        for text, count in figures["actions"].items():
            einsum, _, tensor, action = ast.literal_eval(text)
            what, ours = f"{name} {einsum} operations", _points(cascade[einsum])
            if action != "compute":
                if arch != "snowcat" or "MainMemory" not in text or not count:
                    continue
                access = cascade[einsum].access_of(tensor)
                if (action == "write") != access.output:
                    continue
                what = f"{name} {einsum} {tensor}"
                ours = size(cascade[einsum].access(tensor).range()) * access.bits_per_value
            if ours != count and any(_slides(a) for a in cascade[einsum].accesses):
                kind.known.append(f"{what} ours {ours}, theirs {count:.0f}")
            else:
                kind.outcome.equal(f"{key} {what}", ours, count)


def _points(einsum: Any) -> int:
    return 0 if einsum.is_copy else size(einsum.iteration_space) * einsum.n_instances
