"""Files and keys of other tools that are given by mistake are told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm

WORKLOAD = "- id: 0\n  operator_type: Gemm\n  equation: O[b][k]+=I[b][c]*W[c][k]\n"
HARDWARE = "name: small\nmemories: {sram: {size: 16384}}\noperational_array: {sizes: [4]}\n"
MAPPING = "- name: default\n  spatial_mapping: {D1: ['K, 4']}\n"


@pytest.mark.parametrize("text", [WORKLOAD, HARDWARE, MAPPING])
def test_a_file_of_zigzag_is_told_with_the_page_that_helps(text: str, tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text(text)
    with pytest.raises(pm.SpecError, match="this looks like a ZigZag file") as caught:
        pm.load(tmp_path / "theirs.yaml")
    assert [d.remedy for d in caught.value.diagnostics if "ZigZag" in d.message] == [
        "write its parts as docs/migrate/zigzag.md shows; there is no importer"
    ]
