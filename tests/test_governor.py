"""Limits of time and memory hold everywhere: in loops that look, in those that do not, in every command."""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import polymodel as pm
from polymodel import factoring, governor
from polymodel.cli import build_parser, main
from polymodel.sparse.files import read_tensor
from polymodel.spec.faults import Source
from polymodel.spec.template import render
from polymodel.sweeps.values import numbers_of
from tests.faults import faults, refused
from tests.seeds import seeds
from tests.sweep.small import matmul

GRACE = 8.0  # seconds: the machine may be busy, and libraries are loaded first
BASE = 350  # MB of the libraries that any command may load


def source_of(text: str) -> Source:
    lines = tuple(text.split("\n"))
    return Source("t.yaml", lines, lines, tuple(range(1, len(lines) + 1)), None)


def endless() -> None:
    while True:
        pass


def test_a_loop_that_does_not_look_is_stopped() -> None:
    begun = time.monotonic()
    told = r"the time limit of 0\.2 s is over\n  remedy: allow more time"
    with pytest.raises(pm.TimeUp, match=told), pm.limits(time=0.2):
        endless()
    assert time.monotonic() - begun < 0.2 + GRACE
    time.sleep(0.25)  # the timer is off


def test_time_that_others_have_the_processors_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command that searches: its answer takes as much work on a busy machine, which takes longer."""
    begun = time.monotonic()
    monkeypatch.setattr(governor, "waited_for_processors", lambda: 0.75 * (time.monotonic() - begun))

    def longer() -> None:
        while time.monotonic() < begun + 0.3:
            pass
        assert governor.left() > 0
        assert governor.crowded() == pytest.approx(4, rel=0.1)
        with pytest.raises(pm.TimeUp), pm.limits(time=0.01):
            endless()
        endless()

    with pytest.raises(pm.TimeUp), governor.counted_from(begun, 0.1, float("inf"), 0.0):
        longer()
    assert governor.crowded() == 1
    monkeypatch.undo()
    assert 0 <= governor.waited_for_processors() < 1e6
    assert governor.waited_for_processors("nobody") == 0
    assert time.monotonic() - 1e6 < governor.started() <= time.monotonic()


def test_the_narrower_limit_holds_and_the_wider_one_goes_on() -> None:
    with pm.limits(time=60):
        with pytest.raises(pm.TimeUp, match=r"0\.1 s"), pm.limits(time=0.1):
            endless()
        assert 0 < governor.left() <= 60
        with pytest.raises(pm.TimeUp, match=r"0\.1 s"), pm.limits(time=0.1), pm.limits(time=50):
            endless()
    assert governor.left() == float("inf")


@pytest.mark.slow
def test_no_array_passes_the_limit_of_memory() -> None:
    with pytest.raises(pm.MemoryUp, match="than the limit of 200 MB leaves"), pm.limits(memory="200MB"):
        np.ones(10**9)
    told = "numbering takes 1 GB, more than the limit of 200 MB leaves"
    with pytest.raises(pm.MemoryUp, match=told), pm.limits(memory="200MB"):
        governor.charge(10**9, "numbering")
    np.ones(10**8)


def test_limits_that_are_none() -> None:
    for wrong in (
        {"time": 0},
        {"time": "x"},
        {"time": True},
        {"memory": "3"},
        {"memory": 3},
        {"memory": "xMB"},
    ):
        with faults("wrong-type", at=""), pm.limits(**wrong):  # type: ignore[arg-type]  # wrong on purpose
            pass


def test_a_step_costs_next_to_nothing() -> None:
    begun = time.process_time()
    with pm.limits(time=100):
        for _ in range(200_000):
            governor.tick("looking")
    assert time.process_time() - begun < 2  # 0.02 s


@pytest.mark.parametrize(
    "text",
    [
        # Slices of one list, kept: 8 GB before they were counted.
        "{% set a = [1,2,3,4,5,6,7,8,9,10] * 10000 %}{% set ns = namespace(k=[]) %}"
        "{% for i in range(10000) %}{% set ns.k = [ns.k, a[:]] %}{% endfor %}",
        # Numbers that double without a product.
        "{% set ns = namespace(x=1) %}"
        "{% for i in range(150000) %}{% set ns.x = ns.x - (0 - ns.x) %}{% endfor %}",
        "{% set a = 'ab' * 100000 %}{% for i in range(90000) %}{% set b = a[1:] %}{% endfor %}",
    ],
)
def test_templates_copy_and_count_little(text: str) -> None:
    before, begun = governor.resident_bytes(), time.process_time()
    rendered, faults = render(text, source_of(text), {})
    assert rendered is None
    assert "too much work" in faults[0].message or "too large" in faults[0].message
    assert governor.resident_bytes() - before < 300e6
    assert time.process_time() - begun < 10


def test_slices_of_templates_are_what_they_were() -> None:
    text = "{{ [1,2,3,4][1:3] | join(',') }} {{ 'abcd'[1:] }} {{ 7 // 2 - 1 }} "
    text += "{{ (range(6) | list)[::2] | sum }}"
    rendered, faults = render(text, source_of(text), {})
    assert not faults
    assert rendered is not None
    assert rendered.text == "2,3 bcd 2 6"


def bomb(path: Path, growth: int, size: int) -> None:
    """A packed matrix that unfolds so many times, evenly."""
    lines, parts = growth * 1000, size // 4100
    with gzip.open(path, "wb", 9) as sink:
        sink.write(f"%%MatrixMarket matrix coordinate pattern general\n1000 1000 {lines * parts}\n".encode())
        for _ in range(parts):
            sink.write(b"%" + os.urandom(3000).hex().encode() + b"\n" + b"1 1\n" * lines)


@pytest.mark.slow
def test_a_small_packed_matrix_does_not_fill_the_memory(tmp_path: Path) -> None:
    """A file of 1 MB took 5 GB."""
    bomb(tmp_path / "m.mtx.gz", 240, 1_000_000)
    with faults("unknown-format", at=""):
        read_tensor(tmp_path / "m.mtx.gz")
    bomb(tmp_path / "n.mtx.gz", 36, 900_000)
    with pytest.raises(pm.MemoryUp), pm.limits(memory="130MB"):
        read_tensor(tmp_path / "n.mtx.gz")
    with pytest.raises(pm.TimeUp), pm.limits(time=0.05):
        read_tensor(tmp_path / "n.mtx.gz")


def test_factors_and_divisors() -> None:
    for n in range(1, 300):
        assert list(factoring.divisors(n)) == [d for d in range(1, n + 1) if n % d == 0]
        assert np.prod([p**e for p, e in factoring.prime_factors(n).items()]) == n
    assert factoring.divisors(2**62) == tuple(2**k for k in range(63))
    assert factoring.prime_factors((2**31 - 1) * (2**31 - 19)) == {2**31 - 19: 1, 2**31 - 1: 1}
    assert factoring.prime_factors(4099**3) == {4099: 3}
    assert factoring.prime_factors(2**61 - 1) == {2**61 - 1: 1}
    with refused("too-large", "103,680", "1,000"):
        factoring.divisors(897612484786617600, 1000)


def test_values_of_huge_symbols() -> None:
    begun = time.process_time()
    assert len(numbers_of("TM", pm.divisors("m"), {"m": 2**62})) == 63
    assert len(numbers_of("TM", pm.divisors(2**62 - 57), {})) < 100  # a prime: 2^31 trials before
    for choice in (pm.all_sizes("m"), range(2**62), pm.all_sizes(2**64)):
        with refused("too-large", "TM"):
            numbers_of("TM", choice, {"m": 2**62})
    with pytest.raises(pm.MemoryUp, match="listing the 15,000,000 values of TM"), pm.limits(memory="200MB"):
        numbers_of("TM", pm.all_sizes(15_000_000), {})
    assert time.process_time() - begun < 5


def test_a_huge_workload_is_explored_at_once() -> None:
    """Its divisors were found by 2^31 trials each time."""
    begun = time.process_time()
    found = pm.explore(pm.load("simple_two_level", "matmul", M=2**62), time_limit=20)
    assert len(found)
    assert time.process_time() - begun < 15


def test_a_search_takes_no_more_than_its_time() -> None:
    """One that was given 40 s took 78."""
    spec, begun = pm.load("gpt3_6.7B", "tpu_v4i"), time.process_time()
    assert len(pm.explore(spec, objectives="energy", time_limit=0.5))
    assert time.process_time() - begun < 0.5 + GRACE


@pytest.mark.slow
def test_a_sweep_ends_in_time_and_keeps_what_it_has(tmp_path: Path) -> None:
    symbols = {"TM": pm.all_sizes("m"), "TN": pm.all_sizes("n"), "TK": pm.all_sizes("k")}
    spec = matmul()
    symbols = {n: c for n, c in symbols.items() if n in spec.symbols} or {"TM": pm.all_sizes("m")}
    found = pm.sweep(spec, symbols, time_limit=1e-6, store=tmp_path)
    assert not found.complete
    assert any("stopped at the time limit" in n for n in found.notes)
    whole = pm.sweep(spec, symbols, store=tmp_path)
    assert whole.complete
    assert len(whole.frame)
    for workers in (1, 2):
        with pm.limits(time=60):
            assert pm.sweep(spec, symbols, workers=workers).complete


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seconds"), seeds(1, [(5000, 3), (20_000, 6)]))
def test_tiles_of_products_are_found_in_time(size: int, seconds: int) -> None:
    """One way to grow tiles took all the time that there was, and more."""
    at = np.random.default_rng(1).integers(0, size, (2, 20 * size))
    a = scipy.sparse.coo_array((np.ones(20 * size), (at[0], at[1])), (size, size)).tocsr()
    begun = time.process_time()
    found = pm.tile_matmul(a, capacity=4000, time_limit=seconds)
    assert found.best.fits
    assert any("in time" in n or "out of time" in n for n in found.told)
    assert time.process_time() - begun < seconds + GRACE
    with pytest.raises(pm.TimeUp, match=r"while multiplying|is over"):
        pm.tile_matmul(a, capacity=4000, time_limit=1e-3)


COMMANDS = {
    "import timeloop": "import timeloop {slow}",
    "import accelforge": "import accelforge {slow}",
    "import onnx": "import onnx {slow}",
    "import zigzag": "import zigzag {slow}",
    "export": "export accelforge {slow}",
    "tile": "tile {matrix} --op matmul",
    "execute": "execute tensaurus/spmm A={matrix} B=random:0.5 --size N=64",
    "validate": "validate simple_two_level {slow}",
    "show": "show simple_two_level {slow}",
    "evaluate": "evaluate simple_two_level {slow}",
    "forms": "forms simple_two_level {slow}",
    "timeline": "timeline simple_two_level {slow} --component GLB",
    "compare": "compare {slow} {slow} --with simple_two_level",
    "sweep": "sweep simple_two_level {slow}",
    "explore": "explore tpu_v4i gpt3_6.7B",
    "codesign": "codesign simple_two_level {slow} --hardware S=1,2",
    "distribute": "distribute simple_two_level {slow} --split m",
    "gallery": "gallery",
    "tensaurus": "tensaurus SpMM {matrix}",
    "sparse": "sparse {matrix}",
    "traffic": "traffic tensaurus/spmm A={matrix} B=random:0.5 --size N=64",
}


def run(arguments: list[str]) -> tuple[int, str, float, float]:
    """Exit code, stderr, seconds and peak MB of a command in a process of its own."""
    code = (
        "import sys\nfrom polymodel.cli import main\ncode = main()\n"
        "status = open('/proc/self/status').read()\n"  # ru_maxrss is inherited from the process that forks
        "peak = int(status.split('VmHWM:')[1].split()[0]) / 1024\n"
        "print('peak', peak, file=sys.stderr)\nsys.exit(code)"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    peak = done.stderr.rpartition("peak ")[2]
    return done.returncode, done.stderr, time.monotonic() - begun, float(peak) if peak else 0.0


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Inputs that take long: macros that expand for many seconds, and a matrix with much to read."""
    folder = tmp_path_factory.mktemp("hard")
    nests = "".join(
        f"    - {{name: E{i}, tensor_accesses: [{{name: A{i}, projection: [m, k]}}, "
        f"{{name: B{i}, projection: [k, n]}}, {{name: C{i}, projection: [m, n], output: True}}]}}\n"
        for i in range(3000)
    )
    slow = folder / "slow.yaml"
    slow.write_text(
        f"workload:\n  rank_sizes: {{M: 64, N: 64, K: 64}}\n  bits_per_value: {{All: 8}}\n  einsums:\n{nests}"
    )
    bomb(folder / "m.mtx.gz", 36, 900_000)
    return {"slow": slow, "matrix": folder / "m.mtx.gz"}


def test_every_command_with_limits_is_tried() -> None:
    """Whoever adds one adds a line to `COMMANDS`."""
    limited: set[str] = set()

    def look(parser: argparse.ArgumentParser, name: str) -> None:
        if {"--time-limit", "--memory"} <= {word for a in parser._actions for word in a.option_strings}:
            limited.add(name)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    look(inner, f"{name} {word}".strip())

    look(build_parser(), "")
    assert limited == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds(1, COMMANDS))
def test_every_command_keeps_to_its_limits(name: str, hard: dict[str, Path]) -> None:
    words = [w.format(**hard) for w in COMMANDS[name].split()]
    at = 2 if words[0] == "import" else 1
    code, err, seconds, _ = run([*words[:at], "--time-limit", "1", *words[at:]])
    assert seconds < 1 + 3 + GRACE
    assert code in (0, 1, 2, 3), err
    assert "Traceback" not in err
    code, err, seconds, peak = run([*words[:at], "--memory", "150MB", "--time-limit", "20", *words[at:]])
    assert code in (0, 1, 2, 3), err
    assert "Traceback" not in err
    assert peak < BASE + 150


def test_wrong_limits_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "matmul", "--time-limit", "x", "--memory", "3"]) == 2
    err = capsys.readouterr().err
    assert "--time-limit x is not a time" in err
    assert "--memory 3 is not an amount of memory" in err


def test_a_command_that_is_stopped_says_so(capsys: pytest.CaptureFixture[str], hard: dict[str, Path]) -> None:
    assert main(["show", "simple_two_level", str(hard["slow"]), "--time-limit", "0.05"]) == 3
    assert capsys.readouterr().err.startswith("stopped: the time limit of 0.05 s is over")
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    assert main(["validate", "matmul", "--memory", "200MB"]) == 0
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == soft


def test_what_is_loaded_before_is_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine that took seconds, and the process beside ended the command before its own limit."""
    load = importlib.import_module

    def slowly(name: str) -> object:
        time.sleep(0.4)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", slowly)
    gc.disable()  # what is raised while Hypothesis looks at the collector of garbage is lost
    try:
        assert main(["validate", "matmul", "--time-limit", "0.3", "--memory", "300MB"]) == 3
    finally:
        gc.enable()
    assert capsys.readouterr().err.startswith("stopped: the time limit of 0.3 s is over")


def test_what_cannot_be_stopped_is_ended_from_beside() -> None:
    """One call into a library holds the interpreter: the process beside it ends it, and says why."""
    code = (
        "import polymodel.cli as cli, polymodel.cli.validate as validate, time, ctypes, sys\n"
        "def stuck(options):\n    libc = ctypes.PyDLL(None)\n    "
        "[libc.usleep(900000) for _ in [0]]\n    libc.sleep(30)\n    libc.sleep(30)\n    return '', 0\n"
        "validate.run = stuck\nsys.exit(cli.main())"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", "matmul", "--time-limit", "0.5"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert time.monotonic() - begun < 20
    assert done.returncode in (-9, 3)
    assert "the time limit" in done.stderr
