"""Workloads in words: one line per Einsum."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polymodel.affine import Constraint
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

ENDS = 8  # Einsums shown of a longer workload at either end
NAMES = 4  # the same where only names are shown
# Names of `map` that are written between operands; all others are written as functions of them.
SIGNS = {
    "mul": "*", "multiply": "*", "times": "*", "*": "*", "add": "+", "plus": "+", "+": "+",
    "sub": "-", "subtract": "-", "minus": "-", "-": "-", "div": "/", "divide": "/", "/": "/",
}  # fmt: skip
_OPERATORS = ("=", *SIGNS.values())
_HARD = "\0"  # a space inside a tensor's brackets, where no line is broken


def einsum_text(e: Einsum) -> str:
    """`T1[m, n1] = T0[m, n0] * W0[n0, n1]`; ranks that differ from their index are named.

    Operands are joined as `operations: {map: ...}` says: `A[m] + B[m]`, `exp(A[m])`, `max(A[m], B[m])`.
    """
    return " ".join(einsum_words(e))


def einsum_words(e: Einsum) -> tuple[str, ...]:
    """The same in pieces between which a line may be broken; operators stand in front of their operand."""
    spaced = f"{', '.join(_access(a) for a in e.outputs)} = {_mapped(e)}"
    words: list[str] = []
    for word in spaced.split(" "):
        if words and words[-1] in _OPERATORS:
            words[-1] += f" {word}"
        else:
            words.append(word)
    return tuple(word.replace(_HARD, " ") for word in words)


def _access(a: TensorAccess) -> str:
    parts = [
        str(x) if str(x).upper() == rank else f"{rank}={x}"
        for rank, x in zip(a.ranks, a.projection, strict=True)
    ]
    return f"{a.tensor}[{', '.join(parts)}]".replace(" ", _HARD)


def _mapped(e: Einsum) -> str:
    """The operands, joined by the Einsum's `map`."""
    operands = [_access(a) for a in e.inputs]
    operation = dict(e.operations).get("map") or "mul"
    sign = SIGNS.get(operation)
    if sign is not None:
        return f" {sign} ".join(operands)
    if re.fullmatch(r"\w+", operation):
        return f"{operation}({', '.join(operands)})"
    numbered = {f"_{i}": text for i, text in enumerate(operands)}
    return re.sub(r"\b_\d+\b", lambda found: numbered.get(found[0], found[0]), operation)


def remarks(e: Einsum) -> tuple[str, ...]:
    """What a formula has no sign for: a copy, a reduction that is no sum, what is done to the result."""
    done = {k: v for k, v in e.operations if v and (k == "populate" or (k == "reduce" and v != "add"))}
    return (*(["copy"] if e.is_copy else []), *(f"{k}: {v}" for k, v in done.items()))


def with_remarks(e: Einsum) -> str:
    """The formula with its remarks, and how often it runs."""
    noted = f" ({'; '.join(remarks(e))})" if remarks(e) else ""
    return einsum_text(e) + noted + (f" x {e.n_instances}" if e.n_instances > 1 else "")


def sizes_text(e: Einsum) -> str:
    """`m 16, i -2..4`: the size of each rank variable, or its range where it does not start at 0."""
    ranges = zip(e.rank_variables, e.bounds, strict=True)
    return ", ".join(f"{v} {low}..{high}" if low else f"{v} {high + 1}" for v, (low, high) in ranges)


def names_text(cascade: Cascade) -> str:
    names = [e.name for e in cascade]
    if len(names) > 2 * NAMES:
        names[NAMES:-NAMES] = ["..."]
    return ", ".join(names)


def table_text(cascade: Cascade) -> str:
    """A heading, and a line for each Einsum: its name, projections and rank variables with their sizes."""
    many = len(cascade)
    between = [t for t in cascade.tensors if t in cascade.intermediates]
    told = between if len(between) <= 2 * NAMES else [*between[:NAMES], "...", *between[-NAMES:]]
    noted = f" (intermediates {', '.join(told)})" if told else ""
    head = f"Cascade {cascade.name}".rstrip()
    lines = [f"{head}: {many} Einsum{'s' if many != 1 else ''}, {len(cascade.tensors)} tensors{noted}"]
    few = many <= 2 * ENDS
    some = cascade.einsums if few else (*cascade.einsums[:ENDS], *cascade.einsums[-ENDS:])
    rows = [(e.name, with_remarks(e), sizes_text(e)) for e in some]
    names, formulas = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    lines += [f"  {n.ljust(names)}  {f.ljust(formulas)}  {sizes}".rstrip() for n, f, sizes in rows]
    if not few:
        lines.insert(1 + ENDS, f"  ... {many - len(some)} more; one of them: workload[name]")
    return "\n".join(lines)


def _of_box(c: Constraint, ranges: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the ranges of rank variables say as much as the constraint does."""
    ends = [sorted(k * x for x in ranges[v]) for v, k in c.expr.terms]
    low, high = (c.expr.constant + sum(end[i] for end in ends) for i in (0, 1))
    return (c.kind == "ge" and low >= 0) or (c.kind == "eq" and low == high == 0)


def cascade_text(cascade: Cascade) -> str:
    """One line per Einsum with the ranges of its rank variables, and constraints that cut into these."""
    lines = []
    wide = max((len(e.name) for e in cascade), default=0)
    for e in cascade:
        ranges = ", ".join(
            f"{low} <= {v} <= {high}" for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)
        )
        ranged = dict(zip(e.rank_variables, e.bounds, strict=True))
        cut = "".join(f", {c}" for c in e.constraints if not _of_box(c, ranged))
        lines.append(f"{e.name.ljust(wide)}  {with_remarks(e)}    {ranges}{cut}")
    known = {a.tensor: a.density for e in cascade for a in e.accesses if a.density is not None}
    if known:
        lines.append("densities: " + ", ".join(f"{name} {written}" for name, written in known.items()))
    return "\n".join(lines) + "\n"


def values_text(cascade: Cascade) -> str:
    """A line each for the bits of a value, tensors that stay, and scaled backing storage."""
    accesses = {a.tensor: a for e in cascade for a in e.accesses}
    widths = {t: f"{a.bits_per_value}" for t, a in accesses.items()}
    bits = _by_value(widths) if len(set(widths.values())) > 1 else "".join(set(widths.values()))
    scaled = {t: f"{float(a.backing_scale):g}" for t, a in accesses.items() if a.backing_scale != 1}
    staying = [t for t, a in accesses.items() if a.persistent]
    lines = [f"bits per value: {bits}"]
    lines += [f"persistent: {', '.join(staying)}"] if staying else []
    lines += [f"backing storage size scale: {_by_value(scaled)}"] if scaled else []
    return "".join(f"{line}\n" for line in lines)


def _by_value(values: Mapping[str, str]) -> str:
    """`8 of A, B; 16 of C`."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return "; ".join(f"{value} of {', '.join(names)}" for value, names in groups.items())
