"""The machine of the Tensaurus paper, and the widths that the paper leaves open.

Source: Srivastava et al., "Tensaurus: A Versatile Accelerator for Mixed Sparse-Dense Tensor Computations",
HPCA 2020, sections 4 to 7.1 and table 2. `arch/tensaurus.yaml` is the same machine as an architecture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from polymodel.errors import Diagnostic, SpecError

KIB = 1024
# Lanes are counted one by one.
_MOST = 65_536
# Table 2: square millimetres and milliwatts at 28 nm.
AREA_MM2 = {"PE": 0.625, "Xbar": 0.066, "SPM": 0.832, "MSU": 0.759, "TLU": 0.009, "MLU": 0.009}
POWER_MW = {"PE": 402.3, "Xbar": 24.27, "SPM": 296.05, "MSU": 247.03, "TLU": 6.28, "MLU": 6.28}
# Joules per bit of HBM2, upper end: 450 pJ per 64 bits (Jouppi et al., ISCA 2021, table 2).
HBM_JOULES_PER_BIT = 450e-12 / 64


@dataclass(frozen=True)
class Machine:
    """Sizes are bytes of one side of a double buffer; rates are per second.

    Not published, so chosen: `data_bits` 32 and `index_bits` 16. They make a lane of CISS 64 bits for
    tensors of three ranks, which is what the paper's DDR4 example needs (1.9 of 16 GB/s for extended CSR: 8
    useful bytes of a 64-byte burst); indices are relative to a hardware tile, so 16 bits reach.
    """

    rows: int = 8
    columns: int = 8
    vlen: int = 4
    olen: int = 4
    clock: float = 2e9
    cycles_per_step: int = 2
    bandwidth: float = 128e9
    spm_bytes: int = 16 * KIB
    first_spm_bytes: int = 32 * KIB
    msu_bytes: int = 128 * KIB
    data_bits: int = 32
    index_bits: int = 16

    def __post_init__(self) -> None:
        bad = []
        for f in fields(self):
            value, rate = getattr(self, f.name), isinstance(f.default, float)
            if (
                not isinstance(value, (int, float, np.number) if rate else (int, np.integer))
                or not 0 < value < math.inf
            ):
                wanted = "a finite number above 0" if rate else "a whole number of at least 1"
                bad.append(Diagnostic(f"{f.name} of the machine is {value!r}", wanted))
            elif f.name in ("rows", "columns", "vlen", "olen") and value > _MOST:
                bad.append(Diagnostic(f"{f.name} of the machine is {value}", f"at most {_MOST}"))
        if bad:
            raise SpecError(bad)

    @property
    def width(self) -> int:
        """Elements of a dense fiber that all columns take at once."""
        return self.columns * self.vlen

    @property
    def step_seconds(self) -> float:
        """Time of one multiply-accumulate of a PE: every other cycle goes to the scratchpad (section 7.1)."""
        return self.cycles_per_step / self.clock

    @property
    def peak(self) -> float:
        """Operations per second: a multiplication and an addition per lane and step."""
        return self.rows * self.width * 2 * self.clock / self.cycles_per_step

    @property
    def ridge(self) -> float:
        """Operations per byte at which the roof meets the bandwidth."""
        return self.peak / self.bandwidth

    @property
    def area_mm2(self) -> float:
        return math.fsum(AREA_MM2.values())

    @property
    def power_watts(self) -> float:
        return math.fsum(POWER_MW.values()) / 1000

    def lane_bits(self, order: int) -> int:
        """Bits of one lane of a CISS entry: value, and all indices but that of the slice (section 4)."""
        return self.data_bits + (order - 1) * self.index_bits

    def entry_bits(self, order: int) -> int:
        return self.rows * self.lane_bits(order)

    def energies(
        self, macs: float, spm_words: float, msu_words: float, hbm_bits: float, seconds: float
    ) -> dict[str, float]:
        """Joules by component. Table 2 gives power at full speed: a multiply-accumulate of the PEs, and one
        word of SPM and MSU, cost that power over the rate of multiply-accumulates; crossbars, loaders take
        it all the time.
        """
        rate = self.peak / 2
        return {
            "PE": macs * POWER_MW["PE"] / 1000 / rate,
            "SPM": spm_words * POWER_MW["SPM"] / 1000 / rate,
            "MSU": msu_words * POWER_MW["MSU"] / 1000 / rate,
            **{name: seconds * POWER_MW[name] / 1000 for name in ("Xbar", "TLU", "MLU")},
            "HBM": hbm_bits * HBM_JOULES_PER_BIT,
        }
