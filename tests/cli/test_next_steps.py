"""What commands say of what they wrote, and of what is missing: with words that work on the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from polymodel.cli import main

PRODUCT = {
    "rank_sizes": {"M": 4, "N": 4, "K": 4},
    "bits_per_value": {"All": 8},
    "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
}


@pytest.mark.parametrize("kind", ["spec", "arch", "workload", "mapping", "teaal"])
def test_the_command_that_new_tells_works(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "--kind", kind, str(tmp_path / "new.yaml")]) == 0
    told = shlex.split(capsys.readouterr().out.partition("try: ")[2])
    assert told[0] == "polymodel"
    assert main(told[1:]) == 0


@pytest.mark.parametrize("style", ["table", "html"])
def test_show_says_what_it_saved(style: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(json.dumps({"workload": PRODUCT}))
    folder = tmp_path / "pictures"
    assert main(["show", str(tmp_path / "spec.yaml"), "--out", str(folder), "--format", style]) == 0
    told = capsys.readouterr()
    saved = f"saved {folder / 'cascade.svg'}\n"
    assert (folder / "cascade.svg").exists()
    assert told.out.endswith(saved) if style == "table" else told.err == saved


def test_sizes_that_a_teaal_spec_lacks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared = {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]}
    expressions = ["Z[m, n] = A[k, m] * B[k, n]"]
    spec = {"einsum": {"declaration": declared, "expressions": expressions}}
    (tmp_path / "teaal.yaml").write_text(json.dumps(spec))
    sizes = ["--set", "M=10", "--set", "K=3"]
    assert main(["evaluate", str(tmp_path / "teaal.yaml"), "simple_two_level", *sizes]) == 3
    told = capsys.readouterr().err
    assert "needs the sizes of its ranks: N without a value" in told
    assert "remedy: --set N=..., or in Python spec.bind(N=...)" in told


def test_what_two_specs_share_goes_with_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "a.yaml", "b.yaml", "{wl}.yaml", "arch.yaml"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    for name in ("{wl}.yaml", "arch.yaml"):
        fault = f"{name}: is one argument too many\n  remedy: what both specs share goes with --with {name}\n"
        assert fault in told
