"""Runs under AccelForge's own Python, not polymodel's: times its `evaluate_mapping` on some tile points.

`python accelforge_points.py SPEC POINTS OUT`: POINTS is a JSON list of template variables of SPEC, one
mapping each; OUT gets JSON with `seconds` (CPU, median of one point, its spec already read) and `counts`, for
each point `einsum component tensor action` -> bits (of compute: operations), and the totals.
"""

import json
import sys
import time
from pathlib import Path
from statistics import median

import accelforge

SEPARATOR = "<SEP>"


def counts(result):
    """The action columns of one evaluated mapping by name, with its total energy and latency."""
    found = {"energy": float(result.energy()), "latency": float(result.latency())}
    for column, value in result.to_dict().items():
        einsum, _, rest = column.partition(f"{SEPARATOR}action{SEPARATOR}")
        if rest:
            found[" ".join([einsum, *rest.split(SEPARATOR)])] = float(value)
    return found


def main() -> None:
    spec, points, out = sys.argv[1:]
    seconds, found = [], []
    for number, point in enumerate(json.loads(Path(points).read_text(encoding="utf-8"))):
        read = accelforge.Spec.from_yaml(spec, jinja_parse_data=point)
        if not number:
            read.evaluate_mapping()  # what happens once, such as compilation, is not timed
        start = time.process_time()
        result = read.evaluate_mapping()
        seconds.append(time.process_time() - start)
        found.append(counts(result))
    Path(out).write_text(json.dumps({"seconds": median(seconds), "counts": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
