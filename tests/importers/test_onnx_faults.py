"""Models that are wrong, or hold what has no counterpart; POLYMODEL_REGENERATE=1 writes what is said of them.

The models are binary, so they are built here; what is said of each stands in tests/bad/onnx.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import polymodel as pm
from polymodel.cli import main
from polymodel.importers.onnx import import_onnx
from tests.faults import faults
from tests.importers.onnx_models import model, node, numbers

TOLD = Path(__file__).parent.parent / "bad" / "onnx"
X = {"X": (2, 3, 4)}


def recursive() -> onnx.ModelProto:
    found = model([node("F", ["X"], ["Y"], domain="own")], X, ["Y"])
    body = [helper.make_node("F", ["a"], ["b"], domain="own")]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    found.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, opsets))
    found.opset_import.append(helper.make_opsetid("own", 1))
    return found


def doubling() -> onnx.ModelProto:
    """Twenty functions, each of which calls the one before it twice: a million nodes in a small file."""
    found = model([node("F20", ["X"], ["Y"], domain="own")], X, ["Y"])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    for k in range(21):
        inner = ("Relu", "") if k == 0 else (f"F{k - 1}", "own")
        body = [helper.make_node(inner[0], [a], [b], domain=inner[1]) for a, b in (("a", "t"), ("t", "b"))]
        found.functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], body, opsets))
    found.opset_import.append(helper.make_opsetid("own", 1))
    return found


def foreign() -> onnx.ModelProto:
    """What it makes is of unknown shape, so that what reads it is left out as well."""
    odd = node("Odd", ["X"], ["T"], domain="com.example", name="odd")
    found = model([odd, node("Relu", ["T"], ["Y"], name="act"), node("Neg", ["X"], ["Z"])], X, ["Y", "Z"])
    found.opset_import.append(helper.make_opsetid("com.example", 1))
    return found


def strings() -> onnx.ModelProto:
    found = model([node("Identity", ["X"], ["Y"])], X, ["Y"])
    found.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    return found


WRONG: dict[str, Callable[[], onnx.ModelProto]] = {
    "inner_sizes": lambda: model(
        [node("MatMul", ["X", "W"], ["Y"], name="fc")], X, ["Y"], {"W": numbers((5, 6))}
    ),
    "two_faults": lambda: model(
        [node("MatMul", ["X", "W"], ["T"], name="fc"), node("Add", ["X", "B"], ["Y"], name="bias")],
        X,
        ["T", "Y"],
        {"W": numbers((5, 6)), "B": numbers((7,))},
    ),
    "groups": lambda: model(
        [node("Conv", ["X", "W"], ["Y"], name="conv", group=2)], X, ["Y"], {"W": numbers((4, 1, 2))}
    ),
    "kernel_too_large": lambda: model(
        [node("Conv", ["X", "W"], ["Y"], name="conv")], X, ["Y"], {"W": numbers((4, 3, 9))}
    ),
    "reshape_of_other_size": lambda: model(
        [node("Reshape", ["X", "s"], ["Y"], name="flat")], X, ["Y"], {"s": np.array([5, 5])}
    ),
    "symbolic": lambda: model([node("Relu", ["X"], ["Y"])], {"X": ("batch", 3, "tokens")}, ["Y"]),
    "no_such_operator": lambda: model([node("Rellu", ["X"], ["Y"], name="act")], X, ["Y"]),
    "unsorted": lambda: model([node("Relu", ["T"], ["Y"]), node("Neg", ["X"], ["T"])], X, ["Y"]),
    "recursive_function": recursive,
    "doubling_functions": doubling,
    "nothing_to_count": lambda: model([node("Transpose", ["X"], ["Y"])], X, ["Y"]),
    "strings": strings,
    "heads": lambda: model(
        [node("Attention", ["X", "X", "X"], ["Y"], name="att", q_num_heads=3, kv_num_heads=3)],
        X,
        ["Y"],
        opset=23,
    ),
}

LEFT_OUT: dict[str, Callable[[], onnx.ModelProto]] = {
    "embedding": lambda: model(
        [
            node("Cast", ["X"], ["i"], to=TensorProto.INT64),
            node("Gather", ["W", "i"], ["T"], name="embedding"),
            node("Relu", ["T"], ["Y"]),
        ],
        X,
        ["Y"],
        {"W": numbers((9, 5))},
    ),
    "concat": lambda: model(
        [
            node("Relu", ["X"], ["T"]),
            node("Concat", ["T", "X"], ["U"], axis=1, name="cat"),
            node("Neg", ["U"], ["Y"]),
        ],
        X,
        ["Y"],
    ),
    "foreign": foreign,
    "top_k": lambda: model(
        [node("TopK", ["X", "k"], ["T", "I"], name="best"), node("Relu", ["T"], ["Y"])],
        X,
        ["Y"],
        {"k": np.array([2])},
    ),
    "recurrent": lambda: model(
        [
            node("LSTM", ["X", "W", "R"], ["T"], name="lstm", hidden_size=2),
            node("Relu", ["T"], ["U"]),
            node("Relu", ["X"], ["Y"]),
        ],
        X,
        ["U", "Y"],
        {"W": numbers((1, 8, 4)), "R": numbers((1, 8, 2))},
    ),
    "holes": lambda: model(
        [node("ConvTranspose", ["X", "W"], ["T"], name="up", strides=[3]), node("Relu", ["T"], ["Y"])],
        X,
        ["Y"],
        {"W": numbers((3, 2, 2))},
    ),
    "zeros_around": lambda: model(
        [node("Pad", ["X", "p"], ["T"]), node("Relu", ["T"], ["Y"], name="act"), node("Neg", ["X"], ["Z"])],
        X,
        ["Y", "Z"],
        {"p": np.array([0, 0, 1, 0, 0, 1])},
    ),
}


def told(name: str, text: str) -> None:
    """`text` is what tests/bad/onnx says of the case."""
    file = TOLD / f"{name}.txt"
    if os.environ.get("POLYMODEL_REGENERATE"):
        file.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_model_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(pm.SpecError) as error:
        import_onnx(WRONG[name]())
    told(name, str(error.value))
    assert all(d.remedy for d in error.value.diagnostics)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_has_no_counterpart_is_named_and_the_rest_converted(name: str) -> None:
    found = import_onnx(LEFT_OUT[name]())
    assert not found.complete
    assert found.spec.workload.einsums
    told(name, "\n".join(d.render() for d in found.left_out))
    with pytest.raises(pm.SpecError) as error:
        import_onnx(LEFT_OUT[name](), strict=True)
    assert error.value.diagnostics == found.left_out


def test_every_text_belongs_to_a_case() -> None:
    assert {f.stem for f in TOLD.glob("*.txt")} == {*WRONG, *LEFT_OUT}


def test_sizes_of_symbols() -> None:
    proto = WRONG["symbolic"]()
    workload = import_onnx(proto, sizes={"batch": 2, "tokens": 5}).spec.workload
    assert dict(workload.rank_sizes) == {"BATCH": 2, "M": 3, "TOKENS": 5}
    assert dict(import_onnx(proto, sizes={"X.0": 1, "tokens": 5}).spec.workload.rank_sizes) == {
        "M": 3,
        "TOKENS": 5,
    }
    with faults("unknown-name", "token", at=""):
        import_onnx(proto, sizes={"token": 5, "batch": 2})
    with faults("not-positive-integer", at=""):
        import_onnx(proto, sizes={"tokens": 5, "batch": 0})


def test_what_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    for data, said in (
        (b"", "has no graph"),
        (b"workload: {}\n", "not an ONNX model"),
        (b"\x0a\xff\xff\xff", "not an ONNX model"),
        (b"\x3a\x06" * 4000, "ONNX"),
        (model([node("Relu", ["X"], ["Y"])], X, ["Y"]).SerializeToString()[:-9], "not an ONNX model"),
    ):
        file.write_bytes(data)
        with pytest.raises(pm.SpecError, match=said):
            import_onnx(file)
    for path, said in (
        (tmp_path, "this is not a file"),
        (tmp_path / "no.onnx", "No such file"),
        ("a\0b", "cannot read"),
    ):
        with pytest.raises(pm.SpecError, match=said):
            import_onnx(path)


def test_damaged_bytes_are_refused_in_our_words(tmp_path: Path) -> None:
    """One byte after the other is another one: a model, or one clear message."""
    data = WRONG["heads"]().SerializeToString()
    file = tmp_path / "m.onnx"
    for at in range(0, len(data), 3):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xA5]) + data[at + 1 :])
        with contextlib.suppress(pm.SpecError):
            assert import_onnx(file).text


def test_functions_of_the_model_are_written_out() -> None:
    proto = model([node("Twice", ["X"], ["Y"], domain="own")], X, ["Y"])
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])]
    opsets = [helper.make_opsetid("", 20)]
    proto.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    found = import_onnx(proto, fuse="none")
    assert found.complete
    assert [dict(e.operations)["map"] for e in found.spec.workload] == ["relu", "neg"]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(pm.SpecError, match=r"the package onnx.*\n  remedy: .*polymodel\[onnx\]"):
        import_onnx("m.onnx")


def test_control_flow_is_left_out() -> None:
    """Where data choose, no graph is looked at; what it computes has a shape only where the file says so."""
    result = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 3, 4])
    branch = helper.make_graph([node("Relu", ["X"], ["b"])], "branch", [], [result])
    nodes = [
        node("ReduceMax", ["X"], ["most"], keepdims=0),
        node("Cast", ["most"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["T"], name="choice", then_branch=branch, else_branch=branch),
        node("Relu", ["T"], ["Y"]),
    ]
    proto = model(nodes, X, ["Y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("T", TensorProto.FLOAT, [2, 3, 4]))
    found = import_onnx(proto)
    assert [(d.path, d.message) for d in found.left_out] == [
        ("node choice (If)", "no counterpart: it runs a graph of its own, as often as data says")
    ]
    assert found.spec.workload.einsums[-1].name == "Y"


def test_options_that_are_unknown() -> None:
    with pytest.raises(pm.SpecError) as error:
        import_onnx(WRONG["symbolic"](), bits=0, fuse="all", softmax="two")  # type: ignore[arg-type]  # that is it
    assert [d.message for d in error.value.diagnostics] == [
        "bits = 0 is not a whole number of at least 1",
        "fuse = 'all' is not known",
        "softmax = 'two' is not known",
    ]


def test_names_are_made_ours_and_stay_apart() -> None:
    """Words of ours, texts that a template would read, and names that differ in signs only."""
    names = ["input", "All", "{{ 1/0 }}", "/a/b", "a.b", "3"]
    nodes = [node("Relu", [a], [b], name="same") for a, b in zip(["X", *names], names, strict=False)]
    found = import_onnx(model(nodes, X, ["3"]), fuse="none")
    tensors = found.spec.workload.tensors
    assert tensors == ("X", "input_", "All_", "t_1_0", "a_b", "a_b_2", "t_3")
    assert [e.name for e in found.spec.workload] == ["same", *(f"same_{k}" for k in range(2, 7))]
    assert "output: true}  # a.b\n" in found.text
    assert "{{" not in found.text


@pytest.mark.parametrize("name", ["é", "日本", "a²", "İ", "no", "3d", "a-b", "_", "x y"])
def test_dimensions_of_any_name_become_ranks(name: str) -> None:
    """Names of ranks are letters, digits and _ of ASCII; what is written loads."""
    proto = model([node("Relu", ["X"], ["Y"])], {"X": (name, 3)}, ["Y"])
    sizes = dict(import_onnx(proto, sizes={name: 5}).spec.workload.rank_sizes)
    assert sorted(sizes.values()) == [3, 5]
    assert all(rank.isascii() for rank in sizes)


def test_bits_are_those_of_the_types() -> None:
    proto = model(
        [node("Cast", ["X"], ["T"], to=TensorProto.INT8, name="q"), node("Relu", ["T"], ["Y"])], X, ["Y"]
    )
    cascade = import_onnx(proto, fuse="none").spec.workload
    assert [a.bits_per_value for e in cascade for a in e.accesses] == [32, 8, 8, 8]
    assert {a.bits_per_value for e in import_onnx(proto, bits=4).spec.workload for a in e.accesses} == {4}


def test_the_model_is_left_as_it_is() -> None:
    proto = WRONG["symbolic"]()
    before = proto.SerializeToString()
    import_onnx(proto, sizes={"batch": 2, "tokens": 5})
    assert proto.SerializeToString() == before


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "m.onnx", tmp_path / "m.yaml"
    onnx.save(LEFT_OUT["concat"](), file)
    assert main(["import", "onnx", str(file), "--out", str(out), "--name", "net"]) == 0
    said = capsys.readouterr()
    assert said.out == f"wrote {out}\n"
    assert said.err.startswith(
        f"left out: {file}: node cat (Concat): no counterpart: a tensor has one producer"
    )
    assert pm.load(out).workload.name == "net"
    assert main(["import", "onnx", str(file), "--strict"]) == 2
    assert main(["import", "onnx", str(file), "--size", "batch"]) == 2
    assert "--size batch is not a size" in capsys.readouterr().err
