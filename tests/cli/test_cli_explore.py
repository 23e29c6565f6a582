"""`polymodel explore` as a user meets it, and the `explore:` section."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import BAD_INPUT, BUG, FINE, INFEASIBLE, INTERRUPTED, REFUSED, main
from polymodel.cli.explore import ExploreProgress
from polymodel.errors import InternalError
from polymodel.mapper import search as exploring
from polymodel.mapper.records import Progress

Captured = pytest.CaptureFixture[str]
SMALL = (
    "matmul_chain_2",
    "simple_two_level",
    "--var",
    "M=16",
    "--var",
    "N0=8",
    "--var",
    "N1=12",
    "--var",
    "N2=10",
)


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_a_front_is_printed_and_saved(capsys: Captured, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    wanted = ("--objective", "energy", "--objective", "buffer", "--out", str(folder))
    code, out, err = run(capsys, "explore", *SMALL, *wanted)
    assert (code, err) == (FINE, "")
    assert out.startswith("Front over energy, working_set:GLB: ")
    assert "exact: no valid mapping" in out
    assert f"files in {folder}" in out
    spec = pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8, N1=12, N2=10)
    front = pm.explore(spec, objectives=("energy", "buffer"))
    assert len(list(folder.glob("mapping-*.yaml"))) == len(front) > 3
    code, out, _ = run(
        capsys, "evaluate", *SMALL[:2], str(folder / "mapping-0.yaml"), *SMALL[2:], "--format", "json"
    )
    assert code == FINE
    assert json.loads(out)["total"]["energy_J"] == front[0].energy


@pytest.mark.slow
def test_formats_and_options(capsys: Captured) -> None:
    code, out, err = run(capsys, "explore", *SMALL, "--objective", "energy", "--format", "json")
    assert (code, err) == (FINE, "")
    (row,) = json.loads(out)
    assert row["fused"] == "T1"
    unfused = ("--objective", "energy", "--unfused", "Intermediates", "--format", "csv")
    code, out, _ = run(capsys, "explore", *SMALL, *unfused)
    head, line = out.splitlines()
    assert code == FINE
    assert head.startswith("mapping,energy_J,latency_s,edp_J_s,working_set:GLB_bits,fused")
    assert float(line.split(",")[1]) > row["energy_J"]
    loops = ("--objective", "buffer", "--objective", "energy", "--max-fused-loops", "0", "--format", "json")
    rows = json.loads(run(capsys, "explore", *SMALL, *loops)[1])
    assert all(r["fused_loops"] == "" for r in rows)
    finer = run(capsys, "explore", *SMALL, *loops, "--sizes", "all", "--eps", "1e-3", "--fuse", "T1")
    assert finer[0] == FINE
    assert {r["fused"] for r in json.loads(finer[1])} == {"T1"}


def test_layer_by_layer_fuses_nothing(capsys: Captured, tmp_path: Path) -> None:
    few = (*SMALL[:2], "--var", "M=4", "--objective", "energy", "--format", "json")
    code, out, err = run(capsys, "explore", *few, "--layer-by-layer")
    (row,) = json.loads(out)
    assert (code, err, row["fused"], row["fused_loops"]) == (FINE, "", "", "")
    same = run(capsys, "explore", *few, "--unfused", "Intermediates", "--max-fused-loops", "0")
    assert same == (code, out, err)
    own = tmp_path / "fused.yaml"
    own.write_text("explore: {fuse: T1}\n")
    code, out, err = run(capsys, "explore", *SMALL[:2], str(own), *SMALL[2:], "--layer-by-layer")
    assert (code, out) == (BAD_INPUT, "")
    assert "--layer-by-layer: the spec has tensors that must be fused" in err


def test_the_schema_knows_the_section(capsys: Captured) -> None:
    code, out, _ = run(capsys, "schema", "explore")
    found = json.loads(out)
    assert code == FINE
    assert {"objectives", "eps", "time_limit", "fuse", "memories", "exchange"} <= set(
        found["$defs"]["ExploreSection"]["properties"]
    )
    assert set(found["$defs"]["MemoryRule"]["properties"]) == {
        "keep",
        "may_keep",
        "bypass",
        "factors",
        "order",
        "no_refetch",
        "reuse",
    }
    assert "explore" in json.loads(run(capsys, "schema")[1])["properties"]


@pytest.mark.slow
def test_exit_codes(capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tight = tmp_path / "tight.yaml"
    tight.write_text("explore: {unfused: T1, memories: {GLB: {keep: All}}}\n")
    none = [*SMALL[:1], _tiny(tmp_path), str(tight), *SMALL[2:]]
    code, out, _ = run(capsys, "explore", *none)
    assert code == INFEASIBLE
    assert "no valid mapping: " in out
    code, out, err = run(capsys, "explore", *none, "--format", "json")
    assert (code, out) == (INFEASIBLE, "[]\n")
    assert "no valid mapping: " in err
    code, out, err = run(capsys, "explore", *SMALL, "--objective", "energi", "--eps", "-1", "--sizes", "al")
    assert (code, out) == (BAD_INPUT, "")
    assert "did you mean all" in err
    assert "did you mean energy" in err
    code, out, err = run(capsys, "explore", *SMALL, "--objective", "energi", "--max-fused-loops", "x")
    assert (code, out) == (BAD_INPUT, "")
    assert "--objective: unknown objective energi\n  remedy: did you mean energy" in err
    assert "--max-fused-loops: 'x' is neither a number nor a symbol" in err
    several = ("--objective", "energy,latency", "--eps", "-1", "--time-limit", "a", "--fuse", "T9")
    code, out, err = run(capsys, "explore", *SMALL, *several, "--workers", "0")
    assert (code, out) == (BAD_INPUT, "")
    assert "remedy: repeat the option: --objective energy --objective latency" in err
    assert "--eps: negative eps" in err
    assert "--time-limit: 'a' is neither a number nor a symbol" in err
    assert "--fuse: unknown name T9" in err
    assert "--workers: " in err
    assert "constraints" not in err
    chunked = tmp_path / "chunked.yaml"
    sizes = "iteration_space_shape: {c: 0 <= c < 2, p: 0 <= p < 4, r: 0 <= r < 2}, bits_per_value: {All: 8}"
    chunked.write_text(f'workload: {{{sizes}, einsums: ["O[c, p] = I[X=4*c+p+r] * W[r]"]}}')
    code, out, err = run(capsys, "explore", str(chunked), SMALL[1])
    assert (code, out) == (REFUSED, "")
    assert "refused: " in err

    def bug(*_: object) -> None:
        raise InternalError("figures differ")

    monkeypatch.setattr(exploring, "search", bug)
    code, out, err = run(capsys, "explore", *SMALL)
    assert (code, out, err.splitlines()[0]) == (BUG, "", "a bug in polymodel: figures differ")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"{BUG} a bug" in capsys.readouterr().out


def test_a_wrong_section_takes_one_round(capsys: Captured, tmp_path: Path) -> None:
    """Unknown keys and names, and what is not a number; all commands that read it tell the same."""
    file = tmp_path / "wanted.yaml"
    file.write_text("explore:\n  objective: [energy]\n  eps: -1\n  objectives: [buffer:GLC]\n  sizes: al\n")
    for command in ("explore", "validate"):
        code, out, err = run(capsys, command, *SMALL[:2], str(file), *SMALL[2:])
        assert (code, out) == (BAD_INPUT, "")
        for line in (2, 3, 4, 5):
            assert f"{file}:{line}:" in err
        assert err.count(": explore.") == 4


def _tiny(folder: Path) -> str:
    """The small architecture with a buffer of 16 bits."""
    text = (Path(__file__).parents[2] / "arch" / "simple_two_level.yaml").read_text(encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(text.replace("size: 8 * {{ GLB_KIB | default(32) }} * 1024", "size: 16"))
    return str(path)


def test_an_interrupted_exploration_is_exit_code_130(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: ExploreProgress, progress: Progress) -> None:
        if progress.of != "evaluate" and progress.best is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(ExploreProgress, "__call__", interrupt)
    code, out, _ = run(capsys, "explore", *SMALL)
    assert code == INTERRUPTED
    assert "interrupted, so that there may be better mappings" in out


def test_a_time_limit_is_told(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    # However busy the machine is: what the search needs to print its best is not what is looked at here.
    monkeypatch.setattr("polymodel.cli.limits._LEAST_TAIL", 300.0)
    code, out, err = run(capsys, "explore", *SMALL, "--time-limit", "1e-9", "--format", "csv")
    assert code in (FINE, INFEASIBLE)
    assert out.startswith("mapping,")
    assert "the time limit of 1e-09 s was reached" in err


def test_the_progress_line() -> None:
    lines: list[str] = []
    times = iter([0.0, 1.0, 5.0, 6.0, 7.0, 7.0, 9.0])
    bar = ExploreProgress(lines.append, best="buffer:GLB", clock=lambda: next(times))
    bar(Progress(1, 10, "Matmul1"))
    assert not lines
    bar(Progress(5, 10, "join Matmul1", 20_000.0, 1_234_567))
    bar(Progress(6, 10, "Matmul2"))
    bar(Progress(0, 20, "evaluate"))
    bar(Progress(10, 20, "evaluate"))
    bar.finish()
    for wanted in ("50.0 %", "join Matmul1", "least working_set:GLB so far 20 kb", "about 5 s left"):
        assert wanted in lines[0]
    assert "1.235 M tilings and joins looked at" in lines[0]
    assert "looked at" not in lines[3]
    assert "least" not in lines[1]
    assert "about 2 s left" in lines[3]
    assert lines[-1] == "\n"


def test_the_progress_line_moves_while_a_step_takes_long() -> None:
    lines: list[str] = []
    seconds = iter(range(0, 1000, 3))
    bar = ExploreProgress(lines.append, clock=lambda: float(next(seconds)))
    with bar.ticking(every=0.001):
        while len(lines) < 2:
            time.sleep(0.001)
        bar(Progress(1, 4, "Matmul1"))
    assert "begins  3 s" in lines[0]
    assert any("25.0 %  Matmul1" in line for line in lines)
    assert lines[-1] == "\n"


def test_why_a_mapping_is_not_found_is_told(capsys: Captured) -> None:
    words = ("explore", "simple_two_level", "matmul/output_stationary", "--why")
    code, out, _ = run(capsys, *words)
    assert (code, out) == (FINE, "the mapping is one of those that explore looks at\n")
    code, out, _ = run(capsys, *words, "--limit", "energy <= 1e-12")
    assert code == INFEASIBLE
    assert out.startswith("what keeps the mapping out:\n  the limit energy <= 1e-12, as it has ")
    code, out, _ = run(capsys, *words, "--limit", "energy <= 1e-12", "--format", "csv")
    assert out.startswith('excluded_by\n"the limit energy <= 1e-12, as it has ')
    code, out, _ = run(capsys, *words, "--format", "json")
    assert out == "[]\n"
