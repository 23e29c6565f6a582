"""Small random factors, for the tests of multiplication with reuse."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import polymodel as pm


@st.composite
def factors(draw: st.DrawFn, most: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """A and B with sizes that meet; often with empty rows and columns, sometimes empty altogether."""
    i, k, j = (draw(st.integers(1, most)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = []
    for shape in ((i, k), (k, j)):
        dense = (rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]))).astype(int)
        dense[rng.random(shape[0]) < draw(st.sampled_from([0.0, 0.4]))] = 0
        found.append(dense)
    return found[0], found[1]


def tensors(a: np.ndarray, b: np.ndarray) -> tuple[pm.SparseTensor, pm.SparseTensor]:
    return pm.SparseTensor.from_dense("A", ("I", "K"), a), pm.SparseTensor.from_dense("B", ("K", "J"), b)
