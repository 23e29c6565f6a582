"""The packaged architectures, workloads and mappings, and how names find them.

`arch/NAME.yaml`, `workloads/NAME.yaml`, and mappings of a workload for an architecture in
`workloads/NAME/ARCH/VARIANT.yaml`. `NAME/VARIANT` names a mapping; `GROUP/NAME` a TeAAL spec, which stands in
`workloads/GROUP/NAME.yaml`. `workloads/models.json` gives names to published models: a workload of the
library and values of its template variables. A model has the mappings of its workload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)?\Z")
_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the libraries lie inside the package, in a checkout beside it.
ROOTS = (_PACKAGE / "_library", _PACKAGE.parent)
PREFERRED = ("default", "tiled_fused", "fused", "unfused")


@dataclass(frozen=True)
class Model:
    """A published model: the workload whose template it fills in, the values, and their source."""

    workload: str
    about: str
    source: str
    variables: Mapping[str, object]


@dataclass(frozen=True)
class Found:
    """A library entry: `kind` is arch or workload; `variant` names a mapping.

    `variables` are the values of template variables that the name stands for.
    """

    kind: str
    name: str
    path: Path
    variant: str = ""
    variables: Mapping[str, object] = field(default_factory=dict)


def is_name(text: str) -> bool:
    """True if `text` can be a library name rather than a path."""
    return bool(_NAME.match(text)) and not text.endswith((".yaml", ".yml", ".json"))


@cache
def _root() -> Path | None:
    for root in ROOTS:
        if (root / "arch").is_dir() and (root / "workloads").is_dir():
            return root
    return None


def names() -> tuple[str, ...]:
    """Names of all packaged architectures and workloads."""
    return (*architectures(), *workloads())


def architectures() -> tuple[str, ...]:
    root = _root()
    return tuple(sorted(p.stem for p in (root / "arch").glob("*.yaml"))) if root else ()


def workloads() -> tuple[str, ...]:
    """Names of the packaged workloads, published models among them."""
    root = _root()
    files = (p.name.removesuffix(".yaml") for p in (root / "workloads").glob("*.yaml")) if root else ()
    return tuple(sorted({*files, *models()}))


@cache
def models() -> Mapping[str, Model]:
    """The published models by name."""
    root = _root()
    if root is None:
        return {}
    written = json.loads((root / "workloads" / "models.json").read_text(encoding="utf-8"))
    return {name: Model(**entry) for name, entry in written.items()}


def variables(name: str) -> Mapping[str, object]:
    """The values of template variables that a name stands for."""
    found = find(name)
    return {} if found is None else found.variables


def _owner(workload: str) -> str:
    """The workload in whose folder the mappings stand."""
    model = models().get(workload)
    return workload if model is None else model.workload


def specs() -> tuple[str, ...]:
    """Names of the packaged TeAAL specs, `GROUP/NAME`."""
    root = _root()
    found = (root / "workloads").glob("*/*.yaml") if root else ()
    return tuple(sorted(f"{p.parent.name}/{p.name.removesuffix('.yaml')}" for p in found))


def variants(workload: str, arch: str | None) -> tuple[str, ...]:
    """Names of the packaged mappings of `workload`, for one architecture or for any."""
    root = _root()
    if root is None:
        return ()
    pattern = f"{arch or '*'}/*.yaml"
    return tuple(
        sorted({p.name.removesuffix(".yaml") for p in (root / "workloads" / _owner(workload)).glob(pattern)})
    )


def find(name: str) -> Found | None:
    """The architecture, workload or TeAAL spec called `name`; of `NAME/VARIANT` the workload."""
    root = _root()
    if root is None or not is_name(name):
        return None
    head, _, variant = name.partition("/")
    if variant and name in specs():
        return Found("workload", name, root / "workloads" / f"{name}.yaml")
    if head in models():
        model = models()[head]
        path = root / "workloads" / f"{model.workload}.yaml"
        return Found("workload", head, path, variant, model.variables)
    if head in workloads():
        return Found("workload", head, root / "workloads" / f"{head}.yaml", variant)
    if not variant and head in architectures():
        return Found("arch", head, root / "arch" / f"{head}.yaml")
    return None


def mapping_path(workload: str, arch: str, variant: str) -> Path | None:
    """The mapping `variant` of the pair, None if there is none."""
    root = _root()
    if root is None or variant not in variants(workload, arch):
        return None
    return root / "workloads" / _owner(workload) / arch / f"{variant}.yaml"


def default_variant(workload: str, arch: str) -> str | None:
    """The mapping taken when none is named: `default`, the only one, or the most fused one."""
    known = variants(workload, arch)
    if len(known) == 1:
        return known[0]
    return next((v for v in PREFERRED if v in known), None)
