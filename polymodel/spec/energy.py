"""Energy models: where energies, leakage and areas come from when they are not written down.

A model is a callable `(EnergyRequest) -> EnergyAnswer`. `constants` and `table` are built in,
`hwcomponents` asks the package of that name (an extra); another name is looked up among the installed
entry points of the group `polymodel.energy_models`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from numbers import Real
from pathlib import Path

from polymodel.spec.faults import TextFault, close_to, suggestion
from polymodel.spec.numbers import Value

GROUP = "polymodel.energy_models"
UNITS = {"area": "square metres", "leak_power": "watts"}


@dataclass(frozen=True)
class EnergyRequest:
    """What is asked: the component, the quantities wanted (action names, `area`, `leak_power`).

    Energies are per `bits_per_action` of the action (1 where it is not in there), per operation for compute.
    """

    component: str
    quantities: tuple[str, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    file: str | None = None
    source: str | None = None
    folder: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    bits_per_action: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EnergyAnswer:
    """Quantity -> value (joules, square metres, watts), and quantity -> where it comes from.

    Quantities that are left out fall back to what the spec says; an entry point's name and version come
    before its provenance.
    """

    values: Mapping[str, float]
    provenance: Mapping[str, str]


EnergyModelFunction = Callable[[EnergyRequest], EnergyAnswer]


def constants(request: EnergyRequest) -> EnergyAnswer:
    """The values that the spec itself gives."""
    values = {k: float(v) for k, v in request.values.items() if k in request.quantities}
    origin = f"constants: {request.source}" if request.source else "constants"
    return EnergyAnswer(values, dict.fromkeys(values, origin))


def table(request: EnergyRequest) -> EnergyAnswer:
    """Rows `component,quantity,value[,source]` of a CSV file in the spec's folder. Raises TextFault."""
    from polymodel.spec.energy_table import table as rows

    return rows(request)


def confined(name: str, folder: str) -> Path:
    """The path of `name` in `folder`; paths and symbolic links that lead out of it are refused."""
    if not folder:
        raise TextFault(f"{name} can only be read beside a spec file", 0, "load the spec from a file")
    root = Path(folder).resolve()
    written = Path(name)
    if written.is_absolute() or "\0" in name:
        raise TextFault(f"the path {name} leaves the spec's folder", 0, "name a file beside the spec")
    try:
        found = (root / written).resolve()
        there = found.is_file()
    except (OSError, RuntimeError) as error:  # too long a name, or links that name each other
        raise TextFault(f"{name[:200]} cannot be read: {error}", 0, "name a file beside the spec") from error
    if not found.is_relative_to(root):
        raise TextFault(f"the path {name} leaves the spec's folder", 0, "name a file beside the spec")
    if not there:
        known = [p.name for p in root.iterdir() if p.suffix == ".csv"] if root.is_dir() else []
        near = close_to(name, known)
        raise TextFault(f"{name} is not a file in the spec's folder", 0, f"did you mean {near}?" if near else
                        "put it beside the spec")  # fmt: skip
    return found


_BUILT_IN: dict[str, EnergyModelFunction] = {"constants": constants, "table": table}


@dataclass(frozen=True)
class _Guard:
    """Whatever a stranger's code raises, of any class, becomes a fault that names the model."""

    model: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TextFault):
            raise TextFault(f"energy model {self.model}: {error.message}", 0, error.remedy) from error
        if isinstance(error, Exception):
            said = str(error).strip().partition("\n")[0]
            said = f": {said[:200]}" + "..." * (len(said) > 200) if said else ""
            raise TextFault(
                f"energy model {self.model} failed: {type(error).__name__}{said}", 0,
                "check its options, or ask whoever wrote it",
            ) from error  # fmt: skip


def ask(name: str, request: EnergyRequest) -> EnergyAnswer:
    """What the model of that name answers, every number checked and with its provenance.

    Raises TextFault: no such model, one that fails, a value that is no finite number of at least 0 in
    the quantity's unit, or a quantity that nobody asked for.
    """
    if name in _BUILT_IN:
        return _checked(_BUILT_IN[name](request), request, name, "")
    entry = None if name == "hwcomponents" else _installed(name)
    origin = f"{name} ({entry.dist.name} {entry.dist.version})" if entry and entry.dist else ""
    with _Guard(origin or name):
        answer = _hwcomponents(request) if entry is None else entry.load()(request)
    return _checked(answer, request, name, origin)


def _hwcomponents(request: EnergyRequest) -> EnergyAnswer:
    from polymodel.spec.energy_hwcomponents import answer

    return answer(request)


def _installed(name: str) -> EntryPoint:
    found = entry_points(group=GROUP)
    same = list(dict.fromkeys(e for e in found if e.name == name))
    if not same:
        known = [*_BUILT_IN, "hwcomponents", *sorted(found.names)]
        raise TextFault(f"unknown energy model {name}", 0, suggestion(name, known, "energy models"))
    if len(same) > 1:
        owners = ", ".join(sorted(e.dist.name if e.dist else e.value for e in same))
        raise TextFault(f"several packages install an energy model {name}: {owners}", 0, "uninstall one")
    return same[0]


def _checked(answer: object, request: EnergyRequest, name: str, origin: str) -> EnergyAnswer:
    if not isinstance(answer, EnergyAnswer) or not isinstance(answer.values, Mapping):
        kind = type(answer).__name__
        raise TextFault(f"energy model {name} answers with {kind}", 0, "an EnergyAnswer of two mappings")
    values: dict[str, float] = {}
    provenance: dict[str, str] = {}
    given: Mapping[str, object] = answer.values
    for quantity, value in given.items():
        if quantity not in request.quantities:
            near = suggestion(str(quantity), request.quantities, "quantities")
            raise TextFault(f"energy model {name} gives an unknown quantity {quantity}", 0, near)
        unit = UNITS.get(quantity, "joules")
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TextFault(f"energy model {name} gives {value!r} for {quantity}", 0, f"a number of {unit}")
        number = float(value)
        if not number >= 0 or math.isinf(number):
            raise TextFault(
                f"energy model {name} gives {number} for {quantity}", 0, f"finite {unit}, at least 0"
            )
        values[quantity] = number
        said = answer.provenance.get(quantity) or (request.source if origin else "") or ""
        provenance[quantity] = f"{origin}: {said}" if origin and said else origin or said
    return EnergyAnswer(values, provenance)
