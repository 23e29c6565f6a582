"""How published figures of models are printed, which the gallery has; published peaks of
machines."""

from __future__ import annotations

import re

from polymodel.exhibits.models import PUBLISHED, Published

__all__ = ["PEAKS", "PUBLISHED", "Published", "as_printed"]

# Machine -> (variables, multiply-accumulates per second as published, digits of that number, where)
PEAKS: dict[str, tuple[dict[str, int], float, int, str]] = {
    "eyeriss_like": ({}, 33.6e9, 3, "Chen et al., JSSC 2017: 168 PEs at 200 MHz"),
    "gemmini": ({}, 256e9, 3, "Genc et al., DAC 2021: 16 x 16, here at 1 GHz"),
    "h100_like": ({"BITS": 16}, 989.4e12 / 2, 4, "NVIDIA, H100 white paper, 2022: dense 16-bit"),
    "nvdla_like": ({}, 2048e9, 4, "NVIDIA, nvdlav1: 2,048 multipliers of 8 bits, here at 1 GHz"),
    "simba_chiplet": ({}, 16 * 64 * 1.8e9, 4, "Shao et al., MICRO 2019, table 2: 16 x 8 x 8, up to 1.8 GHz"),
    "snitch_cluster": ({}, 16e9 / 2, 2, "Zaruba et al., 2021: 16 GFLOPS at 1 GHz"),
    "tpu_v1": ({}, 92e12 / 2, 2, "Jouppi et al., ISCA 2017: 92 TOPS"),
    "tpu_v4i": ({}, 138e12 / 2, 2, "Jouppi et al., ISCA 2021, table 1: 138 TFLOPS"),
}


def as_printed(value: int, printed: str) -> str:
    """`value` with as many digits as `printed` has, in its unit: `8.03 G`, `600 M`, or all of them."""
    number, _, unit = printed.partition(" ")
    if not unit:
        return f"{value:,}"
    scaled = value / {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
    zeros = len(number) - len(number.rstrip("0")) if re.fullmatch(r"[0-9,]+", number) else 0
    decimals = len(number.partition(".")[2])
    return f"{round(scaled, -zeros):,.0f} {unit}" if zeros else f"{scaled:,.{decimals}f} {unit}"
