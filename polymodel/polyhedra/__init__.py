"""The only room that imports islpy: sets, relations and their exact counts."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from polymodel.errors import PackageFault
from polymodel.libraries import Later


def _islpy() -> ModuleType:
    try:
        found = import_module("islpy")
    except ImportError as error:
        raise PackageFault(
            f"islpy cannot be imported, and nothing can be counted without it ({error})",
            "pip install islpy-barvinok",
        ) from error
    # Uninstalling one of the two packages may leave a folder `islpy` without anything, which Python imports.
    if not hasattr(getattr(found, "Set", None), "card"):
        raise PackageFault(
            "this islpy was built without barvinok, so nothing can be counted",
            "run `pip uninstall islpy` and then `pip install --force-reinstall islpy-barvinok` "
            "(both packages own the import name islpy and overwrite each other)",
        )
    return found


# islpy under its usual name: a single Einsum is evaluated without it.
if TYPE_CHECKING:
    import islpy

    isl = islpy
else:
    isl = Later(_islpy)
