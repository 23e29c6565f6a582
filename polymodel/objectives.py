"""The objectives that a search may name: one vocabulary for reports, sweeps and explorations.

An objective is one entry of `OBJECTIVES`: its word, its unit, what it means and how it follows from figures.
The figures come from whoever has them (`Figures`): of one mapping they are numbers, of a sweep arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Number = Any  # an integer, a float, or an array of them
SPARSE = "sparse_"  # before an objective: the same on sparse data


class Figures(Protocol):
    """What objectives are made of, all executions of all Einsums: joules, seconds, square metres, bits."""

    @property
    def energy(self) -> Number: ...

    @property
    def latency(self) -> Number: ...

    @property
    def area(self) -> Number: ...

    @property
    def utilisation(self) -> Number: ...

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Number:
        """Bits that all instances of a memory read or write; of a toll those that pass down or up."""
        ...

    def working_set(self, component: str) -> Number:
        """Bits at the peak of one instance, under the memory's `allocation`."""
        ...


@dataclass(frozen=True)
class Objective:
    """One entry of the vocabulary.

    `of`: what it names behind a colon: nothing, a memory, or a memory or toll (`moving`). `figure`: its value
    from figures and that name, written with `+`, `*` and `/`, which numbers, arrays and closed forms have.
    `most`: the largest value is the best; else the smallest. `sparse`: whether it has a value on sparse data
    as well.
    """

    word: str
    unit: str
    meaning: str
    figure: Callable[[Figures, str], Number]
    of: Literal["", "memory", "moving"] = ""
    most: bool = False
    sparse: bool = True

    @property
    def extreme(self) -> str:
        """Which of its values is the best, in a word."""
        return "most" if self.most else "least"


OBJECTIVES = (
    Objective("energy", "J", "energy of all actions, and leakage", lambda f, _: f.energy),
    Objective("latency", "s", "time of all Einsums", lambda f, _: f.latency),
    Objective("edp", "J s", "energy-delay product", lambda f, _: f.energy * f.latency),
    Objective("area", "m^2", "area of all components", lambda f, _: f.area, sparse=False),
    Objective(
        "utilisation",
        "1",
        "operations over those that all compute instances execute in as many steps as the busiest one",
        lambda f, _: f.utilisation,
        most=True,
        sparse=False,
    ),
    Objective("reads", "bit", "bits read from it", lambda f, x: f.moved(x, "reads"), "moving"),
    Objective("writes", "bit", "bits written to it", lambda f, x: f.moved(x, "writes"), "moving"),
    Objective(
        "accesses",
        "bit",
        "bits read and written",
        lambda f, x: f.moved(x, "reads") + f.moved(x, "writes"),
        "moving",
    ),
    Objective(
        "working_set", "bit", "bits that it holds at the peak", lambda f, x: f.working_set(x), "memory"
    ),
)
BY_WORD = {o.word: o for o in OBJECTIVES}
ALIASES = {
    "energy_delay": "edp",
    "energy_delay_product": "edp",
    "delay": "latency",
    "time": "latency",
    "buffer": "working_set",
    "utilization": "utilisation",
}


def canonical(name: str) -> str:
    """The name in today's words: `energy_delay` is `edp`, `buffer:GLB` is `working_set:GLB`."""
    prefix = SPARSE if name.startswith(SPARSE) else ""
    word, colon, component = name.removeprefix(prefix).partition(":")
    return prefix + ALIASES.get(word, word) + colon + component


def objective_of(name: str) -> Objective:
    """The entry of a name that `known_names` has. KeyError for any other."""
    return BY_WORD[name.removeprefix(SPARSE).partition(":")[0]]


def value(name: str, figures: Figures) -> Number:
    """One objective of these figures; `sparse_` before its name is the business of who has the figures."""
    return objective_of(name).figure(figures, name.partition(":")[2])


def score(name: str, number: Number) -> Number:
    """What a search minimises: the value, or its reciprocal where the largest value is the best."""
    if not objective_of(name).most:
        return number
    import numpy as np

    with np.errstate(divide="ignore"):
        return np.divide(1.0, number)


def unit_of(name: str) -> str:
    """The unit of an objective, empty for any other name."""
    found = BY_WORD.get(name.removeprefix(SPARSE).partition(":")[0])
    return found.unit if found is not None else ""


def known_names(memories: Iterable[str], tolls: Iterable[str] = (), sparse: bool = False) -> tuple[str, ...]:
    """Every objective on an architecture with these memories and tolls, on dense or on sparse data."""
    places = {"memory": tuple(memories)}
    places["moving"] = (*places["memory"], *tolls)
    shown = [o for o in OBJECTIVES if o.sparse or not sparse]
    plain = [o.word for o in shown if not o.of]
    named = [f"{o.word}:{x}" for x in places["moving"] for o in shown if o.of and x in places[o.of]]
    return tuple((SPARSE if sparse else "") + n for n in (*plain, *named))


def read_objectives(
    names: Iterable[object], memories: Sequence[str], tolls: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[Unknown, ...]]:
    """The objectives that are meant, each once, and every name that means none."""
    dense, sparse = (known_names(memories, tolls, on) for on in (False, True))
    found, unknown = [], []
    for i, name in enumerate(names):
        shown = name if isinstance(name, str) else repr(name)
        meant, known = canonical(shown), sparse if shown.startswith(SPARSE) else dense
        if meant in known:
            found.append(meant)
        else:
            unknown.append(Unknown(i, shown, known))
    return tuple(dict.fromkeys(found)), tuple(unknown)


@dataclass(frozen=True)
class Unknown:
    """A name at `place` of a list that is no objective, and the objectives that there are."""

    place: int
    name: str
    known: tuple[str, ...]


def uses(name: str) -> frozenset[tuple[str, str]]:
    """Which figures an objective is made of: (figure, component), such as `("reads", "GLB")`."""
    seen = _Seen()
    value(name, seen)
    return frozenset(seen.asked)


class _Seen:
    """Figures that note which of them are asked for."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, str]] = set()

    def _note(self, figure: str, component: str = "") -> int:
        self.asked.add((figure, component))
        return 1

    @property
    def energy(self) -> Number:
        return self._note("energy")

    @property
    def latency(self) -> Number:
        return self._note("latency")

    @property
    def area(self) -> Number:
        return self._note("area")

    @property
    def utilisation(self) -> Number:
        return self._note("utilisation")

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Number:
        return self._note(way, component)

    def working_set(self, component: str) -> Number:
        return self._note("working_set", component)


def listed() -> str:
    """The vocabulary in a line, for options and schemas."""
    return ", ".join(f"{o.word}:X" if o.of else o.word for o in OBJECTIVES)
