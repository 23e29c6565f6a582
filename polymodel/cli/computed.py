"""`polymodel execute` of a workload: the values of all its tensors on data, whatever the mapping."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polymodel.cli.codes import FINE
from polymodel.cli.output import check_html, check_table, saved_files, write_file
from polymodel.cli.parser import pairs
from polymodel.cli.teaal import last_generation, title_of
from polymodel.cli.tensors import generated
from polymodel.errors import Diagnostic, SpecError, writing

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.view.table import Table
    from polymodel.workload.values import Values

TABLES = ("values",)
OF_TEAAL = {"check": "--check", "kept_slices": "--kept-slices", "carry": "--carry", "size": "--size"}


def computed(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    """Return the printed table of all tensors, and the exit code; save what the options name."""
    from polymodel.api.on_data import values
    from polymodel.spec.files import claim
    from polymodel.view.answer import Section, formatted_tables

    wrong = [name for key, name in OF_TEAAL.items() if getattr(options, key)]
    if wrong:
        what = f"{wrong[0]}: {options.spec} is a workload, and the option is for TeAAL specs"
        remedy = "leave it out: sizes and generations are those of the workload, or of --until"
        raise SpecError([Diagnostic(what, remedy, code="wrong-type")])
    check_table(options.table, TABLES)
    check_html(options.html)
    made = [t for t in spec.workload.tensors if spec.workload.producer(t) is not None]
    folder = Path(options.out) if options.out else None
    if folder is not None:
        claim(folder / "values.csv", *(_file(folder, t, len(_ranks(spec, t))) for t in made))
    found = values(spec, _inputs(options, spec), until=_end(options))
    sections = [Section("Values", _table(spec, found))]
    title = f"polymodel execute {title_of(options.spec)}"
    text = formatted_tables(sections, options.format, title)
    if options.format == "table":
        text += "".join(f"\n{note}\n" for note in sections[0].table.notes)
    files: list[Path] = []
    if folder is not None:
        files.append(write_file(folder / "values.csv", sections[0].table.to_csv()))
        files += [_saved(folder, spec, t, found[t]) for t in made if _ranks(spec, t)]
    if options.html:
        files.append(write_file(Path(options.html), formatted_tables(sections, "html", title)))
    return text + saved_files(files, options.format), FINE


def _ranks(spec: Spec, tensor: str) -> tuple[str, ...]:
    return next(a.ranks for e in spec.workload for a in e.accesses_of(tensor))


def _inputs(options: argparse.Namespace, spec: Spec) -> dict[str, Any]:
    """Return the inputs: from files, or generated in the size that the workload touches."""
    from polymodel.sparse.files import read_tensor
    from polymodel.workload.values import sizes_of

    sizes = sizes_of(spec.workload)
    result: dict[str, Any] = {}
    faults: list[Diagnostic] = []
    data = pairs(options.tensors, "")
    for name, text in data.items():
        if name not in sizes:
            known = f"inputs: {', '.join(sizes)}"
            faults.append(
                Diagnostic(
                    f"{name}={text}: {name} is not an input of {options.spec}", known, code="unknown-name"
                )
            )
            continue
        ranks = _ranks(spec, name)
        if text == "dense" or text.startswith("random:"):
            axes = dict(zip((f"{r}.{k}" for k, r in enumerate(ranks)), sizes[name], strict=True))
            result[name] = generated(name, text, tuple(axes), axes, options, faults)
            continue
        try:
            tensor = read_tensor(text, name)
        except SpecError as error:
            faults += error.diagnostics
            continue
        result[name] = _fitted(tensor.to_dense(), len(ranks))
    for name in (t for t in sizes if t not in data and spec.workload.producer(t) is None):
        shape = " x ".join(map(str, sizes[name])) or "one number"
        what = f"{name}: there are no data of this input, {shape}"
        remedy = f"add {name}={_file(Path(), name, len(sizes[name]))}, or random data, {name}=dense"
        faults.append(Diagnostic(what, remedy, code="missing-value"))
    if faults:
        raise SpecError(faults)
    return result


def _fitted(array: Any, ranks: int) -> Any:
    """A matrix of one column as a vector, where one is expected: Matrix Market has no vectors."""
    return array[:, 0] if ranks == 1 and array.ndim == 2 and array.shape[1] == 1 else array


def _end(options: argparse.Namespace) -> Any:
    """Return the end condition of a recurrence: a fixed point, a number of generations, or None."""
    until = last_generation(options)
    if not isinstance(until, int):
        return until
    left = iter(range(1, until))

    def over(newest: Mapping[str, Any]) -> bool:
        return next(left, None) is None

    return over


def _table(spec: Spec, found: Values) -> Table:
    from polymodel.view.table import Column, Table

    columns = (
        Column("tensor"),
        Column("made", words="whether an Einsum of the workload makes it"),
        Column("shape", words="how many coordinates each rank has"),
        Column("nonzeros"),
        Column("least", words="the smallest value"),
        Column("largest", words="the largest value"),
    )
    rows = tuple(_row(spec, found, t) for t in spec.workload.tensors)
    ran = tuple(f"{v}: {n} generations" for v, n in found.generations.items())
    return Table("values", columns, rows, ran)


def _row(spec: Spec, found: Values, tensor: str) -> tuple[Any, ...]:
    import numpy as np

    array = np.asarray(_dense(found[tensor]))
    shape = " x ".join(map(str, array.shape)) or "one number"
    ends = (float(array.min()), float(array.max())) if array.size else (None, None)
    made = spec.workload.producer(tensor) is not None
    return tensor, made, shape, int(np.count_nonzero(array)), *ends


def _dense(value: Any) -> Any:
    return value.to_dense() if hasattr(value, "to_dense") else value


def _file(folder: Path, name: str, ranks: int) -> Path:
    return folder / f"{name}.{'mtx' if ranks == 2 else 'tns'}"


def _saved(folder: Path, spec: Spec, name: str, value: Any) -> Path:
    from polymodel.sparse.files import write_tensor
    from polymodel.sparse.tensor import SparseTensor

    ranks = [f"{r}{k}" for k, r in enumerate(_ranks(spec, name))]
    path = _file(folder, name, len(ranks))
    folder.mkdir(parents=True, exist_ok=True)
    with writing(path):
        write_tensor(SparseTensor.from_dense(name, ranks, _dense(value)), path)
    return path
