"""The files that a spec was read from, and those that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polymodel.inputs import keeping
from polymodel.loading.spec import Spec


def named_files(spec: Spec) -> dict[str, Path]:
    """Files that a spec names and that are read beside it, by the name it calls them: data of tensors,
    tables of energies. One that is there no more leads to where it was."""
    found: dict[str, Path] = {}
    if spec.raw_workload is not None:
        accesses = [a for e in spec.raw_workload.einsums for a in getattr(e, "tensor_accesses", ())]
        for written in (*spec.raw_workload.densities.values(), *(a.density for a in accesses)):
            if isinstance(written, dict) and isinstance(written.get("actual"), str):
                found[written["actual"]] = Path(spec.data_folder) / written["actual"]
    for node in spec.raw_arch.nodes if spec.raw_arch is not None else ():
        if node.energy_model is not None and node.energy_model.file:
            found[node.energy_model.file] = Path(spec.folder) / node.energy_model.file
    return found


@contextmanager
def kept_files(*specs: Spec | None) -> Iterator[None]:
    """Meanwhile none of the files that these specs are made of is written over."""
    known = [s for s in specs if s is not None]
    files: list[str | Path] = [f for s in known for f in s.files]
    with keeping([*files, *(f for s in known for f in named_files(s).values())]):
        yield
