"""Figures of several panels, which a notebook shows once."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


class Panels(Figure):
    """A pyplot figure that is not shown a second time where a cell of a notebook ends with it.

    A notebook shows every open figure at the end of a cell, and its last value besides. What is no longer
    open is shown as its last value.
    """

    def _ipython_display_(self) -> None:
        shown: Any = import_module("IPython.display")  # only IPython calls this
        inline = "inline" in plt.get_backend()
        if inline and any(plt.figure(n) is self for n in plt.get_fignums()):
            return
        if inline:
            drawn = BytesIO()
            self.savefig(drawn, format="png", bbox_inches="tight")
            shown.display(shown.Image(drawn.getvalue()))
        else:
            shown.display({"text/plain": repr(self)}, raw=True)
