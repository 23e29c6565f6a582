"""Figures that were published of the models in workloads/models.json, and what the workloads leave out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """`parameters` and `macs` as they are printed, and where; `variables` is the run that `macs` belong to.

    `beside` are parameters that are no weight of the workload, by what they are.
    """

    parameters: str
    parameters_in: str
    beside: dict[str, int] = field(default_factory=dict)
    macs: str = ""
    macs_in: str = ""
    variables: dict[str, int | str] = field(default_factory=dict)


def as_printed(value: int, printed: str) -> str:
    """`value` with as many digits as `printed` has, in its unit: `8.03 G`, `600 M`, or all of them."""
    number, _, unit = printed.partition(" ")
    if not unit:
        return f"{value:,}"
    scaled = value / {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
    zeros = len(number) - len(number.rstrip("0")) if re.fullmatch(r"[0-9,]+", number) else 0
    decimals = len(number.partition(".")[2])
    return f"{round(scaled, -zeros):,.0f} {unit}" if zeros else f"{scaled:,.{decimals}f} {unit}"


HUB = "size of the weights, model.safetensors.index.json of the release, two bytes each"
PUBLISHED: dict[str, Published] = {
    "llama3_8b": Published("8,030,261,248", HUB, {"embedding": 128256 * 4096}),
    "llama3_70b": Published("70,553,706,496", HUB, {"embedding": 128256 * 8192}),
    "mixtral_8x22b": Published(
        "141 G", "Mistral AI, Cheaper, Better, Faster, Stronger, 2024", {"embedding": 32000 * 6144}
    ),
    "qwen3_30b_a3b": Published(
        "30.5 G", "model card of the release Qwen/Qwen3-30B-A3B", {"embedding": 151936 * 2048}
    ),
}
