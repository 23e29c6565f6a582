"""Dimensions of the model's inputs that are symbols or unknown, and the numbers given for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.spec.faults import suggestion

LARGEST = 2**40


def fixed(
    graph: Any, weights: frozenset[str], sizes: Mapping[str, int], source: str
) -> dict[str, tuple[str, ...]]:
    """Write `sizes` into the inputs of an onnx GraphProto; the symbolic names that the inputs had.

    A key is the name of a symbolic dimension, or `input.k` for dimension k of an input. Raises SpecError for
    all dimensions that have no size, and for sizes of none.
    """
    place = Place(source)
    called = {v.name: tuple(d.dim_param for d in v.type.tensor_type.shape.dim) for v in graph.input}
    faults: list[Diagnostic] = []
    known: dict[str, None] = {}
    lacking: dict[str, str] = {}
    for value in graph.input:
        tensor = value.type.tensor_type
        if value.name in weights or not value.type.HasField("tensor_type"):
            continue
        if not tensor.HasField("shape"):
            message = f"input {value.name} has no shape"
            faults.append(Diagnostic(message, "export the model with the shapes of its inputs", "", place))
        for k, dim in enumerate(tensor.shape.dim):
            own = f"{value.name}.{k}"
            names = [n for n in (dim.dim_param, own) if n]
            if dim.dim_value > 0:
                continue
            known.update(dict.fromkeys(names))
            given = next((sizes[n] for n in names if n in sizes), None)
            if len({sizes[n] for n in names if n in sizes}) > 1:
                both = " and ".join(f"{n} = {sizes[n]}" for n in names)
                message = f"dimension {k} of input {value.name} has two sizes: {both}"
                faults.append(Diagnostic(message, "give it one", "", place))
            if given is not None:
                dim.dim_value = given
            else:
                what = f"dimension {k} of input {value.name}"
                lacking.setdefault(dim.dim_param or own, what)
    faults += [_bad(name, size, known, place) for name, size in sizes.items() if _wrong(name, size, known)]
    if not any(f.message.startswith("unknown size") for f in faults):
        for name, what in lacking.items():
            message = f"{what} has no fixed size: it is called {name}"
            remedy = f"give one, such as --size {name}=4 or sizes={{{name!r}: 4}}"
            faults.append(Diagnostic(message, remedy, "", place))
    if faults:
        raise SpecError(faults)
    every = [v for values in (graph.output, graph.value_info) for v in values]
    for value in every:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return called


def _wrong(name: str, size: object, known: Mapping[str, None]) -> bool:
    whole = isinstance(size, int) and not isinstance(size, bool)
    return name not in known or not whole or not 1 <= int(str(size)) <= LARGEST


def _bad(name: str, size: object, known: Mapping[str, None], place: Place) -> Diagnostic:
    if name not in known:
        remedy = suggestion(name, known, "it has") if known else "all its sizes are fixed: leave it out"
        return Diagnostic(f"unknown size {name}: no input has such a dimension", remedy, "", place)
    return Diagnostic(
        f"size {name} = {size!r} is not a whole number of at least 1", "write e.g. 4", "", place
    )
