"""The time of a tiled multiplication: a model with two rates and a cost per launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.model import Launch


@dataclass(frozen=True)
class MatmulMachine:
    """`pes`: multiplies per cycle. `bandwidth`: words per cycle between memory and buffers. `launch`: the
    cost of a pair of tiles for configuration and for filling the pipelines. The defaults describe one
    streaming kernel: a token per cycle."""

    pes: int = 1
    bandwidth: float = 1.0
    launch: Launch = field(default_factory=Launch)

    def __post_init__(self) -> None:
        faults = []
        for name in ("pes", "bandwidth"):
            object.__setattr__(self, name, plainly(getattr(self, name)))
        if isinstance(self.pes, bool) or not isinstance(self.pes, int) or self.pes < 1:
            message = f"pes {self.pes!r} is not a positive integer"
            faults.append(Diagnostic(message, "write e.g. 16", code="not-positive-integer"))
        rate = self.bandwidth
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not isfinite(rate) or rate <= 0:
            message = f"bandwidth {rate!r} is not a number above 0"
            faults.append(Diagnostic(message, "write words a cycle, e.g. 4", code="out-of-range"))
        if self.launch.cycles == "blocks" and self.pes != 1:
            message = f"cycles='blocks' with pes={self.pes}: the blocks multiply one pair a cycle"
            faults.append(Diagnostic(message, "leave pes out, or count tokens", code="inconsistent-values"))
        if faults:
            raise SpecError(faults)

    def overhead(self, pairs: int) -> int:
        """The cycles to configure and to fill the pipelines for the given number of launches."""
        return pairs * (self.launch.config("multiply") + self.launch.ramp)

    def cycles(self, multiplies: int, words: int, pairs: int) -> float:
        """Multiplies overlap with transfers; launches overlap with nothing. For block cycles this is a lower
        bound."""
        return max(multiplies / self.pes, words / self.bandwidth) + self.overhead(pairs)
