"""The provenance of a report, so that it can be reproduced: spec, symbols, versions, engines, command."""

from __future__ import annotations

from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.loading import Spec
from polymodel.loading.spec import named_files
from polymodel.mapping.looptree import LoopTree
from polymodel.mapping.resolve import mapping_to_yaml
from polymodel.spec.yaml_text import files_as_read, spec_yaml
from polymodel.view.answer import TITLE, Block, Code, Facts, Line, Part, Section, made, notes
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    from polymodel.report.report import Report

EXACT = (
    "Every count (operations, elements, bits, iterations, instances) is an exact integer: tiles that divide "
    "nothing, halos, strides and diagonals included. Energy and time are these counts times the numbers of "
    "the architecture, in floating point. Figures on sparse data, where there are any, say themselves "
    "whether they are exact, expected or a bound."
)
ENGINES = {
    "symbolic": (
        "closed forms; valid for boxes of rank variables whose ranks are non-negative sums of rank variables "
        "(one or two), under any tile sizes; refuses everything else"
    ),
    "exact": (
        "integer relations, counted with isl and barvinok; valid for any affine projections and bounds, "
        "numbers for tile sizes"
    ),
    "enumerate": "every iteration is enumerated; valid for workloads that are small enough",
}


def provenance(report: Report, command: str = "") -> list[Part]:
    """The last sections of a page: how it was made, and the spec as loaded."""
    parts = [Part(TITLE, _made(report, command))]
    spec = report.spec
    if spec is not None:
        parts.append(spec_part(spec))
    else:
        text = mapping_to_yaml(report.problem.tree)
        said = notes(["evaluated from objects, not from a loaded spec; the mapping as YAML:"])
        parts.append(Part("Spec as loaded", [*said, Code(text, "mapping.yaml")]))
    return parts


def _made(report: Report, command: str) -> list[Block]:
    engine = report.analysis.engine
    asked = [("exactness", EXACT), *((f"engine {e}", told) for e, told in ENGINES.items() if e == engine)]
    columns = (Column("einsum"), Column("engine"), Column("iterations"), Column("operations", "operation"))
    operations = {t.einsum: t.operations for t in report.costs.latency}
    rows = tuple(
        (e.name, engine, _points(report, e.name), operations.get(e.name)) for e in report.problem.cascade
    )
    counted = Section("", Table("engines", columns, rows))
    return [*made(command, asked), Line("Who counted what", "subtitle"), counted]


def _points(report: Report, einsum: str) -> str:
    from polymodel.workload.einsum import sizes_text

    return sizes_text(report.problem.cascade[einsum])


def spec_text(spec: Spec) -> str:
    """The spec as one YAML document that loads back; of a TeAAL spec, its text."""
    if spec.raw_teaal is not None:
        return str(spec)
    sections = {
        n: getattr(spec, f"raw_{n}")
        for n in ("arch", "workload", "renames", "mapping", "sweep", "explore", "codesign")
    }
    mapping = sections["mapping"]
    given = {n: s for n, s in sections.items() if s is not None and not isinstance(s, LoopTree)}
    text = spec_yaml(given, {**spec.declared, **spec.given})
    if isinstance(mapping, LoopTree):
        text += mapping_to_yaml(mapping).partition("\n")[2]
    return text


def spec_part(spec: Spec, title: str = "Spec as loaded") -> Part:
    """The section with the complete spec, so that it can be evaluated again."""
    return Part(title, _spec(spec, Part(title, ()).anchor))


def _spec(spec: Spec, file: str) -> list[Block]:
    text = spec_text(spec)
    files = files_as_read(spec.locator)
    listed = [(name, f"sha256 {_digest(words)}") for name, words in files.items()]
    listed += [(f, "") for f in spec.files if f and f not in files]
    symbols = [(n, "no value" if v is None else str(v)) for n, v in spec.symbols.items()]
    variables = [(n, str(v)) for n, v in spec.variables.items()]
    data = [(name, f"sha256 {_of_file(path)}; read from {path}") for name, path in named_files(spec).items()]
    parts: list[Block] = []
    lists = {"Files": listed, "Data files": data, "Template variables": variables, "Symbols": symbols}
    for title, pairs in lists.items():
        if pairs:
            parts += [Line(title, "subtitle"), Facts(pairs)]
    said = ["Templates are filled in, files joined: saved as a file, it evaluates to these figures."]
    if spec.raw_mapping is None:
        said = ["Templates are filled in, files joined: saved as a file, it takes the place of all sources."]
    if data:
        said.append("The data files above must be in the same folder, under the names that it refers to.")
    if spec.raw_teaal is not None:
        said = ["A TeAAL spec, as it was understood."]
    told = notes([*said, f"sha256 {_digest(text)}"])
    return [*parts, Line("All of it", "subtitle"), *told, Code(text, f"{file}.yaml")]


def _of_file(path: Path) -> str:
    """Return the digest of a file, of its bytes as stored."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unknown: the file no longer exists"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
