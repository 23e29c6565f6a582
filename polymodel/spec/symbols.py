"""Values of symbols: numbers, or expressions over other symbols."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.coerce import as_number, by_name, shown
from polymodel.spec.faults import Faults, TextFault, suggestion
from polymodel.spec.numbers import UnboundSymbol, Value, evaluate_number, symbols_in

MAX_CHAIN = 100  # symbols that stand between a symbol and the numbers that it is made of
# Fields that hold names, set expressions or remarks, never numbers.
_NAMES = ("name", "type", "keep", "may_keep", "may_reuse", "source", "renames", "file", "topology")


def words_of(value: object) -> set[str]:
    """Every name in the texts of plain data that may be a symbol; keys are rank and set names."""
    if isinstance(value, str):
        return set(re.findall(r"[A-Za-z_]\w*", value))
    if isinstance(value, Mapping):
        return {w for k, v in value.items() if k not in _NAMES for w in words_of(v)}
    return {w for v in value for w in words_of(v)} if isinstance(value, Iterable) else set()


def used_symbols(symbols: Mapping[str, Value | str | None], used: Iterable[str]) -> dict[str, Value | str]:
    """The symbols that are used, or that used ones are made of, without those that have no value yet."""
    every = {n: v for n, v in symbols.items() if v is not None}
    found = set(used)
    fresh = found
    while fresh:
        fresh = words_of([v for n, v in every.items() if n in fresh and isinstance(v, str)]) - found
        found |= fresh
    return {n: v for n, v in every.items() if n in found}


def symbol_values(
    declared: Mapping[str, Value | str | None], given: Mapping[str, Value], faults: Faults
) -> dict[str, Value | None]:
    """Every declared or given symbol with its value, None where it has none; cycles are faults."""
    written: dict[str, Value | str | None] = {**declared, **given}
    found: dict[str, Value | None] = {}

    def value(name: str, open_names: tuple[str, ...]) -> Value | None:
        if name in found or name not in written:
            return found.get(name)
        text = written[name]
        if name in open_names:
            cycle = " -> ".join((*open_names[open_names.index(name) :], name))
            faults.add(("symbols", name), f"symbols refer to each other: {cycle}", "break the cycle")
            return None
        if len(open_names) >= MAX_CHAIN:
            what = f"symbols refer to each other more than {MAX_CHAIN} deep: {open_names[0]} -> ... -> {name}"
            faults.add(("symbols", name), what, "write some of them out")
            return None
        if text is None:
            found[name] = None
            return None
        try:
            used = [other for other in symbols_in(text) if other in written]
            known = {other: value(other, (*open_names, name)) for other in used}
            found[name] = evaluate_number(text, known)
        except UnboundSymbol:
            found[name] = None
        except TextFault as fault:
            faults.text(("symbols", name), fault)
            found[name] = None
        return found[name]

    for name in written:
        value(name, ())
    return found


def symbol_faults(
    symbols: Mapping[str, object], known: Mapping[str, object], variables: Collection[str] = ()
) -> list[Diagnostic]:
    """What is wrong with values given to symbols: unknown names, and what is not a number.

    `variables`: those of the templates that were read, which are given otherwise.
    """
    found = []
    for name, value in symbols.items():
        if name in variables and name not in known:
            what = f"{name} is a template variable, not a symbol"
            remedy = f"give it as one: --var {name}=..., in Python load(..., {name}=...)"
            found.append(Diagnostic(what, remedy, f"symbols.{name}"))
        elif name not in known:
            near = suggestion(name, known, "symbols") if known else "the spec has no symbols"
            found.append(Diagnostic(f"unknown symbol {name}", near, f"symbols.{name}"))
        elif (number := as_number(value)) is None or number != number:
            what = f"symbol {name} = {shown(value)} is not a number"
            found.append(Diagnostic(what, f"give a number, e.g. {name}=16", f"symbols.{name}"))
    return found


def check_symbols(symbols: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raises SpecError with `symbol_faults`."""
    faults = symbol_faults(symbols, known)
    if faults:
        raise SpecError(faults)


def right_symbols(
    symbols: Mapping[str, object],
    known: Mapping[str, object],
    faults: Faults,
    variables: Collection[str] = (),
) -> dict[str, Value]:
    """Those that are numbers, made plain; the faults of all are noted."""
    faults.extend(symbol_faults(symbols, known, variables))
    numbers = {name: as_number(value) for name, value in symbols.items()}
    return {name: number for name, number in numbers.items() if number is not None and number == number}


def given_symbols(symbols: object) -> dict[str, object]:
    """The argument `symbols` of a call, its numbers plain. SpecError where it is no table by name."""
    return by_name("symbols", {} if symbols is None else symbols, 'symbols={"TM": 16}')
