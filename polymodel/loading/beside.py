"""Specs that are loaded side by side with the same values: each takes those that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polymodel.errors import SpecError
from polymodel.loading.reading import Source, load
from polymodel.loading.spec import Spec
from polymodel.spec.document import UNUSED, unused_variable
from polymodel.spec.faults import Faults
from polymodel.spec.numbers import Value
from polymodel.spec.symbols import symbol_faults


def load_beside(
    sides: Mapping[str, Sequence[Source]], variables: Mapping[str, object], symbols: Mapping[str, Value]
) -> tuple[list[Spec], list[str]]:
    """One spec per side, in order, and a note for each value that some sides alone take.

    `sides`: name -> sources. A template variable or symbol has to be known to one of them. Raises SpecError
    with the faults of all.
    """
    faults = Faults()
    specs: list[Spec] = []
    lacking: list[set[str]] = []
    for sources in sides.values():
        lacking.append(_unused(sources, variables))
        with faults.noting():
            specs.append(
                load(*sources, variables={n: v for n, v in variables.items() if n not in lacking[-1]})
            )
    if len(specs) == len(sides):  # else who knows what is not known
        templates = sorted({n for s in specs for n in s.template_variables})
        known = {n: None for spec in specs for n in spec.symbols}
        for name in (n for n in variables if all(n in unused for unused in lacking)):
            faults.note(unused_variable(name, known, templates))
        faults.extend(symbol_faults(symbols, known, templates))
    faults.raise_if_any()
    notes = [_note("--var", n, sides, [n not in unused for unused in lacking]) for n in variables]
    notes += [_note("--set", n, sides, [n in spec.symbols for spec in specs]) for n in symbols]
    bound = [s.bind(**{n: v for n, v in symbols.items() if n in s.symbols}) for s in specs]
    return bound, [n for n in notes if n]


def _unused(sources: Sequence[Source], variables: Mapping[str, object]) -> set[str]:
    """Template variables that these sources do not know."""
    try:
        load(*sources, variables=variables)
    except SpecError as error:
        codes = (d.code for d in error.diagnostics)
        return {code.removeprefix(UNUSED) for code in codes if code.startswith(UNUSED)}
    return set()


def _note(option: str, name: str, sides: Mapping[str, object], takes: Sequence[bool]) -> str:
    """Who takes a value, where not all do."""
    if all(takes):
        return ""
    takers = " and ".join(side for side, it in zip(sides, takes, strict=True) if it)
    return f"{option} {name} is for {takers} alone"
