"""Specs with very many parts: an answer or a refusal by name, in bounded time of a processor."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

import polymodel as pm
from polymodel.analysis.symbolic import cross_branch_residency
from polymodel.cli import main
from polymodel.schedule.legality import MAX_READERS
from polymodel.workload.resolve import MAX_EINSUMS

ARCH = """\
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, tensors: {keep: All}, actions: [{name: read, energy: 1, throughput: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: 1}]}
"""


def spec(sizes: str, einsums: list[str], tensors: list[str], below: str) -> str:
    """All tensors in DRAM, and the rest of the mapping below."""
    listed = "".join(f"  - {e}\n" for e in einsums)
    return (
        f"{ARCH}workload:\n  rank_sizes: {sizes}\n  bits_per_value: {{All: 8}}\n  einsums:\n{listed}"
        f"mapping:\n  nodes:\n  - !Storage {{component: DRAM, tensors: [{', '.join(tensors)}]}}\n{below}"
    )


def branches(names: list[str]) -> str:
    return "  - !Sequential\n    nodes:\n" + "".join(
        f"    - !Compute {{einsum: {n}, component: MAC}}\n" for n in names
    )


def ran(
    command: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str], seconds: float = 8.0
) -> tuple[int, str]:
    """Exit code and what was told; with room, since machines differ."""
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    begun = process_time()
    code = main([command, str(folder / "s.yaml")])
    assert process_time() - begun < seconds
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "count", [MAX_EINSUMS + 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (MAX_EINSUMS, 5000))]
)
def test_einsums_in_a_chain(count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = [f"T{i}" for i in range(count + 1)]
    einsums = [f"T{i + 1}[m, n] = T{i}[m, n]" for i in range(count)]
    text = spec("{M: 8, N: 6}", einsums, tensors, branches(tensors[1:]))
    code, told = ran("validate", text, tmp_path, capsys, 12)
    assert code == (0 if count <= MAX_EINSUMS else 2)
    if code:
        assert f"the workload has {count} Einsums, at most {MAX_EINSUMS} are taken" in told
        assert "remedy" in told


def fused(count: int) -> str:
    """Products in a row, fused over the rows of the first; their weights come a tile at a time."""
    made = [f"T{i}" for i in range(count + 1)]
    weights = [f"W{i}" for i in range(count)]
    einsums = [f"T{i + 1}[m, n{i + 1}] = T{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]" for i in range(count)]
    sizes = f"{{M: 64, {', '.join(f'N{i}: 16' for i in range(count + 1))}}}"
    below = (
        "  - !Temporal {rank_variable: m, tile_shape: 10}\n"
        f"  - !Storage {{component: DRAM, tensors: [{', '.join(made[1:-1])}]}}\n  - !Sequential\n    nodes:\n"
    )
    for i in range(count):
        below += (
            f"    - !Nested\n      nodes:\n      - !Temporal {{rank_variable: n{i + 1}, tile_shape: 4}}\n"
            f"      - !Storage {{component: BUF, tensors: [W{i}]}}\n"
            f"      - !Compute {{einsum: T{i + 1}, component: MAC}}\n"
        )
    text = spec(sizes, einsums, [made[0], made[-1], *weights], below)
    return text.replace(
        "  - !Compute {name: MAC", "  - !Memory {name: BUF, size: inf}\n  - !Compute {name: MAC"
    )


def test_sizes_of_tiles_are_worked_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again for every Einsum: of twice as many there are about twice as many."""
    asked: list[object] = []
    whole = cross_branch_residency._elements
    monkeypatch.setattr(cross_branch_residency, "_elements", lambda *of: (asked.append(of), whole(*of))[1])
    found = []
    for count in (5, 10, 20):
        asked.clear()
        (tmp_path / "s.yaml").write_text(fused(count), encoding="utf-8")
        assert pm.evaluate(pm.load(tmp_path / "s.yaml")).analysis.engine == "symbolic"
        found.append(len(asked))
    assert found[0] > 0
    assert found[2] - found[1] <= 2.2 * (found[1] - found[0])


@pytest.mark.slow
def test_a_hundred_fused_einsums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("evaluate", fused(100), tmp_path, capsys, 15)[0] == 0


@pytest.mark.parametrize(
    "readers", [pytest.param(MAX_READERS, marks=pytest.mark.slow), MAX_READERS + 1, 2 * MAX_READERS]
)
def test_readers_of_a_tensor(readers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["T", *(f"Y{i}" for i in range(readers))]
    einsums = ["T[m, n] = X[m, n]", *(f"{y}[m, n] = T[m, n]" for y in names[1:])]
    loop = "  - !Temporal {rank_variable: m, tile_shape: 2}\n"
    text = spec("{M: 8, N: 6}", einsums, ["X", *names], loop + branches(names))
    code, told = ran("validate", text, tmp_path, capsys, 15)
    assert code == (0 if readers <= MAX_READERS else 3)
    if code:
        assert f"T is read by {readers} Einsums of a mapping" in told


COMPUTE = "  - !Compute {einsum: Y, component: MAC}\n"


def test_loops_in_a_nest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [max(1, 2**20 >> min(i + 1, 20)) for i in range(200)]
    loops = "".join(f"  - !Temporal {{rank_variable: m, tile_shape: {s}}}\n" for s in sizes)
    text = spec("{M: 1048576, N: 64}", ["Y[m] = A[m, n]"], ["A", "Y"], loops + COMPUTE)
    assert ran("evaluate", text, tmp_path, capsys)[0] == 0


def test_rank_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"v{i}" for i in range(60)]
    sizes = f"{{{', '.join(f'{n.upper()}: 2' for n in names)}}}"
    loops = "".join(f"  - !Temporal {{rank_variable: {n}, tile_shape: 1}}\n" for n in names)
    einsum = f"Y[{', '.join(names[:30])}] = A[{', '.join(names)}]"
    text = spec(sizes, [einsum], ["A", "Y"], loops + COMPUTE)
    assert ran("evaluate", text, tmp_path, capsys)[0] == 0
