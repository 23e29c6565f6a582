"""Steps of a search on workers elsewhere: the answer is that of one process, to the last byte."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.cli.app import main
from polymodel.governor import Crew, crew
from polymodel.mapper import search
from tests.faults import refused
from tests.mapper.test_inner_levels import deep_spec
from tests.mapper.test_search import CHAIN, spec_of


class Apart(ThreadPoolExecutor):
    """What is sent and what comes back is pickled, as between processes."""

    sent = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sent += 1
        data = pickle.dumps((fn, args))

        def run() -> bytes:
            action, given = pickle.loads(data)
            return pickle.dumps(action(*given))

        result: Future[Any] = Future()
        super().submit(run).add_done_callback(lambda done: self._arrived(done, result))
        return result

    @staticmethod
    def _arrived(done: Future[bytes], result: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            result.set_result(pickle.loads(done.result()))
        else:
            result.set_exception(pickle.loads(pickle.dumps(error)))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """Searches by several workers take these."""
    with Apart(2) as executor:

        @contextmanager
        def some(count: int) -> Iterator[Crew | None]:
            yield Crew(executor, count, lambda given: given) if count > 1 else None

        monkeypatch.setattr(search, "crew", some)
        yield executor


def chain() -> pm.Spec:
    fans = [{"name": "X", "fanout": 2, "may_reuse": "All"}]
    return spec_of(CHAIN, {"M": 4, "N": 2, "K": 2, "P": 2}, 200, 0, fans)


def answer(found: pm.Front) -> object:
    """All that a front tells but for seconds."""
    stages = sorted(row[:-1] for row in found.stages.values.tolist())
    return found.table().rows, [p.yaml for p in found], found.notes, found.bounds, stages


CASES = {
    "chain": (chain, {"objectives": ["energy", "latency"]}),
    "chain within 5 %": (chain, {"objectives": ["energy", "latency"], "eps": 0.05}),
    "peaks": (chain, {"objectives": ["energy", "working_set:GLB"], "constraints": {"max_fused_loops": 1}}),
    "cut": (lambda: deep_spec(random.Random(1), 2), {"objectives": ["energy", "latency"]}),
    "cut again": (lambda: deep_spec(random.Random(0), 3, "Outputs"), {"objectives": ["energy"]}),
}


@pytest.mark.thin(99)
@pytest.mark.parametrize(
    "name",
    ["chain", "cut", *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in ("chain", "cut"))],
)
def test_every_byte_is_that_of_one_process(name: str, elsewhere: Apart) -> None:
    made, asked = CASES[name]
    spec = made()
    one = pm.explore(spec, **asked)
    assert not elsewhere.sent
    several = pm.explore(spec, workers=2, **asked)
    assert elsewhere.sent > 4
    assert len(one)
    assert one.complete
    assert answer(several) == answer(one)


@pytest.mark.slow
def test_a_store_of_either_serves_the_other(elsewhere: Apart, tmp_path: Path) -> None:
    one = pm.explore(chain(), objectives=["energy"], store=tmp_path / "one")
    sent = elsewhere.sent
    again = pm.explore(chain(), objectives=["energy"], store=tmp_path / "one", workers=2)
    assert elsewhere.sent == sent, "all of it was done"
    first = pm.explore(chain(), objectives=["energy"], store=tmp_path / "two", workers=2)
    last = pm.explore(chain(), objectives=["energy"], store=tmp_path / "two")
    for other in (again, first, last):
        assert answer(other) == answer(one)


class Waiting(ThreadPoolExecutor):
    """Workers that never answer."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


class Broken(ThreadPoolExecutor):
    """Workers that end."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        result: Future[Any] = Future()
        result.set_exception(BrokenExecutor("a process ended"))
        return result


def given(monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor) -> None:
    @contextmanager
    def some(count: int) -> Iterator[Crew]:
        yield Crew(executor, count, lambda given: given)

    monkeypatch.setattr(search, "crew", some)


def test_the_time_limit_holds_whatever_workers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, Waiting(2))
    begun = time.monotonic()
    found = pm.explore(chain(), objectives=["energy"], workers=2, time_limit=1.0)
    assert not found.complete
    assert time.monotonic() - begun < 20  # of machines that do much else
    assert len(found)


def test_workers_that_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, Broken(2))
    with refused("lost-workers", "workers") as caught:
        pm.explore(chain(), objectives=["energy"], workers=2)
    assert caught.value.code == "lost-workers"


def test_without_a_cluster_there_is_no_crew() -> None:
    with crew(4) as nobody:
        assert nobody is None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "cut again"])
def test_a_dask_cluster_finds_the_same(name: str, cluster: Any) -> None:
    import joblib

    made, asked = CASES[name]
    one = pm.explore(made(), **asked)
    with joblib.parallel_config("dask"):
        several = pm.explore(made(), workers=2, **asked)
    assert answer(several) == answer(one)
    done = cluster.run(lambda dask_worker: dask_worker.state.executed_count)
    assert sum(done.values()) > 4


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import joblib

    begun: list[int] = []

    def told(progress: object) -> None:
        if not begun:  # what this worker holds and does is made again by others
            begun.extend(cluster.run(os.getpid).values())
            os.kill(begun[0], signal.SIGKILL)

    one = pm.explore(chain(), objectives=["energy", "latency"])
    with joblib.parallel_config("dask"):
        found = pm.explore(chain(), objectives=["energy", "latency"], workers=2, progress=told)
    assert begun
    assert answer(found) == answer(one)


@pytest.mark.slow
def test_the_command_takes_the_workers_of_a_cluster(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for more in ([], ["--dask", cluster.scheduler.address]):
        assert main(["explore", "matmul", "simple_two_level", "--format", "csv", *more]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_a_cluster_that_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("polymodel.cli.cluster.PATIENCE", 0.2)
    assert main(["explore", "matmul", "simple_two_level", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
