"""Runs under AccelForge's own Python, not polymodel's: times its mapper on specs, one after the other.

`python accelforge_search.py SETTINGS OUT SPEC...`: SETTINGS is JSON with `objectives` (names of its metrics)
and `mapper` (fields of its mapper); OUT gets a JSON list with the wall and CPU seconds of each search in this
one process, without imports, reading, or evaluating the answer in detail, with the size it states for its
mapspace, and with the energy and latency of each mapping returned.
"""

import json
import os
import sys
import time
from pathlib import Path

import accelforge
from accelforge.frontend.mapper.metrics import Metrics
from accelforge.mapper.FFM.main import map_workload_to_arch
from accelforge.util.parallel import set_n_parallel_jobs


def main() -> None:
    settings, out, *specs = (Path(name).resolve() for name in sys.argv[1:])
    os.chdir(out.parent)  # it may write pictures where it runs
    set_n_parallel_jobs(1)
    given = json.loads(settings.read_text(encoding="utf-8"))
    answers = [searched(str(path), given["objectives"], given["mapper"]) for path in specs]
    out.write_text(json.dumps(answers), encoding="utf-8")


def searched(path, objectives, mapper) -> dict:
    """The answer of one search."""
    spec = accelforge.Spec.from_yaml(path)
    for name, value in mapper.items():
        if not hasattr(spec.mapper, name):
            sys.exit(f"its mapper has no setting {name}")
        setattr(spec.mapper, name, value)
    metrics = Metrics(0)
    for name in objectives:
        metrics |= Metrics[name.upper()]
    spec.mapper.metrics = spec.mapper.info_metrics = metrics
    wall, cpu = time.perf_counter(), time.process_time()
    result = map_workload_to_arch(spec, print_progress=False, eval_in_detail=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    columns = [f"Total<SEP>{name}" for name in objectives]
    values = [[float(v) for v in row] for row in result.data[columns].to_numpy()]
    return {"wall": wall, "cpu": cpu, "size": int(result.total_mappings), "values": values}


if __name__ == "__main__":
    main()
