"""Common parts of the readers of density descriptions: checks whose faults are collected with their
locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from polymodel.errors import SpecError
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import suggestion

# The location inside the given value.
Path = tuple[str | int, ...]
Read = Callable[[str], SparseTensor]


@dataclass
class Reader:
    """The tensor whose density is read, and the faults found so far."""

    ranks: tuple[str, ...]
    shape: tuple[int, ...]
    read: Read | None
    name: str
    faults: list[tuple[Path, str, str, str]] = field(default_factory=list)

    def add(self, path: Path, message: str, remedy: str = "", *, code: str) -> None:
        whose = f"{self.name}: " if self.name else ""
        self.faults.append((path, whose + message, remedy, code))

    def made(self, path: Path, make: Callable[[], DensityModel]) -> DensityModel | None:
        """Make a model; the faults of its own checks are recorded with this location."""
        try:
            return make()
        except SpecError as error:
            for fault in error.diagnostics:
                self.add(path, fault.message, fault.remedy, code=fault.code)
            return None

    def keys(
        self, path: Path, given: object, known: Sequence[str], one_of: Sequence[str] = ()
    ) -> dict[str, object]:
        """Return the parameters of a model; unknown ones are faults, and exactly one of `one_of` is
        required."""
        if not isinstance(given, Mapping):
            message = f"{given!r} is not a mapping of parameters"
            self.add(path, message, f"give {', '.join(known)}", code="wrong-type")
            return {}
        for key in given:
            if key not in known:
                self.add(
                    (*path, str(key)),
                    f"unknown parameter {key!r}",
                    suggestion(str(key), known, "parameters"),
                    code="unknown-key",
                )
        if one_of and sum(key in given for key in one_of) != 1:
            message = f"{path[-1]} needs one of {', '.join(one_of)}"
            self.add(path, message, "give exactly one", code="missing-key")
            return {}
        return {str(k): v for k, v in given.items()}

    def share(self, path: Path, given: object) -> float | None:
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
            return float(given)
        message = f"density {given!r} is outside [0, 1]"
        self.add(path, message, "give the share of nonzero points", code="out-of-range")
        return None

    def whole(self, path: Path, given: object, low: int, high: float, what: str) -> int | None:
        """A whole number; 7.7e7 is one."""
        number = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
        if low <= number <= high and number != float("inf") and number == int(number):
            return int(number)
        room = f"{low} to {high:,}" if high < float("inf") else f"at least {low}"
        self.add(path, f"{what} {given!r} is not a whole number of {room}", "", code="not-an-integer")
        return None

    def rank(self, path: Path, given: object) -> str | None:
        if given in self.ranks:
            return str(given)
        message = f"unknown rank {given!r}"
        self.add(path, message, suggestion(str(given), self.ranks, "ranks"), code="unknown-name")
        return None

    def named(self, path: Path, given: object) -> tuple[str, ...] | None:
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, Sequence) or not names:
            message = f"{given!r} is not a list of ranks"
            self.add(path, message, f"name some of {', '.join(self.ranks)}", code="wrong-type")
            return None
        result = [self.rank(path, n) for n in names]
        return None if None in result else tuple(f for f in result if f is not None)

    def file(self, path: Path, given: object) -> SparseTensor | None:
        """The tensor in a file, its ranks named by position."""
        if isinstance(given, SparseTensor):
            data = given
        elif not isinstance(given, str) or self.read is None:
            why = "is not a name of a file" if not isinstance(given, str) else "cannot be read here"
            self.add(path, f"{given!r} {why}", "name a .mtx or .tns file", code="unreadable-file")
            return None
        else:
            try:
                data = self.read(given)
            except SpecError as error:
                for fault in error.diagnostics:
                    at = f"{fault.place}: " if fault.place.file else ""
                    self.add(path, f"{at}{fault.message}", fault.remedy, code=fault.code)
                return None
        if len(data.ranks) != len(self.ranks):
            message = f"the data have {len(data.ranks)} ranks, not {len(self.ranks)}"
            self.add(path, message, "give other data", code="wrong-count")
            return None
        if data.shape != self.shape:
            sizes = [" x ".join(map(str, s)) for s in (data.shape, self.shape)]
            message = f"the data are {sizes[0]}, not {sizes[1]}"
            self.add(path, message, "set the rank sizes to those of the data", code="shape-mismatch")
            return None
        return data.renamed(self.name or data.name, self.ranks)


def is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)
