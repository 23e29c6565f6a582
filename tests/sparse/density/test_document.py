"""docs/sparse/density.md: its examples run, and its numbers are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from polymodel.sparse.density import DensityModel, Uniform, model_of, random_tensor
from polymodel.sparse.density.slices import greedy

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "sparse" / "density.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


def test_examples_and_their_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "density.md", "exec"), names)
    tile, tiles, grid, dealt, ways, blocks, told, fits = capsys.readouterr().out.splitlines()
    mean, empty, most = tile.split()
    nonempty, fullest = map(float, tiles.split())
    assert grid == "[0.9512 0.0396 0.    ]"
    assert fits == "True"
    loads, steps = zip(*(map(float, line.split()[1:]) for line in (dealt, ways, blocks)), strict=True)
    low, high = names["A"].expected_max_lower((8, 8)), names["A"].expected_max_upper((8, 8))
    for sentence in (
        f"has {mean} nonzeros on average, none with probability {float(empty):.4f}, and at most {most} with",
        f"{nonempty:.3f} are expected to be nonempty, and the fullest of them all has {fullest:.3f}",
        f"({low:.3f} in the example above",
        f"their tails ({high:.3f})",
        f"{loads[0]:.2f} nonzeros (the mean is 625), of 8 blocks {loads[1]:.2f}",
        f"of the 125 blocks of 8 rows {loads[2]:.2f}",
        f"lock step takes {steps[0]:.1f}, {steps[1]:.1f} and {steps[2]:.1f} steps",
        f'"{told}"',
    ):
        assert sentence in WORDS, sentence


@pytest.mark.parametrize(("shape", "nnz"), [((64, 32), 256), ((1000, 1000), 5000), ((100, 20, 30), 3000)])
def test_the_table_of_slices(shape: tuple[int, ...], nnz: int) -> None:
    found = greedy(Uniform.of("IJK"[: len(shape)], shape, nnz=nnz), 8)
    rows = TEXT.split(f"| {' x '.join(map(str, shape))}, {nnz} nonzeros: greedy load |")[1].splitlines()[:2]
    assert rows[0].endswith(f"| {found.max_load:.2f} |")
    assert float(rows[1].split("|")[3]) == pytest.approx(found.lockstep, abs=0.06)


def test_models_are_read_as_written_in_the_table() -> None:
    data = random_tensor(["I", "K"], [3, 8], 0.2, 1)
    written = [
        text
        for row in TEXT.split("| model | in a workload |")[1].split("\n\n")[0].splitlines()[2:]
        for text in re.findall(r"`([^`]*)`", row.split("|")[2])
    ]
    assert len(written) == 19
    for text in written:
        value = yaml.safe_load(text)
        own = any(word in text for word in ("rank_nnz", "actual", "row_column", "sampled"))
        shape = (3, 8) if own else (64, 64)
        found = model_of(value, ["I", "K"], shape, read=lambda _: data)
        assert isinstance(found, DensityModel), text
