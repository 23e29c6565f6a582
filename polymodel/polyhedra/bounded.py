"""A bound on isl's work: what takes too long ends in a refusal, not in waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

from polymodel.errors import Refused

OPERATIONS = 20_000_000  # isl's own count of elementary steps; some seconds


@contextmanager
def bounded(message: str, remedy: str, operations: int | None = None) -> Iterator[None]:
    """Refuse with `message` and `remedy` when isl needs more than `operations` steps inside."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(OPERATIONS if operations is None else operations)
    try:
        yield
    except isl.Error as error:
        if "maximal number of operations exceeded" not in str(error):
            raise
        raise Refused(message, remedy) from None
    finally:
        context.set_max_operations(0)
