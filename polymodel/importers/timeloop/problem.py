"""Read Timeloop's `problem:`: dimensions, data spaces with projections, sizes, densities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from polymodel.arithmetic import Affine
from polymodel.importers.timeloop.reading import (
    Fields,
    TimeloopReading,
    count_of,
    number_of,
    plain_key,
    tidy_name,
)
from polymodel.spec.expressions import KEYWORDS
from polymodel.spec.faults import TextFault, YamlEntry, YamlNode, close_to, suggestion
from polymodel.spec.numbers import Value, parse_affine

MOST = 256  # dimensions; a problem has about seven
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class DataSpace:
    """A data space, called `theirs` in the file: ranks with their index expressions, and its density in
    polymodel's form."""

    name: str
    theirs: str
    ranks: tuple[tuple[str, Affine], ...]
    output: bool
    density: object = None

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(v for _, expr in self.ranks for v in expr.variables)

    @property
    def alone(self) -> frozenset[str]:
        """Return the variables that index a rank by themselves."""
        return frozenset(expr.variables[0] for _, expr in self.ranks if len(expr.variables) == 1)


@dataclass(frozen=True)
class EinsumShape:
    """One Einsum. `dims`: Timeloop's dimension -> rank variable. `sizes`: by rank variable.

    `domain`: constraints as text, if the instance is a set in ISL's notation; then `sizes` is empty.
    """

    name: str
    dims: Mapping[str, str]
    sizes: Mapping[str, int]
    spaces: tuple[DataSpace, ...]
    domain: tuple[str, ...] = ()

    @property
    def tensors(self) -> dict[str, str]:
        """Return data space -> tensor name."""
        return {s.theirs: s.name for s in self.spaces}


def shapes_of(reading: TimeloopReading, node: YamlNode) -> tuple[EinsumShape, ...]:
    """Return the Einsums of `problem:`; several (a list) form a cascade, whose tensors' ranks are matched by
    position."""
    several = node.elements is not None
    entries = node.elements if node.elements is not None else (node,)
    if not entries:
        message = "there is no problem in the list"
        reading.fault(node, message, "give shape: and instance:", "problem", code="missing-section")
    result = []
    for i, entry in enumerate(entries):
        path = f"problem[{i}]" if several else "problem"
        one = _shape(reading, Fields(reading, entry, path), several)
        if one is not None:
            result.append(one)
    return tuple(result)


def _shape(reading: TimeloopReading, fields: Fields, several: bool) -> EinsumShape | None:
    fields.ignore("version")
    instance = fields.need("instance", example="instance: {M: 64, K: 64, N: 64}")
    node = fields.need("shape", example="shape: {name: MatMul, dimensions: [M, K, N], data_spaces: [...]}")
    if node is None or instance is None:
        return None
    if node.kind != "mapping":
        remedy = "write the shape itself: name, dimensions and data_spaces"
        message = "a shape by name is not looked up"
        reading.fault(node, message, remedy, "problem.shape", code="no-counterpart")
        return None
    shape = Fields(reading, node, fields.below("shape"))
    title = shape.take("name")
    name = tidy_name(reading, title, str(title.scalar)) if title and title.scalar is not None else "Problem"
    dims = _dimensions(reading, shape)
    if dims is None:
        return None
    known = _coefficients(shape)
    sizes: dict[str, int] = {}
    domain: tuple[str, ...] = ()
    densities: YamlNode | None = None
    if instance.kind == "scalar":
        domain = _domain(str(instance.scalar), dims)
    else:
        densities = _sizes(reading, Fields(reading, instance, fields.below("instance")), dims, known, sizes)
    densities = densities or fields.take("densities")
    spaces = _spaces(reading, shape, dims, known, several)
    _check_outputs(reading, node, spaces)
    spaces = _with_densities(reading, densities, spaces, sizes)
    return _used(reading, node, EinsumShape(name, dims, sizes, spaces, domain))


def _dimensions(reading: TimeloopReading, shape: Fields) -> dict[str, str] | None:
    if shape.need("dimensions", example="dimensions: [M, K, N]") is None:
        return None
    given = shape.words("dimensions") or ()
    if len(given) > MOST:
        what, remedy = f"{len(given):,} dimensions; at most {MOST} are read", "write the problem with fewer"
        reading.fault(given[0][1], what, remedy, shape.path, code="wrong-type")
        return None
    words = [w for w, _ in given]
    names: dict[str, str] = {}
    lower = {w.lower() for w in words}
    for word, node in given:
        if word in names:
            message = f"dimension {word} is there twice"
            reading.fault(node, message, "keep it once", shape.path, code="duplicate-name")
        # Polymodel's style has rank variables in lower case, ranks in capitals.
        names[word] = tidy_name(reading, node, word.lower() if len(lower) == len(words) else word)
    return names


def _coefficients(shape: Fields) -> dict[str, int]:
    result: dict[str, int] = {}
    for fields in shape.each("coefficients"):
        if fields.need("name", example="name: Stride") is None:
            continue
        result[fields.text("name")] = fields.count("default") or 1
    return result


def _sizes(
    reading: TimeloopReading,
    fields: Fields,
    dims: Mapping[str, str],
    known: dict[str, int],
    into: dict[str, int],
) -> YamlNode | None:
    """Fill in sizes and coefficients, and return `densities:`, which is in the same section."""
    fields.ignore("version")
    densities = fields.take("densities", "commondensities", "common_densities")
    given = {e.key for e in fields.node.entries or ()}
    complete, unsaid = given.issuperset(dims), [name for name in known if name not in given]
    for entry in fields.node.entries or ():
        if id(entry) in reading.seen:
            continue
        if entry.key not in dims and entry.key not in known:
            if complete and not close_to(entry.key, unsaid):
                reading.seen.add(id(entry))
                _idle(reading, fields, entry)
                continue
            place = YamlNode(entry.source, entry.line, entry.column)
            names = [*dims, *known]
            what = f"{entry.key} is neither a dimension nor a coefficient of the shape"
            reading.fault(
                place, what, suggestion(entry.key, names, "dimensions"), fields.path, code="unknown-name"
            )
            reading.seen.add(id(entry))
            continue
        number = count_of(reading, reading.take(entry), fields.scope, f"{fields.path}.{entry.key}")
        if entry.key in dims:
            into[dims[entry.key]] = number or 1
        else:
            known[entry.key] = number or 1
    for theirs, ours in dims.items():
        if ours not in into:
            what, remedy = f"dimension {theirs} has no size", f"add `{theirs}: 1`, or its size"
            reading.fault(fields.node, what, remedy, fields.path, code="unknown-name")
            into[ours] = 1
    return densities


def _idle(reading: TimeloopReading, fields: Fields, entry: YamlEntry) -> None:
    """Note a size that is not a dimension, such as the height of an input beside that of the output."""
    place = YamlNode(entry.source, entry.line, entry.column)
    what = f"{entry.key} is neither a dimension nor a coefficient of the shape, so no projection uses it"
    reading.note(place, what, "", fields.path)


def _domain(text: str, dims: Mapping[str, str]) -> tuple[str, ...]:
    """Return the constraints of an ISL set: all of `0 <= m < 4 and ...`, or what follows the colon in
    braces."""
    match = re.fullmatch(r"\s*\{[^:]*:(.*)\}\s*", text, re.DOTALL)
    body = _WORD.sub(lambda m: dims.get(m[0], m[0]), match[1] if match else text)
    return tuple(part.strip() for part in re.split(r"\band\b|&&", body))


def _spaces(
    reading: TimeloopReading, shape: Fields, dims: Mapping[str, str], known: Mapping[str, int], several: bool
) -> tuple[DataSpace, ...]:
    result: list[DataSpace] = []
    shape.need("data_spaces", example="data_spaces: [{name: A, projection: [[[M]], [[K]]]}, ...]")
    for fields in shape.each("data_spaces"):
        title = fields.need("name", example="name: A")
        projection = fields.need("projection", example="projection: [[[M]], [[K]]]")
        written = fields.take("read_write")
        if title is None or projection is None:
            continue
        theirs = str(title.scalar)
        name = _tensor(reading, title, theirs)
        if name in {s.name for s in result}:
            message = f"data space {theirs} is there twice"
            reading.fault(title, message, "give each another name", fields.path, code="duplicate-name")
            continue
        names = [w for w, _ in fields.words("dimensions", "ranks") or ()]
        exprs = _projection(reading, projection, dims, known, f"{fields.path}.projection")
        if names and len(names) != len(exprs):
            what = f"{len(names)} dimensions are named, the projection has {len(exprs)}"
            reading.fault(projection, what, "name each of them", fields.path, code="wrong-count")
        if not names:
            names = [f"{name}_{n}" for n in range(len(exprs))] if several else _rank_names(exprs)
        ranks = tuple(zip(names, exprs, strict=False))
        result.append(DataSpace(name, theirs, ranks, written is not None and written.scalar is True))
    return tuple(result)


def _tensor(reading: TimeloopReading, node: YamlNode, theirs: str) -> str:
    """Return the tensor name of a data space; words such as Inputs are reserved for set expressions."""
    if theirs not in (*KEYWORDS, "Other", "compute"):
        return tidy_name(reading, node, theirs)
    name = theirs.removesuffix("s") if theirs.endswith("s") else f"{theirs}_"
    reading.note(
        node, f"{theirs} is called {name} here", "set expressions keep the other name for sets of their own"
    )
    return name


def _rank_names(exprs: list[Affine]) -> list[str]:
    """Return rank names, derived from what indexes them: M for m, P_R for 2*p + r."""
    result: list[str] = []
    for expr in exprs:
        name = "_".join(v.upper() for v in expr.variables) or "ONE"
        result.append(name if name not in result else f"{name}_{len(result)}")
    return result


def _projection(
    reading: TimeloopReading, node: YamlNode, dims: Mapping[str, str], known: Mapping[str, int], path: str
) -> list[Affine]:
    if node.kind == "scalar":
        text = str(node.scalar or "").strip().removeprefix("[").removesuffix("]")
        return [_written(reading, node, t, dims, known, path) for t in text.split(",") if t.strip()]
    if node.elements is None:
        message = "a projection is a list of ranks"
        reading.fault(node, message, "write e.g. [[[M]], [[K]]]", path, code="wrong-type")
        return []
    return [_rank(reading, rank, dims, known, f"{path}[{i}]") for i, rank in enumerate(node.elements)]


def _rank(
    reading: TimeloopReading, node: YamlNode, dims: Mapping[str, str], known: Mapping[str, int], path: str
) -> Affine:
    """Return the expression of a rank: a sum of products `[[P, Stride], [R]]`, one product `[P, Stride]`, or
    text."""
    if node.kind == "scalar":
        return _written(reading, node, str(node.scalar), dims, known, path)
    terms = node.elements or ()
    if terms and all(t.kind == "scalar" for t in terms):
        return _product(reading, node, dims, known, path)
    total = Affine()
    for term in terms:
        if term.kind == "list":
            total = total + _product(reading, term, dims, known, path)
        else:
            total = total + _written(reading, term, str(term.scalar), dims, known, path)
    return total


def _product(
    reading: TimeloopReading, node: YamlNode, dims: Mapping[str, str], known: Mapping[str, int], path: str
) -> Affine:
    variable, factor = "", 1
    for part in node.elements or ():
        word = part.scalar
        if part.kind != "scalar":
            inner = ", ".join(str(n.scalar) for n in part.elements or ())
            what = f"a factor of a product is [{inner}], as where several indices share one of a group"
            remedy = "write a factor as a dimension or a coefficient"
            reading.fault(part, what, remedy, path, code="not-affine")
        elif isinstance(word, int) and not isinstance(word, bool):
            factor *= word
        elif isinstance(word, str) and word in known and (variable or word not in dims):
            factor *= known[word]
        elif isinstance(word, str) and word in dims and not variable:
            variable = dims[word]
        elif isinstance(word, str) and word in dims:
            remedy = "a product has one dimension and coefficients"
            reading.fault(part, f"{variable} times {word} is not affine", remedy, path, code="not-affine")
        else:
            names = [*dims, *known]
            what = f"{word} is neither a dimension nor a coefficient"
            reading.fault(part, what, suggestion(str(word), names, "dimensions"), path, code="unknown-name")
    return Affine.variable(variable).scaled(factor) if variable else Affine((), factor)


def _written(
    reading: TimeloopReading,
    node: YamlNode,
    text: str,
    dims: Mapping[str, str],
    known: Mapping[str, int],
    path: str,
) -> Affine:
    values: dict[str, Value | None] = {k: v for k, v in known.items() if k not in dims}
    try:
        expr = parse_affine(text, values)
    except TextFault as fault:
        reading.fault(node, fault.message, fault.remedy, path, fault.offset, code=fault.code)
        return Affine()
    total = Affine((), expr.constant)
    for name, factor in expr.terms:
        if name not in dims:
            what = f"{name} is neither a dimension nor a coefficient"
            reading.fault(
                node, what, suggestion(name, [*dims, *known], "dimensions"), path, code="unknown-name"
            )
            continue
        total = total + Affine.variable(dims[name]).scaled(factor)
    return total


def _check_outputs(reading: TimeloopReading, node: YamlNode, spaces: tuple[DataSpace, ...]) -> None:
    outputs = [s.name for s in spaces if s.output]
    if spaces and len(outputs) != 1:
        what = f"{len(outputs)} data spaces are written" if outputs else "no data space is written"
        remedy = "say `read_write: true` of the one that is computed"
        reading.fault(node, what, remedy, "problem.shape", code="invalid-einsum")


def _with_densities(
    reading: TimeloopReading, node: YamlNode | None, spaces: tuple[DataSpace, ...], sizes: Mapping[str, int]
) -> tuple[DataSpace, ...]:
    if node is None:
        return spaces
    fields = Fields(reading, node, "problem.densities")
    result = []
    for s in spaces:
        given = fields.take(plain_key(s.theirs))
        if given is None:
            result.append(s)
            continue
        shape = [(r, 1 + sum(c * (sizes.get(v, 1) - 1) for v, c in e.terms)) for r, e in s.ranks]
        density = density_of(reading, given, f"problem.densities.{s.theirs}", shape)
        result.append(replace(s, density=density))
    for entry in node.entries or ():
        if id(entry) not in reading.seen:
            place = YamlNode(entry.source, entry.line, entry.column)
            names = [s.theirs for s in spaces]
            reading.seen.add(id(entry))
            remedy = suggestion(entry.key, names, "data spaces")
            message = f"there is no data space {entry.key}"
            reading.fault(place, message, remedy, "problem.densities", code="unknown-name")
    return tuple(result)


def _used(reading: TimeloopReading, node: YamlNode, shape: EinsumShape) -> EinsumShape | None:
    """Check that every dimension indexes a data space; others cannot be expressed, and are dropped if their
    size is 1."""
    if not shape.spaces:
        return None
    used = {v for s in shape.spaces for v in s.variables}
    for theirs, ours in shape.dims.items():
        if ours in used or shape.domain:
            continue
        if shape.sizes[ours] > 1:
            what = f"dimension {theirs} indexes no data space, so it cannot be counted here"
            remedy = "give it size 1, or index a data space with it"
            reading.fault(node, what, remedy, "problem.shape", code="no-counterpart")
        else:
            reading.note(node, f"dimension {theirs} of size 1 indexes no data space; it is dropped")
    return shape


_LARGEST_GROUP = 1024


def density_of(
    reading: TimeloopReading, node: YamlNode, path: str, shape: Sequence[tuple[str, int]]
) -> object:
    """Return the value for `densities:` of a workload; None (left out, or a fault) if there is no
    counterpart.

    `shape`: (rank, size) of the data space, outermost first.
    """
    if node.kind == "scalar":
        return _share(reading, node, path)
    fields = Fields(reading, node, path)
    kind = fields.text("distribution").lower().replace("_", "-")
    share = fields.take("density")
    value = _share(reading, share, f"{path}.density") if share is not None else None
    if kind in ("", "uniform", "random", "hypergeometric") and value is not None:
        return value
    if kind == "fixed-structured" and value is not None:
        return _structured(reading, node, path, value, shape)
    if kind == "banded":
        width = fields.count("band_width", "band_half_width", "half_width")
        if width is not None and len(shape) >= 2:
            reading.note(node, f"a band of width {width} over the last two ranks is assumed", "", path)
            return {"banded": {"width": width, "ranks": [r for r, _ in shape[-2:]]}}
    if kind in ("", "uniform", "random", "hypergeometric", "fixed-structured") and share is None:
        reading.fault(node, "`density` is missing", "add e.g. `density: 0.5`", path, code="missing-key")
        return None
    remedy = "write `densities: {T: {actual: file.mtx}}` or another model (docs/sparse/density.md)"
    reading.whole(node)
    what = f"the distribution {kind or 'of this data space'} has no counterpart"
    reading.leave(node, what, remedy, path, key="densities", changes="sparse counts")
    return None


def _share(reading: TimeloopReading, node: YamlNode, path: str) -> int | float | None:
    value = number_of(reading, node, reading.variables, path)
    if value is not None and not 0 <= value <= 1:
        reading.fault(node, f"a density of {value}", "use a number from 0 to 1", path, code="out-of-range")
        return None
    return value


def _structured(
    reading: TimeloopReading, node: YamlNode, path: str, value: int | float, shape: Sequence[tuple[str, int]]
) -> object:
    """Return a fixed structure of n in every m along the last rank whose size m divides; otherwise a uniform
    density, with a note."""
    share = Fraction(value).limit_denominator(_LARGEST_GROUP)
    for rank, size in reversed(shape):
        if size % share.denominator == 0 and abs(float(share) - value) < 1e-9:
            n, m = share.numerator, share.denominator
            if n == m:
                return 1
            reading.note(node, f"the structure is not given: {n} of {m} along {rank} are assumed", "", path)
            return {"fixed_structured": {"n": n, "m": m, "rank": rank}}
    reading.note(node, f"no rank has groups of density {value}: uniform density is assumed", "", path)
    return value
