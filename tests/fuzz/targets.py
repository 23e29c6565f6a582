"""Every reader of outside input as a target: how an input is made from random numbers, and what reads it.

A reader may raise PolymodelError; everything else is a fault of polymodel.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import polymodel as pm
from polymodel.spec.faults import Source
from tests.fuzz import corpus, grammar
from tests.fuzz.mutate import NUMBERS, WORDS, bytewise, treewise, wordwise

Made = Any


@dataclass(frozen=True)
class Target:
    """`make`: an input from random numbers; `read`: what takes it, in a folder to write to. `share`: of a
    million inputs, in thousands."""

    name: str
    share: float
    make: Callable[[Random], Made]
    read: Callable[[Made, Path], object]


def _text(write: Callable[[Random], str]) -> Callable[[Random], str]:
    return lambda random: grammar.slipped(random, write)


def _numbers(text: str, _: Path) -> None:
    from polymodel.spec.numbers import evaluate_number, plain_number, symbols_in

    plain_number(text)
    names = symbols_in(text)
    evaluate_number(text, {"TM": 3, "N": 2.5, **dict.fromkeys(names[:1], 10**40)})


def _sets(text: str, _: Path) -> None:
    from polymodel.spec.expressions import NamedSet, SetScope, evaluate_set, parse_set

    named = {
        n: frozenset({"A", "W"}) for n in ("All", "Tensors", "Inputs", "Outputs", "Shared", "Persistent")
    }
    scope = SetScope(
        "E", ("A", "B", "W"), ("m", "n"), named, frozenset({"A", "B", "W", "T1"}), {"A": frozenset({"m"})},
        lambda name: NamedSet("tensors", frozenset({"W"})) if name == "weight" else None, ("weight",),
        lambda name: frozenset({"A"}) if name == "DRAM" else None, ("DRAM",),
    )  # fmt: skip
    evaluate_set(parse_set(text, key=len(text) % 2 == 0), scope)


def _affine(text: str, _: Path) -> None:
    from polymodel.spec.expressions import parse_arithmetic
    from polymodel.spec.numbers import affine_of

    affine_of(parse_arithmetic(text), {"TM": 3})


def _constraints(text: str, _: Path) -> None:
    from polymodel.spec.numbers import parse_constraints

    parse_constraints(text, {"TM": 3})


def _einsum(text: str, _: Path) -> None:
    from polymodel.spec.one_line import parse_einsum

    parse_einsum(text)


def _where(text: str, _: Path) -> None:
    import numpy as np

    from polymodel.sweeps.expressions import constraint

    constraint(text).holds({"TM": np.arange(1, 9), "TN": np.array([2**40, 3]).repeat(4), "TK": 7})


_CHOICES = (
    "divisors(m)", "all_sizes(64)", "powers(2, m)", "powers(1, 9)", "range(1, 65, 4)", "1,2,4", "2*TM",
    "1..8", "min(TM, 7)", "range(0, 10**9)", "all_sizes(1000000007)", "divisors(10**18)",
)  # fmt: skip


def _choice(random: Random) -> str:
    text = random.choice(_CHOICES) if random.random() < 0.7 else grammar.expression(random)
    return wordwise(random, text, NUMBERS, 3) if random.random() < 0.8 else text


def _choices(text: str, _: Path) -> None:
    from polymodel.governor import bytes_of
    from polymodel.sweeps.choices import choice_of

    for read in (lambda: choice_of("TM", text), lambda: bytes_of(text)):
        _tried(read)


def _tried(read: Callable[[], object]) -> None:
    try:
        read()
    except pm.PolymodelError:
        return


_FORMATS = (
    "CSR",
    "CSC",
    "DCSR",
    "COO",
    "CSF",
    "BCSR",
    "dense",
    "U-C",
    "B-B",
    "UOP-CP",
    "RLE",
    "bitmask",
    "C(2,2)",
)
_PARTS = (
    "rolled:5",
    "transposed",
    "nothing",
    "a.mtx",
    "random:0.1",
    "simple+merge",
    "elements",
    "ikj",
    "32,32,32",
)


def _options(random: Random) -> str:
    text = random.choice((*_FORMATS, *_PARTS, *WORDS, *NUMBERS))
    return wordwise(random, text, (*_FORMATS, *NUMBERS), 3)


def _formats(text: str, _: Path) -> None:
    from polymodel.api.operands import in_words
    from polymodel.sparse.density.parse import model_of
    from polymodel.sparse.formats.parse import parse_format

    _tried(lambda: parse_format(text, ("I", "J")))
    _tried(lambda: in_words(text, "--with"))
    for written in (text, {"model": text, "density": text}, {"banded": text}, {"uniform": text}):
        _tried(lambda written=written: model_of(written, ("I", "J"), (9, 7)))


def _template_text(random: Random) -> str:
    if random.random() < 0.3:
        text = random.choice(corpus.templates()).decode()
        return wordwise(random, text, ("{{", "}}", "{%", "%}", "for", "range", *NUMBERS))
    return grammar.slipped(random, grammar.template)


def _template(text: str, _: Path) -> None:
    from polymodel.spec.template import render

    render(text, Source("t.yaml", tuple(text.split("\n"))), {"N": 4, "x": "a", "N_TOKENS": 2048})


def _yaml_bytes(random: Random) -> bytes:
    every = corpus.specs()
    return bytewise(random, random.choice(every), every)


def _yaml(data: bytes, _: Path) -> None:
    from polymodel.spec.yaml_text import parse_yaml

    text = data.decode("utf-8", "replace")
    parse_yaml(text, Source("t.yaml", tuple(text.split("\n"))))


def _spec_bytes(random: Random) -> bytes:
    every = corpus.specs()
    data = random.choice(every)
    if random.random() < 0.5:
        return wordwise(random, data.decode("utf-8", "replace"), (*NUMBERS, *WORDS)).encode(
            "utf-8", "replace"
        )
    return bytewise(random, data, every, 4)


def _spec_tree(random: Random) -> bytes:
    return treewise(random, random.choice(corpus.trees(corpus.whole))).encode("utf-8", "replace")


def _part_tree(random: Random) -> bytes:
    return treewise(random, random.choice(corpus.trees(corpus.specs))).encode("utf-8", "replace")


def _load(data: bytes, folder: Path) -> None:
    file = folder / "input.yaml"
    file.write_bytes(data)
    spec = pm.load(file)
    spec.check()
    repr(spec)


def _validate(data: bytes, folder: Path) -> None:
    _command("validate", data, folder)


def _evaluate(data: bytes, folder: Path) -> None:
    _command("evaluate", data, folder)


def _command(name: str, data: bytes, folder: Path) -> None:
    from tests.fuzz.lines import run

    (folder / "input.yaml").write_bytes(data)
    run([name, "input.yaml"], folder)


def _teaal_any(random: Random) -> bytes:
    every = corpus.teaal()
    if random.random() < 0.5:
        return treewise(random, random.choice(corpus.trees(corpus.teaal))).encode("utf-8", "replace")
    return wordwise(random, random.choice(every).decode(), (*NUMBERS, *WORDS)).encode("utf-8", "replace")


_TEAAL = (
    "Z[m, n] = T[k, m, n] * A[k, m]", "T[k, m, n] = take(A[k, m], B[k, n], 1)", "[M, K, N]", "(K, M)",
    "uniform_shape(128)", "uniform_occupancy(A.64)", "flatten()", "nway_shape(4)", "K.pos", "M.coord",
    "PE[0..31]", "FiberCache", "Y[i] = -A[i, j] + (B[j] - 2)", "follow(K)", "uniform_occupancy(A.M0)",
)  # fmt: skip


def _teaal_word(random: Random) -> str:
    return wordwise(random, random.choice(_TEAAL), (*NUMBERS, *_TEAAL), 4)


def _teaal_text(text: str, _: Path) -> None:
    from polymodel.spec.teaal import text as parts

    readers = (
        parts.parse_expression,
        parts.parse_ranks,
        parts.parse_directive,
        parts.parse_stamp,
        parts.parse_level,
    )
    for read in readers:
        _tried(lambda read=read: read(text))


def _of(which: Callable[[], tuple[bytes, ...]]) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        every = which()
        data = random.choice(every)
        if random.random() < 0.5:
            return wordwise(random, data.decode("utf-8", "replace"), (*NUMBERS, *WORDS)).encode(
                "utf-8", "replace"
            )
        return bytewise(random, data, every)

    return make


def _tensor(ending: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        from polymodel.sparse.files import read_file

        file = folder / f"input{ending}"
        file.write_bytes(data)
        read_file(file)
        read_file(file, ranks=("I", "J"))

    return read


def _packed(random: Random) -> bytes:
    data = gzip.compress(_of(corpus.market)(random), 1, mtime=0)
    act = random.randrange(5)
    if act == 0:
        return data + gzip.compress(random.choice(corpus.market()), mtime=0)
    if act == 1:
        return data[: random.randrange(len(data))]
    if act == 2:
        return data[:10] + zlib.compress(b"\n" * random.choice((10, 10**6)), 9)[2:-4] + data[-8:]
    return bytewise(random, data, (), 3) if act == 3 else data


def _energy(data: bytes, folder: Path) -> None:
    from polymodel.spec.energy import EnergyRequest, ask

    (folder / "energies.csv").write_bytes(data)
    for component in ("DRAM", "GLB"):
        request = EnergyRequest(component, ("read", "write", "area"), file="energies.csv", folder=str(folder))
        _tried(lambda request=request: ask("table", request))


def _late(
    module: str, make: str, read: str
) -> tuple[Callable[[Random], Made], Callable[[Made, Path], object]]:
    """Both sides of what costs much to import or to prepare, once it is needed."""

    def made(random: Random) -> Made:
        return getattr(import_module(module), make)(random)

    def taken(made: Made, folder: Path) -> object:
        return getattr(import_module(module), read)(made, folder)

    return made, taken


_EVERY = (
    Target("number expressions", 130, _text(grammar.expression), _numbers),
    Target("set expressions", 110, _text(grammar.set_expression), _sets),
    Target("affine expressions", 90, _text(grammar.expression), _affine),
    Target("constraints", 90, _text(grammar.constraint), _constraints),
    Target("one-line Einsums", 90, _text(grammar.einsum), _einsum),
    Target("where", 60, _text(grammar.comparison), _where),
    Target("symbol values", 50, _choice, _choices),
    Target("formats and densities", 30, _options, _formats),
    Target("TeAAL texts", 50, _teaal_word, _teaal_text),
    Target("templates", 50, _template_text, _template),
    Target("YAML", 40, _yaml_bytes, _yaml),
    Target("specs, bytes and words", 30, _spec_bytes, _load),
    Target("whole specs, trees", 25, _spec_tree, _load),
    Target("parts of specs, trees", 15, _part_tree, _load),
    Target("validate whole specs", 10, _spec_tree, _validate),
    Target("evaluate whole specs", 5, _spec_tree, _evaluate),
    Target("TeAAL specs", 20, _teaal_any, _load),
    Target("Matrix Market", 40, _of(corpus.market), _tensor(".mtx")),
    Target("FROSTT", 40, _of(corpus.frostt), _tensor(".tns")),
    Target("gzip", 20, _packed, _tensor(".mtx.gz")),
    Target("energy tables", 30, _of(corpus.energies), _energy),
    Target("Timeloop's YAML", 15, *_late("tests.fuzz.imports", "timeloop_input", "read_timeloop")),
    Target("AccelForge's YAML", 15, *_late("tests.fuzz.imports", "accelforge_input", "read_accelforge")),
    Target("ZigZag's YAML", 15, *_late("tests.fuzz.imports", "zigzag_input", "read_zigzag")),
    Target("ONNX models", 15, *_late("tests.fuzz.imports", "onnx_input", "read_onnx")),
    Target("sweep stores", 3, *_late("tests.fuzz.stores", "damaged", "resumed")),
    Target("command lines", 12, *_late("tests.fuzz.lines", "line", "run")),
)  # fmt: skip
TARGETS: Mapping[str, Target] = {t.name: t for t in _EVERY}


def scaled(total: int) -> list[Target]:
    """The targets with `share` as a number of inputs, `total` together."""
    whole = sum(t.share for t in _EVERY)
    return [replace(t, share=ceil(total * t.share / whole)) for t in _EVERY]
