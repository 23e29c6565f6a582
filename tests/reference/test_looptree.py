"""Cases of the LoopTree model, and what their format may hold besides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.reference import looptree
from tests.reference.check import HERE, load, main
from tests.reference.common import Outcome
from tests.reference.imported import problem_of

CASES = sorted((HERE / "timeloop" / "looptree").iterdir())
# 4 x 3 times 3 x 2, then 4 x 2 times 2 x 2: rows in pairs, the columns of T in two instances.
SPEC = """
problem:
- shape:
    name: E1
    dimensions: [M1, K1, N1]
    data_spaces:
    - {name: A, dimensions: [AM, AK], projection: '[ M1, K1 ]'}
    - {name: B, dimensions: [BK, BN], projection: [K1, N1]}
    - {name: T, dimensions: [TM, TN], projection: '[ M1, N1 ]', read_write: true}
  instance: '{ [M1, K1, N1] : 0 <= M1 < 4 and 0 <= K1 < 3 and 0 <= N1 < 2 }'
- shape:
    name: E2
    dimensions: [M2, N2, P2]
    data_spaces:
    - {name: T, dimensions: [TM, TN], projection: '[ M2, N2 ]'}
    - {name: C, dimensions: [CN, CP], projection: '[ N2, P2 ]'}
    - {name: Z, dimensions: [ZM, ZP], projection: '[ M2, P2 ]', read_write: true}
  instance: {M2: 4, N2: 2, P2: 2}
mapping:
  type: fused
  nodes:
  - {type: storage, target: 0, dspace: [A, B, C, Z]}
  - {type: temporal, rank: M2, tile_shape: 2}
  - {type: storage, target: 1, dspace: [T]}
  - type: sequential
    branches:
    - - {type: storage, target: 1, dspace: B}
      - {type: temporal, rank: M1, tile_shape: 1}
      - {type: spatial, rank: N1, tile_shape: 1}
      - {type: storage, target: 2, dspace: [A]}
      - {type: compute, einsum: E1, target: 9}
    - - {type: temporal, rank: P2, tile_shape: 1}
      - {type: storage, target: 2, dspace: [C]}
      - {type: compute, einsum: E2, target: 9}
"""
PAIRS = "0 <= i <= 1 and b = 0"
LEVELS = [
    ("occupancy", 1, "T", "E1", "{ [i] -> 4 : 0 <= i <= 1 }"),
    ("fills", 1, "T", "E2", "{ [i] -> 4 : 0 <= i <= 1 }"),
    ("occupancy", 1, "B", "E1", f"{{ [i, b] -> 6 : {PAIRS} }}"),
    ("fills", 1, "B", "E1", "{ [i, b] -> 6 : i = 0 and b = 0 }"),
    ("fills", 1, "B", "E1", "{ [b] -> 6 : b = 0 }"),  # the same, without the loop that changes nothing
    ("occupancy", 2, "A", "E1", f"{{ [i, b, m, n] -> 3 : {PAIRS} and 0 <= m <= 1 and 0 <= n <= 1 }}"),
    # The producer's rows counted from the first of all: 2 and 3 in the second pair.
    ("fills", 2, "A", "E1", f"{{ [i, b, m, n] -> 3 : {PAIRS} and 2i <= m <= 2i + 1 and 0 <= n <= 1 }}"),
    ("reads_to_parent", 2, "A", "E1", f"{{ [i, b, m] -> 3 : {PAIRS} and 0 <= m <= 1 }}"),
    ("occupancy", 2, "C", "E2", "{ [i, b, p] -> 2 : 0 <= i <= 1 and b = 1 and 0 <= p <= 1 }"),
    ("fills", 2, "C", "E2", "{ [i, b, p] -> 2 : 0 <= i <= 1 and b = 1 and 0 <= p <= 1 }"),
]
STEPS = {
    "E1": f"{{ [i, b, m] -> 1 : {PAIRS} and 0 <= m <= 1 }}",
    "E2": "{ [i, b, p] -> 1 : 0 <= i <= 1 and b = 1 and 0 <= p <= 1 }",
}
OPS = {
    "E1": f"{{ [i, b, m, n] -> 3 : {PAIRS} and 0 <= m <= 1 and 0 <= n <= 1 }}",
    "E2": "{ [i, b, p] -> 4 : 0 <= i <= 1 and b = 1 and 0 <= p <= 1 }",
}


def result(levels: list[tuple[str, int, str, str, str]] = LEVELS, **more: Any) -> dict[str, Any]:
    names = ("quantity", "buffer", "tensor", "einsum", "value")
    rows = [dict(zip(names, row, strict=True)) for row in levels]
    return {"levels": rows, "ops": OPS, "temporal_steps": STEPS} | more


def checked(folder: Path, spec: str, given: dict[str, Any]) -> Outcome:
    (folder / "result.json").write_text(json.dumps(given))
    return looptree.check(yaml.safe_load(spec), folder)


@pytest.mark.parametrize("folder", CASES, ids=lambda f: f.name)
def test_looptree_case(folder: Path) -> None:
    outcome = looptree.check(load(folder / "spec.yaml"), folder)
    assert outcome.checked > 80
    assert not outcome.mismatches
    assert not outcome.notes


def test_layers_whose_rows_are_retained_or_computed_again() -> None:
    """23,328 operations of layer 1 if its output is stored above the loop over columns, else 31,104."""
    spec = load(HERE / "timeloop" / "looptree" / "conv2d_fused_p4q4_rowret" / "spec.yaml")
    nodes = spec["mapping"]["nodes"]
    for above, most, least, total in ((4, 2592, 1152, 23_328), (5, 2592, 1728, 31_104)):
        (home,) = (n for n in nodes if n.get("dspace") == ["F2"])
        nodes.remove(home)
        nodes.insert(above, home)
        found = problem_of(spec)
        _, operations = looptree.operations(looptree.lay_out(found, "slide"), "L1")
        assert sum(operations.values.values()) == total
        assert operations.values[0, 0, 0] == most
        assert operations.values[3, 3, 0] == least


def test_instances_and_nodes_in_branches(tmp_path: Path) -> None:
    outcome = checked(tmp_path, SPEC, result())
    assert not outcome.mismatches
    assert outcome.checked == 36 + 12 + 8


def test_a_wrong_number_at_one_index_is_found(tmp_path: Path) -> None:
    wrong = ("occupancy", 1, "T", "E1", "{ [i] -> 4 : i = 0; [i] -> 5 : i = 1 }")
    outcome = checked(tmp_path, SPEC, result([wrong]))
    assert outcome.mismatches == ["occupancy 1.T E1[1]: ours 4, reference 5"]


def test_an_index_too_many_is_found(tmp_path: Path) -> None:
    more = OPS | {"E2": OPS["E2"].replace("p <= 1", "p <= 2")}
    outcome = checked(tmp_path, SPEC, result(ops=more))
    assert outcome.mismatches == [f"ops E2[{i}, 1, 2]: ours 0, reference 4" for i in (0, 1)]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("type: temporal, rank: P2", "type: forever, rank: P2", "a node of type forever"),
        ("type: temporal, rank: P2", "type: temporal, skew: 1, rank: P2", "skew: `skew` is not converted"),
        ("rank: P2", "rank: Q7", "no Einsum has the dimension Q7"),
        ("dspace: [T]", "dspace: [X]", "no Einsum has the data space X"),
        ("einsum: E2, target", "einsum: E1, target", "E1 is computed twice; nothing computes E2"),
        ("[ N2, P2 ]", "[ N2, P7 ]", "P7 is neither a dimension nor a coefficient"),
        ("[ N2, P2 ]", "[ N2 * P2 ]", "is not affine"),
        ("0 <= N1 < 2 }", "N1 >= 0 }", "the instance of E1 is empty or unbounded"),
        ("0 <= N1 < 2 }", "0 <= N1 < 2 or N1 = 7 }", "`or` is not supported"),
    ],
)
def test_what_is_not_understood_is_one_line(
    old: str, new: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in SPEC
    (tmp_path / "spec.yaml").write_text(SPEC.replace(old, new))
    (tmp_path / "result.json").write_text(json.dumps(result()))
    assert main(["--cases", str(tmp_path)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert line in shown[0]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (("energy", 1, "T", "E1", "{ [] -> 1 }"), "the quantity energy is not understood"),
        (("occupancy", 2, "T", "E1", "{ [] -> 1 }"), "the mapping has 0 such nodes"),
        (("occupancy", 1, "T", "E7", "{ [] -> 1 }"), "there is no such tensor or Einsum"),
        (("occupancy", 1, "T", "E1", "{ [i, j] -> 1 : i = j = 0 }"), "has 2 indices, where there are 1"),
        (("occupancy", 1, "T", "E1", "{ [i] -> 4 : i >= 0 }"), "a quasi-polynomial without bounds"),
        (("occupancy", 1, "T", "E1", "four"), "not a quasi-polynomial that isl can read: four"),
    ],
)
def test_results_that_do_not_fit(row: tuple[str, int, str, str, str], line: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=line):
        checked(tmp_path, SPEC, result([row]))
