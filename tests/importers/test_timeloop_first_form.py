"""Timeloop's first configurations as they lie: sizes beside the shape, shapes by name, storages outwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from tests.faults import faults

FIRST = """\
mapspace:
  constraints_ours:
  - {type: datatype, target: RegFile, keep: [Outputs], bypass: [Inputs, Weights]}
  - {type: temporal, target: Buffer, factors: Q1 R1 P0, permutation: QRSC PNK}
  constraints_other:
  - {type: datatype, target: Buffer, bypass: [Outputs]}
  constraints: ours
mapper: {algorithm: linear-pruned}
problem: {Q: 6, P: 4, S: 3, R: 3, Hstride: 2, K: 8, C: 5, N: 1}
arch:
  storage:
  - {name: RegFile, instances: 16, meshX: 4, entries: 8, word-bits: 16, read_bandwidth: 2}
  - {name: Buffer, instances: 1, sizeKB: 128, word-bits: 16, block-size: 4}
  - {name: DRAM, technology: DRAM, instances: 1, word-bits: 16}
  arithmetic: {name: MACs, instances: 16, meshX: 4, word-bits: 16}
"""
SHAPE = """\
shape:
  name: Rows
  dimensions: [M, K]
  data_spaces:
  - {name: A, projection: [[[M]], [[K]]]}
  - {name: Z, projection: [[[M]]], read_write: true}
"""


def written(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def test_the_notation_before_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "layer.cfg").write_text("problem = { R = 3; S = 3; };\n")
    with faults("wrong-type", "libconfig", at=""):
        pm.import_timeloop(tmp_path / "layer.cfg")


def test_a_first_configuration(tmp_path: Path) -> None:
    found = pm.import_timeloop(*written(tmp_path, first=FIRST))
    (layer,) = found.spec.workload.einsums
    sizes = {v: high + 1 for v, (_, high) in zip(layer.rank_variables, layer.bounds, strict=True)}
    assert sizes == {"q": 6, "p": 4, "s": 3, "r": 3, "k": 8, "c": 5, "n": 1}
    assert [str(e) for e in layer.access_of("Input").projection[2:]] == ["r + p", "s + 2*q"]
    parts = found.spec.arch.components
    assert [c.name for c in parts] == ["DRAM", "Buffer", "RegFile", "MACs"]
    assert parts[1].size_bits == 128 * 1024 * 8
    assert [(d.name, d.fanout) for d in parts[2].spatial] == [("X", 4), ("Y", 4)]
    assert parts[2].size_bits == 8 * 16
    assert parts[2].action("read").throughput == 2 * 16 * 1e9
    rules = found.spec.raw_explore
    assert rules is not None
    assert rules.memories["Buffer"].factors == {"q": 1, "r": 1, "p": 4}
    told = [d.message for d in found.notes]
    assert "the shape is the built-in one: cnn_layer" in told
    assert "`constraints_other` is not the set of constraints that is named" in told
    assert "bypass" not in "".join(d.message for d in found.left_out)


def test_shapes_by_name(tmp_path: Path) -> None:
    """A shape that a file beside has goes before a built-in one; one that is known nowhere is refused."""
    rows, problem = written(tmp_path, rows=SHAPE, problem="problem: {shape: rows, M: 4, K: 3}")
    found = pm.import_timeloop(problem, rows)
    assert "name: Rows" in found.text
    assert [d for d in found.notes if "built-in" in d.message] == []
    product = {"problem": {"shape": "gemm-ABZ", "instance": {"M": 4, "K": 3, "N": 2}}}
    (einsum,) = pm.import_timeloop(product).spec.workload.einsums
    assert einsum.tensors == ("A", "B", "Z")
    with faults("no-counterpart", at="problem.shape"):
        pm.import_timeloop(problem)
    with faults("missing-section", at="shape"):
        pm.import_timeloop(rows)


@pytest.mark.parametrize(
    "text", ["problem: {M: 4}", "problem: {C: 4, shape: 3}", "problem: [3]", "problem: 3"]
)
def test_what_is_no_problem_is_a_fault(text: str, tmp_path: Path) -> None:
    with pytest.raises(pm.SpecError):
        pm.import_timeloop(*written(tmp_path, problem=text))


TARGETS = """\
mapspace:
  targets:
  - name: Buffer
    constraints:
    - {type: bypassing, attributes: {keep: [Outputs], bypass: [Inputs, Weights]}}
    - {type: temporal, attributes: {factors: N=1 C=1 R=1 S=1, permutation: NCRS KQP}}
    - {type: spatial, attributes: {factors: K=16 C=1, permutation: K C, split: 1}}
problem: {R: 3, S: 3, P: 4, Q: 4, C: 8, K: 16, N: 1}
"""
MACHINE = """\
arch:
  storage:
  - {name: RegFile, instances: 16, meshX: 16, entries: 8, word-bits: 16}
  - {name: Buffer, instances: 1, sizeKB: 128, word-bits: 16}
  - {name: DRAM, technology: DRAM, instances: 1, word-bits: 16}
  arithmetic: {name: MACs, instances: 16, meshX: 16, word-bits: 16}
"""


def test_constraints_below_their_targets(tmp_path: Path) -> None:
    found = pm.import_timeloop(*written(tmp_path, targets=TARGETS, machine=MACHINE))
    rules = found.spec.raw_explore
    assert rules is not None
    assert rules.memories["Buffer"].factors == {"c": 1, "r": 1, "s": 1}
    assert rules.fanouts["RegFile"]["X"].factors["k"] == 16
    buffer = found.spec.raw_arch.nodes[1]  # type: ignore[union-attr]  # there is one
    assert (buffer.tensors.keep, buffer.tensors.may_keep) == ("Output", "Nothing")


def test_a_first_machine_alone(tmp_path: Path) -> None:
    found = pm.import_timeloop(*written(tmp_path, machine=MACHINE))
    assert [c.name for c in found.spec.arch.components] == ["DRAM", "Buffer", "RegFile", "MACs"]
    with faults("foreign-file", at="arch"):
        pm.load(tmp_path / "machine.yaml")


def test_a_factor_that_is_a_list_is_named(tmp_path: Path) -> None:
    space = "{name: A, projection: [[[[M, K]]], [[K]]]}, {name: Z, projection: [[[M]]], read_write: true}"
    text = f"problem: {{shape: {{dimensions: [M, K], data_spaces: [{space}]}}, instance: {{M: 4, K: 2}}}}\n"
    with faults("not-affine", at="problem.shape.data_spaces[0].projection[0]"):
        pm.import_timeloop(*written(tmp_path, shared=text))
