"""Files of other tools that would run code, read what is not theirs or never end: refused, or read as data.

All are given to the commands in one process that notes whatever Python is asked to do, as
`test_audit.py` does for our own files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save_model

from tests.fuzz.test_audit import CODE, ROOT
from tests.importers.onnx_models import model, node

TIMELOOP, ACCELFORGE, ZIGZAG = "import timeloop", "import accelforge", "import zigzag"
RUN = "__import__('os').system('touch POISON')"
PROBLEM = """\
problem:
  shape:
    name: P
    dimensions: [M]
    data_spaces: [{name: A, projection: [[[M]]]}, {name: Z, projection: [[[M]]], read_write: true}]
  instance: {M: %s}
"""
LEVEL = "architecture: {nodes: [!Component {name: B, class: SRAM, attributes: {%s}}, !Component {name: MAC, class: intmac}]}\n"  # noqa: E501  # one line of YAML
MACHINE = "arch:\n  nodes:\n  - !Memory {name: B, %s}\n  - !Compute {name: MAC}\n"
LAYERS = """\
- id: 0
  equation: %s
  loop_dims: [B, K]
  loop_sizes: [4, %s]
  operand_precision: {W: 8, I: 8, O: 8}
  operand_source: {W: 0, I: 0}
"""
TEAAL = """\
einsum: {declaration: {A: [M, K], Z: [M]}, expressions: ["%s"]}
mapping: {partitioning: {Z: {K: ["%s"]}}, loop-order: {Z: [M, K1, K0]}}
"""
# What a template would do; both importers of templates get each.
TEMPLATES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch POISON').read() }}",
    "{{ lipsum.__globals__['os'].system('touch POISON') }}",
    "{{ include_text.__globals__ }}",
    "{{ include_text.__closure__[0].cell_contents }}",
    "{{ min.__self__.exec('POISON') }}",
    "{{ ''|attr('__class__') }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% import 'os' as os %}{{ os.system('touch POISON') }}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{{ include_text('/etc/passwd') }}",
    "{{ include_text('../../../../../../../../etc/passwd') }}",
    "{{ add_to_path('/') }}{{ include_text('etc/passwd') }}",
    "{{ include_all('/proc/self/*') }}",
    "{{ include_text('outside.yaml') }}",  # a link to a file far away
    "{{ include('evil.py') }}",
    "{{ include_text(cwd() ~ '/top.yaml') }}",  # itself
    "{{ 'x' * 10**10 }}",
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ '%0999999999d' % 1 }}",
)
# What YAML itself would do, below a key of each tool.
TAGS = (
    "!!python/object/apply:os.system ['touch POISON']",
    "!!python/object/new:subprocess.Popen [['touch', 'POISON']]",
    "!!python/name:os.system",
    "!!python/module:POISON",
    "!<tag:yaml.org,2002:python/object/apply:eval> ['POISON']",
)
# What expressions would do.
EXPRESSIONS = (
    RUN,
    "(lambda: 1)()",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "open('POISON', 'w').write('x')",
    "eval('POISON')",
    "getattr(spec, '__class__')",
    "9 ** 9 ** 9 ** 9",
    "2 ** 10 ** 10",
)


def cases() -> dict[str, tuple[str, str, str]]:
    """Name -> (command, name of the file, what it holds)."""
    found: dict[str, tuple[str, str, str]] = {}
    for i, text in enumerate(TEMPLATES):
        found[f"template {i} timeloop"] = TIMELOOP, "top.yaml", f"{text}\n{PROBLEM % 4}"
        found[f"template {i} accelforge"] = ACCELFORGE, "top.yaml", f"{text}\n{MACHINE % 'size: 8'}"
    for i, tag in enumerate(TAGS):
        found[f"tag {i} timeloop"] = TIMELOOP, "p.yaml", PROBLEM % tag
        found[f"tag {i} accelforge"] = ACCELFORGE, "p.yaml", MACHINE % f"size: {tag}"
        found[f"tag {i} zigzag"] = ZIGZAG, "p.yaml", LAYERS % ("O[b]+=W[k]*I[b]", tag)
        found[f"tag {i} teaal"] = (
            "validate",
            "p.yaml",
            f"note: {tag}\n" + TEAAL % ("Z[m] = A[m, k]", "flatten()"),
        )
    for i, text in enumerate(EXPRESSIONS):
        quoted = json.dumps(text)
        found[f"size {i} timeloop"] = TIMELOOP, "p.yaml", PROBLEM % quoted
        found[f"depth {i} timeloop"] = TIMELOOP, "p.yaml", PROBLEM % 4 + LEVEL % f"depth: {quoted}, width: 8"
        for key in ("size", "energy_scale", "total_latency", "enabled", "n_parallel_instances"):
            found[f"{key} {i} accelforge"] = ACCELFORGE, "p.yaml", MACHINE % f"{key}: {quoted}"
        found[f"set {i} accelforge"] = ACCELFORGE, "p.yaml", MACHINE % f"tensors: {{keep: {quoted}}}"
        found[f"equation {i} zigzag"] = ZIGZAG, "p.yaml", LAYERS % (json.dumps(f"O[b]+={text}*I[b]"), 8)
        found[f"expression {i} teaal"] = (
            "validate",
            "p.yaml",
            TEAAL % (f"Z[m] = A[m, k] * {text}", "flatten()"),
        )
        found[f"partitioner {i} teaal"] = "validate", "p.yaml", TEAAL % ("Z[m] = A[m, k]", text)
    code = "config: {expression_custom_functions: [evil.py], component_models: [evil.py]}\n"
    found["functions accelforge"] = ACCELFORGE, "p.yaml", code + MACHINE % "size: evil(8)"
    found["class accelforge"] = ACCELFORGE, "p.yaml", MACHINE % "component_class: evil.Evil, size: 8"
    found["class timeloop"] = (
        TIMELOOP,
        "p.yaml",
        PROBLEM % 4 + (LEVEL % "depth: 8, width: 8").replace("SRAM", "../evil.py"),
    )
    found["eval teaal"] = (
        "execute",
        "p.yaml A=random:0.5 --size M=4 --size K=4",
        TEAAL % ("Z[m] = A[m, k]", "eval(A.3)"),
    )
    merged = "".join(
        f"a{i}: &a{i} {{<<<: [{', '.join([f'*a{i - 1}'] * 9)}], k{i}: 1}}\n" for i in range(1, 30)
    )
    found["merge bomb"] = TIMELOOP, "p.yaml", "a0: &a0 {k: 1}\n" + merged + PROBLEM % 4
    return found


# An Einsum, a fork, an array and a network of AccelForge's; `%s` stands where its files have expressions.
WHOLE = """\
workload:
  rank_sizes: {M: %s, N: 2}
  bits_per_value: {All: %s}
  persistent_tensors: %s
  einsums: [{einsum: "Z[m] = A[m, n] * B[n]", renames: {input: %s}, n_instances: %s}]
arch:
  variables: {width: %s}
  nodes:
  - !Memory {name: D, size: inf, tensors: {keep: All}, actions: [{name: read, energy: %s}]}
  - !Fork {nodes: [!Container {name: L, spatial: [{name: X, fanout: %s, min_usage: %s}]}, !Compute {name: V}]}
  - !Network {name: N, topology: %s, actions: [{name: hop, energy: %s}]}
  - !Array {name: P, spatial: [{name: Y, fanout: 2, usage_scale: %s}], nodes: [!Memory {name: G, size: 8}]}
  - !Compute {name: MAC}
mapping: {nodes: [!Storage {component: D, tensors: [A, B, Z]}, !Temporal {rank_variable: m, tile_shape: %s}, \
!Compute {einsum: Z, component: MAC}]}
"""
PLAIN = ("4", "8", "Nothing", "A", "1", "8", "1", "2", "0", "mesh", "0", "1", "1")
TIMELOOP_WHOLE = """\
variables: {global_cycle_seconds: %s}
problem:
  shape:
    name: P
    dimensions: [M]
    data_spaces: [{name: A, projection: [[[M]]]}, {name: Z, projection: [[[M]]], read_write: true}]
  instance: {M: 4, densities: {A: {distribution: fixed_structured, density: %s}}}
architecture:
  nodes:
  - !Component {name: B, class: SRAM, attributes: {depth: 8, width: 8}}
  - !Component {name: C, class: intmac}
mapping: [{target: B, type: temporal, factors: [M=%s]}]
ERT: {tables: [{name: system.B, actions: [{name: read, energy: %s}]}]}
sparse_optimizations: {targets: [{name: B, action_optimization: [{type: %s, target: Z, condition_on: [A]}]}]}
"""
TIMELOOP_PLAIN = ("1e-9", "0.5", "4", "1", "skipping")
# Two cores of Stream's, and what names other files.
CORES = "name: s\ncores: {0: %s, 1: ./core.yaml}\ngraph: {type: bus, bandwidth: 64}\n"
# What the words of AccelForge's templates would read or do besides.
INCLUDES = (
    "{{ include('/etc/passwd', 'problem') }}",
    "{{ include('outside.yaml', 'problem') }}",
    "{{ add_to_path('../../..') }}{{ include('secret.yaml', 'problem') }}",
    "{{ add_to_path(['/etc']) }}{{ include_text('passwd') }}",
    "{{ include_text('/proc/self/environ') }}",
    "{{ include_text('evil.py\\0.yaml') }}",
    "{% assert cycler.__init__.__globals__.os.system('touch POISON') %}",
    "{% assert False, lipsum.__globals__ %}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ dict(a=1).__init__.__globals__ }}",
    "{{ add_to_path.__globals__ }}",
    "{{ include.__wrapped__.__globals__ }}",
)


def later_cases() -> dict[str, tuple[str, str, str]]:
    """The same for forks, networks, includes, cores and whatever else importers came to read."""
    found: dict[str, tuple[str, str, str]] = {}
    code = json.dumps(RUN)
    for i in range(len(PLAIN)):
        text = WHOLE % (*PLAIN[:i], code, *PLAIN[i + 1 :])
        found[f"whole {i} accelforge"] = ACCELFORGE, "p.yaml", text
    for i in range(len(TIMELOOP_PLAIN)):
        text = TIMELOOP_WHOLE % (*TIMELOOP_PLAIN[:i], code, *TIMELOOP_PLAIN[i + 1 :])
        found[f"whole {i} timeloop"] = TIMELOOP, "p.yaml", text
    for i, text in enumerate(INCLUDES):
        found[f"include {i} accelforge"] = ACCELFORGE, "top.yaml", f"{text}\n{MACHINE % 'size: 8'}"
    for i, text in enumerate(("../../../secret.yaml", "/etc/passwd", "evil.py", "outside.yaml")):
        found[f"core {i} zigzag"] = ZIGZAG, "p.yaml", CORES % text
    padded = LAYERS.replace("loop_dims", f"padding: {code}\n  loop_dims")
    found["padding zigzag"] = ZIGZAG, "p.yaml", padded % ("O[b]+=W[k]*I[b]", 8)
    found["python zigzag"] = ZIGZAG, "p.py", "open('POISON', 'w').write('workload')\n"
    found["python accelforge"] = ACCELFORGE, "p.py", "open('POISON', 'w').write('arch:')\n"
    found["python timeloop"] = TIMELOOP, "p.py", "open('POISON', 'w').write('problem:')\n"
    found["jinja2 timeloop"] = TIMELOOP, "top.yaml.jinja2", f"{TEMPLATES[2]}\n# in a folder\n{PROBLEM % 4}"
    found["python onnx"] = "import onnx", "p.onnx", "open('POISON', 'w').write('x')\n"
    return found


# What `pm.import_torch` is given in the same process: paths of files that torch would unpickle, programs
# whose parts do something when they are called or printed, and one that only says that it is a program.
TORCH = r"""
import types
import polymodel as pm
class Evil:
    def __call__(self, *args): open("POISON", "w").write("called")
    def __reduce__(self): return (open, ("POISON", "w"))
N = types.SimpleNamespace
def program(target, **more):
    value = N(shape=(2, 2), dtype="torch.float32")
    x = N(op="placeholder", name="x", target="x", args=(), kwargs={}, meta={"val": value})
    y = N(op="call_function", name="y", target=target, args=(x,), kwargs=more, meta={"val": value})
    end = N(op="output", name="output", target="output", args=((y,),), kwargs={}, meta={})
    signature = N(input_specs=[N(kind=N(name="USER_INPUT"), arg=N(name="x"))])
    module = N(graph=N(nodes=[x, y, end]), forward=Evil(), __call__=Evil())
    return N(graph_module=module, module=Evil(), graph_signature=signature)
def at(given):
    try:
        pm.import_torch(given)
    except pm.PolymodelError:
        pass
for given in ("evil.pt2", "evil.py", open("evil.pt2", "rb").read(), Evil(), Evil, open):
    at(given)
for given in (Evil(), Evil, os.system, eval, "os.system", "aten.relu.default; import POISON"):
    at(program(given))
    at(program("aten.add.Tensor", other=given))
"""


def written(folder: Path) -> list[list[str]]:
    """All files, each in a folder of its own; the command lines that read them."""
    lines = []
    (folder / "secret.yaml").write_text("problem: {secret: POISON}\n", encoding="utf-8")
    for i, (command, name, text) in enumerate([*cases().values(), *later_cases().values()]):
        place = folder / "deep" / "down" / "in" / f"case{i}"
        place.mkdir(parents=True)
        file, *more = name.split()
        (place / file).write_text(text, encoding="utf-8")
        (place / "evil.py").write_text("open('POISON', 'w').write('x')\n", encoding="utf-8")
        os.symlink(folder / "secret.yaml", place / "outside.yaml")
        lines.append([*command.split(), str(place / file), *more])
    weight = helper.make_tensor("W", TensorProto.FLOAT, [2, 3], [0.0] * 6)
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/passwd")
    graph = model([node("MatMul", ["x", "W"], ["y"], name=RUN)], {"x": (4, 2)}, ["y"], {})
    graph.graph.initializer.append(weight)
    other = model([node("Relu", ["x"], ["y"])], {"x": (4, 2)}, ["y"])
    other.graph.node[0].domain = "os"
    other.graph.node[0].op_type = "system"
    for name, proto in (("external", graph), ("domain", other)):
        save_model(proto, folder / f"{name}.onnx")
        lines.append(["import", "onnx", str(folder / f"{name}.onnx")])
    (folder / "pickled.onnx").write_bytes(b"\x80\x04cos\nsystem\n(S'touch POISON'\ntR.")
    return [*lines, ["import", "onnx", str(folder / "pickled.onnx")]]


DRIVER = (
    CODE.partition("sys.dont_write_bytecode")[0]
    + r"""
sys.dont_write_bytecode = True
import contextlib, io
from polymodel.cli import main
import polymodel.importers.timeloop, polymodel.importers.accelforge, polymodel.importers.zigzag
import polymodel.importers.onnx, polymodel.importers.pytorch
import polymodel.api.on_data, polymodel.report.execution
lines = json.load(open("lines.json"))
sys.addaudithook(hook)
told = []
for line in lines:
    seen.clear()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line)
    leaked = "root:" in out.getvalue() + err.getvalue() or "secret" in out.getvalue()
    told.append([code, list(seen), leaked, err.getvalue()[-300:]])
seen.clear()
"""
    + TORCH
    + r"""
told.append([0, list(seen), False, ""])
print(json.dumps(told))
"""
)


def test_there_are_many() -> None:
    every = {**cases(), **later_cases()}
    assert len(cases()) >= 150
    assert len(later_cases()) >= 40
    assert len({text for _, _, text in every.values()}) == len(every)
    assert WHOLE.count("%s") == len(PLAIN)
    assert TIMELOOP_WHOLE.count("%s") == len(TIMELOOP_PLAIN)


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow)])
def test_no_code_of_a_file_runs_and_nothing_else_is_read(every: int, tmp_path: Path) -> None:
    lines = written(tmp_path)[::every]
    asked = [*lines, ["pm.import_torch"]]
    here = tmp_path / "deep"
    (here / "evil.py").write_text("open('POISON', 'w').write('x')\n", encoding="utf-8")
    (here / "evil.pt2").write_bytes(b"\x80\x04cos\nsystem\n(S'touch POISON'\ntR.")
    (here / "lines.json").write_text(json.dumps(lines), encoding="utf-8")
    environment = {"HOME": str(tmp_path), "TMPDIR": str(here), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=here, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for line, (code, seen, leaked, err) in zip(asked, json.loads(done.stdout), strict=True):
        assert code in (0, 2, 3), (line, err)
        # A template becomes code of the sandbox, which has its words as constants.
        other = [s for s in seen if not (s[0] == "compile" and "jinja2" in s[1])]
        assert not other, (line, other)
        assert not leaked, line
    assert not list(tmp_path.rglob("POISON*"))


@pytest.mark.parametrize(
    "name", ["template 0 timeloop", "tag 0 timeloop", "size 0 timeloop", "class accelforge"]
)
def test_what_is_refused_says_why(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Classes of components are names and nothing more; whatever would be worked out is refused."""
    from polymodel.cli import main

    command, file, text = cases()[name]
    (tmp_path / file).write_text(text, encoding="utf-8")
    code = main([*command.split(), str(tmp_path / file)])
    told = capsys.readouterr()
    assert (code == 0) == (name == "class accelforge")
    assert code == 0 or "remedy: " in told.err
