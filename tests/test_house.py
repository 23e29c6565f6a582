"""The house law that no linter rule covers: rooms, lengths, prints, catches, first imports."""

from __future__ import annotations

import ast
import functools
import gc
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from polymodel.errors import CODES

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
# Spelt in pieces, so that this file does not contain what it looks for.
INDEX_HOSTS = ("py" + "pi.org", "python" + "hosted.org", "--index" + "-url", "conda" + ".anaconda.org")


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Files under version control that exist; outside a checkout, all but caches and environments."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in ROOT.rglob("*") if not any(part.startswith(".") for part in p.parts)]
    return tuple(p for p in paths if p.is_file())


def sources(*folders: str) -> list[Path]:
    return [p for p in tracked() if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in folders]


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Each file is parsed once, without a look for garbage at every few nodes, and forgotten in the end."""
    gc.disable()
    yield
    nodes.cache_clear()
    statements.cache_clear()
    syntax.cache_clear()
    gc.enable()


@functools.cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes(path: Path) -> Mapping[type[ast.AST], list[Any]]:
    """All nodes of a file by their class: it is walked once, whatever is looked for in it."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(syntax(path)):
        found[type(node)].append(node)
    return found


@functools.cache
def statements(path: Path) -> Mapping[type[ast.AST], list[Any]]:
    """All nodes of a file that are no part of an expression, by their class: a tenth of all."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    left: list[ast.AST] = [syntax(path)]
    while left:
        node = left.pop()
        found[type(node)].append(node)
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            left += getattr(node, block, ())
    return found


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [*statements(path)[ast.FunctionDef], *statements(path)[ast.AsyncFunctionDef]]


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def test_rooms_import_only_from_rooms_below(capsys: pytest.CaptureFixture[str]) -> None:
    path = list(sys.path)
    try:
        status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    finally:
        sys.path[:] = path
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_no_modules_import_each_other() -> None:
    """In a circle, also where an import waits until it is needed; types that are only named do not count."""
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in sources("polymodel")}
    modules = {m.removesuffix(".__init__"): p for m, p in modules.items()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = (_longest(name, modules) for name in _imported(path))
        graph[module] = {name for name in names if name not in ("", module)}
    assert sum(map(len, graph.values())) > 1000
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def _imported(path: Path) -> Iterator[str]:
    """What a module imports of the package, at whatever depth."""
    for node in statements(path)[ast.Import]:
        yield from (a.name for a in node.names)
    typed = {
        id(child)
        for node in statements(path)[ast.If]
        if ast.unparse(node.test) == "TYPE_CHECKING"
        for child in node.body
    }
    for node in statements(path)[ast.ImportFrom]:
        assert not node.level, "imports are absolute"
        if id(node) not in typed:
            yield from (f"{node.module}.{a.name}" for a in node.names)


def _longest(name: str, modules: Mapping[str, Path]) -> str:
    """The module that a dotted name begins with; empty for modules of others."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def test_functions_share_no_name_with_modules() -> None:
    """A package's own names would hide the modules of that name from whoever imports them through it."""
    found = []
    for path in (ROOT / "polymodel").rglob("__init__.py*"):
        package = ".".join(path.parent.relative_to(ROOT).parts)
        beside = {p.stem for p in path.parent.glob("*.py")} | {p.name for p in path.parent.iterdir()}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module not in (None, package):
                found += [f"{path}: {a.name}" for a in node.names if (a.asname or a.name) in beside]
    assert not found, "rename the module or the function"


def test_files_are_short() -> None:
    assert len(sources("polymodel")) > 10
    long = {
        str(p.relative_to(ROOT)): n
        for p in sources("polymodel", "tests", "benchmarks")
        if (n := len(p.read_text(encoding="utf-8").splitlines())) >= LONGEST_FILE
    }
    assert not long


def test_functions_are_short() -> None:
    long = [
        f"{where(path, node)} {node.name}: {length} lines"
        for path in sources("polymodel", "tests", "benchmarks")
        for node in functions(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) >= LONGEST_FUNCTION
    ]
    assert not long


def test_only_the_command_line_prints() -> None:
    printing = [
        where(path, node)
        for path in sources("polymodel")
        if not path.relative_to(ROOT / "polymodel").parts[0].startswith("cli")
        for node in nodes(path)[ast.Call]
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing


def test_a_check_is_silenced_only_with_a_reason() -> None:
    """A comment for mypy, ruff or coverage is followed by a second one that says why."""
    silenced = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma)")
    explained = re.compile(r"#\s*(?:type:\s*ignore\[|noqa: |pragma: )[^#]*# \w+ \w+")
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources("polymodel", "tests", "benchmarks")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if silenced.search(line) and not explained.search(line)
    ]
    assert not bare


def broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(n is None or ast.unparse(n) in ("Exception", "BaseException") for n in names)


def test_no_broad_except() -> None:
    """But for the last barrier of the command line."""
    (tried,) = ast.parse("try: ...\nexcept (ValueError, Exception): ...").body
    assert isinstance(tried, ast.Try)
    assert broad(tried.handlers[0])
    catches = [
        str(path.relative_to(ROOT))
        for path in sources("polymodel", "tests")
        for node in statements(path)[ast.ExceptHandler]
        if broad(node)
    ]
    assert catches == ["polymodel/cli/app.py"]


def takes_any_keywords(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if function.args.kwarg is None:
        return False
    annotation = function.args.kwarg.annotation
    return annotation is None or ast.unparse(annotation) in ("Any", "typing.Any")


def test_no_untyped_keyword_bags() -> None:
    (tried,) = ast.parse("def f(**options: Any): ...").body
    assert isinstance(tried, ast.FunctionDef)
    assert takes_any_keywords(tried)
    bags = [where(p, f) for p in sources("polymodel") for f in functions(p) if takes_any_keywords(f)]
    assert not bags


def test_no_file_names_a_package_index() -> None:
    named = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if any(host.encode() in path.read_bytes() for host in INDEX_HOSTS)
    ]
    assert not named


def modules_after(code: str) -> set[str]:
    """Names in `sys.modules` after running `code` in a fresh interpreter."""
    script = f"{code}\nimport sys\nsys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return set(done.stdout.split())


def test_import_loads_only_facade_and_errors() -> None:
    loaded = modules_after("import polymodel")
    own = {m for m in loaded if m.startswith("polymodel")}
    assert own <= {"polymodel", "polymodel.errors", "polymodel.libraries"}
    assert not loaded & {"islpy", "numpy", "pandas", "pydantic", "sympy", "networkx", "matplotlib", "yaml"}


def test_a_small_evaluation_loads_no_arrays() -> None:
    """Counts of a small example are Python's integers, and its files have variables filled in; NumPy, tables
    and templates take longer to load than it takes."""
    found = "pm.load('matmul', 'simple_two_level', 'matmul/output_stationary')"
    loaded = modules_after(f"import polymodel as pm\npm.evaluate({found})")
    assert not loaded & {"numpy", "pandas", "scipy", "sympy", "networkx", "matplotlib", "pyarrow", "jinja2"}


WALK = """
import sys
import polymodel as pm

def called(run):
    files = set()

    def profile(frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            files.add(code.co_filename)

    sys.setprofile(profile)
    run()
    sys.setprofile(None)
    return len([name for name in files if name.startswith(ROOT)])

NODES = [
    {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
    {"type": "Temporal", "rank_variable": "m", "tile_shape": 10},
    {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
    {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
]
MAPPING = {"mapping": {"nodes": NODES}}
MACHINE = "matmul", "simple_two_level"
print(called(lambda: pm.evaluate(pm.load(*MACHINE, MAPPING)).accesses))
print(called(lambda: pm.explore(pm.load(*MACHINE), objectives="energy").frame))
"""


def test_a_walk_passes_through_few_modules() -> None:
    """Modules with a call in one evaluation of a matmul by closed forms, and in one search for its mapping.

    A number that does not matter in itself: where it grows, whoever reads one run from its file to its table
    opens more files, and a rule has probably moved away from the module where its subject lives.
    """
    script = f"ROOT = {str(ROOT / 'polymodel')!r}\n{WALK}"
    line = [sys.executable, "-c", script]
    home = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT, env=home)
    evaluate, explore = map(int, done.stdout.split())
    assert 20 < evaluate <= 60
    assert 20 < explore <= 81  # one of them looks up the public names


def test_import_takes_no_time() -> None:
    """`import polymodel`, in seconds of a processor beyond Python's own start; the best of five."""

    def seconds(code: str) -> float:
        script = f"{code}\nimport sys, time\nsys.stdout.write(str(time.process_time()))"
        line = [sys.executable, "-c", script]
        found = [subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT) for _ in range(5)]
        return min(float(done.stdout) for done in found)

    assert seconds("import polymodel") - seconds("pass") < 0.4


def test_html_is_written_in_one_place() -> None:
    """Templates escape whatever they are given; nothing else makes tags, but for the writer of SVG shapes."""
    allowed = {"polymodel/view/drawing.py"}
    tags = re.compile(r"<(?:p|td|th|tr|table|div|pre|h\d|details|summary|section|span|style|li|ul|nav)[ >]")
    for path in sources("polymodel"):
        if str(path.relative_to(ROOT)) in allowed:
            continue
        imported = [
            f"{where(path, node)} {name.name}"
            for node in nodes(path)[ast.ImportFrom]
            if node.module in ("html", "xml.sax.saxutils", "markupsafe")
            for name in node.names
            if name.name in ("escape", "quoteattr")
        ]
        written = [
            where(path, node)
            for node in nodes(path)[ast.Constant]
            if isinstance(node.value, str) and tags.search(node.value)
            if not node.value.startswith("<svg")
        ]
        assert not imported, "use a template of polymodel/view"
        assert not written, "use a template of polymodel/view"


# The record that a file is read into and what it is resolved to are one thing under one name.
_READ_AND_RESOLVED = {"Einsum", "TensorAccess"}


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in sources("polymodel"):
        for node in statements(path)[ast.ClassDef]:
            if not node.name.startswith("_"):
                places.setdefault(node.name, []).append(where(path, node))
    assert len(places) > 500
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in _READ_AND_RESOLVED} == {}


# Words that say nothing to a reader who does not know the code; the field has better ones.
_VAGUE = frozenset(
    "keeper asked given wanted beside slips meets between worlds relaxing deepening wholes floors paged "
    "sparsely said unread few rooms thin tail tracks told found".split()
)
_LEFT = 3


def test_names_are_those_of_the_field() -> None:
    modules = [p for p in sources("polymodel") if _VAGUE & {p.stem}]
    assert modules == []
    vague = [
        f"{where(path, node)} {node.name}"
        for path in sources("polymodel")
        for node in functions(path)
        if not node.name.startswith("_")
        if _VAGUE & {*node.name.split("_")}
    ]
    assert len(vague) <= _LEFT, vague


def test_small_figures_are_told_apart() -> None:
    """What conftest.py says of `pytest.approx`: two picojoules are not one."""
    assert pytest.approx(2e-12) != 1e-12
    assert pytest.approx(1e-12, rel=1e-6) == 1.0000001e-12
    assert pytest.approx(0.0) != 1e-15


CODED = {"Diagnostic", "Refused", "LimitReached"}  # the other classes of faults have a code of their own


def makes_fault(call: ast.Call) -> bool:
    """Whether this makes a fault: by its class, or by noting it in a list of faults."""
    if isinstance(call.func, ast.Name):
        return call.func.id in CODED
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "add"
        and re.split(r"\W", ast.unparse(call.func.value))[-1] == "faults"
    )


def test_every_fault_has_a_code() -> None:
    without = [
        where(path, call)
        for path in sources("polymodel")
        for call in nodes(path)[ast.Call]
        if makes_fault(call) and not any(k.arg in ("code", None) for k in call.keywords)
    ]
    assert not without, "give it a code of polymodel/errors.py: code=..."


def used_codes(path: Path) -> Iterator[str]:
    """The texts that a file gives as codes: in calls, as a default, or as the code of a class of faults."""
    given = [k.value for call in nodes(path)[ast.Call] for k in call.keywords if k.arg == "code"]
    named = [a.value for c in nodes(path)[ast.ClassDef] for a in c.body if _sets_code(a)]
    usual = [
        default
        for f in functions(path)
        for argument, default in zip(reversed(f.args.args), reversed(f.args.defaults), strict=False)
        if argument.arg == "code"
    ]
    for value in (*given, *named, *usual):
        for chosen in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            if isinstance(chosen, ast.Constant):
                yield str(chosen.value)


def _sets_code(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(t, ast.Name) and t.id == "code" for t in targets)


def test_the_table_has_every_code_that_is_used_and_no_other() -> None:
    used = {code: path.name for path in sources("polymodel") for code in used_codes(path) if code}
    assert {code: file for code, file in used.items() if code not in CODES} == {}
    assert set(CODES) - set(used) == set()
