"""What a user sees who prints a spec or a part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import polymodel as pm
from polymodel.spec import files

WIDE = 120
LINES = 60


@pytest.fixture(scope="module")
def spec() -> pm.Spec:
    return pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8, N1=12, N2=10)


def test_a_workload_prints_as_a_table_of_einsums(spec: pm.Spec) -> None:
    assert str(spec.workload).splitlines() == [
        "Cascade: 2 Einsums, 5 tensors (intermediates T1)",
        "  Matmul1  T1[m, n1] = T0[m, n0] * W0[n0, n1]  m 16, n0 8, n1 12",
        "  Matmul2  T2[m, n2] = T1[m, n1] * W1[n1, n2]  m 16, n1 12, n2 10",
    ]
    assert repr(spec.workload) == "Cascade(Matmul1, Matmul2)"
    named = replace(spec.workload, name="chain")
    assert str(named).startswith("Cascade chain: 2 Einsums, ")
    assert repr(named) == "Cascade(chain: Matmul1, Matmul2)"


def test_an_einsum_prints_in_one_line(spec: pm.Spec) -> None:
    assert repr(spec.workload["Matmul1"]) == "Einsum(Matmul1: T1[m, n1] = T0[m, n0] * W0[n0, n1])"
    assert str(spec.workload["Matmul1"]) == "Matmul1: T1[m, n1] = T0[m, n0] * W0[n0, n1]; m 16, n0 8, n1 12"


def test_windows_copies_and_ranges_are_told() -> None:
    conv = pm.load("conv2d").workload
    assert "p+r" in str(conv).replace(" ", "")
    shifted = pm.load(
        {
            "workload": {
                "bits_per_value": {"All": 8},
                "iteration_space_shape": {"i": "-2 <= i < 5"},
                "einsums": [
                    {"name": "E", "is_copy_operation": True, "n_instances": 3, "tensor_accesses": [
                        {"name": "A", "projection": {"I": "i"}},
                        {"name": "B", "projection": {"I": "i"}, "output": True},
                    ]},
                ],
            }
        }
    )  # fmt: skip
    assert str(shifted.workload).splitlines() == [
        "Cascade: 1 Einsum, 2 tensors",
        "  E  B[i] = A[i] (copy) x 3  i -2..4",
    ]
    assert repr(shifted.workload) == "Cascade(E)"


def test_a_hierarchy_prints_its_components(spec: pm.Spec) -> None:
    lines = str(spec.arch).splitlines()
    assert lines[0] == "Hierarchy: DRAM, GLB, MAC"
    assert [line.split()[0] for line in lines[1:]] == ["DRAM", "GLB", "MAC"]
    assert "262.1 kb" in lines[2]
    assert repr(spec.arch) == "Hierarchy(DRAM, GLB, MAC)"
    named = replace(spec.arch, name="small")
    assert str(named).startswith("Hierarchy small: DRAM, GLB, MAC\n")
    assert repr(named) == "Hierarchy(small: DRAM, GLB, MAC)"


def test_what_a_machine_says_of_its_tensors_fanouts_and_links_is_shown() -> None:
    read, write = ({"name": n, "energy": 1e-12, "bits_per_action": 64} for n in ("read", "write"))
    link = {"energy_per_bit_hop": 5e-14, "topology": "mesh", "throughput": 64e9}
    dims = [
        {"name": "X", "fanout": 4},
        {"name": "Y", "fanout": 2, "may_reuse": "Outputs", "broadcast_partials": True, "link": link},
    ]
    memory = {"type": "Memory", "name": "GLB", "size": 64, "ports": "separate", "buffering": "single"}
    memory |= {"read_first": True, "fill_drain_latency": 1e-6, "clock": 1e9, "actions": [read, write]}
    memory |= {"tensors": {"keep": "~Intermediates", "may_keep": "All"}}
    compute = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0}]}
    nodes = [memory, {"type": "Container", "name": "PE", "spatial": dims}, compute]
    lines = str(pm.load({"arch": {"nodes": nodes, "assume_overlap": False}}).arch).splitlines()
    assert lines[1:] == [
        "  transfers do not overlap compute",
        "  GLB (memory): 64 b; read 1 pJ/action; write 1 pJ/action; keeps ~Intermediates; may keep All; "
        "partial sums are read first; ports separate; buffering single; read: 64 b per action; "
        "write: 64 b per action; fill and drain 1 µs; clock 1 GHz",
        "  per PE (X x 4, Y x 2; 8 in all):",
        "    Y: may reuse Outputs; partial sums go to all; mesh, 50 fJ/b per hop, 64 Gb/s",
        "    MAC (compute): compute 0 J/op",
    ]


def test_a_spec_prints_its_parts(spec: pm.Spec) -> None:
    text = str(spec)
    assert text.startswith("Spec(")
    for part in (spec.workload, spec.arch, spec.mapping):
        assert f"\n{part}" in text


def test_a_spec_without_values_says_what_it_waits_for() -> None:
    access = [{"name": "A", "projection": ["i"]}, {"name": "B", "projection": ["i"], "output": True}]
    einsums = [{"name": "E", "tensor_accesses": access}]
    section = {"bits_per_value": {"All": 8}, "rank_sizes": {"I": "N"}, "einsums": einsums}
    waiting = pm.load({"symbols": {"N": None}, "workload": section})
    assert str(waiting).splitlines()[-1] == "workload: waits for the value of N"
    assert "Cascade: 1 Einsum" in str(waiting.bind(N=4))
    assert str(pm.Spec()) == repr(pm.Spec()) == "Spec()"


@pytest.mark.slow
def test_what_prints_is_short() -> None:
    names = files.names()
    for name in names:
        spec = pm.load(name)
        parts: list[object] = [spec.arch] if spec.raw_arch is not None else [spec.workload, *spec.workload]
        for part in parts:
            assert len(repr(part)) <= WIDE
            assert "\n" not in repr(part)
            assert len(str(part).splitlines()) <= LINES
            assert "Affine(" not in str(part)
    assert names


def test_of_a_long_workload_both_ends_are_shown() -> None:
    einsums = [
        {"name": f"E{i}", "tensor_accesses": [
            {"name": f"T{i}", "projection": ["m"]},
            {"name": f"T{i + 1}", "projection": ["m"], "output": True},
        ]}
        for i in range(100)
    ]  # fmt: skip
    section = {"bits_per_value": {"All": 8}, "rank_sizes": {"M": 4}, "einsums": einsums}
    workload = pm.load({"workload": section}).workload
    lines = str(workload).splitlines()
    assert lines[9] == "  ... 84 more; one of them: workload[name]"
    assert (lines[1].split()[0], lines[-1].split()[0], len(lines)) == ("E0", "E99", 18)
    assert repr(workload) == "Cascade(E0, E1, E2, E3, ..., E96, E97, E98, E99)"
