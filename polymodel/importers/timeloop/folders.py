"""The files of a folder of Timeloop's: a design with its problem and mapping, or what a run has stored."""

from __future__ import annotations

from pathlib import Path

from polymodel.errors import Diagnostic, Place
from polymodel.spec.faults import Faults

TOP = "top.yaml.jinja2"
STORED = "parsed-processed-input.yaml"
_ENDINGS = (".yaml", ".yml", ".jinja2", ".j2")
# Folders inside that hold parts of one design.
_PARTS = ("arch", "prob", "problem", "map", "mapping", "constraints", "sparse-opt", "ert")


def files_of(folder: Path, faults: Faults) -> list[Path]:
    """The files that are read together: of a folder with a top file that one, of a stored run what it has.

    Several mappings in a folder of mappings are alternatives: one of them has to be named.
    """
    if (folder / TOP).is_file():
        return [folder / TOP]
    if (folder / STORED).is_file():
        beside = [p for p in _yaml(folder) if p.name.endswith((".map.yaml", ".ERT.yaml", ".ART.yaml"))]
        return [folder / STORED, *beside]
    found = _yaml(folder)
    for part in _PARTS:
        inside = _yaml(folder / part)
        if part in ("map", "mapping", "constraints") and len(inside) > 1:
            what = f"{part}/ has {len(inside)} files, which are alternatives"
            remedy = f"name the files: {folder.name}/.../*.yaml {folder.name}/{part}/{inside[0].name}"
            faults.note(Diagnostic(what, remedy, "", Place(str(folder))))
        found += inside
    if not found:
        what = "there is no YAML file in the folder"
        faults.note(Diagnostic(what, "name the files", "", Place(str(folder))))
    return found


def _yaml(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name.endswith(_ENDINGS) and p.is_file())
