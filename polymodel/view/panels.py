"""Figures of several panels, which a notebook shows once."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from polymodel.view.figures import legible


class Panels(Figure):
    """A pyplot figure that is not shown a second time where a cell of a notebook ends with it.

    A notebook shows the last value of a cell, and then every figure that is open. Both ask the figure itself:
    whoever asks first is shown it, and it is closed.
    """

    def _ipython_display_(self) -> None:
        shown: Any = import_module("IPython.display")  # only IPython calls this
        if "inline" not in plt.get_backend():
            shown.display({"text/plain": repr(self)}, raw=True)
            return
        drawn = BytesIO()
        legible(self).savefig(drawn, format="png", bbox_inches="tight")
        plt.close(self)
        shown.display(shown.Image(drawn.getvalue()))
