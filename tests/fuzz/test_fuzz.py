"""Every reader of outside input under inputs made of random numbers: refused or read, nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from tests.fuzz import campaign as module
from tests.fuzz import grammar
from tests.fuzz.campaign import Campaign, made, prepared, tried
from tests.fuzz.targets import TARGETS, Target, scaled

# The same inputs in every run, but for those that look for new faults.
SEED = SystemRandom().randrange(10**9) if os.environ.get("POLYMODEL_RANDOM") else 7
FEW = {"evaluate whole specs": 3, "validate whole specs": 3, "command lines": 6, "sweep stores": 4}


@pytest.mark.parametrize("name", TARGETS)
def test_a_few(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(FEW.get(name, 12)):
        found = tried(TARGETS[name], SEED, number, tmp_path)
        assert not found.fault, f"--replay {name!r} --seed {SEED} --number {number}\n{found.trace}"


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("number expressions", grammar.expression),
        ("set expressions", grammar.set_expression),
        ("constraints", grammar.constraint),
        ("one-line Einsums", grammar.einsum),
        ("where", grammar.comparison),
        ("templates", grammar.template),
    ],
)
def test_what_hypothesis_finds(name: str, write: Callable[[Random], str], tmp_path: Path) -> None:
    """The same grammars, with inputs that shrink."""

    @settings(max_examples=40, deadline=None)
    @given(st.randoms(use_true_random=False))
    def refused_or_read(random: Random) -> None:
        with suppress(pm.PolymodelError):
            TARGETS[name].read(grammar.slipped(random, write), tmp_path)

    refused_or_read()


def test_inputs_are_made_again_from_their_number() -> None:
    for target in TARGETS.values():
        assert made(target, 3, 5) == made(target, 3, 5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are watched through /proc")
def test_a_campaign_sees_faults_hangs_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(number: int, _: Path) -> None:
        if number == 3:
            raise KeyError(number)
        if number == 5:
            while True:
                pass
        if number == 7:
            os.kill(os.getpid(), 9)
        if number == 9:
            bytearray(300_000_000)[::4096] = b"x" * len(range(0, 300_000_000, 4096))

    made_of = {"bad": Target("bad", 12, lambda random: 0, read)}
    monkeypatch.setattr(module, "TARGETS", made_of)
    monkeypatch.setattr(module, "made", lambda target, seed, number: number)
    # Far more processor time than 300 MB of new pages take on a slow machine: number 9 is not a hang.
    monkeypatch.setattr(module, "SECONDS", 3.0)
    # A child begins with its parent's own pages, however much that once had; those of libraries come later.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    held = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    monkeypatch.setattr(module, "BYTES", held * 1024 + 200_000_000)
    campaign = Campaign(list(made_of.values()), 1, 1, piece=12)
    campaign.run()
    found = campaign.counts["bad"].faults
    assert {n for numbers in found.values() for n in numbers} == {3, 5, 7, 9}
    assert found["hang"] == [5]
    assert found["more than 1 GB"] == [9]
    assert "KeyError" in " ".join(found)
    assert campaign.counts["bad"].inputs >= 12


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are watched through /proc")
def test_a_million() -> None:
    """10^6 inputs over all readers: no crash, no hang of 5 s of processor time, no process of 1 GB."""
    with prepared():
        campaign = Campaign(scaled(10**6), SEED, jobs=2)
        campaign.run(tell=lambda text: sys.stderr.write(f"{text}\n\n"))
    sys.stderr.write(campaign.table() + "\n")
    assert not campaign.faults, f"seed {SEED}\n{campaign.table()}"
    assert sum(c.inputs for c in campaign.counts.values()) >= 10**6
