"""The objectives that a search may use: one vocabulary for reports, sweeps and explorations.

An objective is one entry of `OBJECTIVES`: its name, unit, meaning and formula over figures. The figures come
from the caller (`Figures`): numbers for one mapping, arrays for a sweep. A weighted sum of objectives is an
objective too (`2*energy + latency`), and any of them may be limited (`FigureLimit`, `latency <= 2 ms`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Literal, Protocol

from polymodel.frozen import dataclass
from polymodel.quantities import engineering

Number = Any  # an integer, a float, or an array of them
SPARSE = "sparse_"  # before an objective: the same on sparse data
OF = " of "  # behind an objective, before the name of a network: that of this network alone


Busy = Literal["reads", "writes", "operations"]


class Figures(Protocol):
    """The quantities of which objectives are composed, over all executions of all Einsums: joules, seconds,
    square metres, bits."""

    @property
    def energy(self) -> Number: ...

    @property
    def latency(self) -> Number: ...

    @property
    def area(self) -> Number: ...

    @property
    def utilisation(self) -> Number: ...

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Number:
        """Bits that all instances of a memory read or write; for a toll, those that pass inward or
        outward."""
        ...

    def working_set(self, component: str) -> Number:
        """Peak bits of one instance, under the memory's `allocation`."""
        ...

    def busiest(self, component: str, way: Busy) -> Number:
        """Bits read or written by the busiest instance, or operations that it executes."""
        ...

    def used(self, dimension: str) -> Number:
        """Number of instances in use, encoded as `InstancesUsed` describes."""
        ...


@dataclass(frozen=True)
class SearchFigures:
    """Figures of whole mappings that a search has computed. Others raise KeyError.

    Each is a number or an array. `peaks`: bits of the working set of each memory.
    """

    energy: Any
    latency: Any
    peaks: Mapping[str, Any]
    area: float = 0.0

    @property
    def utilisation(self) -> Any:
        raise KeyError("utilisation")

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Any:
        raise KeyError(f"{way}:{component}")

    def working_set(self, component: str) -> Any:
        return self.peaks[component]

    def busiest(self, component: str, way: Busy) -> Any:
        raise KeyError(f"busiest_{way}:{component}")

    def used(self, dimension: str) -> Any:
        raise KeyError(f"used:{dimension}")


@dataclass(frozen=True)
class Objective:
    """One entry of the vocabulary.

    `of`: the kind of name after a colon: none, a memory, or a memory or toll (`moving`). `figure`: its value
    from figures and that name, written with `+`, `*` and `/`, which numbers, arrays and closed forms support.
    `most`: the largest value is best; otherwise the smallest. `sparse`: whether it is defined on sparse data
    too.
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
# Figures that the searches of a co-design minimise: the time of a component follows from them and its
# throughputs, and so do the machines that a mapping fits. They are not part of the user's vocabulary.
INTERNAL = (
    Objective(
        "busiest_reads", "bit", "bits that its busiest instance reads", lambda f, x: f.busiest(x, "reads"),
        "memory", sparse=False,
    ),
    Objective(
        "busiest_writes", "bit", "bits that its busiest instance writes", lambda f, x: f.busiest(x, "writes"),
        "memory", sparse=False,
    ),
    Objective(
        "busiest_accesses", "bit", "bits that its busiest instance reads and writes",
        lambda f, x: f.busiest(x, "reads") + f.busiest(x, "writes"), "memory", sparse=False,
    ),
    Objective(
        "busiest_operations", "operation", "operations of its busiest instance",
        lambda f, x: f.busiest(x, "operations"), "memory", sparse=False,
    ),
    Objective(
        "used", "1", "instances in use along a fanout dimension", lambda f, x: f.used(x), "memory",
        sparse=False,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class InstancesUsed:
    """What `used:PE.X:3:4:8:16` counts: of layers of at most 3 Einsums each Einsum by itself, 1, 4, or 16 as
    it has enough with 4, 8, or 16 instances along `PE.X`.

    Such powers add up so that a sum tells the largest step of an Einsum: it is within 3 x 4^k exactly where
    step k is enough for all. So of two sums the lower one has no higher step, and the figure adds up.
    """

    dimension: str
    einsums: int
    steps: tuple[int, ...]

    @classmethod
    def read(cls, argument: str) -> InstancesUsed:
        """Of `PE.X:3:4:8:16`."""
        dimension, *numbers = argument.split(":")
        einsums, *steps = map(int, numbers)
        return cls(dimension, einsums, tuple(steps))

    @property
    def written(self) -> str:
        return ":".join(map(str, ("used", self.dimension, self.einsums, *self.steps)))

    @property
    def weights(self) -> tuple[int, ...]:
        """What an Einsum counts, by its step."""
        return tuple((self.einsums + 1) ** k for k in range(len(self.steps)))

    def of(self, instances: int) -> int:
        """What an Einsum counts that uses so many."""
        return self.weights[sum(step < instances for step in self.steps)]

    def most(self, instances: int) -> int:
        """The largest sum of a mapping for which one of the steps is enough."""
        return self.einsums * self.weights[self.steps.index(instances)]


BY_WORD = {o.word: o for o in OBJECTIVES}
INTERNAL_BY_WORD = {o.word: o for o in INTERNAL}
ALIASES = {
    "energy_delay": "edp",
    "energy_delay_product": "edp",
    "delay": "latency",
    "time": "latency",
    "buffer": "working_set",
    "utilization": "utilisation",
}


_NUMBER = r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_TERM = re.compile(rf"\s*(?:({_NUMBER})\s*\*\s*)?([A-Za-z_][\w:]*)\s*(?:\*\s*({_NUMBER})\s*)?")
Term = tuple[float, str]  # a weight and the objective that it stands before


@lru_cache(maxsize=4096)
def terms_of(name: str) -> tuple[Term, ...]:
    """The terms of a weighted sum (`2*energy + latency`); any other text is one term of weight 1."""
    result: list[Term] = []
    at = 0
    while at < len(name):
        term = _TERM.match(name, at)
        if term is None or (term[1] and term[3]):
            return ((1.0, name),)
        weight = float(term[1] or term[3] or 1)
        if not 0 < weight < inf:
            return ((1.0, name),)
        result.append((weight, term[2]))
        at = term.end()
        if at < len(name):
            if name[at] != "+" or at + 1 == len(name):
                return ((1.0, name),)
            at += 1
    return tuple(result) or ((1.0, name),)


def summed(terms: Iterable[Term]) -> str:
    """The name of a weighted sum."""
    return " + ".join(n if w == 1 else f"{w:.15g}*{n}" for w, n in terms)


def is_sum(name: str) -> bool:
    """True if the name is that of a weighted sum."""
    return terms_of(name) != ((1.0, name),)


def written(objective: object) -> str:
    """An objective as text: a table of weights is a weighted sum."""
    if isinstance(objective, Mapping) and objective:
        weights = objective.items()
        if all(isinstance(w, (int, float)) and not isinstance(w, bool) and w > 0 for _, w in weights):
            return summed((float(w), str(n)) for n, w in weights)
    return objective if isinstance(objective, str) else repr(objective)


def renamed(name: str, new: Callable[[str], str]) -> str:
    """The same objective with the names of its terms replaced."""
    return summed((w, new(n)) for w, n in terms_of(name)) if is_sum(name) else new(name)


def canonical(name: str) -> str:
    """The current name: `energy_delay` is `edp`, `buffer:GLB` is `working_set:GLB`."""
    figure, of, network = name.partition(OF)
    return renamed(figure, _canonical) + of + network


def of_network(name: str, network: str) -> str:
    """The name of an objective of one network, `latency of resnet`; of all of them if it has no name."""
    return f"{name}{OF}{network}" if network else name


def whose(name: str) -> tuple[str, str]:
    """An objective and the network that it refers to, empty for all of them."""
    figure, _, network = name.partition(OF)
    return figure.strip(), network.strip()


def _canonical(name: str) -> str:
    prefix = SPARSE if name.startswith(SPARSE) else ""
    word, colon, component = name.removeprefix(prefix).partition(":")
    return prefix + ALIASES.get(word, word) + colon + component


def on_sparse_data(name: str) -> bool:
    """True if an objective is one on sparse data."""
    return any(n.startswith(SPARSE) for _, n in terms_of(name))


def on_dense_data(name: str) -> str:
    """The same objective on dense data."""
    return renamed(name, lambda n: n.removeprefix(SPARSE))


@lru_cache(maxsize=4096)
def objective_of(name: str) -> Objective:
    """The entry of a name that `known_names` has, or of a weighted sum of them. KeyError for any other."""
    if not is_sum(name):
        word = name.removeprefix(SPARSE).partition(":")[0]
        return INTERNAL_BY_WORD.get(word) or BY_WORD[word]
    terms = terms_of(name)
    parts = [objective_of(n) for _, n in terms]
    units = {part.unit for part in parts}
    unit = units.pop() if len(units) == 1 else ""  # of joules and seconds it has none, and is no share

    def figure(figures: Figures, _: str) -> Number:
        first, *rest = (w * value(n, figures) for w, n in terms)
        for one in rest:
            first = first + one
        return first

    return Objective(name, unit, "weighted sum", figure, sparse=all(part.sparse for part in parts))


def is_internal(name: str) -> bool:
    """True if only the searches of a co-design use this name."""
    return name.partition(":")[0] in INTERNAL_BY_WORD


def value(name: str, figures: Figures) -> Number:
    """The value of one objective for these figures; for `sparse_` objectives the caller passes figures on
    sparse data."""
    return objective_of(name).figure(figures, name.partition(":")[2])


def score(name: str, number: Number) -> Number:
    """The quantity that a search minimises: the value, or its reciprocal where the largest value is best."""
    if not objective_of(name).most:
        return number
    import numpy as np

    with np.errstate(divide="ignore"):
        return np.divide(1.0, number)


def unit_of(name: str) -> str:
    """The unit of an objective, also of one network's; empty for sums of unlike figures, and for any other
    name."""
    return objective_of(whose(name)[0]).unit if is_objective(name) else ""


def is_objective(name: str) -> bool:
    """True if the name is that of an objective, also of one network's, or of a weighted sum."""
    try:
        objective_of(whose(name)[0])
    except KeyError:
        return False
    return True


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
    """The objectives without repetition, and every name that is not one."""
    dense, sparse = (known_names(memories, tolls, on) for on in (False, True))
    result, unknown = [], []
    for i, name in enumerate(names):
        meant = canonical(written(name))
        known = sparse if on_sparse_data(meant) else dense
        if is_sum(meant):
            known = addable(known)
        wrong = next((n for _, n in terms_of(meant) if n not in known), None)
        if wrong is None:
            result.append(meant)
        else:
            unknown.append(Unknown(i, wrong if is_sum(meant) else written(name), known))
    return tuple(dict.fromkeys(result)), tuple(unknown)


def addable(known: Iterable[str]) -> tuple[str, ...]:
    """Those of these names that may occur in weighted sums: objectives whose smallest value is best."""
    return tuple(n for n in known if not objective_of(n).most)


@dataclass(frozen=True)
class FigureLimit:
    """A bound on a figure in its own unit: an upper bound where the smallest value is best, else a lower
    bound."""

    name: str
    number: float

    @property
    def relation(self) -> str:
        """`<=` or `>=`."""
        return relation_of(self.name)

    @property
    def score(self) -> float:
        """The largest score that the bound allows."""
        result: float = score(self.name, self.number)
        return result

    def admits(self, number: Number) -> Number:
        """True if a value satisfies it; elementwise for an array."""
        return number >= self.number if objective_of(self.name).most else number <= self.number

    def for_readers(self, name: str = "") -> str:
        """The bound in the unit of tables and rounded like them; `name`: the name of the figure there, if
        different."""
        shown = engineering(self.number, unit_of(self.name).removeprefix("1"))
        return f"{name or self.name} {self.relation} {shown}"

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.number:.15g}"


_LIMIT = re.compile(r"(.*?)(<=|>=)(.*)", re.DOTALL)
LIMIT_REMEDY = "write e.g. 'latency <= 2 ms', 'accesses:DRAM <= 1e9' or 'utilisation >= 0.5'"


def read_limit(text: object) -> tuple[str, str, str] | None:
    """The name, the relation and the number of a limit that is written as text; None for any other text."""
    match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (canonical(match[1].strip()), match[2], match[3].strip())


def relation_of(name: str) -> str:
    """The relation of a bound: `>=` where the largest value is best, else `<=`."""
    entry = BY_WORD.get(canonical(name).partition(":")[0])
    return ">=" if entry is not None and entry.most else "<="


def limit_of(name: str, relation: str, text: str, number: float | None) -> FigureLimit | str:
    """The bound, or what is wrong with it. `name`: an objective; `number`: the text's number in its unit."""
    entry = objective_of(name)
    if relation != relation_of(name):
        return f"{name} is best at its {entry.extreme}: its limit is written with `{relation_of(name)}`"
    if number is None or not number >= 0:
        shown = f"in {entry.unit}" if entry.unit not in ("", "1") else "without a unit"
        return f"{text!r} is not a limit of {name}, which is a number from 0 on {shown}"
    return FigureLimit(name, float(number))


@dataclass(frozen=True)
class Unknown:
    """A name at `place` of a list that is not an objective, and the objectives that there are."""

    place: int
    name: str
    known: tuple[str, ...]


def uses(name: str) -> frozenset[tuple[str, str]]:
    """The figures that an objective is composed of: (figure, component), such as `("reads", "GLB")`."""
    seen = _Seen()
    value(name, seen)
    return frozenset(seen.asked)


class _Seen:
    """Figures that record which of them are used."""

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

    def busiest(self, component: str, way: Busy) -> Number:
        return self._note(f"busiest_{way}", component)

    def used(self, dimension: str) -> Number:
        return self._note("used", dimension)


def listed() -> str:
    """The vocabulary in a line, for options and schemas."""
    return ", ".join(f"{o.word}:X" if o.of else o.word for o in OBJECTIVES)


SUMS = "weighted sums of them, such as 2*energy + latency"
