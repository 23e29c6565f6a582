"""Reference data of tilings: which check a file's content asks for.

Matrices that records name are looked for in a folder `matrices` beside the file or above it, then in the
folder of data that is given, then among the generated ones.
"""

from __future__ import annotations

from tests.reference import tiling_elementwise, tiling_guillotine, tiling_matmul, tiling_swift
from tests.reference.topics import Topics

_TOPICS = Topics(
    {
        "matmul": (tiling_matmul.is_matmul, tiling_matmul.check),
        "elementwise": (tiling_elementwise.is_elementwise, tiling_elementwise.check),
        "guillotine": (tiling_guillotine.is_optimum, tiling_guillotine.check),
        "tiler-swift": (tiling_swift.is_reproduction, tiling_swift.check),
    }
)
topics_of, check = _TOPICS.of, _TOPICS.check
