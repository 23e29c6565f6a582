"""A small chain and its front, for tests of what `pm.explore` returns."""

from __future__ import annotations

import pytest

import polymodel as pm

OBJECTIVES = ("energy", "latency", "buffer")


@pytest.fixture(scope="module")
def spec() -> pm.Spec:
    return pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8, N1=12, N2=10)


@pytest.fixture(scope="module")
def front(spec: pm.Spec) -> pm.Front:
    return pm.explore(spec, objectives=OBJECTIVES)
