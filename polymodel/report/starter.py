"""The files that `polymodel new` writes: small, complete, commented ones, and copies of packaged files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from polymodel.errors import Diagnostic, Place, SpecError, writing
from polymodel.frozen import dataclass
from polymodel.spec import files
from polymodel.spec.faults import suggestion

_HEAD = """\
# A polymodel spec: an architecture, a workload and a mapping. Units: bits, joules, seconds.
# Try: polymodel show THIS_FILE, then polymodel evaluate THIS_FILE --set TM=32
schema_version: 1

"""
_ARCH = """\
arch:
  name: two_level
  nodes:                                    # outermost first
  - !Memory
    name: DRAM
    size: inf                               # bits
    tensors: {keep: ~Intermediates, may_keep: All}
    actions:                                # joules per bit, bits per second
    - {name: read, energy: 7.0e-12, throughput: 8 * 64e9}
    - {name: write, energy: 7.0e-12, throughput: 8 * 64e9}
  - !Memory
    name: GLB                               # the global buffer
    size: 8 * 64 * 1024
    tensors: {keep: ~DRAM.tensors, may_keep: All}
    actions:
    - {name: read, energy: 0.5e-12, throughput: 2.0e12}
    - {name: write, energy: 0.5e-12, throughput: 2.0e12}
  - !Container
    name: PE                                # 16 processing elements, in a row named X
    spatial:
    - {name: X, fanout: 16}
  - !Compute
    name: MAC                               # joules per operation, operations per second
    actions: [{name: compute, energy: 0.3e-12, throughput: 1.0e9}]
"""
_WORKLOAD = """\
workload:
  name: two_matmuls
  rank_sizes: {M: 128, N0: 64, N1: 96, N2: 80}
  bits_per_value: {All: 8}
  einsums:                                  # in order of execution
  - T1[m, n1] = T0[m, n0] * W0[n0, n1]      # in this form an Einsum is named after its output
  - T2[m, n2] = T1[m, n1] * W1[n1, n2]
"""
_MAPPING = """\
mapping:
  name: fused                               # T1 never leaves the chip
  nodes:                                    # from the outside in
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T2]}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: TM}            # the size of the tile below the loop
  - !Storage {component: GLB, tensors: [T0, T1, T2]}
  - !Sequential                             # both Einsums for one tile of m, one after the other
    nodes:
    - !Nested
      nodes:
      - !Spatial {rank_variable: n1, tile_shape: 6, component: PE, name: X}
      - !Temporal {rank_variable: m, tile_shape: 1}
      - !Temporal {rank_variable: n1, tile_shape: 1}
      - !Temporal {rank_variable: n0, tile_shape: 1}
      - !Compute {einsum: T1, component: MAC}
    - !Nested
      nodes:
      - !Spatial {rank_variable: n2, tile_shape: 5, component: PE, name: X}
      - !Temporal {rank_variable: m, tile_shape: 1}
      - !Temporal {rank_variable: n2, tile_shape: 1}
      - !Temporal {rank_variable: n1, tile_shape: 1}
      - !Compute {einsum: T2, component: MAC}

symbols: {TM: 16}                           # change it with --set TM=32
"""
_TEAAL = """\
# A TeAAL spec of a sparse matrix product, row by row. Try: polymodel execute THIS_FILE A=a.mtx B=b.mtx
einsum:
  declaration:                              # tensor: its ranks, in upper case
    A: [K, M]
    B: [K, N]
    T: [K, M, N]
    Z: [M, N]
  expressions:                              # in order of execution; an Einsum is named after its output
  - T[k, m, n] = take(A[k, m], B[k, n], 1)  # the rows of B that a row of A selects
  - Z[m, n] = T[k, m, n] * A[k, m]
mapping:
  rank-order:                               # as the tensors are stored
    A: [M, K]
    B: [K, N]
    T: [M, K, N]
    Z: [M, N]
  loop-order:                               # from the outside in
    T: [M, K, N]
    Z: [M, N, K]
"""
STARTER = "\n".join((_HEAD + _ARCH, _WORKLOAD, _MAPPING))


def _part(what: str, text: str) -> str:
    return f"# {what}. Units: bits, joules, seconds.\nschema_version: 1\n\n{text}"


PARTS = {
    "arch": _part("An architecture", _ARCH),
    "workload": _part("A workload", _WORKLOAD),
    "mapping": _part("A mapping", _MAPPING),
}
STARTERS = {"spec": STARTER, **PARTS, "teaal": _TEAAL}
SCHEMA_FILE = "polymodel.schema.json"
_MODELINE = "# yaml-language-server: $schema="


def modeline(schema: str) -> str:
    """The line that tells an editor the schema of a file."""
    return f"{_MODELINE}{schema}\n"


def next_command(kind: str, written: Sequence[str]) -> str:
    """A command for the written files; a mapping alone is shown, since it cannot be evaluated yet."""
    command = {"spec": "evaluate", "mapping": "show"}.get(kind, "validate")
    return f"polymodel {command} {' '.join(written)}"


def write_starter(target: str, kind: str, with_schema: bool) -> list[Path]:
    """Write one file, or the three parts into a folder (`target` ends with / or is a folder); return the
    paths written.

    `with_schema`: the schema of any spec is written next to it, and the files refer to it, so that an editor
    completes keys wherever the folder is copied to. Raises SpecError for existing files, except this very
    schema, and for a folder for one part only.
    """
    path = Path(target)
    if _is_folder(target):
        if kind != "spec":
            what = f"--kind {kind}: {target} is a folder, which gets every part of a spec, not one alone"
            remedy = f"name a file, e.g. {path / kind}.yaml, or leave --kind out"
            raise SpecError([Diagnostic(what, remedy, code="wrong-type")])
        texts = {path / f"{part}.yaml": text for part, text in PARTS.items()}
    else:
        texts = {path: STARTERS[kind]}
    return _write(texts, {}, kind, with_schema)


@dataclass(frozen=True)
class Packaged:
    """A packaged file as a starting point. `data`: the files that it names, by their paths relative to it;
    `uses`: the options in front of the name of a copy in a command on it."""

    kind: str
    text: str
    data: Mapping[str, bytes]
    uses: str


def packaged_file(name: str) -> Packaged:
    """Return the packaged architecture, workload, mapping or TeAAL spec called `name`: its text unchanged,
    except for the modeline, which would be wrong in another folder. Raises SpecError for an unknown name, and
    for a name that mappings for several architectures share. A published model is the template of its
    workload, preceded by the values of the model."""
    from polymodel.loading.reading import near_name

    found = files.packaged(name)
    entry = files.find(name)
    if not found or entry is None:
        remedy = near_name(name)
        if entry is not None:
            known = [f"{entry.name}/{v}" for v in files.variants(entry.name, None)]
            remedy = suggestion(name, known, f"mappings of {entry.name}")
        raise SpecError([Diagnostic(f"--from: {name!r} is not a library name", remedy, code="unknown-name")])
    if len(found) > 1:
        message = f"--from: {name!r} is a mapping for each of {len(found)} architectures"
        raise SpecError([Diagnostic(message, f"name one: {', '.join(found)}", code="unknown-name")])
    ((called, path),) = found.items()
    text = path.read_text(encoding="utf-8")
    text = text.partition("\n")[2] if text.startswith(_MODELINE) else text
    data = {f"data/{f.name}": f for f in sorted((path.parent / "data").glob("*"))}
    named = {beside: f.read_bytes() for beside, f in data.items() if f'"{beside}"' in text}
    if entry.variant:
        workload, arch, _ = called.split("/")
        return Packaged("mapping", text, named, f"evaluate {workload} {arch}")
    if name in files.specs():
        return Packaged("teaal", text, named, "validate")
    values = "".join(f"{{% set {v} = {v} | default({x!r}) %}}\n" for v, x in entry.variables.items())
    return Packaged(entry.kind, values + text, named, "show")


def packaged_names() -> str:
    """Return every name that `--from` accepts, by kind, one per line with the first sentence of its file;
    mappings are listed below their workload, with their architecture."""
    kinds = ("architectures", files.architectures()), ("workloads", files.workloads())
    lines: list[str] = []
    for kind, names in (*kinds, ("TeAAL specs", files.specs())):
        lines += [f"{kind}:"]
        width = max(map(len, names), default=0)
        for name in names:
            ((_, path),) = files.packaged(name).items()
            model = files.models().get(name)
            about = f"{model.workload} with its published sizes" if model else _about(path)
            lines.append(f"  {name:{width}}  {about}".rstrip())
            if kind == "workloads":
                mappings = (files.packaged(f"{name}/{v}") for v in files.variants(name, None))
                lines += [f"    {full}" for found in mappings for full in found]
        lines.append("")
    return "\n".join(lines)


def _about(path: Path) -> str:
    """Return the first sentence of the comment at the beginning of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = list(takewhile(lambda line: line.startswith("#"), lines))
    text = " ".join(c.lstrip("# ") for c in comments if not c.startswith(_MODELINE))
    return re.split(r"\.\s+(?=[A-Z])", text, maxsplit=1)[0].rstrip(".")


def write_copy(target: str, packaged: Packaged, with_schema: bool) -> list[Path]:
    """Write a copy of a packaged file, with the data that it names next to it; returns the paths written.

    Raises SpecError for a folder, and for existing files with other content.
    """
    if _is_folder(target):
        remedy = f"name a file, e.g. {Path(target) / packaged.kind}.yaml"
        raise SpecError([Diagnostic(f"--from: {target} is a folder", remedy, code="wrong-type")])
    path = Path(target)
    data = {path.parent / beside: content for beside, content in packaged.data.items()}
    return _write({path: packaged.text}, data, packaged.kind, with_schema)


def _is_folder(target: str) -> bool:
    return target.endswith(("/", "\\")) or Path(target).is_dir()


def _write(texts: Mapping[Path, str], data: Mapping[Path, bytes], kind: str, with_schema: bool) -> list[Path]:
    """Write new texts, and the accompanying files that do not exist yet; return the paths written."""
    from polymodel.spec.schemas import schema_text

    name = f"teaal.{SCHEMA_FILE}" if kind == "teaal" else SCHEMA_FILE
    schema = next(iter(texts)).parent / name
    beside = dict(data)
    if with_schema:
        beside[schema] = schema_text("teaal" if kind == "teaal" else "spec").encode()
    taken = [(p, "name a new file") for p in texts if p.exists()]
    taken += [
        (p, "move it away, or leave --schema out" if p == schema else "move it away, or name another folder")
        for p, content in beside.items()
        if _is_other(p, content)
    ]
    if taken:
        faults = [
            Diagnostic("exists already", remedy, "", Place(str(p)), code="file-exists") for p, remedy in taken
        ]
        raise SpecError(faults)
    line = modeline(f"./{name}") if with_schema else ""
    contents = {p: (line + text).encode() for p, text in texts.items()}
    contents |= {p: content for p, content in beside.items() if not p.exists()}
    for file, content in contents.items():
        with writing(file):
            if len(texts) > 1 or file in data:
                file.parent.mkdir(parents=True, exist_ok=True)
            with files.whole(file) as fresh:
                fresh.write_bytes(content)
    return list(contents)


def _is_other(file: Path, content: bytes) -> bool:
    """Return whether a path exists that is not a file with this content."""
    with writing(file):
        return file.exists() and not (file.is_file() and file.read_bytes() == content)
