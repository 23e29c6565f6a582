"""docs/tiling.md: its figures are those of the matrix, its links lead somewhere."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib

import polymodel as pm
from polymodel.cli import build_parser

matplotlib.use("agg")
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tiling.md").read_text(encoding="utf-8")
MATRIX = ROOT / "tests" / "data" / "matrices" / "programme.mtx.gz"


def test_the_table_is_what_tilers_make() -> None:
    (text,) = re.findall(r"^\| tiler \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    found = pm.tile(MATRIX, tiler="btree")
    assert f"at least {found.lower_bound} tiles with entries" in PAGE.replace("\n", " ")
    made = found.comparison(tuple(row[0] for row in rows)).set_index("tiler")
    assert len(rows) == 5
    for name, tiles, kernels, over, config, run, total in rows:
        row = made.loc[name]
        assert [int(tiles), int(kernels)] == [row["tiles"], row["kernels"]]
        assert [int(config), int(run), int(total)] == [
            row["config_cycles"], row["run_cycles"], row["total_cycles"],
        ]  # fmt: skip
        assert over == f"{row['over_bound']:.2f}"


def test_every_option_of_the_command_is_explained() -> None:
    """And no other."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    options = {text for a in commands.choices["tile"]._actions for text in a.option_strings}
    (table,) = re.findall(r"^\| option \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    named = (line.split("|")[1] for line in table.splitlines()[2:])
    told = [text for cell in named for text in re.findall(r"`(--[\w-]+)`", cell)]
    assert sorted(told) == sorted(options - {"-h", "--help"})


def test_columns_and_links_exist() -> None:
    columns = pm.tile(MATRIX, tiler="btree").tiles.columns
    (sentence,) = re.findall(r"`found.tiles` has, .*?`launched`\.", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence.split(":", 1)[1])) == set(columns)
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
