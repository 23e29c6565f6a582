"""A short run of the fuzzer that follows branches, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not for this system")
@pytest.mark.parametrize("target", ["number expressions", "set expressions", "YAML", "FROSTT"])
def test_a_short_run(target: str) -> None:
    seed = f"-seed={os.getpid() if os.environ.get('POLYMODEL_RANDOM') else 1}"
    line = [sys.executable, "-m", "tests.fuzz.atheris", target, "-runs=20000", "-timeout=5", seed]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
