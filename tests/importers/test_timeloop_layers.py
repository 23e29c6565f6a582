"""Layers of published networks in every spelling that Timeloop's files have: all load, as the same layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import pytest

import polymodel as pm
from polymodel.workload.totals import operations

# Sizes that are not 1; `stride` and `dilation` of both axes.
LAYERS: dict[str, dict[str, int]] = {
    "AlexNet conv1": {"C": 3, "M": 96, "P": 55, "Q": 55, "R": 11, "S": 11, "stride": 4},
    "AlexNet conv2, of two groups": {"C": 48, "M": 128, "P": 27, "Q": 27, "R": 5, "S": 5, "G": 2},
    "AlexNet fc8": {"C": 4096, "M": 1000},
    "VGG-16 conv1_2, padded": {"C": 64, "M": 64, "P": 224, "Q": 224, "R": 3, "S": 3},
    "ResNet-50 conv3_1, strided and pointwise": {"C": 256, "M": 512, "P": 28, "Q": 28, "stride": 2},
    "Inception v3, 1 x 7": {"C": 128, "M": 128, "P": 17, "Q": 17, "S": 7},
    "MobileNet v1, depthwise": {"P": 56, "Q": 56, "R": 3, "S": 3, "G": 128, "stride": 2},
    "DeepLab v3, dilated": {"C": 512, "M": 512, "P": 28, "Q": 28, "R": 3, "S": 3, "dilation": 2},
    "DCGAN, transposed as a convolution of what is spread": {
        "C": 512,
        "M": 256,
        "P": 16,
        "Q": 16,
        "R": 5,
        "S": 5,
    },
    "WaveNet, 1-D": {"C": 32, "M": 64, "P": 1000, "R": 2, "dilation": 8},
    "ResNet-18 conv2_1, batched": {"C": 64, "M": 64, "P": 56, "Q": 56, "R": 3, "S": 3, "N": 32},
}
COEFFICIENTS = ("Wstride", "Hstride", "Wdilation", "Hdilation")
WINDOWS = ("R*Wdilation + P*Wstride", "S*Hdilation + Q*Hstride")
Layer = dict[str, int]


def sizes_of(layer: Layer) -> Layer:
    return {d: layer.get(d, 1) for d in ("CMRSNPQG" if "G" in layer else "CMRSNPQ")}


def factors_of(layer: Layer) -> Layer:
    return {c: layer.get(c[1:], 1) for c in COEFFICIENTS}


def projections(style: str, group: list[str]) -> list[Any]:
    """Weights, inputs, outputs: sums of products, products alone, or text."""
    plain = (["C", "M", "R", "S", *group], ["N", "C", *group], ["N", "M", "Q", "P", *group])
    if style == "text":
        return [f"[{', '.join(p)}]" for p in (plain[0], [*plain[1], *WINDOWS], plain[2])]
    if style == "words":
        return [plain[0], [*plain[1], *WINDOWS], plain[2]]
    sums = [[["R", "Wdilation"], ["P", "Wstride"]], [["S", "Hdilation"], ["Q", "Hstride"]]]
    ranks = [[[[d]] if style == "sums" else [d] for d in p] for p in plain]
    return [ranks[0], [*ranks[1], *sums], ranks[2]]


def shape_of(style: str, hyphens: bool, layer: Layer) -> dict[str, Any]:
    spaces, written = ("data-spaces", "read-write") if hyphens else ("data_spaces", "read_write")
    weights, inputs, outputs = projections(style, ["G"] if "G" in layer else [])
    return {
        "name": "CNN-Layer",
        "dimensions": list(sizes_of(layer)),
        "coefficients": [{"name": c, "default": 1} for c in COEFFICIENTS],
        spaces: [
            {"name": "Weights", "projection": weights},
            {"name": "Inputs", "projection": inputs},
            {"name": "Outputs", "projection": outputs, written: True},
        ],
    }


def problems(
    shape: dict[str, Any], layer: Layer, hyphens: bool
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The layer in each form of `problem:`, with the files that it takes."""
    sizes, factors = sizes_of(layer), factors_of(layer)
    both = {**sizes, **factors}
    instances: dict[str, object] = {
        "sizes": both,
        "text": {k: str(v) for k, v in both.items()},
        "floats": {k: float(v) for k, v in both.items()},
        "expression": {**both, "C": f"word * {sizes['C']}"},
        "unknown keys": {**both, "H": 7, "W": 9},
        "densities": {
            **both,
            "densities": {"Weights": 0.5, "Inputs": {"distribution": "uniform", "density": 0.25}},
        },
        "common densities": {**both, "common-densities" if hyphens else "commonDensities": {"Weights": 0.5}},
    }
    for name, instance in instances.items():
        yield name, [{"variables": {"word": 1}, "problem": {"shape": shape, "instance": instance}}]
    yield "version", [{"problem": {"version": 0.3 if hyphens else 0.4, "shape": shape, "instance": both}}]
    yield "list", [{"problem": [{"shape": shape, "instance": both}]}]
    yield "without instance", [{"problem": {"shape": shape, **both}}]
    own = shape | {"coefficients": [{"name": k, "default": v} for k, v in factors.items()]}
    yield "defaults", [{"problem": {"shape": own, "instance": sizes}}]
    box = " and ".join(f"0 <= {d} < {n}" for d, n in sizes.items())
    yield "a set", [{"problem": {"shape": own, "instance": box}}]
    yield (
        "dimensions as text",
        [{"problem": {"shape": shape | {"dimensions": " ".join(sizes)}, "instance": both}}],
    )
    for name, form in (("instance", {"instance": both}), ("sizes", both)):
        yield (
            f"shape in another file, {name}",
            [{"problem": {"shape": "CNN-Layer", **form}}, {"shape": shape}],
        )


def built_in(layer: Layer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The layer as the shape that Timeloop has by name, and where none is named."""
    sizes = sizes_of(layer)
    both = {"K" if d == "M" else d: n for d, n in sizes.items()} | factors_of(layer)
    for named in ({"shape": "cnn-layer"}, {"shape": "cnn_layer.yaml"}, {}, {"version": 0.2}):
        yield f"built in {named}", [{"problem": {**named, **both}}]
        yield f"built in {named}, instance", [{"problem": {**named, "instance": both}}]


def spellings(layer: Layer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for style, hyphens in product(("sums", "products", "words", "text"), (False, True)):
        for name, files in problems(shape_of(style, hyphens, layer), layer, hyphens):
            yield f"{style}, {'hyphens' if hyphens else 'underscores'}, {name}", files
    if "G" not in layer:
        yield from built_in(layer)


def check(layer: Layer, files: list[dict[str, Any]], name: str) -> None:
    (einsum,) = pm.import_timeloop(*files).spec.workload.einsums
    assert operations(einsum) == prod(sizes_of(layer).values()), name
    windows = {frozenset(e.terms) for e in einsum.access_of("Input").projection if len(e.variables) > 1}
    steps = layer.get("stride", 1), layer.get("dilation", 1)
    assert windows == {
        frozenset({("p", steps[0]), ("r", steps[1])}),
        frozenset({("q", steps[0]), ("s", steps[1])}),
    }


def test_every_spelling_of_a_layer_loads() -> None:
    """Each spelling with one of the layers."""
    layers = list(LAYERS.values())
    for i, (name, _) in enumerate(spellings(layers[0])):
        layer = layers[i % len(layers)]
        found = dict(spellings(layer))
        check(layer, found.get(name) or found["sums, underscores, sizes"], name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_loads_in_every_spelling(name: str) -> None:
    layer = LAYERS[name]
    found = list(spellings(layer))
    assert len(found) == 8 * 15 + (0 if "G" in layer else 8)
    for spelling, files in found:
        check(layer, files, spelling)
