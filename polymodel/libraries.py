"""Libraries that are imported at their first use, or that are present only with an extra.

Modules that every evaluation imports take NumPy and islpy from here: a small example is evaluated without
arrays and without ISL sets, and importing the two would take a quarter of its time. Plots, parquet files,
data and formulas with SymPy need extras; if an import of polymodel fails, the error names the extra.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from polymodel.errors import PackageFault


class Later:
    """The attributes of a module, each of which is looked up there once."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._load(), name)
        setattr(self, name, result)
        return result


def from_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names stand in the stub beside its file, one
    on a line: `from .module import name as name`. A module is imported when its names are first used."""
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = re.findall(r"^from (\.[\w.]+) import (\w+) as \2$", stub, re.MULTILINE)
    modules = {name: module for module, name in lines}

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(import_module(modules[name], package), name)

    def names() -> list[str]:
        return sorted(modules)

    return attribute, names, names()


# Library -> extra, and what it is for.
EXTRAS = {
    "matplotlib": ("plots", "plots"),
    "pyarrow": ("parquet", "parquet files, stores, and reading large tables of data"),
    "scipy": ("sparse", "sparse data and its models"),
    "sympy": ("formulas", "formulas and closed forms of sums"),
    "networkx": ("graphs", "graphs of Einsums"),
    "jax": ("accelerator", "sweeps on an accelerator"),
}


def command_for(library: str) -> str:
    """The command that installs a library of an extra."""
    return f'pip install "polymodel[{EXTRAS[library][0]}]"'


def installed(library: str) -> bool:
    """True if a library of an extra can be imported."""
    return library in sys.modules or find_spec(library) is not None


def require(library: str) -> None:
    """Raise PackageFault for a library of an extra that is missing, before work whose end needs it."""
    if not installed(library):
        raise _fault(library)


def _fault(library: str) -> PackageFault:
    return PackageFault(f"{library} is not installed; it is for {EXTRAS[library][1]}", command_for(library))


class _Missing:
    """The last import finder: no other one has found the module."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in EXTRAS and _imported_by_polymodel():
            raise _fault(name)
        return None


def _imported_by_polymodel() -> bool:
    """True if the importing module belongs to this package; others may handle a missing library
    themselves.
    """
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib._bootstrap"):
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("polymodel.")


def tell_missing() -> None:
    """From now on the error for a missing library names its extra."""
    if _Missing not in sys.meta_path:
        sys.meta_path.append(_Missing)
