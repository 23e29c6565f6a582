"""Specs on data: the values that a workload computes, and the execution and traffic of TeAAL specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.document import coerce_symbols
from polymodel.spec.faults import Faults, as_number, by_name, not_a_spec, shown
from polymodel.spec.teaal.records import TeaalSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polymodel.loading import Spec
    from polymodel.sparse.execute.generations import Carried
    from polymodel.sparse.execute.generations import Until as Generations
    from polymodel.sparse.execute.records import Execution
    from polymodel.sparse.tensor import SparseTensor
    from polymodel.sparse.traffic.records import CascadeTraffic
    from polymodel.workload.values import Until, Values


def execute(
    spec: Spec | TeaalSpec,
    tensors: Mapping[str, SparseTensor | NDArray[Any]],
    *,
    rank_sizes: Mapping[str, int] | None = None,
    symbols: Mapping[str, float] | None = None,
    slices: Literal["own", "kept"] = "own",
    values: bool = True,
    keep_loops: bool = False,
    partitioners: Mapping[str, Callable[[Any, int], Any]] | None = None,
    carry: Mapping[str, Carried] | None = None,
    until: Generations | None = None,
) -> Execution:
    """Run the cascade of a TeAAL spec on data: results, effectual work, coordinate accesses, three times.

    `tensors`: every input by name. See `polymodel.sparse.execute.run.run` for the options; a loaded spec
    brings its own symbols. `carry`: run it generation after generation, with inputs that hold results of the
    previous generation: `{"D": "F"}`, or a function from all results to the input. `until`: how many
    generations, `fixed_point` (none of these inputs changes any more), or a function of the results that says
    whether a generation is the last one. The result is that of the last generation, with those before it as
    `earlier`. Raises SpecError for a spec that is not TeAAL's and for tensors that do not fit.
    """
    from polymodel.sparse.execute.generations import execute_generations
    from polymodel.sparse.execute.run import run

    teaal, symbols = _teaal(spec, "execute", symbols)
    sizes = by_name("rank_sizes", rank_sizes or {}, '{"J": 64}')
    once = partial(
        run,
        teaal,
        rank_sizes=sizes,  # type: ignore[arg-type]  # run refuses what is not a size
        symbols=symbols,
        slices=slices,
        values=values,
        keep_loops=keep_loops,
        partitioners=partitioners,
    )
    again = carry is not None or until is not None
    result = execute_generations(once, teaal, tensors, carry or {}, until) if again else once(tensors)
    return replace(result, sources=_files(spec))


def traffic(
    spec: Spec | TeaalSpec,
    tensors: Mapping[str, SparseTensor | NDArray[Any]],
    *,
    symbols: Mapping[str, float] | None = None,
    replacement: Literal["lru", "optimal"] | None = None,
    carry: Mapping[str, Carried] | None = None,
    until: Generations | None = None,
) -> CascadeTraffic:
    """What a TeAAL spec with format, architecture and bindings moves on data, in bits, and how long it takes.

    `tensors`: every input by name. See `polymodel.sparse.traffic.model.traffic`; a loaded spec brings its own
    symbols. `carry` and `until`: of a cascade that runs generation after generation, as in `execute`; the
    result is their sum, with each by itself as `generations`. Raises SpecError for a spec that is not TeAAL's
    and for tensors that do not fit, Refused, by name, for what is not covered.
    """
    from polymodel.sparse.coerce import coerce_tensor
    from polymodel.sparse.execute.generations import generations
    from polymodel.sparse.execute.run import run
    from polymodel.sparse.traffic.model import traffic as moved
    from polymodel.sparse.traffic.records import summed

    teaal, symbols = _teaal(spec, "traffic", symbols)
    whole = {name: int(v) for name, v in (symbols or {}).items() if float(v).is_integer()}
    by_name("tensors", tensors, '{"A": pm.read_tensor("a.mtx"), "B": ...}')
    known, faults = {}, Faults()
    for name, given in tensors.items():
        with faults.noting():
            known[name] = coerce_tensor(name, _ranks(teaal, name), given, teaal.absent(name))
    faults.raise_if_any()
    count = partial(moved, teaal, symbols=whole, replacement=replacement)
    if carry is None and until is None:
        return replace(count(known), sources=_files(spec))
    every = generations(partial(run, teaal, symbols=symbols), teaal, known, carry or {}, until)
    return replace(summed([count(one.tensors) for one in every]), sources=_files(spec))


def values(
    spec: Spec,
    tensors: Mapping[str, SparseTensor | NDArray[Any]],
    *,
    until: Until | Literal["fixed_point"] | None = None,
) -> Values:
    """What a workload computes on data, whatever its mapping: every tensor as a NumPy array.

    `tensors`: the workload's inputs, and what `+=` adds to; sparse tensors take time for what they hold where
    an absent operand decides an operation (`default` of the workload says what absent points hold).
    Recurrences are computed generation by generation. `until` ends that early: `fixed_point` where the newest
    generations equal those before, or a function of these (tensor -> array) that says so. The result has
    arrays by name (`found["Z"]`) and the number of `generations`. Raises SpecError for tensors that do not
    fit, Refused for operators that are only counted.
    """
    from polymodel.loading import Spec as Loaded
    from polymodel.sparse.actions.zeros import stopped_by
    from polymodel.workload.values import FIXED_POINT
    from polymodel.workload.values import values as computed

    if not isinstance(spec, Loaded):
        raise not_a_spec("values", spec)
    by_name("tensors", tensors, '{"A": array}')
    if until is not None and until != FIXED_POINT and not callable(until):
        remedy = f"until={FIXED_POINT!r}, or a function of the newest generations"
        message = f"until={shown(until)} says nothing"
        raise SpecError([Diagnostic(message, remedy, "until", code="wrong-type")])
    return computed(spec.workload, tensors, until, stopped_by)


def _files(spec: object) -> tuple[str, ...]:
    """The files that a spec was read from, if it was loaded."""
    from polymodel.loading.spec import Spec as Loaded
    from polymodel.loading.spec import files_of

    return files_of(spec) if isinstance(spec, Loaded) else ()


def _ranks(teaal: TeaalSpec, tensor: str) -> tuple[str, ...]:
    if tensor not in teaal.declaration:
        known = ", ".join(teaal.inputs)
        message = f"the spec declares no tensor {tensor}"
        raise SpecError([Diagnostic(message, f"inputs: {known}", code="unknown-name")])
    return teaal.declaration[tensor]


def _teaal(
    spec: object, asked: str, symbols: Mapping[str, float] | None
) -> tuple[TeaalSpec, Mapping[str, float] | None]:
    """The TeAAL spec, and the values of its symbols including the given ones."""
    from polymodel.loading import Spec as Loaded

    numbers: dict[str, Any] = coerce_symbols(symbols)
    wrong = [n for n, v in numbers.items() if as_number(v) is None]
    faults = [
        Diagnostic(f"{shown(numbers[n])} is not a number", "give one", f"symbols.{n}", code="not-a-number")
        for n in wrong
    ]
    if faults:
        raise SpecError(faults)
    if isinstance(spec, TeaalSpec):
        return spec, numbers
    if not isinstance(spec, Loaded):
        raise not_a_spec(asked, spec)
    if spec.teaal is None:
        what = f"{asked} runs a TeAAL spec on data, and this spec is not one"
        remedy = (
            "load a file with `einsum:` and `mapping:`, or ask for values alone: pm.values(spec, tensors)"
        )
        raise SpecError([Diagnostic(what, remedy, code="missing-section")])
    return spec.teaal, {**{k: v for k, v in spec.symbols.items() if v is not None}, **numbers}
