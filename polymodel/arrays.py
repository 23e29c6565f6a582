"""NumPy under its usual name, imported when something of it is first asked for.

The modules that every evaluation loads take it from here: a small example is counted without an array, and
importing NumPy would take a fifth of its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _LoadedLater:
        """The attributes of NumPy, each of which is looked up there once."""

        def __getattr__(self, name):
            import numpy

            found = getattr(numpy, name)
            setattr(self, name, found)
            return found

    np = _LoadedLater()

__all__ = ["np"]
