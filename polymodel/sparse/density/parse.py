"""Densities as they are written: a number, or a model's name with its parameters.

0.01                                       {uniform: {density: 0.01}}      {uniform: {nnz: 5000}}
{hierarchical: {I: 0.5, K: 0.1}}           {hierarchical: [0.5, 0.1]}
{fixed_structured: {n: 2, m: 4, rank: K}}  {banded: {width: 3, ranks: [I, K]}}
{rank_nnz: {rank: I, histogram: [3, 0, 2]}}   {rank_nnz: {file: a.mtx}}     {actual: a.mtx}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.banded import Banded
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.histogram import RankNnz
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import suggestion

# Told a fault: where inside the written value, what, and the remedy.
Add = Callable[[tuple[str | int, ...], str, str], None]
Read = Callable[[str], SparseTensor]
MODELS = ("uniform", "hierarchical", "fixed_structured", "banded", "rank_nnz", "actual")


def model_of(
    written: object,
    ranks: Sequence[str],
    shape: Sequence[int],
    *,
    read: Read | None = None,
    add: Add | None = None,
    name: str = "",
) -> DensityModel | None:
    """The model that is written (see the module) for a tensor of these ranks and sizes.

    `read`: reads the tensor in a file (its faults are passed on); without it files are a fault. `add`: told
    every fault, then the answer is None; without it they are raised together as SpecError. A model is
    returned as it is.
    """
    reader = _Reader(tuple(ranks), tuple(int(s) for s in shape), read, name)
    found = reader.model(written)
    if not reader.faults:
        return found
    if add is None:
        told = [Diagnostic(m, r, ".".join(map(str, p))) for p, m, r in reader.faults]
        raise SpecError(told)
    for path, message, remedy in reader.faults:
        add(path, message, remedy)
    return None


@dataclass
class _Reader:
    """The tensor that a value is read for, and the faults found so far."""

    ranks: tuple[str, ...]
    shape: tuple[int, ...]
    read: Read | None
    name: str
    faults: list[tuple[tuple[str | int, ...], str, str]] = field(default_factory=list)

    def add(self, path: tuple[str | int, ...], message: str, remedy: str = "") -> None:
        whose = f"{self.name}: " if self.name else ""
        self.faults.append((path, whose + message, remedy))

    def model(self, written: object) -> DensityModel | None:
        if isinstance(written, DensityModel):
            return written
        if _is_number(written):
            return self._uniform((), {"density": written})
        if not isinstance(written, Mapping) or len(written) != 1:
            known = ", ".join(MODELS)
            self.add(
                (), f"{written!r} is no density", f"a number from 0 to 1, or one of {known} with parameters"
            )
            return None
        kind, given = next(iter(written.items()))
        readers: dict[str, Callable[[tuple[str | int, ...], object], DensityModel | None]] = {
            "uniform": self._uniform,
            "hierarchical": self._hierarchical,
            "fixed_structured": self._structured,
            "banded": self._banded,
            "rank_nnz": self._histogram,
            "actual": self._actual,
        }
        if kind not in readers:
            self.add(
                (str(kind),), f"density model {kind!r} is not known", suggestion(str(kind), MODELS, "models")
            )
            return None
        return readers[str(kind)]((str(kind),), given)

    def _made(self, path: tuple[str | int, ...], make: Callable[[], DensityModel]) -> DensityModel | None:
        """A model whose own checks are faults here."""
        try:
            return make()
        except SpecError as error:
            for fault in error.diagnostics:
                self.add(path, fault.message, fault.remedy)
            return None

    def _keys(
        self, path: tuple[str | int, ...], given: object, known: Sequence[str], one_of: Sequence[str] = ()
    ) -> dict[str, object]:
        """The parameters of a model; unknown ones are faults, and exactly one of `one_of` is needed."""
        if not isinstance(given, Mapping):
            self.add(path, f"{given!r} is no mapping of parameters", f"give {', '.join(known)}")
            return {}
        for key in given:
            if key not in known:
                self.add(
                    (*path, str(key)), f"unknown parameter {key!r}", suggestion(str(key), known, "parameters")
                )
        if one_of and sum(key in given for key in one_of) != 1:
            self.add(path, f"{path[-1]} needs one of {', '.join(one_of)}", "give exactly one")
            return {}
        return {str(k): v for k, v in given.items()}

    def _share(self, path: tuple[str | int, ...], given: object) -> float | None:
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
            return float(given)
        self.add(path, f"density {given!r} is outside [0, 1]", "give the share of nonzero points")
        return None

    def _whole(
        self, path: tuple[str | int, ...], given: object, low: int, high: float, what: str
    ) -> int | None:
        """A whole number; 7.7e7 is one."""
        number = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
        if low <= number <= high and number != float("inf") and number == int(number):
            return int(number)
        room = f"{low} to {high:,}" if high < float("inf") else f"at least {low}"
        self.add(path, f"{what} {given!r} is no whole number of {room}", "")
        return None

    def _rank(self, path: tuple[str | int, ...], given: object) -> str | None:
        if given in self.ranks:
            return str(given)
        self.add(path, f"unknown rank {given!r}", suggestion(str(given), self.ranks, "ranks"))
        return None

    def _uniform(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        if _is_number(given):
            given = {"density": given}
        keys = self._keys(path, given, ("density", "nnz"), ("density", "nnz"))
        if "density" in keys:
            share = self._share((*path, "density") if path else (), keys["density"])
            if share is None:
                return None
            return self._made(path, lambda: Uniform.of(self.ranks, self.shape, density=share))
        if "nnz" in keys:
            nnz = self._whole((*path, "nnz"), keys["nnz"], 0, prod(self.shape), "nnz")
            if nnz is not None:
                return self._made(path, lambda: Uniform.of(self.ranks, self.shape, nnz=nnz))
        return None

    def _hierarchical(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        if isinstance(given, Mapping) and set(given) == {"density"}:
            path, given = (*path, "density"), given["density"]
        if isinstance(given, Mapping):
            for rank in given:
                if rank not in self.ranks:
                    self._rank((*path, str(rank)), rank)
            missing = [r for r in self.ranks if r not in given]
            if missing:
                self.add(path, f"no density of rank {', '.join(missing)}", "1 keeps all coordinates")
            shares = [self._share((*path, r), given[r]) for r in self.ranks if r in given]
        elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(self.ranks):
            shares = [self._share((*path, i), d) for i, d in enumerate(given)]
        else:
            self.add(
                path, f"{given!r} is not one density per rank", f"one for each of {', '.join(self.ranks)}"
            )
            return None
        if len(shares) != len(self.ranks) or None in shares:
            return None
        densities = tuple(d for d in shares if d is not None)
        return self._made(path, lambda: Hierarchical(self.ranks, self.shape, densities))

    def _structured(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        keys = self._keys(path, given, ("n", "m", "rank"))
        if not isinstance(given, Mapping):
            return None
        m = self._whole((*path, "m"), keys.get("m"), 1, float("inf"), "m")
        n = self._whole((*path, "n"), keys.get("n"), 0, float("inf") if m is None else m, "n")
        rank = (
            self._rank((*path, "rank"), keys["rank"])
            if "rank" in keys
            else self.ranks[-1]
            if self.ranks
            else ""
        )
        if n is None or m is None or rank is None:
            return None
        return self._made(path, lambda: FixedStructured(self.ranks, self.shape, n, m, rank))

    def _banded(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        keys = self._keys(path, {"width": given} if _is_number(given) else given, ("width", "ranks"))
        if not keys and not isinstance(given, Mapping):
            return None
        width = self._whole((*path, "width"), keys.get("width"), 0, float("inf"), "width")
        two = self._named((*path, "ranks"), keys["ranks"]) if "ranks" in keys else self.ranks[-2:]
        if two is not None and len(two) != 2:
            self.add(
                (*path, "ranks") if "ranks" in keys else path, f"a band on {len(two)} ranks", "it needs two"
            )
            two = None
        if width is None or two is None:
            return None
        return self._made(path, lambda: Banded(self.ranks, self.shape, width, (two[0], two[1])))

    def _named(self, path: tuple[str | int, ...], given: object) -> tuple[str, ...] | None:
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, Sequence) or not names:
            self.add(path, f"{given!r} is no list of ranks", f"name some of {', '.join(self.ranks)}")
            return None
        found = [self._rank(path, n) for n in names]
        return None if None in found else tuple(f for f in found if f is not None)

    def _histogram(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        keys = self._keys(path, given, ("rank", "ranks", "histogram", "file"), ("histogram", "file"))
        if not keys:
            return None
        where = next((k for k in ("rank", "ranks") if k in keys), "")
        if "rank" in keys and "ranks" in keys:
            self.add((*path, "ranks"), "both rank and ranks are given", "give one")
        along = self._named((*path, where), keys[where]) if where else self.ranks[:1]
        if "file" in keys:
            data = self._file((*path, "file"), keys["file"])
            if data is None or along is None:
                return None
            return self._made(path, lambda: RankNnz.from_tensor(data, along))
        histogram = _table(keys["histogram"])
        if histogram is None:
            self.add(
                (*path, "histogram"), "a histogram is a list of numbers", "nested lists for several ranks"
            )
            return None
        if along is None:
            return None
        return self._made((*path, "histogram"), lambda: RankNnz.of(self.ranks, self.shape, histogram, along))

    def _actual(self, path: tuple[str | int, ...], given: object) -> DensityModel | None:
        if isinstance(given, Mapping):
            keys = self._keys(path, given, ("file",), ("file",))
            path, given = (*path, "file"), keys.get("file")
            if given is None:
                return None
        data = self._file(path, given)
        return None if data is None else Actual.of(data)

    def _file(self, path: tuple[str | int, ...], given: object) -> SparseTensor | None:
        """The tensor in a file, its ranks named by position."""
        if isinstance(given, SparseTensor):
            data = given
        elif not isinstance(given, str) or self.read is None:
            why = "is no name of a file" if not isinstance(given, str) else "cannot be read here"
            self.add(path, f"{given!r} {why}", "name a .mtx or .tns file")
            return None
        else:
            try:
                data = self.read(given)
            except SpecError as error:
                for fault in error.diagnostics:
                    at = f"{fault.place}: " if fault.place.file else ""
                    self.add(path, f"{at}{fault.message}", fault.remedy)
                return None
        if len(data.ranks) != len(self.ranks):
            self.add(path, f"the data have {len(data.ranks)} ranks, not {len(self.ranks)}", "give other data")
            return None
        if data.shape != self.shape:
            sizes = [" x ".join(map(str, s)) for s in (data.shape, self.shape)]
            self.add(
                path, f"the data are {sizes[0]}, not {sizes[1]}", "set the rank sizes to those of the data"
            )
            return None
        return data.renamed(self.name or data.name, self.ranks)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _table(given: object) -> NDArray[Any] | None:
    """Numbers in lists of equal length, nested alike; None if they are not."""
    try:
        found: NDArray[Any] = np.array(given)
    except ValueError:
        return None
    return found if found.dtype.kind in "iuf" and found.ndim else None
