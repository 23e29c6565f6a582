"""Files of other tools, damaged: Timeloop's, AccelForge's and ZigZag's YAML, ONNX models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import polymodel as pm
from tests.fuzz.corpus import ROOT, trees
from tests.fuzz.mutate import NUMBERS, WORDS, bytewise, treewise, wordwise


@cache
def timeloop() -> tuple[bytes, ...]:
    """The inputs of the importer's own tests."""
    found = [
        p.read_bytes()
        for p in sorted((ROOT / "tests/importers/timeloop").rglob("*.yaml"))
        if p.stat().st_size < 12_000
    ]
    return (
        *found,
        b"problem: {shape: {name: C, dimensions: [M, N], data-spaces: []}, instance: {M: 4, N: 5}}\n",
    )


@cache
def accelforge() -> tuple[bytes, ...]:
    """A chain of Einsums and a machine, in AccelForge's words."""
    return tuple(p.read_bytes() for p in sorted((ROOT / "tests/importers/accelforge").glob("*.yaml")))


@cache
def zigzag() -> tuple[bytes, ...]:
    """Layers and an accelerator."""
    return tuple(p.read_bytes() for p in sorted((ROOT / "tests/importers/zigzag").glob("*.yaml")))


@cache
def onnx() -> tuple[bytes, ...]:
    """Small models of a few operators."""
    from onnx import TensorProto, helper

    def value(name: str, *shape: int) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    matmul = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="mm"),
        helper.make_node("Relu", ["y"], ["z"], name="act"),
    ]
    conv = [helper.make_node("Conv", ["x", "w"], ["z"], strides=[2, 2], pads=[1, 1, 1, 1], group=1, name="c")]
    shape = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "s"], ["z"]),
    ]
    sizes = helper.make_tensor("s", TensorProto.INT64, [2], [8, 8])
    graphs = [
        helper.make_graph(matmul, "g", [value("x", 4, 8)], [value("z", 4, 6)], [_weight("w", 8, 6)]),
        helper.make_graph(
            conv, "g", [value("x", 1, 3, 8, 8)], [value("z", 1, 4, 4, 4)], [_weight("w", 4, 3, 3, 3)]
        ),
        helper.make_graph(shape, "g", [value("x", 4, 16)], [value("z", 8, 8)], [sizes]),
    ]
    return tuple(helper.make_model(g).SerializeToString() for g in graphs)


def _weight(name: str, *shape: int) -> object:
    from math import prod

    from onnx import TensorProto, helper

    return helper.make_tensor(name, TensorProto.FLOAT, list(shape), [0.5] * prod(shape))


def timeloop_input(random: Random) -> bytes:
    """YAML with slips, or with branches changed."""
    if random.random() < 0.5:
        return treewise(random, random.choice(trees(timeloop))).encode("utf-8", "replace")
    text = random.choice(timeloop()).decode("utf-8", "replace")
    return wordwise(random, text, (*NUMBERS, *WORDS)).encode("utf-8", "replace")


# What a hostile file may put anywhere: paths, calls, marks, floods.
HOSTILE = (
    "{{include_text('/etc/passwd')}}", "{{include('../../../x.yaml', '')}}", "{{include('accelforge.yaml')}}",
    "{{add_to_path('/')}}", "{{include_all('/etc/*')}}", "{{cwd.__globals__}}", "{{find_path('..')}}",
    "{{dict.__mro__}}", "{{max(range(9999999))}}", "{{include_text.__self__}}",
    "\ue0020\ue003", "\ue0029\ue003.x",
    "{% assert False %}", "{{'x' * 99999999}}", "__import__('os').system('x')", "open('x').read()",
    "9**9**9**9",
    "len(spec)", "len(len(All))", "weight.bits_per_value.bits_per_value", "get_array_fanout_total(spec)",
    "is_hist_signed(hist)", "[1] * 99999999", "a if a else a", "lambda: 1", "sum(x for x in y)",
    "Above", "~~~~All",
    "<<<", "<<", "!Network", "!Fork", "!Array", "!!python/object:os.system", "*sizes", "inf", "-inf", "nan",
)  # fmt: skip


def accelforge_input(random: Random) -> bytes:
    """YAML with slips, and what a hostile file would hold in the place of a value."""
    text = random.choice(accelforge()).decode("utf-8", "replace")
    return wordwise(random, text, (*NUMBERS, *WORDS, *HOSTILE)).encode("utf-8", "replace")


def zigzag_input(random: Random) -> bytes:
    """YAML with slips."""
    text = random.choice(zigzag()).decode("utf-8", "replace")
    return wordwise(random, text, (*NUMBERS, *WORDS, *HOSTILE)).encode("utf-8", "replace")


def onnx_input(random: Random) -> bytes:
    """A model with bytes changed, or one whose attributes and sizes make no sense."""
    from onnx import ModelProto

    data = random.choice(onnx())
    if random.random() < 0.4:
        return bytewise(random, data, onnx(), 3)
    model = ModelProto.FromString(data)
    for _ in range(random.randint(1, 3)):
        node = random.choice(model.graph.node)
        act = random.randrange(7)
        if act == 0:
            node.op_type = random.choice(
                ("Gemm", "Softmax", "Add", "Concat", "Slice", "Pad", "Loop", "x", "MaxPool")
            )
        elif act == 1 and node.attribute:
            attribute = random.choice(node.attribute)
            attribute.ints[:] = [random.choice((0, -1, 1, 2**62, 7)) for _ in range(random.randint(0, 5))]
        elif act == 2:
            node.input[:] = random.choices(("x", "w", "s", "y", "z", "", "nowhere"), k=random.randint(0, 4))
        elif act == 3:
            known = random.choice((*model.graph.input, *model.graph.output)).type.tensor_type
            for dim in known.shape.dim:
                dim.dim_value = random.choice((0, -5, 1, 2**62, 3, dim.dim_value))
        elif act == 4:
            node.output[:] = random.choices(("x", "z", "y", ""), k=random.randint(0, 2))
        elif act == 5 and model.graph.initializer:
            weight = random.choice(model.graph.initializer)
            weight.dims[:] = [random.choice((0, -1, 2**62, 4)) for _ in range(random.randint(0, 5))]
        else:
            model.graph.node.append(node)
    return model.SerializeToString()


def read_timeloop(data: bytes, folder: Path) -> None:
    """Import it, and load what comes out."""
    file = folder / "timeloop.yaml"
    file.write_bytes(data)
    _loads(pm.import_timeloop(file).text, folder)


def read_accelforge(data: bytes, folder: Path) -> None:
    """Import it, and load what comes out."""
    file = folder / "accelforge.yaml"
    file.write_bytes(data)
    _loads(pm.import_accelforge(file).text, folder)


def read_zigzag(data: bytes, folder: Path) -> None:
    """Import it, and load what comes out."""
    file = folder / "zigzag.yaml"
    file.write_bytes(data)
    _loads(pm.import_zigzag(file).text, folder)


def read_onnx(data: bytes, folder: Path) -> None:
    """Import it, and load what comes out."""
    file = folder / "model.onnx"
    file.write_bytes(data)
    _loads(pm.import_onnx(file).text, folder)


def _loads(text: str, folder: Path) -> None:
    made = folder / "imported.yaml"
    made.write_text(text, encoding="utf-8")
    pm.load(made)
