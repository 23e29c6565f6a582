"""Read a file or a ModelProto into a `Graph`: check it, set sizes, infer shapes, without reading weights."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.importers.onnx.folding import LARGEST, folded
from polymodel.importers.onnx.graph import (
    Array,
    Attribute,
    Graph,
    OnnxNode,
    Value,
    scope_of_name,
    scope_of_path,
)
from polymodel.spec.faults import suggestion
from polymodel.spec.files import reading

MAX_BYTES = 2**31 - 1  # protobuf's limit
MAX_NODES = 50_000
MAX_VISITS = 1_000_000  # of nodes, over all rounds of inference
MICROSOFT = "com.microsoft"
OF_RUNTIME = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "SkipLayerNormalization")
BODY = "polymodel.body"  # the domain to which operations with graphs of their own are moved


def library() -> Any:
    """Return the onnx package. Raises SpecError where it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError as error:
        message = f"reading ONNX needs the package onnx ({error})"
        remedy = "install it: pip install 'polymodel[onnx]'"
        raise SpecError([Diagnostic(message, remedy, code="missing-package")]) from error
    return onnx


def one(message: str, remedy: str, source: str, *, code: str) -> SpecError:
    return SpecError([Diagnostic(message, remedy, "", Place(source), code=code)])


def model_of(file: str | Path) -> Any:
    """Return the ModelProto of a file. No other file is opened, even if weights are stored separately. Raises
    SpecError for a file that does not exist, is too large, or is not an ONNX model."""
    onnx = library()
    path, source = Path(file), str(file)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise one("this is not a file", "name a .onnx file", source, code="unreadable-file")
        if found.st_size > MAX_BYTES:
            remedy = "save the model with its weights as external data: they are not needed here"
            message = f"the file has {found.st_size:,} bytes; a model has at most {MAX_BYTES:,}"
            raise one(message, remedy, source, code="too-large")
        reading(path)
        data = path.read_bytes()
    except OSError as error:
        message = f"cannot read the file: {error.strerror or error}"
        raise one(message, "name a .onnx file", source, code="unreadable-file") from error
    except ValueError as error:
        message = f"cannot read the file: {error}"
        raise one(message, "name a .onnx file", source, code="unreadable-file") from error
    return parsed(onnx, data, source)


def parsed(onnx: Any, data: bytes, source: str) -> Any:
    """Return the ModelProto encoded in bytes."""
    try:
        model = onnx.load_model_from_string(data)
    except ValueError as error:
        message = f"the file is not an ONNX model: {error}"
        raise one(message, "name a binary .onnx file", source, code="damaged-file") from error
    except decode_error() as error:
        remedy = "name a binary .onnx file that is whole; export or download it again"
        message = "the file is not an ONNX model, or it is damaged"
        raise one(message, remedy, source, code="damaged-file") from error
    if not model.HasField("graph"):
        message = "the file has no graph: it is not an ONNX model"
        raise one(message, "name a binary .onnx file", source, code="unknown-format")
    return model


def decode_error() -> type[Exception]:
    """Return the exception that protobuf, a dependency of onnx, raises for bytes that are not a message."""
    from importlib import import_module

    result: type[Exception] = import_module("google.protobuf.message").DecodeError
    return result


def graph_of(given: Any, sizes: Mapping[str, int], source: str) -> Graph:
    """Return the parts of a ModelProto that the conversion needs; the ModelProto is not changed. Raises
    SpecError."""
    onnx = library()
    try:
        return _read(onnx, given, sizes, source)
    except (ValueError, TypeError, RuntimeError, decode_error()) as error:
        # Damage that protobuf does not detect, such as invalid texts, can make onnx fail anywhere.
        message = f"the file is damaged, or beyond this onnx package: {' '.join(str(error).split())[:200]}"
        raise one(message, "export or download the model again", source, code="damaged-file") from error


def _read(onnx: Any, given: Any, sizes: Mapping[str, int], source: str) -> Graph:
    model, weights = _lean(onnx, given, source)
    branches = {n.output[0]: n for n in given.graph.node if n.op_type == "If" and n.output}
    called = fixed(model.graph, weights, sizes, source)
    _check(onnx, model, source)
    model, constants = _inferred(onnx, model, source, branches)
    values, unknown = _values(onnx, model.graph)
    values |= {n: replace(v, axes=called[n]) for n, v in values.items() if n in called}
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    made = {name for node in model.graph.node for name in node.output}
    texts = [model.graph.name, *values, *(d for v in values.values() for d in v.axes)]
    texts += [t for n in model.graph.node for t in (n.name, n.op_type, n.domain, *n.input, *n.output)]
    if any(not isinstance(t, str) for t in texts):
        raise ValueError("a name is not text")
    constant_nodes = {n.output[0] for n in model.graph.node if n.op_type == "Constant" and n.output}
    nodes = tuple(_node(onnx, n, opsets) for n in model.graph.node if n.op_type != "Constant")
    return Graph(
        model.graph.name,
        nodes,
        tuple(i.name for i in model.graph.input if i.name not in weights),
        tuple(o.name for o in model.graph.output),
        values,
        unknown,
        constants,
        frozenset(weights | constant_nodes | (set(constants) - made)),
    )


def _lean(onnx: Any, given: Any, source: str) -> tuple[Any, frozenset[str]]:
    """Return a copy without functions, long tensors (replaced by inputs) and bodies of control flow."""
    model = onnx.ModelProto()
    model.ir_version = given.ir_version
    model.opset_import.extend(given.opset_import)
    model.functions.extend(given.functions)
    graph = model.graph
    graph.name = given.graph.name or "graph"
    for field in ("node", "input", "output", "value_info"):
        getattr(graph, field).extend(getattr(given.graph, field))
    weights = set()
    inputs = {i.name for i in graph.input}
    for tensor in given.graph.initializer:
        weights.add(tensor.name)
        if prod(tensor.dims) > LARGEST or tensor.data_location == onnx.TensorProto.EXTERNAL:
            _as_input(onnx, graph, tensor, tensor.name, inputs)
        else:
            graph.initializer.append(tensor)
    for sparse in given.graph.sparse_initializer:
        weights.add(sparse.values.name)
        dense = onnx.TensorProto(data_type=sparse.values.data_type, dims=sparse.dims)
        _as_input(onnx, graph, dense, sparse.values.name, inputs)
    for holder in (graph, *model.functions):
        _without_bodies(onnx, holder)
        _of_runtime(onnx, holder, model)
    if model.functions:
        _check_functions(model, source)
        model = onnx.inliner.inline_local_functions(model)
        graph = model.graph
    if len(graph.node) > MAX_NODES:
        message = f"the graph has {len(graph.node):,} nodes; at most {MAX_NODES:,} are read"
        raise one(message, "import a part of the model", source, code="too-large")
    return _without_data(onnx, model, weights, inputs)


def _as_input(onnx: Any, graph: Any, tensor: Any, name: str, inputs: set[str]) -> None:
    if name not in inputs:
        inputs.add(name)
        graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))


def _without_bodies(onnx: Any, holder: Any) -> None:
    """Remove the graphs from the nodes of a graph or function, before functions are inlined."""
    graphs = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    found = [n for n in holder.node if any(a.type in graphs for a in n.attribute)]
    for node in found:
        rest = [a for a in node.attribute if a.type not in graphs]
        del node.attribute[:]
        node.attribute.extend(rest)
        node.domain = BODY
    if found and isinstance(holder, onnx.FunctionProto):
        holder.opset_import.append(onnx.helper.make_opsetid(BODY, 1))


def _of_runtime(onnx: Any, holder: Any, model: Any) -> None:
    """Set the domain of operators that ONNX Runtime's tools write as if they were ONNX's own."""
    found = [n for n in holder.node if n.op_type in OF_RUNTIME and not n.domain]
    for node in found:
        node.domain = MICROSOFT
    for imports in {id(h): h for h in (holder, model)}.values() if found else ():
        if imports is not model.graph and not any(o.domain == MICROSOFT for o in imports.opset_import):
            imports.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))


def _without_data(onnx: Any, model: Any, weights: set[str], inputs: set[str]) -> tuple[Any, frozenset[str]]:
    """Return the model with inputs in place of long constants."""
    kept = []
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None and _is_data(onnx, value):
            weights.add(node.output[0])
            _as_input(onnx, model.graph, value, node.output[0], inputs)
            continue
        kept.append(node)
    if any(n.domain == BODY for n in kept):
        model.opset_import.append(onnx.helper.make_opsetid(BODY, 1))
    copies = []
    for node in kept:
        copies.append(onnx.NodeProto())
        copies[-1].CopyFrom(node)
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model, frozenset(weights)


def _is_data(onnx: Any, tensor: Any) -> bool:
    return bool(prod(tensor.dims) > LARGEST or tensor.data_location == onnx.TensorProto.EXTERNAL)


def _called(proto: Any, name: str) -> tuple[str, str, str]:
    """Return the key that identifies a function, and the nodes that call it."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return domain, name, str(getattr(proto, "overload", ""))  # packages before 1.16 have no overloads


def _check_functions(model: Any, source: str) -> None:
    """Check that functions do not call themselves, and do not grow without bound when inlined."""
    bodies = {_called(f, f.name): [_called(n, n.op_type) for n in f.node] for f in model.functions}
    count: dict[tuple[str, str, str], int] = {}
    on_path: list[tuple[str, str, str]] = []
    todo = [(key, False) for key in bodies]
    while todo:
        key, done = todo.pop()
        if done:
            on_path.pop()
            count[key] = sum(count.get(k, 1) for k in bodies[key])
            continue
        if key in on_path:
            message = f"function {key[1]} calls itself"
            remedy = "export the model without recursive functions"
            raise one(message, remedy, source, code="cyclic-definition")
        if key in count:
            continue
        on_path.append(key)
        todo.append((key, True))
        todo += [(k, False) for k in bodies[key] if k in bodies]
    total = sum(count.get(_called(n, n.op_type), 1) for n in model.graph.node)
    if total > MAX_NODES:
        message = f"the model's functions stand for {total:,} nodes; at most {MAX_NODES:,} are read"
        raise one(message, "import a part of the model", source, code="too-large")


_WITHDRAWN = dict.fromkeys(("GroupNormalization", "Upsample"), "withdrawn")


def _check(onnx: Any, model: Any, source: str) -> None:
    # The checker requires shapes of all results; exporters leave them to inference.
    shaped = onnx.ModelProto.FromString(model.SerializeToString())
    del shaped.graph.output[:]
    shaped.graph.output.extend(o for o in model.graph.output if o.type.tensor_type.HasField("shape"))
    # Exporters still write these with operator sets that have withdrawn them, which the checker refuses; it
    # does not look at operators of other domains.
    for node in shaped.graph.node:
        node.domain = _WITHDRAWN.get(node.op_type, "") if not node.domain else node.domain
    if any(node.domain in _WITHDRAWN.values() for node in shaped.graph.node):
        shaped.opset_import.append(onnx.helper.make_opsetid("withdrawn", 1))
    try:
        onnx.checker.check_model(shaped)
    except onnx.checker.ValidationError as error:
        message = " ".join(str(error).split("\n\n")[0].split())
        remedy = "export the model again; a newer onnx package may know more operators"
        what = f"the model breaks ONNX's own rules: {message[:400]}"
        raise one(what, remedy, source, code="damaged-file") from error


def _inferred(
    onnx: Any, model: Any, source: str, branches: Mapping[str, Any]
) -> tuple[Any, dict[str, Array]]:
    """Return the model with all shapes that can be inferred, and every small constant, repeatedly until
    nothing new is found.

    `branches`: the `If` nodes with their graphs, by their first results. One whose condition is a constant is
    replaced by the graph that it chooses.
    """
    types = {number: dtype for number in range(1, 17) if (dtype := _numpy_name(onnx, number))}
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    # Every round reaches the shapes that depend on those of the previous round: about one layer.
    for _ in range(max(1, MAX_VISITS // max(1, len(model.graph.node)))):
        try:
            # Without data_prop, which keeps an object for each element of every list, of any length.
            model = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            message = f"shapes cannot be inferred: {error}"
            raise one(message, "export the model again", source, code="missing-value") from error
        values, _ = _values(onnx, model.graph)
        shapes = {name: value.shape for name, value in values.items()}
        before, taken = len(constants), False
        kept = []
        for node in model.graph.node:
            if node.output and node.output[0] in constants:
                continue
            found = folded(_node(onnx, node, opsets), constants, shapes, types)
            whole = branches.get(node.output[0]) if node.domain == BODY and node.output else None
            if whole is not None and (inner := _chosen(onnx, model, whole, constants)) is not None:
                kept += inner
                taken = True
            elif found is None:
                kept.append(node)
            else:
                constants[node.output[0]] = found
                model.graph.initializer.append(onnx.numpy_helper.from_array(found, node.output[0]))
        if len(kept) > MAX_NODES or (len(constants) == before and not taken):
            break
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    return model, constants


def _chosen(onnx: Any, model: Any, node: Any, constants: Mapping[str, Array]) -> list[Any] | None:
    """Return the nodes of the graph that an `If` chooses, with results named like those of the `If`. Return
    None where the condition is not constant, or the graph has long constants, functions or nested graphs."""
    condition = constants.get(node.input[0]) if node.input else None
    graphs = {a.name: a.g for a in node.attribute}
    if condition is None or condition.size != 1 or not {"then_branch", "else_branch"} <= graphs.keys():
        return None
    graph = graphs["then_branch" if condition.item() else "else_branch"]
    local = {f.domain for f in model.functions}
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))]
    nested = any(a.HasField("g") or a.graphs for n in graph.node for a in n.attribute)
    if nested or graph.sparse_initializer or any(_is_data(onnx, t) for t in tensors):
        return None
    if len(graph.output) != len(node.output) or any(n.domain in local for n in graph.node):
        return None
    made = {name for n in graph.node for name in n.output if name} | {t.name for t in graph.initializer}
    names = {name: f"{node.output[0]}/{name}" for name in made}
    ends = list(zip((o.name for o in graph.output), node.output, strict=True))
    computed = {name for n in graph.node for name in n.output}
    names |= {own: n for own, n in reversed(ends) if n and own in computed}
    result = [onnx.helper.make_node("Constant", [], [names[t.name]], value=t) for t in graph.initializer]
    for inner in graph.node:
        result.append(onnx.NodeProto.FromString(inner.SerializeToString()))
        for field in (result[-1].input, result[-1].output):
            field[:] = [names.get(name, name) for name in field]
    others = [(names.get(own, own), n) for own, n in ends if n]
    result += [onnx.helper.make_node("Identity", [own], [n]) for own, n in others if own != n]
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {o.domain.removeprefix("ai.onnx"): o.version for o in model.opset_import}
    try:
        for inner in result:
            onnx.checker.check_node(inner, context)
    except onnx.checker.ValidationError:
        return None
    return result


def _numpy_name(onnx: Any, number: int) -> str:
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number).name)
    except (KeyError, TypeError, ValueError):
        return ""


def _values(onnx: Any, graph: Any) -> tuple[dict[str, Value], dict[str, str]]:
    result: dict[str, Value] = {}
    unknown: dict[str, str] = {}
    for tensor in graph.initializer:
        dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        result[tensor.name] = Value(tuple(tensor.dims), dtype, ("",) * len(tensor.dims))
    for values in (graph.input, graph.value_info, graph.output):
        for value in values:
            if value.name in result:
                continue
            kind = value.type.tensor_type
            if not value.type.HasField("tensor_type"):
                unknown[value.name] = "it is not a dense tensor"
                continue
            if not kind.HasField("shape"):
                unknown[value.name] = "its shape is unknown"
                continue
            dims = kind.shape.dim
            bad = [k for k, d in enumerate(dims) if not d.HasField("dim_value")]
            if bad:
                called = f" ({dims[bad[0]].dim_param})" if dims[bad[0]].dim_param else ""
                unknown[value.name] = f"its dimension {bad[0]}{called} is unknown"
                continue
            dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
            shape = tuple(d.dim_value for d in dims)
            result[value.name] = Value(shape, dtype, tuple(d.dim_param for d in dims))
    return result, {n: why for n, why in unknown.items() if n not in result}


def _node(onnx: Any, node: Any, opsets: Mapping[str, int]) -> OnnxNode:
    domain = "" if node.domain == "ai.onnx" else node.domain
    attributes = {a.name: _attribute(onnx, a) for a in node.attribute}
    version = opsets.get(domain or "ai.onnx", 1)
    return OnnxNode(
        node.op_type,
        domain,
        node.name,
        tuple(node.input),
        tuple(node.output),
        attributes,
        version,
        _scope(node),
    )


# Paths of modules as a list in Python's spelling, outermost first; the last one is that of the node itself.
_SCOPES = "pkg.torch.onnx.name_scopes"


def _scope(node: Any) -> tuple[str, ...]:
    """Return the modules of a node: those that PyTorch's exporter notes, else those in its name."""
    for entry in getattr(node, "metadata_props", ()):  # packages before 1.16 have none
        if entry.key == _SCOPES:
            paths = re.findall(r"'([^']*)'", entry.value)
            return scope_of_path(paths[-2]) if len(paths) > 1 else ()
    return scope_of_name(node.name)


def _attribute(onnx: Any, a: Any) -> Attribute:
    kinds = onnx.AttributeProto
    if a.type == kinds.INT:
        return int(a.i)
    if a.type == kinds.FLOAT:
        return float(a.f)
    if a.type == kinds.STRING:
        return str(a.s.decode("utf-8", "replace"))
    if a.type == kinds.INTS:
        return [int(v) for v in a.ints]
    if a.type == kinds.FLOATS:
        return [float(v) for v in a.floats]
    if a.type == kinds.STRINGS:
        return [v.decode("utf-8", "replace") for v in a.strings]
    if a.type == kinds.TENSOR and not _is_data(onnx, a.t):
        result: Array = onnx.numpy_helper.to_array(a.t)
        return result
    return None


LARGEST_SIZE = 2**40


def fixed(
    graph: Any, weights: frozenset[str], sizes: Mapping[str, int], source: str
) -> dict[str, tuple[str, ...]]:
    """Write `sizes` into the inputs of an onnx GraphProto, and return the symbolic names that the inputs had.

    A key is the name of a symbolic dimension, or `input.k` for dimension k of an input. Raises SpecError for
    all dimensions without a size, and for sizes that match no dimension.
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
            remedy = "export the model with the shapes of its inputs"
            faults.append(Diagnostic(message, remedy, "", place, code="missing-value"))
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
                faults.append(Diagnostic(message, "give it one", "", place, code="inconsistent-values"))
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
            faults.append(Diagnostic(message, remedy, "", place, code="missing-value"))
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
    return name not in known or not whole or not 1 <= int(str(size)) <= LARGEST_SIZE


def _bad(name: str, size: object, known: Mapping[str, None], place: Place) -> Diagnostic:
    if name not in known:
        remedy = suggestion(name, known, "it has") if known else "all its sizes are fixed: leave it out"
        message = f"unknown size {name}: no input has such a dimension"
        return Diagnostic(message, remedy, "", place, code="unknown-name")
    message = f"size {name} = {size!r} is not a whole number of at least 1"
    return Diagnostic(message, "write e.g. 4", "", place, code="not-positive-integer")
