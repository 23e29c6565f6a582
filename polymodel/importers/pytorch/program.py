"""Represent a program of `torch.export` by plain records, read from its attributes without importing
torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.importers.onnx.graph import Value, scope_of_path
from polymodel.spec.faults import not_a

# Names of element types in torch -> names in ONNX.
TYPES = {
    "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16", "int32": "int32",
    "uint32": "uint32", "int64": "int64", "uint64": "uint64", "complex64": "complex64",
    "complex128": "complex128", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz",
}  # fmt: skip
SOURCE = "the program"
MAX_CALLS = 100_000
_EXPORT = "pass torch.export.export(model, inputs), which this is not"


@dataclass(frozen=True)
class Ref:
    """An argument that is the value with this name."""

    name: str


Argument = Ref | int | float | bool | str | None | tuple["Argument", ...]


@dataclass(frozen=True)
class AtenCall:
    """One operation: `aten.conv2d` with its arguments. `results`: names of its values, empty where a value is
    not read."""

    name: str
    target: str
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    results: tuple[str, ...]
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class TorchProgram:
    """`values`: shape and type of every value that is a tensor of known size. `weights`: parameters and
    buffers, whose elements are never read. `unknown`: why other values have no shape."""

    inputs: tuple[str, ...]
    weights: frozenset[str]
    calls: tuple[AtenCall, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    unknown: Mapping[str, str]


def program_of(given: object) -> TorchProgram:
    """Return the records of an exported program. Raises SpecError for anything else, and for symbolic
    sizes."""
    module, signature = getattr(given, "graph_module", None), getattr(given, "graph_signature", None)
    nodes = getattr(getattr(module, "graph", None), "nodes", None)
    if nodes is None or signature is None:
        raise not_a("program of torch.export", "import_torch", given, _EXPORT)
    listed = list(nodes)
    if len(listed) > MAX_CALLS:
        message = f"the program has {len(listed):,} nodes; at most {MAX_CALLS:,} are read"
        raise SpecError([Diagnostic(message, "import a part of it", "", Place(SOURCE), code="too-large")])
    return _ProgramReader(listed, signature).read()


class _ProgramReader:
    def __init__(self, nodes: list[Any], signature: Any) -> None:
        self.nodes = nodes
        self.values: dict[str, Value] = {}
        self.unknown: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        for spec in getattr(signature, "input_specs", ()):
            name = str(getattr(getattr(spec, "arg", None), "name", ""))
            kind = str(getattr(getattr(spec, "kind", None), "name", ""))
            self.kinds[name] = kind
            if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR") and getattr(spec, "target", None):
                self.names[name] = str(spec.target)

    def read(self) -> TorchProgram:
        picked = self._picked()
        inputs: list[str] = []
        weights: set[str] = set()
        calls: list[AtenCall] = []
        outputs: list[str] = []
        for node in self.nodes:
            name, kind = self.name(node.name), node.op
            if kind in ("placeholder", "get_attr"):
                self._note_values(node, (name,))
                user = kind == "placeholder" and self.kinds.get(node.name, "USER_INPUT") == "USER_INPUT"
                (inputs.append if user else weights.add)(name)
            elif kind == "call_function":
                taken = self._taken(node, picked)
                if taken:
                    self.names[node.name] = taken
                    continue
                results = picked.get(node.name, (name,))
                self._note_values(node, results)
                arguments = self._arguments(node)
                calls.append(AtenCall(name, _target(node), *arguments, results, _scope(node)))
            elif kind == "output":
                outputs += [r.name for r in _refs(self.argument(node.args))]
        self._refuse_symbols(inputs)
        return TorchProgram(
            tuple(inputs), frozenset(weights), tuple(calls), tuple(outputs), self.values, self.unknown
        )

    def name(self, name: str) -> str:
        """Return the name of a value: weights as in the module, others as in the program."""
        return self.names.get(name, name)

    def _picked(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the results of each node with several results, which are those of the first
        nodes that extract them."""
        result: dict[str, dict[int, str]] = {}
        for node in self.nodes:
            if _is_item(node) and hasattr(node.args[0], "name"):
                result.setdefault(node.args[0].name, {}).setdefault(int(node.args[1]), node.name)
        several = {n.name: n for n in self.nodes if isinstance(_value(n), (tuple, list))}
        return {
            name: tuple(result.get(name, {}).get(k, "") for k in range(len(_value(node))))
            for name, node in several.items()
        }

    def _taken(self, node: Any, picked: Mapping[str, tuple[str, ...]]) -> str:
        """Return the result that a node extracts from several; empty for other nodes."""
        results = picked.get(getattr(node.args[0], "name", ""), ()) if _is_item(node) else ()
        return results[node.args[1]] if results else ""

    def _note_values(self, node: Any, results: tuple[str, ...]) -> None:
        value = _value(node)
        several = value if isinstance(value, (tuple, list)) else (value,)
        for name, one in zip(results, several, strict=False):
            shape = getattr(one, "shape", None)
            if not name or shape is None:
                continue
            dtype = str(getattr(one, "dtype", "")).removeprefix("torch.")
            symbols = [str(s) for s in shape if not isinstance(s, int)]
            if dtype not in TYPES:
                self.unknown[name] = f"its elements are {dtype or 'of no known type'}"
            elif symbols:
                self.unknown[name] = f"its size {symbols[0]} is a symbol"
            else:
                self.values[name] = Value(tuple(map(int, shape)), TYPES[dtype], ("",) * len(shape))

    def _refuse_symbols(self, inputs: list[str]) -> None:
        dynamic = [f"{n}: {self.unknown[n]}" for n in inputs if "is a symbol" in self.unknown.get(n, "")]
        if dynamic:
            message = f"the program is dynamic ({'; '.join(dynamic)})"
            remedy = "export it with the sizes that are meant, without dynamic_shapes"
            raise SpecError([Diagnostic(message, remedy, "", Place(SOURCE), code="missing-value")])

    def _arguments(self, node: Any) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
        given = self.argument(tuple(node.args))
        assert isinstance(given, tuple)
        return given, {str(k): self.argument(v) for k, v in node.kwargs.items()}

    def argument(self, value: object) -> Argument:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return tuple(self.argument(v) for v in value)
        if hasattr(value, "op") and hasattr(value, "name"):
            return Ref(self.name(str(value.name)))
        return str(value)


def _refs(argument: Argument) -> Iterator[Ref]:
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, tuple):
        for one in argument:
            yield from _refs(one)


def _value(node: Any) -> Any:
    return getattr(node, "meta", {}).get("val")


def _scope(node: Any) -> tuple[str, ...]:
    """Return the modules in which a node was traced: the innermost path that torch records for it."""
    stack = getattr(node, "meta", {}).get("nn_module_stack")
    last = [*stack.values()][-1] if isinstance(stack, Mapping) and stack else ()
    return scope_of_path(str(last[0])) if isinstance(last, (tuple, list)) and last else ()


def _is_item(node: Any) -> bool:
    """Return whether a node extracts one result of several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def _target(node: Any) -> str:
    """Return `aten.conv2d`: the operation without the name of its overload."""
    if _is_item(node):
        return "getitem"
    parts = str(node.target).removeprefix("torch.ops.").split(".")
    return ".".join(parts[:2])
