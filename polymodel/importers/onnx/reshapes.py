"""Convert operations that move no data to views of the same elements. Those that cannot be views are
reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from polymodel.arithmetic import Affine
from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import DEFAULT, ONCE, weight
from polymodel.importers.onnx.sums import positive
from polymodel.importers.onnx.views import IndexView


def whole_numbers(b: Builder, name: str, what: str) -> list[int]:
    """Return the elements of a constant. Raises Unsupported if it is not a constant of whole numbers."""
    result = b.graph.constants.get(name)
    if result is None:
        raise Unsupported(
            f"its {what} ({name}) is not a constant that is in the file", f"export it with constant {what}"
        )
    return [int(v) for v in result.ravel()]


def source_of(b: Builder, node: OnnxNode) -> IndexView:
    name = node.input(0)
    return b.value(name, DEFAULT.get(len(b.shape(name)), ()))


def identity(b: Builder, node: OnnxNode) -> None:
    """Convert Identity, and Dropout at inference."""
    b.alias(node.outputs[0], source_of(b, node))


def transpose(b: Builder, node: OnnxNode) -> None:
    """Convert a permutation of ranks."""
    view = source_of(b, node)
    order = node.int_list("perm") or list(reversed(range(len(view.dims))))
    if sorted(order) != list(range(len(view.dims))):
        raise InvalidNode(
            f"perm {order} is not an order of {len(view.dims)} dimensions", "name each dimension once"
        )
    b.alias(node.outputs[0], b.slots.transposed(view, order))


def reshape(b: Builder, node: OnnxNode) -> None:
    """Convert Reshape, Flatten, Squeeze and Unsqueeze."""
    view = source_of(b, node)
    shape = list(view.shape)
    if node.op == "Flatten":
        axis = node.whole("axis", 1)
        if not -len(shape) <= axis <= len(shape):
            raise InvalidNode(f"axis {axis} is not in a tensor of {len(shape)} dimensions", "check axis")
        axis = axis + len(shape) if axis < 0 else axis
        shape = [prod(shape[:axis]), prod(shape[axis:])]
    elif node.op == "Reshape":
        shape = _target_shape(b, node, shape)
    else:
        axes = node.int_list("axes")
        if axes is None and node.input(1):
            axes = whole_numbers(b, node.input(1), "axes")
        if node.op == "Unsqueeze":
            new = positive(axes or [], len(shape) + len(axes or []))
            if len(new) != len(axes or []):
                raise InvalidNode(f"axes {axes} name a dimension twice", "name each once")
            for axis in new:
                shape.insert(axis, 1)
        else:
            gone = (
                positive(axes, len(shape)) if axes is not None else [k for k, s in enumerate(shape) if s == 1]
            )
            shape = [s for k, s in enumerate(shape) if k not in gone]
    if prod(shape) != prod(view.shape):
        raise InvalidNode(
            f"shape {list(view.shape)} cannot become {shape}", "check the shape that is asked for"
        )
    b.alias(node.outputs[0], reshaped(b, node, view, shape))


def _target_shape(b: Builder, node: OnnxNode, shape: Sequence[int]) -> list[int]:
    given = node.int_list("shape") if not node.input(1) else whole_numbers(b, node.input(1), "shape")
    result = list(given or [])
    if any(s < -1 for s in result) or result.count(-1) > 1:
        raise InvalidNode(
            f"its shape {result} is none: one size may be -1, the others are sizes", "check the shape"
        )
    for k, size in enumerate(result):
        if size == 0 and not node.whole("allowzero", 0):
            if k >= len(shape):
                raise InvalidNode(
                    f"dimension {k} of its shape is 0, which its input does not have", "write a size"
                )
            result[k] = shape[k]
    if -1 in result:
        rest = prod(s for s in result if s != -1)
        result[result.index(-1)] = prod(shape) // rest if rest else 0
    return result


def reshaped(b: Builder, node: OnnxNode, view: IndexView, shape: Sequence[int]) -> IndexView:
    """Return the view in another shape; dimensions that are split in two are named heads and width."""
    known = [s for s in view.shape if s > 1]
    wanted = [s for s in shape if s > 1]
    hints = [""] * len(shape)
    if len(wanted) == len(known) + 1:
        at = next((k for k in range(len(known)) if wanted[k] != known[k]), len(known))
        if at < len(known) and wanted[at] * wanted[at + 1] == known[at]:
            places = [k for k, s in enumerate(shape) if s > 1]
            hints[places[at]], hints[places[at + 1]] = "H", "E"
    return b.reshaped(node, view, shape, hints)


def filled(b: Builder, node: OnnxNode) -> None:
    """Convert ConstantOfShape: a tensor filled with one number is a weight."""
    out = node.outputs[0]
    shape = whole_numbers(b, node.input(0), "shape")
    known = b.graph.values.get(out)
    b.alias(out, weight(b, out, shape, known.dtype if known else "float"))


def expand(b: Builder, node: OnnxNode) -> None:
    """Convert broadcasting: the new dimension indexes nothing."""
    view = source_of(b, node)
    asked = whole_numbers(b, node.input(1), "shape")
    shape = (1,) * (len(asked) - len(view.shape)) + view.shape
    dims = ((),) * (len(asked) - len(view.shape)) + view.dims
    asked = [1] * (len(shape) - len(asked)) + asked
    sizes = [max(s, a) for s, a in zip(shape, asked, strict=True)]
    if any(1 != s != z or 1 != a != z for s, a, z in zip(shape, asked, sizes, strict=True)):
        raise InvalidNode(f"shape {list(view.shape)} cannot be expanded to {asked}", "")
    new = tuple(
        (b.slots.new(b.axes.new(z, "")),) if s != z else d for d, s, z in zip(dims, shape, sizes, strict=True)
    )
    b.alias(node.outputs[0], replace(view, dims=new, shape=tuple(sizes)))


def tile(b: Builder, node: OnnxNode) -> None:
    """Convert copies side by side: each dimension is one of copies, which indexes nothing, and its own."""
    view = source_of(b, node)
    times = whole_numbers(b, node.input(1), "repeats")
    if len(times) != len(view.shape) or min(times, default=1) < 1:
        raise InvalidNode(
            f"repeats {times} do not fit {len(view.shape)} dimensions", "give one per dimension"
        )
    pairs = [n for s in view.shape for n in (1, s)]
    apart = b.reshaped(node, view, pairs, ("",) * len(pairs))
    dims, sizes = list(apart.dims), list(apart.shape)
    for k, count in enumerate(times):
        if count > 1:
            dims[2 * k], sizes[2 * k] = (b.slots.new(b.axes.new(count, "")),), count
    spread = replace(apart, dims=tuple(dims), shape=tuple(sizes))
    b.alias(
        node.outputs[0],
        reshaped(b, node, spread, [t * s for t, s in zip(times, view.shape, strict=True)]),
    )


def cut(
    b: Builder, view: IndexView, dim: int, start: int, step: int, count: int, node: OnnxNode
) -> IndexView:
    """Return a part of one dimension, of a copy where its index is spread over several ranks."""
    if count < 1:
        raise InvalidNode(
            f"it takes nothing of a dimension of size {view.shape[dim]}", "check starts and ends"
        )
    return b.indexed(node, view, lambda v: b.slots.sliced(v, dim, start, step, count))


def slice_(b: Builder, node: OnnxNode) -> None:
    """Convert Slice, also with steps and backwards."""
    view = source_of(b, node)
    rank = len(view.shape)
    if node.version < 10:
        starts, ends = node.int_list("starts") or [], node.int_list("ends") or []
        axes, steps = node.int_list("axes") or list(range(len(starts))), [1] * len(starts)
    else:
        starts, ends = (whole_numbers(b, node.input(k), "starts and ends") for k in (1, 2))
        axes = whole_numbers(b, node.input(3), "axes") if node.input(3) else list(range(len(starts)))
        steps = whole_numbers(b, node.input(4), "steps") if node.input(4) else [1] * len(starts)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise InvalidNode("starts, ends, axes and steps are not equally many", "give one of each per axis")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -rank <= axis < rank or step == 0:
            raise InvalidNode(f"axis {axis} or step {step} is out of range", f"axes run from 0 to {rank - 1}")
        taken = range(
            *slice(start, end if step > 0 or end >= -view.shape[axis] else None, step).indices(
                view.shape[axis]
            )
        )
        view = cut(b, view, axis % rank, taken.start, step, len(taken), node)
    b.alias(node.outputs[0], view)


def split(b: Builder, node: OnnxNode) -> None:
    """Convert Split into equal or given parts of one dimension."""
    view = source_of(b, node)
    (axis,) = positive([node.whole("axis", 0)], len(view.shape))
    size, parts = view.shape[axis], len(node.outputs)
    sizes = node.int_list("split")
    if sizes is None and node.input(1):
        sizes = whole_numbers(b, node.input(1), "split")
    if sizes is None:
        each = -(-size // parts)
        sizes = [min(each, size - each * k) for k in range(parts)]
    if len(sizes) != parts or sum(sizes) != size:
        raise InvalidNode(f"parts {sizes} do not make up a dimension of size {size}", "check `split`")
    start = 0
    for out, count in zip(node.outputs, sizes, strict=True):
        if out:
            b.alias(out, cut(b, view, axis, start, 1, count, node))
        start += count


def gather(b: Builder, node: OnnxNode) -> None:
    """Convert Gather: constant indices that form a range are a slice; others depend on data."""
    found = b.graph.constants.get(node.input(1))
    shape = b.shape(node.input(0))
    (axis,) = positive([node.whole("axis", 0)], len(shape))
    if found is None:
        raise Unsupported("which rows it reads depends on the data")
    given = [int(v) for v in found.ravel()]
    if not given or any(not -shape[axis] <= v < shape[axis] for v in given):
        some = ", ".join(map(str, given[:8])) or "none"
        raise InvalidNode(
            f"its indices ({some}) do not lie in a dimension of size {shape[axis]}", "check the indices"
        )
    places = [v % shape[axis] for v in given]
    steps = {y - x for x, y in pairwise(places)}
    if found.ndim > 1 or len(steps) > 1:
        raise Unsupported("its indices are not a range")
    view = source_of(b, node)
    if found.ndim == 0:
        b.alias(node.outputs[0], b.slots.picked(view, axis, places[0]))
        return
    b.alias(node.outputs[0], cut(b, view, axis, places[0], steps.pop() if steps else 1, len(places), node))


def concat(b: Builder, node: OnnxNode) -> None:
    """Convert Concat: joined weights are a weight. A computed tensor has only one producer, so that other
    cases have no counterpart."""
    names = [n for n in node.inputs if n]
    if len(names) == 1:
        identity(b, node)
        return
    if not all(b.is_weight(n) for n in names):
        parts = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise Unsupported(
            f"a tensor has one producer, and {node.outputs[0]} would be made of {parts}",
            "what reads it is counted in full; where its parts and it are to be fused, write a product over "
            "the joined dimension as the sum of products over the parts",
        )
    shapes = [b.shape(n) for n in names]
    (axis,) = positive([node.whole("axis", 0)], len(shapes[0]))
    if any((*s[:axis], *s[axis + 1 :]) != (*shapes[0][:axis], *shapes[0][axis + 1 :]) for s in shapes):
        raise InvalidNode(f"its inputs differ in more than dimension {axis}", "check their shapes")
    shape = [*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]]
    out = node.outputs[0]
    b.alias(out, weight(b, out, shape, b.dtype(names[0])))
    b.note(node, ONCE)


def pad(b: Builder, node: OnnxNode) -> None:
    """Convert Pad with zeros, which the following products and sums leave out; they are never stored."""
    view = source_of(b, node)
    rank = len(view.shape)
    if node.text("mode", "constant") != "constant":
        raise Unsupported(f"mode {node.text('mode', '')} repeats elements")
    pads = node.int_list("pads") or node.int_list("paddings")
    pads = whole_numbers(b, node.input(1), "pads") if pads is None else pads
    value = b.scalar(node.input(2)) if node.input(2) else node.real("value", 0.0)
    if value != 0:
        raise Unsupported(f"it fills with {value}, not with 0")
    axes = whole_numbers(b, node.input(3), "axes") if node.input(3) else list(range(rank))
    if len(pads) != 2 * len(axes):
        raise InvalidNode(f"pads {pads} do not fit {len(axes)} axes", "give two numbers per axis")
    if b.options.padding == "stored" and any(p > 0 for p in pads) and min(pads) >= 0:
        ends = {positive([a], rank)[0]: (pads[k], pads[len(axes) + k]) for k, a in enumerate(axes)}
        around = [ends.get(k, (0, 0)) for k in range(rank)]
        shape = tuple(s + sum(e) for s, e in zip(view.shape, around, strict=True))
        heads = tuple(head for head, _ in around)
        hints = DEFAULT.get(rank, ())
        b.alias(node.outputs[0], b.with_padding(node, node.input(0), shape, heads, hints))
        return
    for k, given in enumerate(axes):
        before, after = pads[k], pads[len(axes) + k]
        (axis,) = positive([given], rank)
        if before or after:
            size = view.shape[axis] + before + after
            if size < 1:
                raise InvalidNode(f"pads {pads} leave nothing of dimension {axis}", "check pads")
            whole = b.slots.single(view, axis) or b.copied(node, view)
            old = b.axes.hint(b.slots.axis[whole.dims[axis][0]]) if whole.dims[axis] else ""
            slots = (b.slots.new(b.axes.new(size, old)),) if size > 1 else ()
            expr = Affine(tuple((s, 1) for s in slots), -before)
            view = b.slots.placed(whole, axis, expr, (slots,), (size,))
    b.alias(node.outputs[0], view)


def blocks(b: Builder, node: OnnxNode) -> None:
    """Convert DepthToSpace and SpaceToDepth: a reshape, a transpose, a reshape."""
    view, k = source_of(b, node), node.whole("blocksize", 0)
    if len(view.shape) != 4 or k < 1:
        raise InvalidNode(
            f"its input has shape {list(view.shape)} and blocksize {k}", "it takes four dimensions"
        )
    n, c, h, w = view.shape
    if node.op == "DepthToSpace":
        column = node.text("mode", "DCR") == "CRD"
        first = (n, c // k**2, k, k, h, w) if column else (n, k, k, c // k**2, h, w)
        order = (0, 1, 4, 2, 5, 3) if column else (0, 3, 4, 1, 5, 2)
        last = (n, c // k**2, h * k, w * k)
    else:
        first, order, last = (n, c, h // k, k, w // k, k), (0, 3, 5, 1, 2, 4), (n, c * k**2, h // k, w // k)
    if prod(first) != n * c * h * w:
        raise InvalidNode(f"blocksize {k} does not divide {list(view.shape)}", "check blocksize")
    fine = b.slots.transposed(reshaped(b, node, view, first), order)
    b.alias(node.outputs[0], reshaped(b, node, fine, last))


def resize(b: Builder, node: OnnxNode) -> None:
    """Convert nearest-neighbour resizing by whole factors: each element is read several times."""
    out = node.outputs[0]
    view = source_of(b, node)
    known = b.graph.values.get(out)
    if known is None or node.text("mode", "nearest") != "nearest":
        raise Unsupported(
            "only mode nearest with known sizes repeats elements", "its result is taken as an input"
        )
    where, near = (
        node.text("coordinate_transformation_mode", "half_pixel"),
        node.text("nearest_mode", "round_prefer_floor"),
    )
    old = node.op == "Upsample" or node.version < 11
    same = (
        old
        or (where == "asymmetric" and near == "floor")
        or (where == "half_pixel" and near.startswith("round"))
    )
    ratios = [divmod(z, s) for z, s in zip(known.shape, view.shape, strict=True)]
    if not same or any(rest or factor < 1 for factor, rest in ratios) or not _even(b, node, ratios):
        raise Unsupported(
            "its factors are not whole, or its neighbours are others", "its result is taken as an input"
        )
    dims = tuple(
        (*d, b.slots.new(b.axes.new(factor, "U"))) if factor > 1 else d
        for d, (factor, _) in zip(view.dims, ratios, strict=True)
    )
    b.alias(out, replace(view, dims=dims, shape=tuple(known.shape)))


def _even(b: Builder, node: OnnxNode, ratios: Sequence[tuple[int, int]]) -> bool:
    """Return whether given scales are the factors themselves: 2.1 also makes 8 elements of 4."""
    given = node.attributes.get("scales")
    if not isinstance(given, list):
        found = b.graph.constants.get(node.input(1 if node.op == "Upsample" or node.version < 11 else 2))
        given = None if found is None or not found.size else [float(v) for v in found.ravel()]
    return (
        given is None
        or len(given) != len(ratios)
        or all(g == f for g, (f, _) in zip(given, ratios, strict=True))
    )
