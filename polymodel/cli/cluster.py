"""The option `--dask`: a cluster whose workers do the work of a command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polymodel.errors import Diagnostic, SpecError

PATIENCE = 10.0  # seconds within which a scheduler must answer


@contextmanager
def on_cluster(options: argparse.Namespace) -> Iterator[None]:
    """Context in which shared work goes to the workers of the named cluster, if any: to `--workers` of them,
    or to all. Raises SpecError if the scheduler does not answer."""
    address = getattr(options, "dask", None)
    if address is None:
        yield
        return
    import logging

    import distributed
    import joblib

    logging.getLogger("distributed").setLevel(logging.ERROR)
    connected: Any = distributed.Client
    known = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = connected(**known, timeout=PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        remedy = "give the address that `dask scheduler` prints, such as tcp://127.0.0.1:8786, or its file"
        fault = Diagnostic(f"no Dask scheduler answers at {address}", remedy, "--dask", code="no-cluster")
        raise SpecError([fault]) from error
    with client, joblib.parallel_config("dask"):
        threads = sum(client.nthreads().values())
        if not threads:
            remedy = f"start some, such as `dask worker {address}`"
            fault = Diagnostic(
                f"the Dask cluster at {address} has no workers", remedy, "--dask", code="no-cluster"
            )
            raise SpecError([fault])
        if options.workers == 1:
            options.workers = max(threads, 2)  # a single worker is this process itself
        yield
