"""Specs of version 0.4: what they become, what they count (worked out by hand), what is named as left out."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.cli import main
from tests.faults import faults
from tests.importers.test_timeloop_reference import FOLDERS
from tests.reference.common import engine

HERE = Path(__file__).parent / "timeloop"
MATMUL = {
    "shape": {
        "name": "MatMul",
        "dimensions": ["M", "K", "N"],
        "data_spaces": [
            {"name": "A", "projection": ["M", "K"]},
            {"name": "B", "projection": ["K", "N"]},
            {"name": "Z", "projection": ["M", "N"], "read_write": True},
        ],
    },
    "instance": {"M": 8, "K": 4, "N": 4},
}


def counts(imported: pm.Imported) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(reads without drains, fills, updates) of all instances."""
    spec = imported.spec
    assert spec.mapping is not None
    result = engine("exact").analyse(Problem(spec.workload, spec.arch, spec.mapping))
    return {(t.component, t.tensor): (t.reads_fill, t.writes_fill, t.writes_drain) for t in result.traffic}


def test_weight_stationary() -> None:
    imported = pm.import_timeloop(HERE / "weight_stationary.yaml")
    assert imported.complete
    # 2 x 2 blocks of 4 x 4 weights, each held while 16 rows of A pass; A comes once for each half of N.
    assert counts(imported) == {
        ("MainMemory", "A"): (2 * 128, 0, 0),
        ("MainMemory", "B"): (64, 0, 0),
        ("MainMemory", "Z"): (0, 0, 128),
        ("Buffer", "A"): (4 * 16 * 4, 2 * 128, 0),  # shared along N, so 4 words of A a step
        ("Buffer", "Z"): (128, 0, 4 * 16 * 4),  # summed along K; the second block of K reads sums back
        ("Weight", "B"): (1024, 64, 0),
    }


def test_row_stationary_convolution() -> None:
    imported = pm.import_timeloop(HERE / "eyeriss_like.yaml")
    found = counts(imported)
    # A filter row in each of 12 units: 2 channels x 4 of 8 filters x 3 weights, changed for each (c, m).
    assert found["weights_spad", "Weights"] == (6912, 4 * 12 * 24, 0)
    # Windows of 2 x 3 slide along Q by 2 words; neighbours with a row in common share nothing.
    assert found["ifmap_spad", "Input"] == (6912, 4 * 12 * (6 + 5 * 2), 0)
    assert found["shared_glb", "Input"] == (4 * 12 * 16, 288, 0)
    # Three units sum a row: one write above; the second half of the channels brings the sums to all three.
    assert found["shared_glb", "Output"] == (192, 0, 2 * 192)
    assert found["psum_spad", "Output"][1] == 3 * 192
    left = {d.path.rsplit(".", 1)[-1] for d in imported.left_out}
    assert left >= {"technology", "n_banks", "has_power_gating", "adder_width"}
    nodes = {n.name: n for n in imported.spec.arch.components}
    assert [d.fanout for d in nodes["PE"].spatial] == [3]
    assert "- !Memory {name: shared_glb, size: 8192 * 16, " in imported.text
    assert any("!Parallel" in (d.place.text) for d in imported.notes)


@pytest.mark.slow
def test_branches_of_parallel_pass_by_what_they_do_not_keep(tmp_path: Path) -> None:
    text = (HERE / "eyeriss_like.yaml").read_text(encoding="utf-8")
    for others in ("Weights, Outputs", "Inputs, Outputs", "Inputs, Weights"):
        assert f"], bypass: [{others}]}}}}" in text
        text = text.replace(f"], bypass: [{others}]}}}}", "]}}")
    short = tmp_path / "short.yaml"
    short.write_text(text, encoding="utf-8")
    full = pm.import_timeloop(HERE / "eyeriss_like.yaml")
    assert pm.import_timeloop(short).text.splitlines()[2:] == full.text.splitlines()[2:]
    short.write_text(text.replace("keep: [Weights]}}", "keep: [Inputs]}}"), encoding="utf-8")
    with faults("misplaced-storage", at="architecture.nodes[5]"):
        pm.import_timeloop(short)


def test_imperfect_factors_templates_and_energies() -> None:
    files = HERE / "output_stationary.yaml", HERE / "energies.yaml"
    imported = pm.import_timeloop(*files, variables={"M": 9})
    assert [d.message for d in imported.left_out] == ["energies of noc go to no component"]
    found = counts(imported)
    assert found["DRAM", "A"] == (9 * 7, 0, 0)  # rows in 4 + 4 + 1
    assert found["DRAM", "B"] == (3 * 42, 0, 0)
    assert found["Buffer", "Z"] == (0, 0, 54)
    report = pm.evaluate(imported.spec)
    table = report.energy.set_index(["component", "tensor", "action"])["energy_J"]
    assert table["DRAM", "A", "read"] == pytest.approx(63 / 4 * 512e-12)  # 4 words an access
    assert table["MAC", "", "compute"] == pytest.approx(9 * 7 * 6 * 2e-12)
    # Half a picojoule a cycle, and a cycle for each of 3 x 2 x 7 x 3 steps.
    assert table["Buffer", "", "leak"] == pytest.approx(0.5e-12 * 126)


def test_sparse_optimizations() -> None:
    imported = pm.import_timeloop(HERE / "sparse.yaml")
    raw = imported.spec.raw_workload
    assert raw is not None
    assert raw.densities == {"A": {"fixed_structured": {"n": 1, "m": 2, "rank": "K"}}, "B": 0.25}
    report = pm.evaluate(imported.spec)
    compute = report.sparse.compute
    assert int(compute["dense"].sum()) == 16 * 16 * 8
    assert float(compute["effectual"].sum()) == pytest.approx(16 * 16 * 8 * 0.5 * 0.25)
    assert any(
        "1 formats of flattened loops stand at B of 2 ranks: U, CP" in d.message for d in imported.changed
    )
    assert imported.remarks[0].startswith("left out, changes bits of metadata")


FORMATS = """\
sparse_optimizations:
  targets:
  - name: Buffer
    representation-format:
      data-spaces:
      - name: A
        ranks: [{format: UOP, payload-word-bits: 6}, {format: RLE, metadata-word-bits: 3}]
      - name: B
        ranks: [{format: UOP}, {format: B, metadata-word-bits: 1, flattened_rankIDs: [[K, N]]}, {format: CP}]
    action-optimization:
    - {type: position-skipping, target: A, condition-on: []}
    - {type: spatial-skipping, target: B, condition-on: [A]}
"""


def test_widths_of_metadata_and_where_they_are_stored(tmp_path: Path) -> None:
    levels = [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "Buffer", "class": "SRAM", "attributes": {
            "depth": 64, "width": 8, "datawidth": 8,
            "metadata_storage_depth": 16, "metadata_storage_width": 4,
        }},
        {"name": "MAC", "class": "intmac"},
    ]  # fmt: skip
    formats = tmp_path / "formats.yaml"
    formats.write_text(FORMATS, encoding="utf-8")
    imported = pm.import_timeloop({"problem": MATMUL, "architecture": {"nodes": levels}}, formats)
    part = next(c for c in imported.spec.arch.components if c.name == "Buffer")
    assert part.size_bits == 64 * 8 + 16 * 4
    arch = imported.spec.raw_arch
    assert arch is not None
    raw = next(n for n in arch.nodes if n.name == "Buffer")
    written = raw.sparse.format  # type: ignore[union-attr]  # it is a memory with one
    assert written["A"] == {"rank-order": ["M", "K"], "M": {"format": "UOP", "obits": 6},
                            "K": {"format": "RLE", "rbits": 3}}  # fmt: skip
    assert written["B"] == {"rank-order": ["K", "N"], "K": {"format": "U", "pbits": 0}, "N": "CP"}
    assert "actions: [{skip: A, 'on': A}, {skip: B, 'on': A}]" in imported.text
    told = [d.message for d in imported.notes]
    assert any("64 bits for metadata are part of its size" in m for m in told)
    assert sum("-skipping is counted as skipping" in m for m in told) == 2


def test_parts_alone() -> None:
    problem = pm.import_timeloop({"problem": MATMUL})
    assert len(problem.spec.workload) == 1
    assert problem.spec.raw_arch is None
    machine = pm.import_timeloop({"architecture": {"nodes": [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "PE", "class": "regfile", "spatial": {"meshX": 2, "meshY": 3}},
        {"name": "MAC", "class": "intmac"},
    ]}})  # fmt: skip
    assert [d.fanout for c in machine.spec.arch.components for d in c.spatial] == [2, 3]


def test_loops_on_one_axis_share_what_they_do_not_index() -> None:
    """Along P the windows of I overlap, which Timeloop does not share; along K all of I is shared."""
    problem = {
        "shape": {
            "name": "Conv",
            "dimensions": ["K", "P", "R"],
            "data_spaces": [
                {"name": "I", "projection": [[["P"], ["R"]]]},
                {"name": "W", "projection": ["K", "R"]},
                {"name": "O", "projection": ["K", "P"], "read_write": True},
            ],
        },
        "instance": {"K": 2, "P": 4, "R": 3},
    }
    nodes = [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "RF", "class": "regfile", "spatial": {"meshX": 8}},
        {"name": "MAC", "class": "intmac"},
    ]
    mapping = [
        {"target": "RF", "type": "spatial", "factors": "K=2 P=4"},
        {"target": "RF", "type": "temporal", "factors": "R=3"},
    ]
    imported = pm.import_timeloop({"problem": problem, "architecture": {"nodes": nodes}, "mapping": mapping})
    (memory,) = (c for c in imported.spec.arch.components if c.name == "RF")
    (dim,) = memory.spatial
    assert (dim.name, dim.fanout, dim.may_reuse, dim.multicast) == ("X", 8, None, "identical")
    found = counts(imported)
    assert found["DRAM", "I"] == (4 * 3, 0, 0)  # once for both K, but every window by itself
    assert found["RF", "I"] == (24, 2 * 4 * 3, 0)


def test_what_a_spec_becomes_loads_as_a_file_too(tmp_path: Path) -> None:
    for file in (*sorted(HERE.glob("*e*_*.yaml")), HERE / "sparse.yaml", *(f / "spec.yaml" for f in FOLDERS)):
        imported = pm.import_timeloop(file)
        saved = imported.save(tmp_path / f"{file.parent.name}_{file.name}")
        assert pm.load(saved).mapping == imported.spec.mapping
        with faults("file-exists", at=""):
            imported.save(saved)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(HERE / "output_stationary.yaml"), str(HERE / "energies.yaml")]
    assert main(["import", "timeloop", *files, "--var", "M=9"]) == 0
    told = capsys.readouterr()
    (tmp_path / "spec.yaml").write_text(told.out)
    assert "note: no cycle time" in told.err
    assert "left out: " in told.err
    assert main(["evaluate", str(tmp_path / "spec.yaml")]) == 0
    assert "operations  378" in capsys.readouterr().out
    target = tmp_path / "new.yaml"
    assert main(["import", "timeloop", *files, "--var", "M=9", "--out", str(target)]) == 0
    assert capsys.readouterr().out == f"wrote {target}\n"
    assert target.read_text() == told.out
    assert main(["import", "timeloop", *files, "--out", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["import", "timeloop", str(tmp_path / "gone.yaml")]) == 2
    assert main(["import", "timeloop", files[0], "--var", "Q=9"]) == 2
    assert "no template uses the variable Q" in capsys.readouterr().err


def test_nothing_is_dropped_silently() -> None:
    """A key that nobody knows is named wherever it stands."""
    whole = {
        "problem": {**MATMUL, "strange": 1, "instance": {**MATMUL["instance"]}},
        "architecture": {
            "odd": {"inner": 1},
            "nodes": [
                {"name": "DRAM", "class": "DRAM", "peculiar": True, "attributes": {"uncommon": 2}},
                {"name": "MAC", "class": "intmac"},
            ],
        },
        "mapping": [{"target": "DRAM", "type": "temporal", "factors": "M=8 K=4 N=4", "rare": 3}],
        "mapper": {"algorithm": "random"},
    }
    left = pm.import_timeloop(whole).left_out
    assert [d.path for d in left] == [
        "problem.strange",
        "architecture.odd",
        "architecture.nodes[0].peculiar",
        "architecture.nodes[0].attributes.uncommon",
        "mapping[0].rare",
        "mapper",
    ]
    assert all(d.remedy for d in left)


def test_containers_hand_their_attributes_down(tmp_path: Path) -> None:
    common = {"datawidth": 16, "n_things": 2, "global_cycle_seconds": 4e-9}
    nodes = [
        {"name": "Chip", "class": "none", "attributes": common},
        {"name": "DRAM", "class": "DRAM", "attributes": {}},
        {
            "name": "Buffer",
            "class": "SRAM",
            "attributes": {"depth": 8, "width": "datawidth * 2", "datawidth": 8},
        },
        {"name": "MAC", "class": "intmac"},
    ]
    text = yaml.safe_dump({"architecture": {"nodes": nodes}}, sort_keys=False)
    text = text.replace("- name: Chip\n    class: none\n", "- !Container\n    name: Chip\n")
    (tmp_path / "chip.yaml").write_text(text)
    imported = pm.import_timeloop(tmp_path / "chip.yaml")
    assert [d.path for d in imported.left_out] == ["architecture.nodes[0].attributes.n_things"]
    assert "size: 16 * 16" in imported.text  # 8 rows of two words of 8 bits
    assert "clock: 250000000" in imported.text


def test_keep_only_bypasses_the_rest() -> None:
    nodes = [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "Buffer", "class": "SRAM", "constraints": {"dataspace": {"keep_only": ["A"]}}},
        {"name": "MAC", "class": "intmac"},
    ]
    mapping = [{"target": "DRAM", "type": "temporal", "factors": "M=8 K=4 N=4"}]
    imported = pm.import_timeloop({"problem": MATMUL, "architecture": {"nodes": nodes}, "mapping": mapping})
    assert "!Storage {component: Buffer, tensors: [A], reuse: slide}" in imported.text


def test_a_fused_mapping_evaluates_as_it_is() -> None:
    folder = FOLDERS[0].parent / "looptree" / "conv2d_fused_p4q4_rowret"
    imported = pm.import_timeloop(folder / "spec.yaml")
    assert imported.complete
    report = pm.evaluate(imported.spec)
    operations = report.summary.set_index("einsum")["operations"]
    assert operations["L1"] == 23_328
    assert operations["L2"] == 16 * 16 * 8 * 4 * 9


BOMBS = {
    "aliases": "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefg")),
    "nesting": "problem: " + "[" * 500 + "]" * 500,
    "template": "problem: {% for i in range(10000000) %}x{% endfor %}",
    "code": "problem: {{ ''.__class__.__mro__ }}",
    "tag": "problem: !!python/object/apply:os.system ['true']",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "aliases" else n for n in BOMBS]
)
def test_files_that_mean_harm_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMBS[name] + "\n")
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tmp_path / "bomb.yaml")
    assert all(d.remedy for d in caught.value.diagnostics)


NUMBERS = """\
architecture:
  version: 0.4
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: 8}}
  - !Component
    name: Buffer
    class: SRAM
    spatial: {meshX: 4}
    attributes: {depth: 16, width: 2 * 8, datawidth: 'DRAM.attributes["datawidth"]'}
  - !Component
    name: Cell
    class: regfile
    spatial: {meshX: Buffer.spatial.meshX // 2}
    attributes: {entries: "Buffer.attributes['depth'] // 4", datawidth: Buffer.attributes.datawidth}
  - !Component {name: MAC, class: intmac}
"""


def test_numbers_of_parts_further_out(tmp_path: Path) -> None:
    (tmp_path / "numbers.yaml").write_text(NUMBERS)
    parts = pm.import_timeloop(tmp_path / "numbers.yaml").spec.arch
    assert parts["Buffer"].size_bits == 16 * 16
    assert parts["Cell"].size_bits == 4 * 8
    assert [d.fanout for d in parts["Cell"].spatial] == [2]
    wrong = NUMBERS.replace("Buffer.attributes.datawidth", "Nowhere.attributes.datawidth")
    (tmp_path / "wrong.yaml").write_text(wrong)
    with faults("not-a-number", at="architecture.nodes[2].attributes.datawidth"):
        pm.import_timeloop(tmp_path / "wrong.yaml")


def test_words_of_early_files(tmp_path: Path) -> None:
    """`!Element` is a component; loops of the LoopTree model run over a `dimension`, in a `tile_size`."""
    machine = NUMBERS.split("  - !Component {name: DRAM", maxsplit=1)[0]
    machine += "  - !Element {name: DRAM, class: DRAM}\n  - !Element {name: MAC, class: intmac}\n"
    (tmp_path / "machine.yaml").write_text(machine)
    parts = pm.import_timeloop(tmp_path / "machine.yaml").spec.arch.components
    assert [(p.name, p.kind) for p in parts] == [("DRAM", "memory"), ("MAC", "compute")]
    problem = {
        "shape": {"name": "E", "dimensions": ["M", "K"], "data_spaces": [
            {"name": "A", "dimensions": ["A_M", "A_K"], "projection": "[ M, K ]"},
            {"name": "Z", "dimensions": ["Z_M"], "projection": "[ M ]", "read_write": True},
        ]},
        "instance": "0 <= M < 6 and 0 <= K < 4",
    }  # fmt: skip
    nodes = [
        {"type": "storage", "target": 0, "dspace": ["A", "Z"]},
        {"type": "temporal", "dimension": "M", "tile_size": 2},
        {"type": "compute", "einsum": "E", "target": 1},
    ]
    found = pm.import_timeloop({"problem": [problem], "mapping": {"type": "fused", "nodes": nodes}})
    assert "!Temporal {rank_variable: m, tile_shape: 2}" in found.text
