"""The only room that imports islpy: sets, relations and their exact counts."""

from __future__ import annotations

import islpy as isl

if not hasattr(isl.Set, "card"):
    raise ImportError(
        "this islpy was built without barvinok, so nothing can be counted: run "
        "`pip uninstall islpy` and then `pip install --force-reinstall islpy-barvinok` "
        "(both packages own the import name islpy and overwrite each other)"
    )
