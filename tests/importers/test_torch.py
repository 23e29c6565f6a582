"""Programs of `torch.export`: recorded ones, for which no torch is needed, and those of torch where it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import polymodel as pm
from tests.faults import every_fault, faults
from tests.importers.onnx_numbers import multiplications


class Target:
    """An operation as torch prints it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.__name__ = text

    def __str__(self) -> str:
        return self.text


@dataclass
class Recorded:
    """A program as `torch.export` hands it out: nodes with their values, and what its inputs are."""

    nodes: list[Any] = field(default_factory=list)
    specs: list[Any] = field(default_factory=list)

    def _node(self, op: str, name: str, shape: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = SimpleNamespace(op=op, name=name, target=target or name, args=args, kwargs=kwargs, meta={})
        made.meta["val"] = [tensor(s) for s in shape] if isinstance(shape, list) else tensor(shape)
        self.nodes.append(made)
        return made

    def given(self, name: str, *shape: Any, weight: str = "") -> Any:
        """An input, or the parameter `weight` of the module."""
        kind = SimpleNamespace(name="PARAMETER" if weight else "USER_INPUT")
        self.specs.append(SimpleNamespace(kind=kind, arg=SimpleNamespace(name=name), target=weight or None))
        return self._node("placeholder", name, shape)

    def call(self, name: str, target: str, shape: Any, *args: Any, **kwargs: Any) -> Any:
        return self._node("call_function", name, shape, Target(target), *args, **kwargs)

    def item(self, name: str, of: Any, which: int) -> Any:
        shape = of.meta["val"][which].shape
        return self._node("call_function", name, shape, Target("getitem"), of, which)

    def done(self, *outputs: Any) -> Any:
        self._node("output", "output", None, None, tuple(outputs))
        graph = SimpleNamespace(nodes=self.nodes)
        signature = SimpleNamespace(input_specs=self.specs)
        return SimpleNamespace(graph_module=SimpleNamespace(graph=graph), graph_signature=signature)


def tensor(shape: Any) -> Any:
    return None if shape is None else SimpleNamespace(shape=tuple(shape), dtype="torch.float32")


def counts(imported: pm.Imported) -> dict[str, int]:
    """Einsum -> operations."""
    return {e.name: int(str(e.iteration_space.count_val())) for e in imported.spec.workload}


def classifier() -> Any:
    p = Recorded()
    weight, bias = p.given("p_c1_w", 16, 3, 3, 3, weight="c1.weight"), p.given("p_c1_b", 16, weight="c1.bias")
    stats = [p.given(f"p_b_{k}", 16, weight=f"b.{k}") for k in ("weight", "bias", "mean", "var")]
    grouped = p.given("p_c2_w", 16, 4, 3, 3, weight="c2.weight")
    last, added = p.given("p_fc_w", 10, 144, weight="fc.weight"), p.given("p_fc_b", 10, weight="fc.bias")
    x = p.given("x", 2, 3, 15, 15)
    x = p.call("conv2d", "aten.conv2d.default", (2, 16, 15, 15), x, weight, bias, [1, 1], [1, 1])
    x = p.call("norm", "aten.batch_norm.default", (2, 16, 15, 15), x, *stats, False, 0.1, 1e-5, True)
    x = p.call("relu", "aten.relu.default", (2, 16, 15, 15), x)
    x = p.call("pooled", "aten.max_pool2d.default", (2, 16, 7, 7), x, [2, 2], [2, 2])
    x = p.call("conv2d_1", "aten.conv2d.default", (2, 16, 3, 3), x, grouped, None, [2, 2], [0, 0], [1, 1], 4)
    x = p.call("flat", "aten.flatten.using_ints", (2, 144), x, 1)
    x = p.call("linear", "aten.linear.default", (2, 10), x, last, added)
    return p.done(p.call("softmax", "aten.softmax.int", (2, 10), x, -1))


def test_a_recorded_classifier_has_the_operations_of_its_layers() -> None:
    """Padding is skipped: of 15 places and windows of 3, 43 of 45 meet an element in each dimension."""
    found = pm.import_torch(classifier(), name="classifier", bits=8)
    assert counts(found) == {
        "conv2d": 2 * 16 * 3 * 43**2,
        "pooled": 2 * 16 * 7**2 * 4,
        "conv2d_1": 2 * 16 * 4 * 3**2 * 9,
        "linear": 2 * 10 * 144,
        "softmax": 20,
    }
    first = found.spec.workload["conv2d"]
    assert set(first.tensors) == {"relu", "x", "c1_weight"}
    assert "Imported from a program of torch.export, classifier." in found.text
    assert (found.left_out, found.spec.workload.name) == ((), "classifier")
    apart = counts(pm.import_torch(classifier(), fuse="none", softmax="cascade"))
    assert apart["relu"] == 2 * 16 * 15**2
    assert {"softmax_max", "softmax_exp", "softmax_sum"} <= apart.keys()


def test_modules_of_a_program_are_blocks() -> None:
    p = Recorded()
    weights = [p.given(f"w{k}", 4, 4, weight=f"layers.{k}.weight") for k in range(2)]
    x = p.given("x", 2, 4)
    for k, weight in enumerate(weights):
        x = p.call(f"linear_{k}", "aten.linear.default", (2, 4), x, weight)
        x.meta["nn_module_stack"] = {"": ("", "Net"), "a": (f"L['self'].layers.{k}", "Linear")}
    raw = pm.import_torch(p.done(x)).spec.raw_workload
    assert raw is not None
    assert list(raw.blocks.values()) == ["0", "1"]


def test_recorded_attention_is_the_cascade_of_its_products() -> None:
    p = Recorded()
    weight = p.given("p_w", 96, 32, weight="qkv.weight")
    x = p.given("x", 2, 8, 32)
    joint = p.call("joint", "aten.linear.default", (2, 8, 96), x, weight)
    parts = p.call("chunk", "aten.chunk.default", [(2, 8, 32)] * 3, joint, 3, -1)
    heads = []
    for k, name in enumerate("qkv"):
        part = p.item(name, parts, k)
        apart = p.call(f"{name}_heads", "aten.view.default", (2, 8, 4, 8), part, [2, 8, 4, 8])
        heads.append(p.call(f"{name}_t", "aten.transpose.int", (2, 4, 8, 8), apart, 1, 2))
    made = p.call("att", "aten.scaled_dot_product_attention.default", (2, 4, 8, 8), *heads, None, 0.0, True)
    found = pm.import_torch(p.done(made))
    each = counts(found)
    assert (each["joint"], each["att_scores"], each["att"]) == (2 * 8 * 96 * 32, 2 * 4 * 8 * 8 * 8, 4096)
    assert any("every score is counted" in n.message for n in found.notes)


X, Y = (4, 6, 8), (4, 8, 5)
CASES = [
    # target, shape of the result, further arguments after x (4 x 6 x 8), operations in all
    ("aten.add.Tensor", X, ("x2",), 192),
    ("aten.sub.Tensor", X, ("x2", {"alpha": 2}), 192 * 2),
    ("aten.rsub.Scalar", X, (1,), 192),
    ("aten.pow.Tensor_Scalar", X, (2,), 192),
    ("aten.rsqrt.default", X, (), 192),
    ("aten.clamp.default", X, (0, 1), 192),
    ("aten.hardtanh.default", X, (0.0, 6.0), 192),
    ("aten.leaky_relu_.default", X, (0.1,), 192),
    ("aten.gelu.default", X, (), 192),
    ("aten.hardsigmoid.default", X, (), 192),
    ("aten.clamp.Tensor", X, ("x2", "x2"), 192 * 2),
    ("aten.clamp_max.default", X, (1,), 192),
    ("aten.log1p.default", X, (), 192),
    ("aten.expm1.default", X, (), 192),
    ("aten.square.default", X, (), 192),
    ("aten.erfc.default", X, (), 192),
    ("aten.softplus.default", X, (2.0,), 192),
    ("aten.prelu.default", X, ("s",), 192),
    ("aten.glu.default", (4, 6, 4), (-1,), 4 * 6 * 4 * 2),
    ("aten.ne.Tensor", X, ("x2",), 192),
    ("aten.addcmul.default", X, ("x2", "x2", {"value": 0.5}), 192 * 2),
    ("aten.lerp.Scalar", X, ("x2", 0.5), 192 * 2),
    ("aten.baddbmm.default", X, ("x2", "z", {"alpha": 2}), 4 * 6 * 8 * 8 + 192),
    ("aten.linalg_vector_norm.default", (4, 8), (2, [1]), 192),
    ("aten.linalg_vector_norm.default", (4, 8), (float("inf"), [1]), 192 * 2),
    ("aten.var.correction", (4, 6, 1), ([-1], {"correction": 0, "keepdim": True}), 192 * 3),
    ("aten.std.default", (), (False,), 192 * 3),
    ("aten.instance_norm.default", X, (None, None, None, None, True, 0.1, 1e-5, False), 192 * 4),
    ("aten.native_group_norm.default", X, (None, None, 4, 6, 8, 3, 1e-5), 192 * 4),
    ("aten.bmm.default", (4, 6, 5), ("y",), 4 * 6 * 8 * 5),
    ("aten.mean.dim", (4, 6, 1), ([-1], True), 192),
    ("aten.sum.default", (), (), 192),
    ("aten.amax.default", (4, 8), ([1],), 192),
    ("aten.argmax.default", (4, 6), (-1,), 192),
    ("aten.logsumexp.default", (4, 6), ([2],), 192),
    ("aten._softmax.default", X, (-1, False), 192),
    ("aten.layer_norm.default", X, ([8],), 192 * 4),
    ("aten.group_norm.default", X, (3,), 192 * 4),
    ("aten.avg_pool1d.default", (4, 6, 4), ([2],), 4 * 6 * 4 * 2),
    ("aten.adaptive_avg_pool1d.default", (4, 6, 2), ([2],), 192),
    ("aten.adaptive_avg_pool1d.default", (4, 6, 1), ([1],), 192),
    ("aten.convolution.default", (4, 5, 7), ("w", None, [1], [0], [1], False, [0], 1), 4 * 5 * 6 * 7 * 2),
    ("aten.conv1d.padding", (4, 5, 8), ("w", None, [1], "same"), 4 * 5 * 6 * (8 * 2 - 1)),
    ("aten.conv_transpose1d.default", (4, 3, 16), ("t", None, [2]), 4 * 6 * 8 * 3 * 2),
]
# Views: nothing of their own, and what reads them is one operation for each element.
VIEWS = [
    ("aten.permute.default", (8, 4, 6), ([2, 0, 1],)),
    ("aten.t.default", (6, 4), ()),
    ("aten.slice.Tensor", (4, 3, 8), (1, 0, 9223372036854775807, 2)),
    ("aten.select.int", (4, 8), (1, 2)),
    ("aten.narrow.default", (4, 6, 3), (2, 1, 3)),
    ("aten.unsqueeze.default", (4, 1, 6, 8), (1,)),
    ("aten.view.default", (4, 48), ([4, -1],)),
    ("aten.movedim.int", (6, 8, 4), (0, 2)),
    ("aten.channel_shuffle.default", X, (2,)),
    ("aten.pixel_unshuffle.default", (16, 3, 4), (2,)),
    ("aten.constant_pad_nd.default", (4, 6, 10), ([1, 1], 0.0)),
    ("aten.clone.default", X, ()),
]


def ran(target: str, shape: Any, given: tuple[Any, ...], then: str = "") -> pm.Imported:
    p = Recorded()
    named = {
        "x": p.given("x", *(X if target != "aten.t.default" else (4, 6))),
        "x2": p.given("x2", *X),
        "y": p.given("y", *Y),
        "w": p.given("p_w", 5, 6, 2, weight="w"),
        "t": p.given("p_t", 6, 3, 2, weight="t"),
        "s": p.given("p_s", 6, weight="s"),
        "z": p.given("z", 4, 8, 8),
    }
    kwargs = next((g for g in given if isinstance(g, dict)), {})
    args = [named.get(g, g) if isinstance(g, str) else g for g in given if not isinstance(g, dict)]
    made = p.call("made", target, shape, named["x"], *args, **kwargs)
    return pm.import_torch(p.done(p.call("read", then, shape, made) if then else made))


@pytest.mark.parametrize(("target", "shape", "given", "operations"), CASES)
def test_operators(target: str, shape: Any, given: tuple[Any, ...], operations: int) -> None:
    found = ran(target, shape, given)
    assert found.left_out == ()
    assert sum(counts(found).values()) == operations


@pytest.mark.parametrize(("target", "shape", "given"), VIEWS)
def test_views(target: str, shape: Any, given: tuple[Any, ...]) -> None:
    found = ran(target, shape, given, "aten.sum.default")
    assert found.left_out == ()
    size = 4 * 6 * 8 if target == "aten.constant_pad_nd.default" else 1
    for n in shape if size == 1 else ():
        size *= n
    assert list(counts(found).values()) == [size]


@pytest.mark.parametrize(
    ("target", "shape", "given"),
    [
        ("aten.repeat_interleave.self_int", (4, 12, 8), (2, 1)),
        ("aten.repeat.default", (2, 8, 6, 8), ([2, 2, 1, 1],)),
    ],
)
def test_copies_side_by_side_are_ranks_that_the_tensor_has_not(
    target: str, shape: Any, given: tuple[Any, ...]
) -> None:
    """What reads them has one operation for each copy, and they are stored once."""
    found = ran(target, shape, given, "aten.relu.default")
    assert found.left_out == ()
    (einsum,) = found.spec.workload
    assert (list(counts(found).values()), einsum.inputs[0].tensor) == ([384 if len(shape) == 3 else 768], "x")


def test_several_results() -> None:
    p = Recorded()
    x = p.given("x", 4, 6)
    halves = p.call("halves", "aten.split.Tensor", [(4, 3), (4, 3)], x, 3, 1)
    one, two = p.item("one", halves, 0), p.item("two", halves, 1)
    peak = p.call("peak", "aten.max.dim", [(4,), (4,)], p.call("sum", "aten.add.Tensor", (4, 3), one, two), 1)
    again = p.item("again", halves, 1)
    both = p.call("both", "aten.mul.Tensor", (4, 3), again, two)
    found = pm.import_torch(p.done(p.item("most", peak, 0), p.item("where", peak, 1), both), strict=False)
    assert found.left_out == ()
    # Both halves are read at once, so that one is of a copy of x.
    assert counts(found) == {"x_copy": 12, "sum": 12, "peak": 12, "peak_1": 12, "both": 12}


def test_what_has_no_counterpart_is_named() -> None:
    p = Recorded()
    x, table = p.given("x", 4, 6), p.given("p_e", 100, 6, weight="table")
    top = p.call("top", "aten.topk.default", [(4, 2), (4, 2)], x, 2)
    rows = p.call("rows", "aten.embedding.default", (4, 6), table, p.given("ids", 4))
    own = p.call("own", "mine.fused.default", (4, 6), rows)
    end = p.call("end", "aten.mul.Tensor", (4, 6), own, p.call("wide", "aten.add.Tensor", (4, 6), rows, x))
    program = p.done(end, p.item("best", top, 0))
    found = pm.import_torch(program)
    told = [d.path for d in found.left_out]
    assert told == ["node top (aten.topk)", "node rows (Gather)", "node own (mine.fused)"]
    assert counts(found) == {"wide": 24, "end": 24}
    assert "depends on the data" in found.left_out[0].message
    assert "run_decompositions()" in found.left_out[2].remedy
    with every_fault(
        ("no-counterpart", "node top (aten.topk)"),
        ("no-counterpart", "node rows (Gather)"),
        ("no-counterpart", "node own (mine.fused)"),
    ):
        pm.import_torch(program, strict=True)


def test_what_is_no_program_is_told() -> None:
    for given in (3, "net.pt2", SimpleNamespace(graph_module=3)):
        with faults("wrong-type", "import_torch", at=""):
            pm.import_torch(given)  # type: ignore[arg-type]  # no program
    p = Recorded()
    x = p.given("x", Target("s77"), 6)
    with faults("missing-value", "s77", at=""):
        pm.import_torch(p.done(p.call("y", "aten.relu.default", (4, 6), x)))
    with faults("unknown-choice", "all", at=""):
        pm.import_torch(classifier(), fuse="all")  # type: ignore[arg-type]  # no such word
    p = Recorded()
    x, y = p.given("x", 4, 6), p.given("y", 5, 6)
    with faults("no-counterpart", at="node z (MatMul)"):
        pm.import_torch(p.done(p.call("z", "aten.mm.default", (4, 6), x, y)))


def test_programs_of_torch_itself() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Classifier(nn.Module):  # type: ignore[misc,name-defined]  # torch may not be there
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
            self.c2, self.fc = nn.Conv2d(16, 16, 3, stride=2, groups=4, bias=False), nn.Linear(144, 10)

        def forward(self, x: Any) -> Any:
            x = nn.functional.max_pool2d(torch.relu(self.b(self.c1(x))), 2)
            return nn.functional.softmax(self.fc(self.c2(x).flatten(1)), -1)

    program = torch.export.export(Classifier().eval(), (torch.randn(2, 3, 15, 15),))
    wanted = sorted(counts(pm.import_torch(classifier())).values())
    for one in (program, program.run_decompositions()):
        found = pm.import_torch(one)
        assert (sorted(counts(found).values()), found.left_out) == (wanted, ())


def networks(torch: Any) -> dict[str, tuple[Any, tuple[int, ...], int]]:
    """An MLP, convolutions with a shortcut, a transformer block: the module, its input, products by hand."""
    nn = torch.nn
    functional = nn.functional

    class Residual(nn.Module):  # type: ignore[misc,name-defined]  # torch may not be there
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.deep, self.point, self.fc = (
                nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8),
                nn.Conv2d(8, 12, 1),
                nn.Linear(12, 5),
            )

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.b1(self.c1(x)))
            x = torch.relu(x + self.b2(self.c2(x)))
            x = self.point(functional.relu6(self.deep(x)))
            return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))

    class Block(nn.Module):  # type: ignore[misc,name-defined]  # torch may not be there
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16)
            self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Any) -> Any:
            heads = [t.view(2, 5, 4, 4).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1)]
            made = functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(2, 5, 16)
            x = x + self.o(made)
            return x + self.down(functional.gelu(self.up(self.n2(x))))

    mlp = nn.Sequential(nn.Linear(20, 32), nn.SiLU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4))
    images = 2 * (81 * (3 * 8 * 9 + 8 * 8 * 9) + 25 * (8 * 9 + 8 * 12) + 12 * 5)
    return {
        "mlp": (mlp, (6, 20), 6 * (20 * 32 + 32 * 16 + 16 * 4)),
        "residual": (Residual(), (2, 3, 9, 9), images),
        "block": (Block(), (2, 5, 16), 10 * (16 * 48 + 16 * 16 + 2 * 16 * 32) + 2 * 2 * 25 * 16),
    }


@pytest.mark.parametrize("name", ["mlp", "residual", "block"])
def test_networks_of_torch_have_the_multiplications_counted_by_hand(name: str) -> None:
    torch = pytest.importorskip("torch")
    module, shape, wanted = networks(torch)[name]
    program = torch.export.export(module.eval(), (torch.randn(*shape),))
    for one in (program, program.run_decompositions()):
        found = pm.import_torch(one)
        assert (found.left_out, multiplications(found.spec.workload)) == ((), wanted)
