"""Convert products: MatMul, Gemm, convolutions and ONNX's own Einsum."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from string import ascii_letters

from polymodel.importers.onnx.build import Builder, Labels, Scatter
from polymodel.importers.onnx.graph import InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import pointwise
from polymodel.importers.onnx.views import IndexView

SPACE = (("H", "W"), ("P", "Q"), ("R", "S"))
LONGEST = 2**22  # positions times windows that are examined
CUBE = (("D", "H", "W"), ("O", "P", "Q"), ("T", "R", "S"))


def matmul(b: Builder, node: OnnxNode) -> None:
    """Convert MatMul by NumPy's rules: batch dimensions are broadcast, one-dimensional operands are
    vectors."""
    left, right = (
        (node.input(0), node.input(1)) if node.op != "QLinearMatMul" else (node.input(0), node.input(3))
    )
    product(b, node, left, right, node.outputs[0])


def product(b: Builder, node: OnnxNode, left: str, right: str, out: str) -> IndexView:
    rank = len(b.shape(left)), len(b.shape(right))
    if not all(rank):
        raise InvalidNode("an operand of it has no dimension", "use Mul for scalars")
    batch = max(0, max(rank) - 2)
    names = (*("B", *(f"B{k}" for k in range(1, batch)))[:batch],)
    first = b.value(left, (*names[batch - (rank[0] - 2) :], "M", "K") if rank[0] > 1 else ("K",))
    second = b.value(right, (*names[batch - max(0, rank[1] - 2) :], "K", "N") if rank[1] > 1 else ("K",))
    labels = [_batched(r, batch) for r in rank]
    one = [*labels[0], *(("m", "k") if rank[0] > 1 else ("k",))]
    two = [*labels[1], *(("k", "n") if rank[1] > 1 else ("k",))]
    same([(first, one), (second, two)], "k")
    shared = [f"b{k}" for k in range(batch)]
    rows = ["m"] if rank[0] > 1 else []
    columns = ["n"] if rank[1] > 1 else []
    return b.einsum(
        node,
        out,
        [*shared, *rows, *columns],
        [(first, one), (second, two)],
        reduce="add",
        zeros=True,
        dtype=_sums(node),
    )


def _sums(node: OnnxNode) -> str:
    """Return the type of sums that the operator names; empty if it is that of its operands."""
    if node.op in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        return "float"
    return "int32" if node.op.endswith("Integer") else ""


def same(operands: Sequence[tuple[IndexView, Labels]], *labels: Hashable) -> None:
    """Raise Wrong unless dimensions with the same label have one size; size 1 matches others in broadcasting
    only."""
    for label in labels:
        found = [v.shape[k] for v, names in operands for k, name in enumerate(names) if name == label]
        if len({*found}) > 1:
            sizes = " and ".join(map(str, found))
            raise InvalidNode(
                f"two dimensions that must be equal have sizes {sizes}", "check the shapes of its inputs"
            )


def _batched(rank: int, batch: int) -> list[Hashable]:
    own = max(0, rank - 2)
    return [f"b{k}" for k in range(batch - own, batch)]


def gemm(b: Builder, node: OnnxNode) -> None:
    """Convert alpha A B + beta C: the product, and the sum as a separate Einsum."""
    out, added = node.outputs[0], node.input(2)
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    flip_a, flip_b = node.whole("transA", 0), node.whole("transB", 0)
    views = (
        b.value(node.input(0), ("K", "M") if flip_a else ("M", "K")),
        b.value(node.input(1), ("N", "K") if flip_b else ("K", "N")),
    )
    if any(len(v.dims) != 2 for v in views):
        raise InvalidNode("its operands must be matrices", "use MatMul for other ranks")
    labels = ("k", "m") if flip_a else ("m", "k"), ("n", "k") if flip_b else ("k", "n")
    bias = bool(added) and beta != 0
    name = b.fresh(f"{out}_product") if bias else out
    scaled = (f"mul(_, {alpha:g})",) if alpha != 1 else ()
    operands = list(zip(views, labels, strict=True))
    same(operands, "k")
    made = views[0].shape[1 if flip_a else 0], views[1].shape[0 if flip_b else 1]
    third = b.shape(added) if bias else ()
    sizes = zip(reversed(third), reversed(made), strict=False)
    if len(third) > 2 or any(c not in (1, size) for c, size in sizes):
        raise InvalidNode(f"C {list(third)} does not fit the product {list(made)}", "check the shapes")
    b.einsum(node, name, ("m", "n"), operands, reduce="add", populate=scaled, zeros=True)
    if bias:
        if beta != 1:
            b.note(node, f"the bias is multiplied by beta = {beta:g}, which is not counted")
        pointwise(b, node, "add", [name, added], out, suffix="bias")


def conv(b: Builder, node: OnnxNode) -> None:
    """Convert convolutions of any rank with strides, dilations, padding and groups. Padded zeros are not
    multiplied."""
    q = node.op == "QLinearConv"
    data, weight = node.input(0), node.input(3 if q else 1)
    bias = node.input(8) if q else node.input(2) if node.op == "Conv" else ""
    shape, kernel = b.shape(data), b.shape(weight)
    dims = len(shape) - 2
    if dims < 1 or len(kernel) != len(shape):
        raise InvalidNode(
            f"input {list(shape)} and weight {list(kernel)} do not fit together", "check the shapes"
        )
    _check_weights(b, node, kernel, kernel[0], bias)
    hints = space(dims)
    found = windows(node, shape[2:], kernel[2:])
    x, (strides, dilations, pads, sizes) = reached(b, node, data, kernel[2:], found)
    w = b.value(weight, ("C", "C", *hints[2]))
    x, w = _grouped(b, node, x, w, node.whole("group", 1))
    for k in reversed(range(dims)):
        steps = strides[k], dilations[k], pads[k]
        x = windowed(b, node, x, 3 + k, steps, (sizes[k], kernel[2 + k]), (hints[1][k], hints[2][k]))
    place = [f"p{k}" for k in range(dims)]
    inside = [f"r{k}" for k in range(dims)]
    paired = [label for pair in zip(place, inside, strict=True) for label in pair]
    out = node.outputs[0]
    name = b.fresh(f"{out}_product") if bias else out
    operands = [(x, ("n", "g", "c", *paired)), (w, ("g", "m", "c", *inside))]
    same(operands, "c")
    b.einsum(node, name, ("n", ("g", "m"), *place), operands, reduce="add", zeros=True, dtype=_sums(node))
    if bias:
        pointwise(b, node, "add", [name, bias], out, suffix="bias", dims=[None, 1])


def _check_weights(b: Builder, node: OnnxNode, kernel: Sequence[int], filters: int, bias: str) -> None:
    """Check that a convolution's attributes agree with its weight and bias. Raises Wrong."""
    stated = node.int_list("kernel_shape")
    if stated is not None and stated != list(kernel[2:]):
        raise InvalidNode(
            f"kernel_shape {stated} is not that of its weight {list(kernel)}", "leave kernel_shape out"
        )
    if bias and b.shape(bias) != (filters,):
        raise InvalidNode(f"its bias {list(b.shape(bias))} is not one number for each of {filters} filters",
                    "check the shapes of its inputs")  # fmt: skip


def _grouped(
    b: Builder, node: OnnxNode, x: IndexView, w: IndexView, groups: int
) -> tuple[IndexView, IndexView]:
    """Return the channels of the input and the first dimension of the weight as group x rest."""
    channels, rows = x.shape[1], w.shape[0]
    if groups < 1 or channels % groups or rows % groups:
        raise InvalidNode(
            f"{channels} channels and {rows} filters do not make {groups} groups", "check `group`"
        )
    tail = ("",) * (len(x.shape) - 2)
    apart = (x.shape[0], groups, channels // groups, *x.shape[2:])
    one = b.reshaped(node, x, apart, ("", "G" if channels > groups else "C", "C", *tail))
    two = b.reshaped(node, w, (groups, rows // groups, *w.shape[1:]), ("G", "M", "", *tail))
    return one, two


def space(dims: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of ranks of the input, of the output, and of the kernel."""
    if dims > 3:
        first, second, third = (tuple(f"{letter}{k}" for k in range(dims)) for letter in "HPR")
        return first, second, third
    chosen = CUBE if dims == 3 else SPACE
    first, second, third = (names[:dims] for names in chosen)
    return first, second, third


def windowed(
    b: Builder, node: OnnxNode, view: IndexView, dim: int, steps: tuple[int, int, int],
    sizes: tuple[int, int], hints: tuple[str, str],
) -> IndexView:  # fmt: skip
    """Return a dimension as windows; a view that cannot be indexed this way is copied first."""
    return b.indexed(node, view, lambda v: b.slots.window(v, dim, steps, sizes, hints))


Windows = tuple[list[int], list[int], list[int], list[int]]


def reached(
    b: Builder, node: OnnxNode, name: str, kernel: Sequence[int], found: Windows
) -> tuple[IndexView, Windows]:
    """Return the view that windows iterate over, and the windows; where padding is stored, the view is a
    tensor as wide as they reach."""
    strides, dilations, pads, sizes = found
    shape = b.shape(name)
    hints = ("N", "C", *space(len(kernel))[0])
    reach = [(sizes[k] - 1) * strides[k] + dilations[k] * (kernel[k] - 1) + 1 for k in range(len(kernel))]
    padded = [bool(pads[k]) or reach[k] > shape[2 + k] for k in range(len(kernel))]
    if b.options.padding == "skipped" or not any(padded):
        return b.value(name, hints), found
    wide = [r if p else s for r, p, s in zip(reach, padded, shape[2:], strict=True)]
    view = b.with_padding(node, name, (*shape[:2], *wide), (0, 0, *pads), hints)
    return view, (strides, dilations, [0] * len(pads), sizes)


def windows(node: OnnxNode, shape: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Return strides, dilations, padding before, and the number of windows of each dimension."""
    dims = len(shape)
    strides, dilations, pads = _steps(node, dims)
    auto = node.text("auto_pad", "NOTSET")
    before: list[int] = []
    sizes: list[int] = []
    for k in range(dims):
        reach = dilations[k] * (kernel[k] - 1) + 1
        head, tail = (0, 0) if auto == "VALID" else (pads[k], pads[dims + k])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-shape[k] // strides[k])
            both = max(0, (count - 1) * strides[k] + reach - shape[k])
            head = both // 2 if auto == "SAME_UPPER" else both - both // 2
            tail = both - head
        room = shape[k] + head + tail - reach
        count = (-(-room // strides[k]) if node.whole("ceil_mode", 0) else room // strides[k]) + 1
        if node.whole("ceil_mode", 0) and (count - 1) * strides[k] >= shape[k] + head:
            count -= 1  # a window must not start in the padding at the end
        if count < 1:
            raise InvalidNode(
                f"a window of {reach} does not fit into {shape[k] + head + tail}", "check kernel and pads"
            )
        before.append(head)
        sizes.append(count)
    return strides, dilations, before, sizes


def _steps(node: OnnxNode, dims: int) -> tuple[list[int], list[int], list[int]]:
    """Return the given strides, dilations and padding. Raises Wrong where they are inconsistent."""
    strides = node.int_list("strides") or [1] * dims
    dilations = node.int_list("dilations") or [1] * dims
    pads = node.int_list("pads") or [0] * 2 * dims
    if (
        not len(strides) == len(dilations) == dims
        or len(pads) != 2 * dims
        or min(*strides, *dilations, 1) < 1
    ):
        raise InvalidNode(
            f"strides, dilations or pads do not fit {dims} dimensions", "give one per dimension, from 1 up"
        )
    return strides, dilations, pads


_TERM = re.compile(r"[A-Za-z]*\Z")


def einsum(b: Builder, node: OnnxNode) -> None:
    """Convert ONNX's Einsum, whose letters are rank variables."""
    text = node.text("equation", "").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not all(_TERM.match(t.replace("...", "", 1)) for t in (*terms, right)):
        raise Unsupported(f"its equation {text} has indices that are no letters", "write letters")
    if not arrow:
        once = sorted(c for c in {*left} - {",", "."} if left.count(c) == 1)
        right = "..." * ("..." in left) + "".join(once)
    if len(terms) != len(node.inputs):
        raise InvalidNode(f"its equation {text} has {len(terms)} operands, the node {len(node.inputs)}", "")
    views = [b.value(n, t.replace("...", "").upper() if "..." not in t else ())
             for n, t in zip(node.inputs, terms, strict=True)]  # fmt: skip
    if "..." in text:
        views, terms, right = _without_ellipsis(b, node, views, terms, right)
        left = ",".join(terms)
    strange = [c for c in right if c not in left or right.count(c) > 1]
    if strange:
        raise InvalidNode(
            f"index {strange[0]} of the result in {text} is not once there and in an operand", ""
        )
    operands: list[tuple[IndexView, str]] = []
    for term, name, view in zip(terms, node.inputs, views, strict=True):
        if len(view.dims) != len(term):
            raise InvalidNode(f"{term} in its equation stands for {name} of {len(view.dims)} dimensions", "")
        operands.append((view, term))
    reduced = {*left} - {*right, ","}
    b.einsum(node, node.outputs[0], right, operands, reduce="add" if reduced else "", zeros=True)


def _without_ellipsis(
    b: Builder, node: OnnxNode, views: Sequence[IndexView], terms: Sequence[str], right: str
) -> tuple[list[IndexView], list[str], str]:
    """Return the operands, their indices and those of the result with letters in place of `...`. The
    dimensions that it represents are aligned at the last one; dimensions of size 1 are broadcast."""
    unused = [c for c in ascii_letters if c not in "".join([*terms, right])]
    counts = [len(v.shape) - len(t) + 3 if "..." in t else 0 for v, t in zip(views, terms, strict=True)]
    most = max(counts)
    if min(counts) < 0 or most > len(unused):
        raise InvalidNode("its equation has more indices than an operand has dimensions", "check it")
    letters = "".join(unused[:most])
    found, written = [], []
    for view, term, count in zip(views, terms, counts, strict=True):
        at = term.find("...")
        own = range(at, at + count) if at >= 0 else range(0)
        kept = [d for d in own if view.shape[d] > 1]
        named = "".join(letters[most - count + d - at] for d in kept)
        shape = [s for d, s in enumerate(view.shape) if d not in own or d in kept]
        found.append(view if len(kept) == count else b.reshaped(node, view, shape, ("",) * len(shape)))
        written.append(term.replace("...", named))
    broadcast = [c for c in letters if any(c in t for t in written)]
    return found, written, right.replace("...", "".join(broadcast))


def conv_transpose(b: Builder, node: OnnxNode) -> None:
    """Add the product of each input element with each weight at stride x input + dilation x kernel -
    padding."""
    shape, kernel = b.shape(node.input(0)), b.shape(node.input(1))
    dims, groups = len(shape) - 2, node.whole("group", 1)
    if dims < 1 or len(kernel) != len(shape) or kernel[0] != shape[1]:
        raise InvalidNode(
            f"input {list(shape)} and weight {list(kernel)} do not fit together", "check the shapes"
        )
    strides, dilations, pads = _steps(node, dims)
    extra, sizes = node.int_list("output_padding") or [0] * dims, node.int_list("output_shape")
    if len(extra) != dims or len(sizes or extra) not in (dims, dims + 2):
        raise InvalidNode(
            f"output_padding or output_shape do not fit {dims} dimensions", "give one per dimension"
        )
    _check_weights(b, node, kernel, kernel[1] * groups, node.input(2))
    reach = [dilations[k] * (kernel[2 + k] - 1) + 1 for k in range(dims)]
    full = [strides[k] * (shape[2 + k] - 1) + reach[k] + extra[k] for k in range(dims)]
    auto = node.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER") and sizes is None:
        sizes = [shape[2 + k] * strides[k] for k in range(dims)]
    if sizes is not None:
        sizes = sizes[-dims:]
        both = [max(0, full[k] - sizes[k]) for k in range(dims)]
        heads = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in both]
    else:
        heads, sizes = pads[:dims], [full[k] - pads[k] - pads[dims + k] for k in range(dims)]
    hints = space(dims)
    x = b.value(node.input(0), ("N", "C", *hints[0]))
    w = b.value(node.input(1), ("C", "M", *hints[2]))
    x, w = _grouped(b, node, x, w, groups)
    out, bias = node.outputs[0], node.input(2)
    name = b.fresh(f"{out}_product") if bias else out
    place, inside = [f"p{k}" for k in range(dims)], [f"r{k}" for k in range(dims)]
    scatter: dict[Hashable, Scatter] = {
        f"o{k}": Scatter(
            sizes[k], hints[1][k], ((place[k], strides[k]), (inside[k], dilations[k])), -heads[k]
        )
        for k in range(dims)
    }
    if min(sizes) < 1:
        raise InvalidNode("its padding leaves nothing of the output", "check pads")
    for k in range(dims):
        hole = _hole(sizes[k], shape[2 + k], kernel[2 + k], (strides[k], dilations[k], heads[k]))
        if hole is not None:
            raise Unsupported(f"nothing is added to index {hole} of dimension {2 + k}, which no Einsum makes")
    operands = [(x, ("n", "g", "c", *place)), (w, ("g", "c", "m", *inside))]
    b.einsum(node, name, ("n", ("g", "m"), *scatter), operands, reduce="add", zeros=True, scatter=scatter)
    if bias:
        pointwise(b, node, "add", [name, bias], out, suffix="bias", dims=[None, 1])


def _hole(size: int, data: int, kernel: int, steps: tuple[int, int, int]) -> int | None:
    """Return the first of `size` indices that is not stride x p + dilation x r - padding; None if there is
    none."""
    stride, dilation, before = steps
    # Far from both ends the pattern repeats after `stride` indices.
    edge = stride + dilation * kernel + 1
    if min(size, 4 * edge) * kernel > LONGEST:
        raise Unsupported("its windows are too large to see whether all of the result is made")
    places = range(size) if size <= 4 * edge else (*range(2 * edge), *range(size - 2 * edge, size))
    for o in places:
        made = (o + before - dilation * r for r in range(kernel))
        if not any(at % stride == 0 and 0 <= at < stride * data for at in made):
            return o
    return None
