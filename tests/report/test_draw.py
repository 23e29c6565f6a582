"""Pictures of a spec's parts."""

from __future__ import annotations

from pathlib import Path

import polymodel as pm
from tests.faults import faults


def test_tree_and_machine_of_a_spec(tmp_path: Path) -> None:
    spec = pm.load("two_buffers", "matvec_chain/tiled_fused", M=4)
    tree, machine = pm.draw_looptree(spec), pm.draw_architecture(spec)
    for einsum in ("EinsumA", "EinsumB"):
        assert einsum in tree.svg
    for component in ("OffChipBuffer", "OnChipBuffer", "ComputeUnit"):
        assert component in tree.svg
        assert component in machine.svg
    assert tree.save(tmp_path / "tree.svg").read_text(encoding="utf-8") == tree.svg
    assert spec.mapping is not None
    assert "for nA: tile 4" in pm.draw_looptree(spec.mapping).svg


def test_loops_say_what_they_infer_where_the_einsums_are_known() -> None:
    spec = pm.load("fused_layer_fpga", "vgg_e_front/tiled_fused")
    assert spec.mapping is not None
    assert "infers" in pm.draw_looptree(spec).svg
    assert "infers" not in pm.draw_looptree(spec.mapping).svg


def test_what_is_missing_is_told() -> None:
    workload = pm.load("matmul")
    with faults("missing-section", at="mapping"):
        pm.draw_looptree(workload)
    with faults("missing-section", at="arch"):
        pm.draw_architecture(workload)
    with faults("wrong-type", "draw_looptree", at=""):
        pm.draw_looptree("matmul")  # type: ignore[arg-type]  # what a reader may try first
