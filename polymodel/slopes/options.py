"""Check keyword options of the slopes: each fault has the option's name, and all are reported together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from polymodel.slopes.tile_sizes import extent
from polymodel.spec.faults import Faults, Path, shown, suggestion
from polymodel.workload.einsum import Einsum

TRUTH = (bool, np.bool_)


class SlopeOptions:
    """Reads the options of one call. Values of wrong options are meaningless until `raise_if_any`."""

    def __init__(self) -> None:
        self.faults = Faults()

    def raise_if_any(self) -> None:
        self.faults.raise_if_any()

    def truth(self, name: str, value: object) -> bool:
        if not isinstance(value, TRUTH):
            message = f"{shown(value)} is neither True nor False"
            self.faults.add((name,), message, "pass True or False", code="wrong-type")
        return value is True or (isinstance(value, np.bool_) and bool(value))

    def choice(self, path: Path, value: object, known: Collection[str], what: str) -> None:
        """Return one of the known names."""
        if not isinstance(value, str) or value not in known:
            near = suggestion(value if isinstance(value, str) else "", known, f"{what}s")
            self.faults.add(path, f"there is no {what} {shown(value)}", near, code="unknown-choice")

    def names(self, path: Path, value: object, known: Collection[str], what: str) -> tuple[str, ...]:
        """Return some of the known names; a single name is treated as a list of one."""
        if isinstance(value, str):
            self.choice(path, value, known, what)
            return (value,)
        if not isinstance(value, Iterable) or isinstance(value, Mapping):
            remedy = f"pass names: {', '.join(known)}"
            message = f"{shown(value)} is not a list of {what.partition(' ')[0]}s"
            self.faults.add(path, message, remedy, code="wrong-type")
            return ()
        result = tuple(value)
        for i, name in enumerate(result):
            self.choice((*path, i), name, known, what)
        return result

    def table(self, name: str, value: object, what: str, example: str) -> Mapping[str, object]:
        if isinstance(value, Mapping):
            return value
        message = f"{shown(value)} is not a table of {what}"
        self.faults.add((name,), message, f"write e.g. {example}", code="wrong-type")
        return {}

    def called(self, name: str, value: object) -> None:
        """Return a function, or None."""
        if value is not None and not callable(value):
            message = f"{shown(value)} is not a function"
            self.faults.add((name,), message, "pass a function, e.g. print", code="wrong-type")

    def unit(self, value: object) -> None:
        self.choice(("unit",), value, ("words", "bits"), "unit")

    def tiles(self, value: object, einsums: Iterable[Einsum], variables: Collection[str]) -> None:
        """Return `divisors`, `all`, or positive integers per rank variable, none beyond its extent in these
        Einsums."""
        if not isinstance(value, Mapping):
            if not isinstance(value, str) or value not in ("divisors", "all"):
                what = f"{shown(value)} is neither divisors nor all nor a table of tile sizes"
                remedy = 'use "divisors", "all" or {variable: sizes}'
                self.faults.add(("tiles",), what, remedy, code="wrong-type")
            return
        users = tuple(einsums)
        for v, sizes in value.items():
            self.choice(("tiles", v if isinstance(v, str) else repr(v)), v, variables, "rank variable")
            extents = [extent(e, v) for e in users if v in e.rank_variables]
            self._sizes(str(v), sizes, min(extents, default=None))

    def _sizes(self, variable: str, sizes: object, most: int | None) -> None:
        path: Path = ("tiles", variable)
        single = isinstance(sizes, np.ndarray) and not sizes.ndim
        if single or isinstance(sizes, (str, Mapping)) or not isinstance(sizes, Collection):
            message = f"{shown(sizes)} is not a list of tile sizes"
            self.faults.add(path, message, "write e.g. [2, 4]", code="wrong-type")
            return
        numbers = []
        for i, n in enumerate(sizes):
            if isinstance(n, (int, np.integer)) and not isinstance(n, bool):
                numbers.append(int(n))
            else:
                message = f"{shown(n)} is not a whole number"
                self.faults.add((*path, i), message, "write e.g. 4", code="not-an-integer")
        if most is not None and numbers and not 1 <= min(numbers) <= max(numbers) <= most:
            what = f"tile sizes of {variable} must lie in 1 to {most}"
            self.faults.add(path, what, "leave out the others", code="out-of-range")
