"""Sizes of published models: parameters and multiply-accumulates, counted from the library's workloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.workload.totals import products, weights


@dataclass(frozen=True)
class Published:
    """`parameters` and `macs` as they are printed, and where; empty where they were not published.

    `variables` is the run that `macs` belong to. `beside` are parameters that are not weights of the
    workload, by what they are.
    """

    parameters: str
    parameters_in: str
    beside: dict[str, int] = field(default_factory=dict)
    macs: str = ""
    macs_in: str = ""
    variables: dict[str, int | str] = field(default_factory=dict)


HUB = "size of the weights, model.safetensors.index.json of the release, two bytes each"
GPT3 = "Brown et al., 2020, table D.1"


def biases(layers: int, width: int) -> int:
    """Of every product of a layer (nine vectors of the model's width) and of its two normalisations."""
    return layers * (9 + 2) * width


SZE = "Sze et al., Efficient Processing of Deep Neural Networks, Proc. IEEE 2017, table 2"
NORMS = "scales and shifts of the normalisations, biases of the classes"


def torchvision(name: str, parameters: str, macs: str, beside: dict[str, int]) -> Published:
    """As torchvision's documentation has it: num_params, and GFLOPS, which are multiply-accumulates."""
    where = f"torchvision, {name}"
    return Published(parameters, f"{where}: num_params", beside, macs, f"{where}: GFLOPS")


PUBLISHED: dict[str, Published] = {
    "alexnet": Published("61 M", SZE, {"biases": 10568}, "724 M", SZE),
    "mobilenet_v2": torchvision("mobilenet_v2", "3,504,872", "0.30 G", {NORMS: 2 * 17056 + 1000}),
    "resnet_18": torchvision("resnet18", "11,689,512", "1.81 G", {NORMS: 2 * 4800 + 1000}),
    "resnet_50": torchvision("resnet50", "25,557,032", "4.09 G", {NORMS: 2 * 26560 + 1000}),
    "resnet_50_v1": Published("25.5 M", SZE, {}, "3.9 G", SZE),
    "unet": Published("", "", {"biases": 6850}),
    "vgg_16": torchvision("vgg16", "138,357,544", "15.47 G", {"biases": 13416}),
    "bert_base": Published(
        "110 M",
        "Devlin et al., 2019, section 3",
        {
            "embeddings of words, positions and segments, normalised": (30522 + 512 + 2 + 2) * 768,
            "biases": biases(12, 768) + 768,
        },
    ),
    "deepseek_v3": Published(
        "671 G",
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, abstract",
        {"embedding": 129280 * 7168, "bias of the routers": 58 * 256},
        "37 G",
        "ibid.: parameters activated for each token",
        {"PHASE": "decode", "CONTEXT": 1},
    ),
    "gpt3_175b": Published(
        "174,600 M",
        GPT3,
        {"positions": 2048 * 12288, "biases": biases(96, 12288) + 12288},
        "174,600 M",
        f"{GPT3}: two operations for each parameter and token",
        {"PHASE": "decode", "CONTEXT": 1},
    ),
    "gpt3_6_7b": Published("6,660 M", GPT3, {"positions": 2048 * 4096, "biases": biases(32, 4096) + 4096}),
    "vit_b_16": Published(
        "86,567,656",
        "torchvision, vit_b_16: num_params",
        {"class token and positions": (1 + 197) * 768, "biases": biases(12, 768) + 768 + 768 + 1000},
        "17.56 G",
        "torchvision, vit_b_16: GFLOPS",
    ),
    "llama3_8b": Published("8,030,261,248", HUB, {"embedding": 128256 * 4096}),
    "llama3_70b": Published("70,553,706,496", HUB, {"embedding": 128256 * 8192}),
    "mamba2_2_7b": Published(
        "2.7 G", "name of the release state-spaces/mamba2-2.7b", {"biases of convolutions": 64 * 5376}
    ),
    "mixtral_8x22b": Published(
        "141 G", "Mistral AI, Cheaper, Better, Faster, Stronger, 2024", {"embedding": 32000 * 6144}
    ),
    "qwen3_30b_a3b": Published(
        "30.5 G", "model card of the release Qwen/Qwen3-30B-A3B", {"embedding": 151936 * 2048}
    ),
}


def parameters(model: str) -> int:
    """Elements of weights that come from outside and are not a cache, and what the workload leaves out."""
    found = weights(load(model).workload).items()
    own = sum(elements for tensor, (elements, _) in found if not tensor.startswith("Cache"))
    return own + sum(PUBLISHED[model].beside.values())


def macs(model: str) -> int:
    """Multiply-accumulates of the run that was published."""
    return products(load(model, variables=PUBLISHED[model].variables).workload)


def value(printed: str) -> int | float:
    """The number that is printed as `8.03 G`, `600 M` or `1,234`."""
    number, _, unit = printed.replace(",", "").partition(" ")
    return float(number) * {"M": 1e6, "G": 1e9}[unit] if unit else int(number)


def figures() -> Iterator[PublishedFigure]:
    for model, known in sorted(PUBLISHED.items()):
        if known.parameters:
            yield _figure(f"{model}: parameters", known.parameters, parameters(model), known.parameters_in)
        if known.macs:
            yield _figure(f"{model}: multiply-accumulates", known.macs, macs(model), known.macs_in)


def _figure(what: str, printed: str, ours: int, source: str) -> PublishedFigure:
    told = "" if value(printed) == ours else "; equal to the digits that are printed"
    return PublishedFigure(what, "", value(printed), ours, source + told)


EXHIBIT = Exhibit(
    "models",
    "Published models: parameters and multiply-accumulates",
    "torchvision's documentation, releases and papers: beside each figure",
    "Counted from the library's Einsums; what they leave out (biases, normalisations, embeddings) is added.",
    figures,
    "polymodel show resnet_50",
)
