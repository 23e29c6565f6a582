"""The `einsum` section: declared tensors, expressions, and (polymodel's extension) sizes of ranks and bits of
values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count as count_from
from itertools import islice

from polymodel.arithmetic import OPERATORS, Semiring
from polymodel.spec.faults import Path, shown, suggestion
from polymodel.spec.teaal.records import Expression, FactorProduct, IndexedTensor
from polymodel.spec.teaal.text import EXAMPLE, Located, ParsedExpression, parse_declared, parse_expression
from polymodel.spec.teaal.walk import NAME, TreeWalk

KEYS = ("declaration", "expressions", "operations", "rank_sizes", "bits_per_value", "init")
Declaration = Mapping[str, tuple[str, ...]]
Placed = list[tuple[Path, ParsedExpression]]
_DECLARED = "write e.g. declaration: {A: [K, M], B: [K, N], Z: [M, N]}"


@dataclass(frozen=True)
class EinsumSection:
    """`whole`: every expression could be read, so that no Einsum is missing.

    `overwritten`: tensors that several expressions write, with the names of the earlier versions.
    """

    declaration: Declaration
    expressions: tuple[Expression, ...]
    rank_sizes: Mapping[str, int | str]
    bits_per_value: Mapping[str, int | str]
    init: Mapping[str, float | str]
    whole: bool = True
    overwritten: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_einsums(data: object, walk: TreeWalk) -> EinsumSection:
    """Read and check the section; all faults are collected."""
    path: Path = ("einsum",)
    section = walk.mapping(data, path, "einsum: {declaration: ..., expressions: ...}")
    walk.keys(section, path, KEYS)
    declaration = _declaration(section.get("declaration"), (*path, "declaration"), walk)
    read, whole = _expressions(section.get("expressions"), declaration, walk)
    found, earlier = _versions(read, declaration)
    declaration |= {one: declaration[name] for name, ones in earlier.items() for one in ones}
    _check(found, declaration, walk)
    expressions = _with_operations(section.get("operations"), (*path, "operations"), found, earlier, walk)
    ranks = list(dict.fromkeys(r for found in declaration.values() for r in found))
    sizes = _numbers(section.get("rank_sizes"), (*path, "rank_sizes"), "rank", ranks, walk)
    bits = _numbers(
        section.get("bits_per_value"), (*path, "bits_per_value"), "tensor", [*declaration, "All"], walk
    )
    bits |= {one: bits[name] for name, ones in earlier.items() if name in bits for one in ones}
    init = _init(section.get("init"), (*path, "init"), declaration, walk)
    return EinsumSection(declaration, expressions, sizes, bits, init, whole, earlier)


def _declaration(data: object, path: Path, walk: TreeWalk) -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    if isinstance(data, list):
        result = declared_list(data, path, walk)
        if not data:
            walk.add(path, "no tensor is declared", _DECLARED, code="missing-key")
        return result
    for tensor, ranks in walk.mapping(data, path, "declaration: {A: [K, M]}").items():
        if not NAME.match(tensor):
            message = f"{tensor!r} is not a name of a tensor"
            remedy = "names are letters, digits and _"
            walk.add((*path, tensor), message, remedy, key=True, code="invalid-name")
            continue
        result[tensor] = walk.names(ranks, (*path, tensor), "rank", "A: [K, M]")
    if not result:
        walk.add(path, "no tensor is declared", _DECLARED, code="missing-key")
    return result


def declared_list(data: list[object], path: Path, walk: TreeWalk) -> dict[str, tuple[str, ...]]:
    """A list of `A[K, M]`, as older files have it."""
    result: dict[str, tuple[str, ...]] = {}
    for i, item in enumerate(data):
        parsed = walk.parsed(item, (*path, i), parse_declared, "A[K, M]")
        if parsed is None:
            continue
        tensor, ranks = parsed
        if tensor in result:
            message = f"tensor {tensor} is declared twice"
            walk.add((*path, i), message, "declare it once", code="duplicate-name")
            continue
        result[tensor] = walk.names(list(ranks), (*path, i), "rank", "A[K, M]")
    return result


def _numbers(data: object, path: Path, what: str, known: list[str], walk: TreeWalk) -> dict[str, int | str]:
    result: dict[str, int | str] = {}
    for name, value in walk.mapping(data, path, f"{path[-1]}: {{{known[0] if known else 'K'}: 64}}").items():
        if name not in known:
            walk.unknown((*path, name), what, name, known)
            continue
        size = walk.size(value, (*path, name))
        if size is not None:
            result[name] = size
    return result


def _init(data: object, path: Path, known: Declaration, walk: TreeWalk) -> dict[str, float | str]:
    """Tensor -> the value of generations before the first one: a number, or `identity` of its operator."""
    result: dict[str, float | str] = {}
    for name, value in walk.mapping(data, path, "init: {S: 0}").items():
        try:
            number = value if value == "identity" else float(value)  # type: ignore[arg-type]  # faulted below
        except (TypeError, ValueError):
            message = f"{value!r} is not a number"
            walk.add((*path, name), message, "give a number, or `identity`", code="wrong-type")
            continue
        if name not in known:
            walk.unknown((*path, name), "tensor", name, list(known))
            continue
        result[name] = number
    return result


def _expressions(data: object, declaration: Declaration, walk: TreeWalk) -> tuple[Placed, bool]:
    """The expressions that could be read, and whether these are all."""
    path: Path = ("einsum", "expressions")
    items = walk.items(data, path, "expressions: ['Z[m, n] = A[k, m] * B[k, n]']")
    if not items:
        walk.add(path, "there is no expression", EXAMPLE, code="missing-key")
    result: Placed = []
    variables = {r.lower() for ranks in declaration.values() for r in ranks}
    read = partial(parse_expression, variables=variables if declaration else None)
    for i, item in enumerate(items):
        at = (*path, i) if isinstance(data, (list, tuple)) else path
        text = _with_brackets(item, declaration) if isinstance(item, str) else item
        parsed = walk.parsed(text, at, read, "Z[m, n] = A[k, m] * B[k, n]")
        if parsed is not None:
            result.append((at, parsed))
    return result, 0 < len(items) == len(result)


def _with_operations(
    data: object, path: Path, found: Placed, earlier: Mapping[str, tuple[str, ...]], walk: TreeWalk
) -> tuple[Expression, ...]:
    """The expressions with the operators that their signs stand for."""
    einsums = [parsed.expression.name for _, parsed in found]
    semirings: dict[str, Semiring] = {}
    for name, value in walk.mapping(data, path, "operations: {Z: {map: add, reduce: min}}").items():
        if name not in einsums:
            walk.unknown((*path, name), "Einsum", name, einsums)
            continue
        given = walk.mapping(value, (*path, name), "{map: add, reduce: min}")
        walk.keys(given, (*path, name), ("map", "reduce"))
        words = {key: given[key] for key in ("map", "reduce") if key in given}
        for key, word in words.items():
            known = [n for n, one in OPERATORS.items() if one.arity == 2 and n == one.name]
            if key == "reduce":
                known = [n for n in known if OPERATORS[n].commutes]
            if not isinstance(word, str) or OPERATORS.get(word) not in [OPERATORS[n] for n in known]:
                message = f"{shown(word)} is not an operator of `{key}`"
                near = suggestion(str(word), known, "operators")
                walk.add((*path, name, key), message, near, code="unknown-choice")
                break
        else:
            semiring = Semiring(**{key: OPERATORS[str(word)].name for key, word in words.items()})
            semirings |= dict.fromkeys((name, *earlier.get(name, ())), semiring)
    result = tuple(
        replace(p.expression, semiring=semirings.get(p.expression.name, Semiring())) for _, p in found
    )
    _check_operations(result, path, walk)
    return result


def _check_operations(expressions: Sequence[Expression], path: Path, walk: TreeWalk) -> None:
    """Check that the values that sparse tensors leave out change no result, and are the same in all uses of a
    tensor."""
    seen: dict[str, Expression] = {}
    for e in expressions:
        semiring, at = e.semiring, (*path, e.name)
        if not semiring.ordinary and not e.operands:
            message = f"{e.name} reads no tensor that its operators could join"
            walk.add(at, message, "write its value in place", key=True, code="invalid-operator")
        products = [t for t in e.terms if isinstance(t, FactorProduct)]
        if any(len(t.factors) > 1 for t in products) and not semiring.leaves_out:
            none, word = f"{semiring.absent:g}", semiring.map
            message = (
                f"{word} of {none}, which {semiring.reduce} leaves out, and another operand is not {none}: "
                "what tensors leave out would count"
            )
            remedy = "use mul with add, add with min or max, max with min, or min with max"
            walk.add(at, message, remedy, key=True, code="invalid-operator")
        if any(t.negative for t in products) and not semiring.ordinary:
            message = f"a term of {e.name} is subtracted, and its sums are of {semiring.reduce}"
            walk.add(at, message, "write it with +", key=True, code="invalid-operator")
        for tensor in dict.fromkeys((e.name, *(o.tensor for o in e.operands))):
            other = seen.setdefault(tensor, e)
            if other.semiring.absent != semiring.absent:
                message = (
                    f"{tensor} holds {semiring.absent:g} in {e.name} where it has no entry, and "
                    f"{other.semiring.absent:g} in {other.name}"
                )
                remedy = f"give {e.name} and {other.name} tensors of their own, or one `reduce`"
                walk.add(at, message, remedy, key=True, code="inconsistent-values")
                break


def _versions(found: Placed, declaration: Declaration) -> tuple[Placed, dict[str, tuple[str, ...]]]:
    """Return expressions with distinct output tensors, and the names of those that are overwritten.

    If several have one output, the last keeps its name; the others write tensors Z_1, Z_2, ..., which the
    following expressions read.
    """
    times = Counter(parsed.expression.name for _, parsed in found)
    taken = {*declaration, *times, *(name for _, parsed in found for name, _ in parsed.scalars)}
    earlier: dict[str, tuple[str, ...]] = {}
    for name in (n for n, count in times.items() if count > 1 and n in declaration):
        free = (f"{name}_{i}" for i in count_from(1))
        earlier[name] = tuple(islice((n for n in free if n not in taken), times[name] - 1))
    now: dict[str, str] = {}
    renamed: Placed = []
    for at, parsed in found:
        made = parsed.expression.name
        left = earlier.get(made, ())
        name = left[len(left) - times[made] + 1] if times[made] > 1 and left else made
        times[made] -= 1
        renamed.append((at, parsed.renamed(name, now)))
        now[made] = name
    return renamed, earlier


def _check(found: Placed, declaration: Declaration, walk: TreeWalk) -> None:
    for at, parsed in found if declaration else ():
        for tensor in parsed.tensors:
            _check_tensor(tensor, parsed, at, declaration, walk)
        _check_scalars(parsed, at, declaration, walk)
    _check_order(found, declaration, walk)


def _with_brackets(text: str, declaration: Declaration) -> str:
    """Tensors without ranks may be written without brackets on the right-hand side, as in `A[] = b`."""
    output, sign, rest = text.partition("=")
    for name in (n for n, ranks in declaration.items() if not ranks):
        rest = re.sub(rf"(?<![\w\[]){re.escape(name)}\b(?!\s*[\[(])", f"{name}[]", rest)
    return f"{output}{sign}{rest}"


def _check_tensor(
    tensor: Located, parsed: ParsedExpression, path: Path, declaration: Declaration, walk: TreeWalk
) -> None:
    """The tensor is declared, has an index per rank, and each variable is the name of a rank."""
    name, indices = tensor.operand.tensor, tensor.operand.indices
    ranks = declaration.get(name)
    if ranks is None:
        near = suggestion(name, declaration, "declared tensors")
        walk.add(path, f"unknown tensor {name}", near, offset=tensor.offset, code="unknown-name")
        return
    if len(ranks) != len(indices):
        message = (
            f"{name} is declared with {len(ranks)} ranks [{', '.join(ranks)}] and indexed with {len(indices)}"
        )
        walk.add(path, message, "write one index for each rank", offset=tensor.offset, code="wrong-count")
        return
    plain = [i.variable.upper() if i.variable else "" for i in indices]
    if plain != list(ranks) and sorted(plain) == sorted(ranks):
        wanted = ", ".join(r.lower() for r in ranks)
        message = f"{name}[{', '.join(p.lower() for p in plain)}]: {name} is declared [{', '.join(ranks)}]"
        remedy = f"write {name}[{wanted}], or declare it in this order"
        walk.add(path, message, remedy, offset=tensor.offset, code="shape-mismatch")
    own = _own_ranks(parsed, declaration)
    for index, offset in zip(indices, tensor.indices, strict=True):
        for variable, _ in index.terms:
            if variable.upper() not in own:
                shown = f"unknown rank {variable.upper()} of rank variable {variable}"
                message = f"{shown}: no tensor of this Einsum has it"
                near = suggestion(variable, [r.lower() for r in own], "rank variables")
                walk.add(path, message, near, offset=offset, code="unknown-name")


def _own_ranks(parsed: ParsedExpression, declaration: Declaration) -> list[str]:
    """Ranks of the expression's rank variables: declared ones that their own variable indexes, and those of
    other tensors, of which the variable indexes a rank of another name by itself."""
    result: dict[str, None] = {}
    elsewhere: dict[str, None] = {}
    every = {rank for ranks in declaration.values() for rank in ranks}
    for tensor in parsed.tensors:
        for rank, index in zip(
            declaration.get(tensor.operand.tensor, ()), tensor.operand.indices, strict=False
        ):
            if index.variable is not None and index.variable.upper() == rank:
                result[rank] = None
            elif index.variable is not None and index.variable.upper() in every:
                elsewhere[index.variable.upper()] = None
    return list(result | elsewhere)


def _check_scalars(parsed: ParsedExpression, path: Path, declaration: Declaration, walk: TreeWalk) -> None:
    for name, offset in parsed.scalars:
        if name in declaration:
            ranks = ", ".join(r.lower() for r in declaration[name])
            message = f"{name} is a tensor and stands without indices"
            walk.add(path, message, f"write {name}[{ranks}]", offset=offset, code="wrong-type")
    if len(parsed.tensors) == 1 and parsed.expression.output.indices:
        walk.add(path, "there is no tensor on the right", EXAMPLE, code="invalid-einsum")


def _behind(read: IndexedTensor, made: IndexedTensor) -> bool:
    """True if the value read was written in an earlier iteration of a rank: at a smaller index."""
    pairs = list(zip(read.indices, made.indices, strict=False))
    return any(r.terms == m.terms and r.constant < m.constant for r, m in pairs)


def _check_order(found: Placed, declaration: Declaration, walk: TreeWalk) -> None:
    """Each output has one expression, and no expression reads what a later one writes."""
    made: dict[str, int] = {}
    outputs = [parsed.expression.name for _, parsed in found]
    for i, (path, parsed) in enumerate(found):
        name = parsed.expression.name
        if name in made:
            message = f"{name} is the output of two expressions, number {made[name] + 1} and {i + 1}"
            remedy = "give each its own output, or write the terms as one sum"
            walk.add(path, message, remedy, code="duplicate-producer")
        for tensor in parsed.tensors[1:]:
            used = tensor.operand.tensor
            maker = next((p for _, p in found if p.expression.name == used), None)
            if maker is not None and _behind(tensor.operand, maker.expression.output):
                continue
            if used == name:
                message = f"{name} is read by the expression that makes it"
                fault = f"give the result another name, or write it ahead: {name}[p + 1] from {name}[p]"
                walk.add(path, message, fault, offset=tensor.offset, code="cyclic-cascade")
            elif used in outputs[i + 1 :] and used not in made:
                later = outputs.index(used, i + 1) + 1
                message = f"{used} is read before expression number {later} makes it"
                walk.add(
                    path, message, "list that expression first", offset=tensor.offset, code="order-violated"
                )
        made.setdefault(name, i)
