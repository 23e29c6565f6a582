"""Sizes of published models: parameters and multiply-accumulates, counted from the workloads of the
library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.workload.totals import products, weights


@dataclass(frozen=True)
class Published:
    """Published `parameters` and `macs` with their source: a printed figure, or the value of a published
    formula for the published configuration.

    `variables` are the template variables of the run that `macs` refer to. `beside` gives the parameters that
    are not weights of the workload, by kind.
    """

    parameters: str
    parameters_in: str
    beside: dict[str, int]
    macs: str
    macs_in: str
    variables: dict[str, int | str] = field(default_factory=dict)


HUB = "size of the weights, model.safetensors.index.json of the release, two bytes each"
PROFILER = "README of DeepSpeed's flops profiler, BERT-base of 128 tokens"
GPT3 = "Brown et al., 2020, table D.1"


BUT_VECTORS = "the parameters but the embedding and the vectors of normalisations"
PALM = "formula of Chowdhery et al., PaLM, 2022, appendix B: N + 2 L H Q T products a token of T"


def decoder(products: int, layers: int, heads: int, head_width: int, tokens: int = 2048) -> str:
    """Return the multiply-accumulates of a decoder in which each token meets `products` weights."""
    return f"{tokens * (products + 2 * layers * heads * head_width * tokens):,}"


def unet() -> str:
    """Return the multiply-accumulates of U-Net for the sizes in its figure 1: pairs of convolutions of 3 x 3,
    up-convolutions in which each output uses one tap, and the final convolution of 1 x 1."""
    down, up = ((570, 568), (282, 280), (138, 136), (66, 64), (30, 28)), (56, 104, 200, 392)
    found = 388**2 * 64 * 2
    for level, (first, second) in enumerate(down):
        width = 64 << level
        found += 9 * (first**2 * (width // 2 if level else 1) * width + second**2 * width**2)
    for level, side in zip((3, 2, 1, 0), up, strict=True):
        width = 64 << level
        found += side**2 * 2 * width * width
        found += 9 * ((side - 2) ** 2 * 2 * width * width + (side - 4) ** 2 * width**2)
    return f"{found:,}"


def scan(tokens: int = 2048) -> str:
    """Return the multiply-accumulates of Mamba-2 2.7B: projections, convolutions over four tokens without
    those before the first token, reads of the state, and the vocabulary."""
    width, inner, state, heads, layers = 2560, 5120, 128, 80, 64
    projections = width * (2 * inner + 2 * state + heads) + inner * width
    taps = (4 * tokens - 6) * (inner + 2 * state)
    return f"{layers * (tokens * (projections + inner * state) + taps) + tokens * width * 50288:,}"


def biases(layers: int, width: int) -> int:
    """Return the number of biases of all products of a layer: nine vectors of the width of the model."""
    return layers * 9 * width


SZE = "Sze et al., Efficient Processing of Deep Neural Networks, Proc. IEEE 2017, table 2"
NORMS = "scales and shifts of the normalisations, biases of the classes"


def torchvision(name: str, parameters: str, macs: str, beside: dict[str, int]) -> Published:
    """Return num_params and GFLOPS (which count multiply-accumulates) of torchvision's documentation."""
    where = f"torchvision, {name}"
    return Published(parameters, f"{where}: num_params", beside, macs, f"{where}: GFLOPS")


PUBLISHED: dict[str, Published] = {
    "alexnet": Published("61 M", SZE, {"biases": 10568}, "724 M", SZE),
    "mobilenet_v2": torchvision("mobilenet_v2", "3,504,872", "0.30 G", {NORMS: 2 * 17056 + 1000}),
    "resnet_18": torchvision("resnet18", "11,689,512", "1.81 G", {NORMS: 2 * 4800 + 1000}),
    "resnet_50": torchvision("resnet50", "25,557,032", "4.09 G", {NORMS: 2 * 26560 + 1000}),
    "resnet_50_v1": Published("25.5 M", SZE, {}, "3.9 G", SZE),
    "unet": Published(
        "31,030,658",
        "Keras' summary in the post Model Implementation: Original U-Net in Keras / Tensorflow 2.3, 2020",
        {"biases": 6850},
        unet(),
        "formula of the convolutions in Ronneberger et al., 2015, figure 1",
    ),
    "vgg_16": torchvision("vgg16", "138,357,544", "15.47 G", {"biases": 13416}),
    "bert_base": Published(
        "109.48 M",
        f"{PROFILER}; 110 M in Devlin et al., 2019, section 3",
        {
            "embeddings of words, positions and segments, normalised": (30522 + 512 + 2 + 2) * 768,
            "biases": biases(12, 768) + 768,
        },
        "11.17 G",
        PROFILER,
        {"TOKENS": 128},
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
        {"positions": 2048 * 12288, "biases": biases(96, 12288)},
        "174,600 M",
        f"{GPT3}: two operations for each parameter and token",
        {"PHASE": "decode", "CONTEXT": 1},
    ),
    "gpt3_6_7b": Published(
        "6,660 M",
        GPT3,
        {"positions": 2048 * 4096, "biases": biases(32, 4096)},
        decoder(12 * 32 * 4096**2 + 50257 * 4096, 32, 32, 128),
        f"{PALM}, N = 12 x 32 x 4096 x 4096 and the vocabulary",
    ),
    "vit_b_16": Published(
        "86,567,656",
        "torchvision, vit_b_16: num_params",
        {"class token and positions": (1 + 197) * 768, "biases": biases(12, 768) + 768 + 1000},
        "17.56 G",
        "torchvision, vit_b_16: GFLOPS",
    ),
    "llama3_8b": Published(
        "8,030,261,248",
        HUB,
        {"embedding": 128256 * 4096},
        decoder(8_030_261_248 - 128256 * 4096 - 65 * 4096, 32, 32, 128),
        f"{PALM}, N = {BUT_VECTORS}",
    ),
    "llama3_70b": Published(
        "70,553,706,496",
        HUB,
        {"embedding": 128256 * 8192},
        decoder(70_553_706_496 - 128256 * 8192 - 161 * 8192, 80, 64, 128),
        f"{PALM}, N = {BUT_VECTORS}",
    ),
    "mamba2_2_7b": Published(
        "2.7 G",
        "name of the release state-spaces/mamba2-2.7b",
        {"biases of convolutions": 64 * 5376},
        scan(),
        "formula of the recurrence in Dao and Gu, Transformers are SSMs, 2024, sections 2 and 7",
    ),
    "mixtral_8x22b": Published(
        "140,620,634,112",
        f"{HUB}; 141 G in Mistral AI, Cheaper, Better, Faster, Stronger, 2024",
        {"embedding": 32000 * 6144},
        decoder(140_620_634_112 - 32000 * 6144 - 113 * 6144 - 56 * 6 * 3 * 6144 * 16384, 56, 48, 128),
        f"{PALM}, N = {BUT_VECTORS}, and but the six experts that a token does not meet",
    ),
    "qwen3_30b_a3b": Published(
        "30,532,122,624",
        f"{HUB}; 30.5 G on the model card of the release Qwen/Qwen3-30B-A3B",
        {"embedding": 151936 * 2048},
        decoder(
            30_532_122_624 - 151936 * 2048 - (97 * 2048 + 48 * 256) - 48 * 120 * 3 * 2048 * 768, 48, 32, 128
        ),
        f"{PALM}, N = {BUT_VECTORS}, and but the 120 experts that a token does not meet",
    ),
}


def parameters(model: str) -> int:
    """Return the number of elements of external weights that are not caches, plus the parameters that the
    workload leaves out."""
    found = weights(load(model).workload).items()
    own = sum(elements for tensor, (elements, _) in found if not tensor.startswith("Cache"))
    return own + sum(PUBLISHED[model].beside.values())


def macs(model: str) -> int:
    """Return the multiply-accumulates of the published run."""
    return products(load(model, variables=PUBLISHED[model].variables).workload)


def value(printed: str) -> int | float:
    """Return the number printed as `8.03 G`, `600 M` or `1,234`."""
    number, _, unit = printed.replace(",", "").partition(" ")
    return float(number) * {"M": 1e6, "G": 1e9}[unit] if unit else int(number)


def figures() -> Iterator[PublishedFigure]:
    for model, known in sorted(PUBLISHED.items()):
        yield _figure(f"{model}: parameters", known.parameters, parameters(model), known.parameters_in)
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
