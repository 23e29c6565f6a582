"""Run a cascade on data for several generations: outputs of one generation are inputs of the next.

A TeAAL spec describes one generation: `F[v] = G[u, v] * D[u]`. It is run repeatedly, on inputs that hold
outputs of the previous generation: `carry={"D": "F"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from polymodel import governor
from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.coerce import coerce_tensor
from polymodel.sparse.execute.records import Execution
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import by_name, close_to, shown
from polymodel.spec.teaal.records import TeaalSpec

FIXED_POINT = "fixed_point"
Made = Mapping[str, SparseTensor]
Carried = str | Callable[[Made], Any]  # an output, or a function of all outputs
Until = int | Literal["fixed_point"] | Callable[[Made], bool]
Run = Callable[[Mapping[str, Any]], Execution]
_EXAMPLE = '{"D": "F"}'


def generations(
    run: Run, teaal: TeaalSpec, tensors: Mapping[str, Any], carry: Mapping[str, Carried], until: Until | None
) -> Iterator[Execution]:
    """Yield every generation as it runs. `run`: runs the cascade on inputs.

    `carry`: input -> the output that it holds in the next generation, or a function of all outputs that
    returns it. `until`: the number of generations, `fixed_point` (the last generation is the first one that
    does not change any input), or a function of the outputs that says whether a generation is the last one.
    """
    _check(teaal, tensors, carry, until)
    given: Mapping[str, Any] = tensors
    count = 0
    while True:
        governor.tick("the generations of a cascade")
        found = run(given)
        yield found
        count += 1
        if isinstance(until, int):
            ended = count >= until
        elif callable(until):
            ended = bool(until(found.results))
        else:
            ended = False
        if ended:
            return
        later = {name: _carried(name, source, found) for name, source in carry.items()}
        if until == FIXED_POINT and all(_same(found.tensors[name], later[name]) for name in later):
            return
        given = {**found.tensors, **later}


def execute_generations(
    run: Run, teaal: TeaalSpec, tensors: Mapping[str, Any], carry: Mapping[str, Carried], until: Until | None
) -> Execution:
    """Return the last generation, with all earlier ones."""
    *earlier, last = generations(run, teaal, tensors, carry, until)
    return replace(last, earlier=tuple(earlier))


def _carried(name: str, source: Carried, found: Execution) -> SparseTensor:
    ranks = found.spec.declaration[name]
    if callable(source):
        return coerce_tensor(name, ranks, source(found.results), found.spec.absent(name))
    made = found.results[source]
    if len(made.ranks) != len(ranks) or made.shape != found.tensors[name].shape:
        what = (
            f"{source} has shape {made.shape}, and {name}, which holds it later, {found.tensors[name].shape}"
        )
        remedy = "carry a tensor of the same shape"
        raise SpecError([Diagnostic(what, remedy, f"carry.{name}", code="shape-mismatch")])
    if made.fill != found.tensors[name].fill:
        what = f"{source} holds {made.fill:g} where it has no entry, and {name} {found.tensors[name].fill:g}"
        remedy = "carry a tensor of Einsums with the same `reduce`"
        raise SpecError([Diagnostic(what, remedy, f"carry.{name}", code="inconsistent-values")])
    return made.renamed(name, ranks)


def _same(one: SparseTensor, other: SparseTensor) -> bool:
    return np.array_equal(one.coords, other.coords) and np.array_equal(one.values, other.values)


def _check(teaal: TeaalSpec, tensors: object, carry: object, until: object) -> None:
    """Raise SpecError with all faults of the arguments."""
    faults: list[Diagnostic] = []
    outputs = [e.name for e in teaal.expressions]
    wanted = by_name("carry", carry, _EXAMPLE) if isinstance(carry, Mapping) else {}
    if not wanted:
        what = "no input is carried from one generation to the next"
        faults.append(Diagnostic(what, f"write e.g. {_EXAMPLE}", "carry", code="missing-argument"))
    for name, source in wanted.items():
        if name not in teaal.inputs:
            remedy = close_to(name, teaal.inputs) or f"inputs: {', '.join(teaal.inputs)}"
            message = f"{name} is not an input of the cascade"
            faults.append(Diagnostic(message, remedy, f"carry.{name}", code="unknown-name"))
        if not callable(source) and source not in outputs:
            remedy = f"outputs: {', '.join(outputs)}"
            message = f"no Einsum makes {shown(source)}"
            faults.append(Diagnostic(message, remedy, f"carry.{name}", code="unknown-name"))
    number = isinstance(until, int) and not isinstance(until, bool) and until >= 1
    if not (number or until == FIXED_POINT or callable(until)):
        what = (
            f"{shown(until)} does not say when generations end"
            if until is not None
            else "nothing says when generations end"
        )
        remedy = f"give a number of generations, {FIXED_POINT}, or in Python a function of the outputs"
        faults.append(Diagnostic(what, remedy, "until", code="wrong-type"))
    if faults:
        raise SpecError(faults)
