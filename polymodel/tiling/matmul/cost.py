"""How long a tiled multiplication takes: a model, of two rates and a cost per launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.model import Launch


@dataclass(frozen=True)
class MatmulMachine:
    """`pes`: multiplies a cycle. `bandwidth`: words a cycle between memory and buffers. `launch`: what each
    pair of tiles costs to configure and to fill. The defaults are one streaming kernel: a token a cycle.
    """

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
        """Cycles to configure and to fill the pipelines of so many launches."""
        return pairs * (self.launch.config("multiply") + self.launch.ramp)

    def cycles(self, multiplies: int, words: int, pairs: int) -> float:
        """Multiplies overlap transfers; launches overlap nothing. Of blocks it is a lower bound."""
        return max(multiplies / self.pes, words / self.bandwidth) + self.overhead(pairs)
