"""The only room that imports islpy: sets, relations and their exact counts."""

from __future__ import annotations

from polymodel.errors import PackageFault

try:
    import islpy as isl
except ImportError as error:
    raise PackageFault(
        f"islpy cannot be imported, and nothing can be counted without it ({error})",
        "pip install islpy-barvinok",
    ) from error
# Uninstalling one of the two packages may leave a folder `islpy` without anything, which Python imports.
if not hasattr(getattr(isl, "Set", None), "card"):
    raise PackageFault(
        "this islpy was built without barvinok, so nothing can be counted",
        "run `pip uninstall islpy` and then `pip install --force-reinstall islpy-barvinok` "
        "(both packages own the import name islpy and overwrite each other)",
    )
