"""How far the models that `fit_density` chooses are off at shapes of tiles and numbers of units that it did
not compare: `python -m benchmarks.density_shapes [--data DIR] [--large] [--name NAME ..]`.

Of the twelve structures (`tests/sparse/structures.py`), of the matrices of a folder of public ones
(`--data`), or of larger ones of the same structures (`--large`: 10^6 to 10^7 nonzeros). One row each, with
the CPU seconds of the fit, the largest error in relation to its tolerance first.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import polymodel as pm
from tests.reference.density_claims import named
from tests.sparse import off_shapes, structures


def matrices(options: argparse.Namespace) -> Iterator[tuple[str, pm.SparseTensor]]:
    """The matrices that are asked for, one at a time."""
    known = structures.LARGE if options.large else structures.MADE
    for name in known if options.name is None else options.name:
        yield name, known[name]().renamed("A", ("I", "K"))
    if options.data:
        yield from named(options.data)


def main() -> None:
    """Fit a model to each matrix, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of public matrices, besides the structures")
    parser.add_argument("--large", action="store_true", help="larger matrices of the same structures")
    parser.add_argument("--name", nargs="*", help="these structures only")
    rows = []
    for name, tensor in matrices(parser.parse_args()):
        before = time.process_time()
        fitted = pm.fit_density(tensor)
        seconds = time.process_time() - before
        away, text = off_shapes.row(name, tensor, fitted)
        rows.append((away, f"{text} {seconds:.1f} s |"))
        print(rows[-1][1], flush=True)
    print("\nWorst first:")
    print("\n".join(text for _, text in sorted(rows, reverse=True)))
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
