"""`data_tiles:` of a memory: what it says, what it means when left out, and every fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.architecture.hierarchy import ProductRules, TileRules, capacity_of
from tests.faults import faults

ARCH = """\
arch:
  nodes:
  - !Memory {name: DRAM}
  - !Memory
    name: MEM
    size: 8 * 1536
    data_tiles: %s
  - !Compute {name: PE}
"""


def rules(section: str, tmp_path: Path) -> TileRules:
    path = tmp_path / "a.yaml"
    path.write_text(ARCH % section, encoding="utf-8")
    found = pm.load(path).arch["MEM"].data_tiles
    assert found is not None
    return found


def diagnostics(section: str, tmp_path: Path) -> list[pm.Diagnostic]:
    with pytest.raises(pm.SpecError) as caught:
        rules(section, tmp_path)
    return list(caught.value.diagnostics)


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert rules("{}", tmp_path) == TileRules()


def test_everything_may_be_given(tmp_path: Path) -> None:
    text = (
        "{fit: stored, format: [C, C], capacity: 4 * 100, word_bits: 16, tiler: btree+merge, "
        "objective: tiles, run: all, configuration: {add: 8 * 100, multiply: 0}, ramp: 5, empty: 3}"
    )
    assert rules(text, tmp_path) == TileRules(
        "stored", ["C", "C"], 400, 16, "btree+merge", "tiles", "all", 800, 0, 5, 3
    )


def test_memories_without_it_have_none() -> None:
    arch = pm.load("cgra_onyx_like").arch
    assert [c.name for c in arch.components if c.data_tiles is not None] == ["MEM"]


def test_capacity_follows_from_the_size() -> None:
    """Three buffers, each twice where the next tile is loaded meanwhile: 12288 / 6 / 16 = 128."""
    size = 8 * 3 * 512
    assert capacity_of(TileRules(word_bits=16), size, "double", 32) == 128
    assert capacity_of(TileRules(word_bits=16), size, "single", 32) == 256
    assert capacity_of(TileRules(), size, "single", 32) == 128
    assert capacity_of(TileRules("stored", "CSR"), size, "double", 32) == 2048
    assert capacity_of(TileRules(capacity=7), size, "double", 32) == 7


def test_the_array_of_tiler_swift_takes_128_elements() -> None:
    memory = pm.load("cgra_tiler_swift").arch["MEM"]
    assert memory.data_tiles is not None
    assert capacity_of(memory.data_tiles, memory.size_bits, memory.buffering, 64) == 128
    assert (memory.data_tiles.config_add, memory.data_tiles.config_multiply) == (824, 907)


def test_all_faults_at_once_each_with_its_place(tmp_path: Path) -> None:
    found = diagnostics(
        "{capacity: 0.5, word_bits: 0, configuration: {add: -1, multiply: 2.5}, ramp: inf}", tmp_path
    )
    assert [d.path.removeprefix("arch.nodes[1].data_tiles.") for d in found] == [
        "capacity", "word_bits", "configuration.add", "configuration.multiply", "ramp",
    ]  # fmt: skip
    assert all(d.place.line == 7 and d.place.column and d.remedy for d in found)


@pytest.mark.parametrize(
    ("section", "message", "remedy"),
    [
        ("{fit: bytes}", "'bytes'", "stored"),
        ("{tilers: best}", "tilers", "tiler"),
        ("{run: some}", "'some'", "nonempty"),
        ("{fit: stored}", "needs a format", "format: CSR"),
        ("{format: CSR}", "fit: elements has no format", "leave format out"),
        ("{configuration: 824}", "configuration", ""),
        ("{tiler: bestest}", "bestest", "best"),
        ("{tiler: btree+merged}", "merged", "merge"),
        ("{fit: stored, format: CRS, capacity: 99}", "CRS", ""),
    ],
)
def test_each_fault_says_what_to_write(section: str, message: str, remedy: str, tmp_path: Path) -> None:
    (found,) = diagnostics(section, tmp_path)
    assert message in f"{found.path}: {found.message}"
    assert remedy in found.remedy
    assert found.place.line == 7


def test_an_unbounded_memory_needs_a_capacity(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text((ARCH % "{}").replace("8 * 1536", "inf"), encoding="utf-8")
    with faults("ineffective-argument", "unbounded", at="arch.nodes[1].data_tiles"):
        pm.load(path)


def test_a_buffer_holds_something(tmp_path: Path) -> None:
    """Twelve bits for two buffers of three operands: two bits each, and no word."""
    path = tmp_path / "a.yaml"
    path.write_text((ARCH % "{word_bits: 16}").replace("8 * 1536", "12"), encoding="utf-8")
    with faults("over-capacity", "12", "16", at="arch.nodes[1].data_tiles"):
        pm.load(path)


def test_it_is_said_when_the_architecture_is_shown(tmp_path: Path) -> None:
    text = str(rules_text(tmp_path))
    assert "128 elements by btree (total)" in text
    assert "products by uniform 4 x 5 x 6 (time)" in text


def rules_text(tmp_path: Path) -> object:
    path = tmp_path / "a.yaml"
    path.write_text(ARCH % "{capacity: 128, tiler: btree, product: {tile: [4, 5, 6]}}", encoding="utf-8")
    return pm.load(path).arch


def test_products_have_defaults_and_may_be_given(tmp_path: Path) -> None:
    assert rules("{}", tmp_path).product == ProductRules("search")
    assert rules("{product: {tile: [4, 2 * 8, 5]}}", tmp_path).product == ProductRules("uniform", (4, 16, 5))
    text = (
        "{product: {strategy: dynamic, capacity: 2 * 100, order: jki, objective: words, pes: 4, "
        "bandwidth: 0.5, overbook: 0.2, time_limit: 9}}"
    )
    assert rules(text, tmp_path).product == ProductRules(
        "dynamic", None, 200, "jki", "words", 4, 0.5, 0.2, 9.0
    )


def test_all_faults_of_products_at_once(tmp_path: Path) -> None:
    found = diagnostics(
        "{product: {tile: [4, 0, 1.5], capacity: -1, pes: 0, bandwidth: inf, overbook: 1, time_limit: 0}}",
        tmp_path,
    )
    assert [d.path.removeprefix("arch.nodes[1].data_tiles.product.") for d in found] == [
        "tile[1]", "tile[2]", "capacity", "pes", "bandwidth", "overbook", "time_limit",
    ]  # fmt: skip
    assert all(d.place.line == 7 and d.place.column and d.remedy for d in found)


@pytest.mark.parametrize(
    ("section", "message", "remedy"),
    [
        ("{product: {tile: [4, 4]}}", "has 2 sizes", "three sizes"),
        ("{product: {tile: [4, 4, 4], strategy: panels}}", "chooses its tiles itself", "leave out tile"),
        ("{product: {order: iij}}", "not one of ijk", "kij"),
        ("{product: {strategy: unifrom}}", "'unifrom'", "uniform"),
        ("{product: {tiles: [4, 4, 4]}}", "tiles", "tile"),
        ("{ranks: [M]}", "names 1 different ranks", "ranks: [M, N]"),
    ],
)
def test_each_fault_of_products_says_what_to_write(
    section: str, message: str, remedy: str, tmp_path: Path
) -> None:
    (found,) = diagnostics(section, tmp_path)
    assert message in f"{found.path}: {found.message}"
    assert remedy in found.remedy
    assert found.place.line == 7


def test_ranks_are_those_of_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    workload = "workload:\n  rank_sizes: {ROW: 4, COL: 4}\n  bits_per_value: {All: 8}\n  einsums:\n"
    einsum = "  - 'Z[row, col] = A[row, col] * B[row, col]'\n"
    path.write_text(ARCH % "{ranks: [ROW, COLUM]}" + workload + einsum, encoding="utf-8")
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path)
    (found,) = caught.value.diagnostics
    assert (found.path, found.place.line) == ("arch.nodes[1].data_tiles.ranks[1]", 7)
    assert "no tensor has a rank COLUM" in found.message
    assert "did you mean COL" in found.remedy
