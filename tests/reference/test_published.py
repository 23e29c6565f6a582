"""Numbers that others have published for fused mappings.

`looptree_cascaded_mm`: Accelergy-Project/timeloop-python b8aaf2c, tests/looptree/test_accesses.py,
test_capacity.py and test_latency.py, the fused mapping with sequential branches. Their reads leave out those
that drain an output; their capacity counts what stands above a split in all branches (`reserved` here).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.exhibits.looptree import CAPACITY, CYCLES, READS, WRITES, capacities, reads_and_writes, spec
from polymodel.exhibits.orojenesis import MIB, bound_of_gemm, sizes_that_matter
from tests.reference.check import main
from tests.reference.published import CLAIMS, check


@pytest.mark.parametrize("engine", ["exact", "enumerate", "auto"])
@pytest.mark.parametrize("reuse", ["slide", "refill"])
def test_cascaded_matmuls_fused(reuse: str, engine: str) -> None:
    report = pm.evaluate(spec(reuse), engine=engine)
    assert reads_and_writes(report) == (READS, WRITES)
    assert capacities(report) == CAPACITY
    assert report.total_latency == CYCLES  # one operation per second and unit


def test_the_bound_of_a_gemm_holds_for_tiles_that_do_not_divide() -> None:
    """Few sizes are tried, and they are enough; two that do not divide have less traffic than the bound of
    those that do."""
    square = pm.load(
        {"workload": {"rank_sizes": {"M": 22, "K": 22, "N": 22}, "bits_per_value": {"All": 32},
                      "einsums": ["Z[m, n] = A[m, k] * B[k, n]"]}}
    )  # fmt: skip
    few = pm.ski_slope(square, tiles=dict.fromkeys("mnk", sizes_that_matter(22))).frame
    figures = ["capacity_words", "accesses_words"]
    assert few[figures].equals(pm.ski_slope(square, tiles="all").frame[figures])
    assert not few[figures].equals(pm.ski_slope(square).frame[figures])
    # Tiles of 586 x 820, of 7 x 5 of them: A five times, B seven times, Z once.
    assert 8 * MIB * 2 >= 32 * (586 * 820 + 586 + 820)
    assert bound_of_gemm(2) <= (5 + 7 + 1) * 64


def anchors(**changed: Any) -> list[dict[str, Any]]:
    """Figures as a file has them, from their sources; `changed`: id -> other fields."""
    reads, writes = (
        {f"{c[1:]}:{t}:E{e[-1]}": n for (c, t, e), n in rows.items()} for rows in (READS, WRITES)
    )
    groups: dict[str, dict[str, Any]] = {
        "looptree_cascaded_mm": {
            "reads": reads,
            "writes": writes,
            "capacity": {c[1:]: n for c, n in CAPACITY.items()},
            "latency_cycles_sequential": CYCLES,
        },
        "fused_layer_cnn_micro16": {"offchip_MB_fused": 3.6, "onchip_KB": 362},
        "orojenesis_gpt3_ffn": {
            "derived_words": {"min_unfused": 1476395008, "min_fused": 402653184, "ratio": 3.6667}
        },
        "timeloop_docs_stats": {
            "values": {"weights": 3072, "inputs": 576, "outputs": 512, "computes": 49152, "cycles": 3072}
        },
        "tenet": {"claim": "37.4 %"},
    }
    return [{"id": name, **fields, **changed.get(name, {})} for name, fields in groups.items()]


def written(folder: Path, found: list[dict[str, Any]]) -> Path:
    path = folder / "figures.json"
    path.write_text(json.dumps({"anchors": found}))
    return path


def test_figures_of_a_file_are_compared_group_by_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, anchors())
    outcomes = {o.name.removeprefix("published/"): o for o in check(path)}
    assert {n: o.checked for n, o in outcomes.items()} == {
        "looptree_cascaded_mm": 25,
        "fused_layer_cnn_micro16": 2,
        "orojenesis_gpt3_ffn": 3,
        "timeloop_docs_stats": 5,
        "tenet": 0,
    }
    assert not any(o.mismatches or o.fault for o in outcomes.values())
    assert main(["--cases", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "published/tenet: not computed: a gain over another notation" in told
    assert told.splitlines()[-1].startswith("4 cases, 35 numbers compared")


def test_a_wrong_figure_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = anchors(timeloop_docs_stats={"values": {"weights": 3073, "cycles": 3072}})
    del wrong[0]["writes"]
    written(tmp_path, [*wrong, {"id": "unheard"}])
    assert main(["--cases", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "published/looptree_cascaded_mm: malformed case: writes is missing or not known" in told
    assert "weights: ours 3072, reference 3073" in told
    assert "inputs: ours 576, reference 0" in told
    assert "published/unheard: malformed case: unheard is missing or not known" in told


@pytest.mark.parametrize("text", ['{"anchors": 3}', '{"anchors": [4]}', '{"anchors": '])
def test_a_file_that_only_says_so_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "figures.json").write_text(text)
    assert main(["--cases", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("figures: malformed case: ")


def test_what_is_not_computed_says_why() -> None:
    assert all(len(why) > 20 for why in CLAIMS.values())
