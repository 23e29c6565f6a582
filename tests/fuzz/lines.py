"""Command lines: options that exist, with values that may be anything; never a traceback, never a bug."""

from __future__ import annotations

import io
import os
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

from polymodel.cli import main
from polymodel.cli.process import OUT_OF_MEMORY, TRACEBACK
from tests.fuzz import grammar
from tests.fuzz.mutate import NUMBERS, WORDS, wordwise

MATRIX = (
    "%%MatrixMarket matrix coordinate real general\n6 6 7\n1 1 1\n2 2 2\n3 1 3\n4 5 4\n5 5 5\n6 1 6\n6 6 7\n"
)
SPEC = """\
schema_version: 1
symbols: {TM: null}
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, tensors: {keep: All}, actions: [{name: read, energy: 1, throughput: 1}]}
  - !Memory {name: GLB, size: 4000, tensors: {keep: All}, actions: [{name: write, energy: 1, throughput: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: 1}]}
workload: {rank_sizes: {M: 8, N: 6, K: 4}, bits_per_value: {All: 8}, einsums: ["Z[m, n] = A[m, k] * B[k, n]"]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Compute {einsum: Z, component: MAC}
"""
_SEEDS = (
    "validate s.yaml --set TM=3",
    "validate matmul simple_two_level",
    "show s.yaml --set TM=2 --format html --units bytes",
    "evaluate s.yaml --set TM=4 --table energy --format csv",
    "evaluate s.yaml --set TM=4 --engine exact --format json --live",
    "evaluate s.yaml --var N=4 --out o --parquet",
    "forms s.yaml --tiles --ranks --assume divides --objective edp --format latex",
    "forms s.yaml --ranks --at TM=4 --minimize accesses:DRAM --under working_set:GLB=S --out f",
    "forms s.yaml --ranks --at TM=4 --objective energy --against s.yaml --limit TM",
    "compare s.yaml s.yaml --set TM=3 --with s.yaml",
    "timeline s.yaml --set TM=3 --component GLB --format csv --out t",
    "sweep s.yaml --symbol TM=1,2,4 --device cpu --where 'TM <= 4' --objective energy --keep top --top 2",
    "sweep s.yaml --symbol TM=divisors(m) --eps 0.1 --memory 1MB --store st --no-prune --workers 1",
    "sweep s.yaml --symbol TM=all_sizes(m) --pareto --objective edp --format json --out b --no-resume",
    "tile a.mtx --fit words --capacity 4 --tiler qtree+merge --objective tiles --with rolled:2",
    "tile a.mtx --op matmul --tile 2,2,2 --order ikj --pes 2 --bandwidth 1.5 --capacity 9",
    "tile --estimate --shape 30,40 --density 0.1 --config 10 --clock 500 --format json",
    "tile a.mtx --fit CSR --capacity 512 --ranks I,J --run all --names I,J --compare",
    "tile a.mtx --tune --capacity 3 --with transposed",
    "tile a.mtx --op multiply --capacity 3 --simulate 2 --seed 1",
    "tile a.mtx a.mtx a.mtx --op chain --capacity 60 --pes 4 --split 1 --buffers 2 --keep-configured",
    "sparse a.mtx --tiles 2,3 --slices 2 --ranks I,J --format csv",
    "sparse a.mtx --fit --tiles 2,3 --slices 2",
    "execute tensaurus/spmm A=a.mtx B=random:0.5 --size N=4 --seed 3 --check",
    "execute teaal/gamma A=a.mtx B=a.mtx --format json",
    "traffic teaal/gamma_traffic A=a.mtx B=a.mtx --format csv",
    "tensaurus spmm A=a.mtx B=dense --size N=4",
    "explore s.yaml --objective energy --objective buffer:GLB --eps 0.1 --time-limit 1 --format json",
    "explore s.yaml --sizes all --max-fused-loops 1 --fuse Nothing --unfused All --time-limit 1 --out e",
    "explore s.yaml --layer-by-layer --time-limit 1",
    "codesign e.yaml --hardware S=1,2 --objective area --limit 'area <= 1' --where 'S <= 2'",
    "codesign e.yaml --hardware S=1,2 --network a=e.yaml --weight a=2 --table blocks",
    "distribute e.yaml --chips 1,2 --split m --topology mesh --shape 1x2 --throughput 1GB/s --time-limit 1",
    "distribute e.yaml --split m --stages Z --batches 1,2 --chips 2 --within k --out d",
    "distribute e.yaml --split m,k --sharded --objective edp --energy-per-bit-hop 2pJ --format csv",
    "gallery timeloop_page --format json",
    "export accelforge s.yaml --set TM=2 --out ex",
    "export timeloop s.yaml --einsum Z --allow reuse",
    "schema arch",
    "new n.yaml",
    "new f.yaml --from matmul/output_stationary",
)
_FLAGS = (
    "--set", "--var", "--symbol", "--where", "--objective", "--out", "--format", "--engine", "--table",
    "--fit", "--capacity", "--with", "--eps", "--top", "--memory", "--store", "--component", "--help",
    "--version", "--", "-x", "--live", "--names", "--ranks", "--size", "--tile", "--shape", "--density",
    "--config", "--clock", "--cycles", "--fuse", "--sizes", "--time-limit", "--units",
)  # fmt: skip


@cache
def _words() -> tuple[str, ...]:
    return tuple(dict.fromkeys(w for seed in _SEEDS for w in shlex.split(seed)))


def _value(random: Random, word: str) -> str:
    if random.random() < 0.15:
        return grammar.comparison(random) if random.random() < 0.5 else grammar.expression(random)
    return wordwise(random, word, (*NUMBERS, *WORDS, *_words()), 2)


def line(random: Random) -> list[str]:
    """A command line that is right but for a few words."""
    words = shlex.split(random.choice(_SEEDS))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        words = words or [""]
        at = random.randint(1, len(words) - 1) if len(words) > 1 else 0
        act = random.randrange(5)
        if act <= 1:
            words[at] = _value(random, words[at])
        elif act == 2:
            words[at:at] = [random.choice(_FLAGS), _value(random, random.choice(_words()))]
        elif act == 3:
            del words[at]
        else:
            words[at] = random.choice(_words())
    return [w for w in words if not _huge(w)]


def _huge(word: str) -> bool:
    """What asks for much work, and would be right to: no fault of the reader."""
    return word in ("gpt3_6.7B", "--export") or "workers" in word


def run(words: list[str], folder: Path) -> None:
    """In a folder with a spec and a matrix. Any exit code but that of a bug."""
    (folder / "s.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "a.mtx").write_text(MATRIX, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    try:
        with patch.dict(os.environ, {TRACEBACK: "1"}), redirect_stdout(out), redirect_stderr(err):
            code: object = main(words)
    except SystemExit as ending:
        code = ending.code
    if code not in (0, 1, 2, 3) or "Traceback" in err.getvalue() or OUT_OF_MEMORY in err.getvalue():
        raise AssertionError(f"exit code {code}: {err.getvalue()[-2000:]}")
    if code in (2, 3) and not err.getvalue().strip():
        raise AssertionError("a refusal without a word")
