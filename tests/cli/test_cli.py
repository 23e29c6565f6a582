"""The command line as a user meets it: what is printed where, and the exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from polymodel.cli import BAD_INPUT, FINE, INFEASIBLE, REFUSED, main
from polymodel.cli.specs import variables
from polymodel.report.starter import STARTER
from polymodel.spec import files

ROOT = Path(__file__).resolve().parents[2]
SMALL = STARTER.replace("M: 128, N0: 64, N1: 96, N2: 80", "M: 16, N0: 8, N1: 12, N2: 10").replace(
    "TM: 16", "TM: 4"
)
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_evaluate_prints_the_report(capsys: Captured, spec: str) -> None:
    code, out, err = run(capsys, "evaluate", spec, "--engine", "enumerate")
    assert (code, err) == (FINE, "")
    # 16 x 8 x 12 + 16 x 12 x 10 operations
    assert "operations    3456" in out
    assert "Working sets" in out


@pytest.mark.slow
def test_formats_agree(capsys: Captured, spec: str) -> None:
    _, text, _ = run(capsys, "evaluate", spec, "--engine", "enumerate", "--format", "json")
    rows = json.loads(text)["tables"]["accesses"]["rows"]
    _, text, _ = run(
        capsys, "evaluate", spec, "--engine", "enumerate", "--format", "csv", "--table", "accesses"
    )
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [int(line["read_bits"]) for line in lines] == [r["read_bits"] for r in rows]
    assert sum(r["read_bits"] for r in rows) > 0
    _, text, _ = run(capsys, "evaluate", spec, "--engine", "enumerate", "--format", "html")
    assert text.startswith("<!DOCTYPE html>")


def test_files_may_stand_behind_options(capsys: Captured, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    storage = "{type: Storage, component: DRAM, tensors: [A, B, C]}"
    compute = "{type: Compute, einsum: Matmul, component: MAC}"
    own.write_text(f"mapping: {{nodes: [{storage}, {compute}]}}", encoding="utf-8")
    last = run(capsys, "evaluate", "matmul", "simple_two_level", str(own), "--var", "M=4", "--table", "tiles")
    between = run(
        capsys, "evaluate", "matmul", "simple_two_level", "--var", "M=4", str(own), "--table", "tiles"
    )
    assert between == last
    assert last[0] == FINE
    joined = run(capsys, "compare", str(own), str(own), "--with", "matmul,simple_two_level")
    assert joined == run(
        capsys, "compare", str(own), str(own), "--with", "matmul", "--with", "simple_two_level"
    )
    assert joined[0] == FINE
    with pytest.raises(SystemExit):
        run(capsys, "evaluate", "matmul", "--unknown", "x")
    with pytest.raises(SystemExit):
        run(capsys, "schema", "spec", "arch")
    err = capsys.readouterr().err
    assert "--unknown: there is no such option" in err
    assert "arch: is one argument too many" in err


def test_a_file_without_a_section_is_not_fine(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "top.yaml"
    path.write_text("description: nothing yet", encoding="utf-8")
    code, out, err = run(capsys, "validate", str(path))
    assert (code, out) == (BAD_INPUT, "")
    assert "there is no workload, architecture or mapping in it" in err


@pytest.mark.slow
def test_symbols_are_set_from_the_command_line(capsys: Captured, spec: str) -> None:
    sizes = []
    for tile in ("2", "8"):
        _, text, _ = run(
            capsys, "evaluate", spec, "--engine", "enumerate", "--format", "json", "--set", f"TM={tile}"
        )
        rows = json.loads(text)["tables"]["tiles"]["rows"]
        sizes.append(next(r["tile_elements"] for r in rows if (r["component"], r["tensor"]) == ("GLB", "T0")))
    assert sizes == [2 * 8, 8 * 8]


def test_a_variable_that_is_no_list_in_json_is_text() -> None:
    deep = "[" * 100_000
    given = variables(["A=[8, 2.5]", "B=[8, ", f"C={deep}", "D=8"])
    assert given == {"A": [8, 2.5], "B": "[8, ", "C": deep, "D": 8}


def test_template_variables(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(SMALL.replace("M: 16", "M: {{ N_TOKENS }}"), encoding="utf-8")
    code, out, _ = run(capsys, "evaluate", str(path), "--engine", "enumerate", "--var", "N_TOKENS=8")
    assert code == FINE
    assert "operations    1728" in out
    path.write_text("{% variable EACH = [1] %}\n" + SMALL.replace("M: 16", "M: {{ EACH | sum }}"))
    code, out, _ = run(capsys, "evaluate", str(path), "--engine", "enumerate", "--var", "EACH=[3, 4, 1]")
    assert code == FINE
    assert "operations    1728" in out
    assert run(capsys, "show", str(path), "--var", "EACH=[3, 4")[0] == BAD_INPUT


def test_infeasible_is_exit_code_one_and_still_a_report(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "tight.yaml"
    path.write_text(SMALL.replace("8 * 64 * 1024", "1000"), encoding="utf-8")
    code, out, err = run(capsys, "evaluate", str(path), "--engine", "enumerate")
    assert (code, err) == (INFEASIBLE, "")
    assert "! GLB is too small during T1" in out
    code, out, err = run(capsys, "evaluate", str(path), "--engine", "enumerate", "--table", "summary")
    assert code == INFEASIBLE
    assert "too small" not in out
    assert err.startswith("! GLB is too small during T1: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "TM"), "--set TM: expected NAME=VALUE"),
        (("--set", "GLB.size=4096"), "--set GLB.size=4096: GLB.size is not the name of a symbol"),
        (("--set", "TM=x"), "x is not a number"),
        (("--set", "TM=2", "--set", "TM=3"), "--set TM is given twice"),
        (("--set", "TN=2"), "unknown symbol TN"),
        (("--set", "TM=0"), "tile"),
        (("--set", "TM=17"), "larger than the enclosing extent 16"),
        (("--var", "N=2"), "no template uses the variable N"),
        (("--table", "tile"), "there is no such table"),
        (("--parquet",), "--parquet needs a folder"),
    ],
)
def test_bad_options_are_named(capsys: Captured, spec: str, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, "evaluate", spec, *arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert "Traceback" not in err


def test_bad_files_are_located(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SMALL.replace("component: GLB", "component: GLBB", 1), encoding="utf-8")
    for command in ("validate", "show", "evaluate"):
        code, out, err = run(capsys, command, str(path))
        assert (code, out) == (BAD_INPUT, "")
        assert f"{path}:" in err
        assert "GLBB" in err
        assert "^" in err


def test_refusal_is_exit_code_three(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "uneven.yaml"
    path.write_text(SMALL.replace("tile_shape: TM", "tile_shape: {T1: TM, T2: TM}"), encoding="utf-8")
    code, out, err = run(capsys, "evaluate", str(path), "--engine", "symbolic")
    assert (code, out) == (REFUSED, "")
    assert err.startswith("refused: the loop over m has tile sizes of its own")
    assert "remedy" in err


def test_stages_of_one_compute_unit_are_bad_input(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(SMALL.replace("!Sequential", "!Pipeline"), encoding="utf-8")
    code, out, err = run(capsys, "evaluate", str(path))
    assert (code, out) == (BAD_INPUT, "")
    assert "stages of the Pipeline" in err
    assert "share a compute unit" in err


def test_a_pipeline_is_evaluated_and_shown(capsys: Captured) -> None:
    names = ("two_engines", "matmul_chain_2/pipeline")
    code, out, _ = run(capsys, "show", *names)
    assert code == FINE
    assert "pipeline  (overlaps iterations of m)" in out
    code, out, _ = run(capsys, "evaluate", *names)
    assert code == FINE
    assert "Pipelines (stages overlap)" in out
    assert "2.19 µs" in out
    code, out, _ = run(capsys, "evaluate", *names, "--table", "pipelines")
    assert code == FINE
    assert len([line for line in out.splitlines() if "Matmul" in line]) == 3
    for engine in ("symbolic", "exact"):
        code, out, _ = run(capsys, "evaluate", *names, "--engine", engine)
        assert code == FINE
        assert "2.19 µs" in out


def test_validate_and_show(capsys: Captured, spec: str) -> None:
    code, out, _ = run(capsys, "validate", spec)
    assert code == FINE
    assert "workload with 2 Einsums" in out
    assert "legal mapping" in out
    assert "note" not in out
    code, out, _ = run(capsys, "show", spec)
    assert code == FINE
    assert "[(GLB)] T0, T1, T2" in out
    assert "T1[m, n1] = T0[m, n0] * W0[n0, n1]" in out


def test_validate_for_programs(capsys: Captured, tmp_path: Path, spec: str) -> None:
    """Every fault with its code and place, on stdout and with the same exit code as the text."""
    code, out, err = run(capsys, "validate", spec, "--format", "json")
    found = json.loads(out)
    assert (code, err, found["fine"], found["faults"]) == (FINE, "", True, [])
    path = tmp_path / "wrong.yaml"
    path.write_text(SMALL.replace("tile_shape: TM", "tile_shpe: TM", 1), encoding="utf-8")
    code, out, err = run(capsys, "validate", str(path), "--format", "json")
    _, _, text = run(capsys, "validate", str(path))
    faults = json.loads(out)["faults"]
    assert (code, err) == (BAD_INPUT, "")
    assert [fault["code"] for fault in faults] == ["unknown-key"]
    assert all(f"{path}:{f['line']}:{f['column']}: {f['path']}: {f['message']}" in text for f in faults)


def test_validate_names_actions_without_an_energy(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "free.yaml"
    text = SMALL.replace("name: read, energy: 0.5e-12,", "name: read,").replace(
        "actions: [{name: compute, energy: 0.3e-12, throughput: 1.0e9}]", "actions: []"
    )
    path.write_text(text, encoding="utf-8")
    code, out, _ = run(capsys, "validate", str(path))
    assert code == FINE
    assert out.endswith("note: no energy is given for GLB read, MAC compute, so they cost none\n")
    _, out, _ = run(capsys, "evaluate", str(path))
    assert "GLB read, MAC compute: no energy is given" in out


def test_out_that_cannot_be_written(capsys: Captured, spec: str) -> None:
    symbol = ("--symbol", "TM=1,2")
    for command in (["evaluate"], ["show"], ["timeline", "--component", "GLB"], ["sweep", *symbol]):
        code, out, err = run(capsys, command[0], spec, *command[1:], "--out", spec)
        assert (code, out) == (BAD_INPUT, "")
        assert err == f"cannot write {spec}: File exists\n  remedy: name a folder, not a file\n"
    code, out, err = run(capsys, "sweep", spec, *symbol, "--store", f"{spec}/store")
    assert (code, out) == (BAD_INPUT, "")
    assert "cannot write" in err
    assert "a part of the path is a file" in err
    code, _, err = run(capsys, "new", f"{spec}.d/new.yaml")
    assert code == BAD_INPUT
    assert "make the folder first" in err


def test_compare(capsys: Captured, spec: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SMALL.replace("TM: 4", "TM: 8"), encoding="utf-8")
    code, out, _ = run(capsys, "compare", spec, str(other), "--engine", "enumerate", "--format", "json")
    assert code == FINE
    rows = {(r["quantity"], r["where"]): r for r in json.loads(out)}
    assert rows["latency", ""]["ratio"] == 1
    assert rows["working set", "GLB"]["b"] > rows["working set", "GLB"]["a"]


def test_schema_describes_the_nodes(capsys: Captured) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == FINE
    data = json.loads(out)
    assert set(data["properties"]) >= {"arch", "workload", "mapping", "renames", "symbols"}
    assert "Storage" in data["$defs"]
    code, out, _ = run(capsys, "schema", "mapping")
    assert "nodes" in json.loads(out)["$defs"]["MappingSpec"]["properties"]


def test_new_spec_is_valid_and_never_overwrites(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    assert run(capsys, "new", str(path))[0] == FINE
    assert run(capsys, "validate", str(path))[0] == FINE
    path.write_text("mine", encoding="utf-8")
    code, _, err = run(capsys, "new", str(path))
    assert code == BAD_INPUT
    assert "exists already" in err
    assert path.read_text(encoding="utf-8") == "mine"
    assert run(capsys, "new")[1] == STARTER


@pytest.mark.parametrize("name", "eyeriss_like gram matmul/output_stationary teaal/gamma bert_base".split())
def test_a_packaged_file_is_copied_as_it_stands(capsys: Captured, tmp_path: Path, name: str) -> None:
    """A copy is the file but for its modeline, works in the command that is named, and stays. That of a
    published model has its values in front."""
    path = tmp_path / "mine.yaml"
    code, out, _ = run(capsys, "new", str(path), "--from", name)
    assert code == FINE
    ((_, source),) = files.packaged(name).items()
    copy = path.read_text(encoding="utf-8")
    text = source.read_text(encoding="utf-8").split("\n", 1)[1]
    assert copy.endswith(text) if name == "bert_base" else copy == text
    assert run(capsys, "new", "--from", name)[1] == copy
    assert run(capsys, *shlex.split(out.partition("; try: polymodel ")[2]))[0] == FINE
    assert run(capsys, "new", str(path), "--from", name)[0] == BAD_INPUT
    other = str(tmp_path / "other.yaml")  # the data that it names are there already, and the same
    assert run(capsys, "new", other, "--from", name)[0] == FINE


def test_usage_errors_are_exit_code_two(capsys: Captured) -> None:
    for arguments in ([], ["sweep"], ["evaluate"], ["evaluate", "x", "--engine", "magic"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == BAD_INPUT


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip


@pytest.mark.slow
def test_as_a_process(spec: str) -> None:
    done = process("-m", "polymodel", "evaluate", spec, "--engine", "enumerate", "--format", "csv")
    assert (done.returncode, done.stderr) == (FINE, "")
    assert done.stdout.splitlines()[0].startswith("einsum,n_instances,operations,latency_s")
    assert process("-m", "polymodel.cli", "evaluate", "nosuch.yaml").returncode == BAD_INPUT


HEAVY = ("sympy", "networkx", "matplotlib", "pandas")


def test_evaluation_and_its_text_import_nothing_heavy(spec: str) -> None:
    script = (
        "import sys, polymodel as pm\n"
        f"report = pm.evaluate(pm.load({spec!r}), engine='enumerate')\n"
        "text = str(report), report.to_json(), report.to_html(plots=False)\n"
        "print(*sys.modules)"
    )
    done = process("-c", script)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "polymodel.cost.costs" in loaded
    assert not loaded & set(HEAVY)
    assert "polymodel.analysis.exact" not in loaded


def test_a_small_evaluation_loads_no_more_than_it_needs() -> None:
    command = ["evaluate", "matmul/output_stationary", "simple_two_level"]
    script = (
        f"import sys\nfrom polymodel.cli.app import main\ncode = main({command})\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    code, *loaded = process("-c", script).stderr.split()
    assert code == "0"
    assert "polymodel.analysis.symbolic" in loaded
    others = ("numpy", "polymodel.spec.teaal", "polymodel.spec.includes", "polymodel.mapping.teaal")
    assert not {*HEAVY, *others} & set(loaded)
    slow = {m for m in loaded if m.startswith("polymodel.") and _frozen_by_standard_library(m)}
    assert not slow - {"polymodel.errors", "polymodel.frozen"}, "take dataclass from polymodel.frozen"


def _frozen_by_standard_library(module: str) -> bool:
    """Whether a module makes frozen dataclasses as they take long to make."""
    place = ROOT.joinpath(*module.split("."))
    text = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text("utf-8")
    standard = re.search(r"^from dataclasses import .*\bdataclass\b", text, re.MULTILINE)
    return standard is not None and "@dataclass(frozen" in text


@pytest.mark.slow
def test_first_table_brings_pandas(spec: str) -> None:
    script = (
        "import sys, polymodel as pm\n"
        f"report = pm.evaluate(pm.load({spec!r}), engine='enumerate')\n"
        "before = 'pandas' in sys.modules\n"
        "report.accesses\n"
        "print(before, 'pandas' in sys.modules, 'matplotlib' in sys.modules)"
    )
    assert process("-c", script).stdout.split() == ["False", "True", "False"]


@pytest.mark.slow
def test_facade_keeps_its_function_when_the_module_is_imported() -> None:
    script = (
        "import polymodel.api.evaluation\nimport polymodel as pm\n"
        "from polymodel.api.evaluation import evaluate\n"
        "assert pm.evaluate is evaluate\n"
        "assert set(pm.__all__) <= set(dir(pm))\n"
        "assert all(getattr(pm, name) is not None for name in pm.__all__)\n"
        "listed = [name for name in dir(pm) if not name.startswith('__')]\n"
        "assert listed == sorted(pm.__all__), set(listed) ^ set(pm.__all__)\n"
        "print(hasattr(pm, 'nothing'))"
    )
    done = process("-c", script)
    assert done.stdout.split() == ["False"], done.stderr


def test_facade_import_is_quick() -> None:
    script = "import time; t = time.process_time(); import polymodel; print(time.process_time() - t)"
    best = min(float(process("-c", script).stdout) for _ in range(3))
    assert best < 0.4


def test_a_table_alone_in_every_format(capsys: Captured, spec: str) -> None:
    for style in ("table", "json", "csv", "html"):
        code, out, err = run(capsys, "evaluate", spec, "--set", "TM=2", "--table", "reuse", "--format", style)
        assert (code, err) == (FINE, "")
        assert "distinct" in out
        assert "Lifetimes" not in out
        assert "lifetimes" not in out


def test_a_mapping_that_is_missing_is_named(capsys: Captured) -> None:
    code, _, err = run(capsys, "evaluate", "matmul", "simple_two_level")
    assert code == BAD_INPUT
    assert "matmul/output_stationary, matmul/weight_stationary" in err


def test_the_default_mapping_is_said(capsys: Captured) -> None:
    code, out, _ = run(capsys, "evaluate", "attention", "simple_two_level")
    assert code == FINE
    head = [line for line in out.splitlines() if line.startswith("mapping")]
    others = "attention/flash, attention/unfused, attention/untiled_fused"
    assert head == [f"mapping       attention/tiled_fused (the default; also: {others})"]
    _, out, _ = run(capsys, "evaluate", "attention/unfused", "simple_two_level")
    assert "mapping       attention/unfused\n" in out
    assert "workload      attention\n" in out


def test_a_size_that_is_not_whole(capsys: Captured, spec: str) -> None:
    code, _, err = run(capsys, "evaluate", spec, "--set", "TM=2.5")
    assert code == BAD_INPUT
    assert "use a whole number" in err


@pytest.mark.slow
def test_where_things_were_saved_is_said(capsys: Captured, spec: str, tmp_path: Path) -> None:
    out_dir = tmp_path / "out"
    _, out, err = run(capsys, "evaluate", spec, "--out", str(out_dir))
    last = out.splitlines()[-1]
    assert last.startswith("saved ")
    for name in ("report.html", "looptree.svg", "architecture.svg"):
        assert str(out_dir / name) in last
    _, out, err = run(capsys, "evaluate", spec, "--out", str(out_dir), "--format", "json")
    assert json.loads(out)
    assert "report.html" in err
    assert "Left out, all." in run(capsys, "schema", "arch")[1]


def test_a_memory_over_time(capsys: Captured, spec: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    code, out, err = run(capsys, "timeline", spec, "--component", "GLB", "--out", str(folder))
    assert (code, err) == (FINE, "")
    assert out.startswith("GLB holds most, ")
    assert "timeline_GLB_tile.png" in out.splitlines()[-1]
    assert {p.suffix for p in folder.iterdir()} == {".csv", ".txt", ".png"}
    code, text, _ = run(capsys, "timeline", spec, "--component", "GLB", "--format", "csv")
    assert (folder / "timeline_GLB_tile.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    _, text, _ = run(capsys, "evaluate", spec, "--table", "working_sets", "--format", "json")
    needs = [r["bits"] for r in json.loads(text) if (r["component"], r["measure"]) == ("GLB", "tile")]
    assert max(int(r["total_bits"]) for r in rows) == max(needs)
    assert len(rows) > 40
    assert f"... and {len(rows) - 40:,} more phases" in out
    _, text, _ = run(capsys, "timeline", spec, "--component", "GLB", "--measure", "live", "--format", "json")
    assert [r["einsum"] for r in json.loads(text)] == [r["einsum"] for r in rows]
    _, text, _ = run(capsys, "timeline", spec, "--component", "GLB", "--format", "html")
    assert ">GLB holds most" in text
    code, _, err = run(capsys, "timeline", spec, "--component", "PE")
    assert code == BAD_INPUT
    assert "there is no memory 'PE' to follow over time\n  remedy: memories: DRAM, GLB" in err


def test_packaged_names_are_listed_and_can_be_copied(capsys: Captured) -> None:
    code, out, _ = run(capsys, "new", "--list")
    assert code == FINE
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    every = (*files.architectures(), *files.workloads(), *files.specs())
    assert set(every) <= set(names)
    assert "matmul/simple_two_level/output_stationary" in names
    assert {n for n in names if not files.packaged(n)} == set()
    assert "simple_two_level  One off-chip memory, one on-chip buffer, one multiplier" in out
    assert run(capsys, "new", "mine.yaml", "--list")[0] == BAD_INPUT
