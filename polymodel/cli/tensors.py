"""Tensors given on the command line: `A=matrix.mtx B=random:0.1`, with `--size RANK=N`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from polymodel.cli.parser import pairs
from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.sparse.tensor import SparseTensor


def rank_sizes(texts: list[str]) -> dict[str, int]:
    result, faults = {}, []
    for name, value in pairs(texts, "--size").items():
        if value.isdecimal() and len(value) < 19 and int(value):
            result[name] = int(value)
        else:
            what = f"--size {name}={value}: a whole number of at least 1 is expected"
            faults.append(Diagnostic(what, f"write e.g. --size {name}=64", code="not-positive-integer"))
    if faults:
        raise SpecError(faults)
    return result


def tensors_of(options: argparse.Namespace, spec: Spec, sizes: dict[str, int]) -> dict[str, Any]:
    """Return the tensors. Files are read first, since their shapes set the sizes of the ranks of generated
    tensors. `sizes`: sizes set by the user."""
    from polymodel.sparse.files import read_tensor

    assert spec.teaal is not None
    sizes = dict(sizes)
    data = pairs(options.tensors, "")
    declared = spec.teaal.declaration
    ranks = list(dict.fromkeys(r for own in declared.values() for r in own))
    faults = [
        Diagnostic(
            f"--size {rank}: the spec has no rank {rank}", f"ranks: {', '.join(ranks)}", code="unknown-name"
        )
        for rank in sizes
        if rank not in ranks
    ]
    faults += [
        Diagnostic(
            f"{name}={data[name]}: {name} is not an input of {options.spec}",
            _inputs(spec),
            code="unknown-name",
        )
        for name in data
        if name not in spec.teaal.inputs
    ]
    made = {n: t for n, t in data.items() if t == "dense" or t.startswith("random:")}
    result: dict[str, Any] = {}
    for name, text in data.items():
        if name in made or name not in declared:
            continue
        try:
            tensor = read_tensor(text, name, fill=spec.teaal.absent(name))
        except SpecError as error:
            faults += error.diagnostics
            continue
        if len(tensor.ranks) != len(declared[name]):
            what = f"{name} has ranks {list(declared[name])}, {text} has {len(tensor.ranks)}"
            faults.append(Diagnostic(what, "give a file with as many ranks", code="shape-mismatch"))
            continue
        result[name] = tensor.renamed(name, declared[name])
        for rank, size in zip(declared[name], tensor.shape, strict=True):
            sizes.setdefault(rank, size)
    faults += [
        Diagnostic(
            _lacking(name, declared[name]), _data_of(name, declared[name], sizes), code="missing-value"
        )
        for name in spec.teaal.inputs
        if name not in data
    ]
    for name, text in made.items():
        if name in declared:
            result[name] = generated(name, text, declared[name], sizes, options, faults)
    if faults:
        raise SpecError(faults)
    return result


def _inputs(spec: Spec) -> str:
    return "inputs: " + ", ".join(spec.teaal.inputs if spec.teaal is not None else ())


def _lacking(name: str, ranks: Sequence[str]) -> str:
    if not ranks:
        return f"{name}: there are no data of this input, one number without ranks"
    shown = f"ranks {', '.join(ranks)}" if len(ranks) > 1 else f"rank {ranks[0]}"
    return f"{name}: there are no data of this input with {shown}"


def _data_of(name: str, ranks: Sequence[str], sizes: Mapping[str, int]) -> str:
    """Return the data of one tensor: from a file, or random with the sizes of its ranks."""
    file = f"{name}={name}.{'mtx' if len(ranks) == 2 else 'tns'}"
    unsaid = "".join(f" --size {r}=64" for r in dict.fromkeys(ranks) if r not in sizes)
    return f"add a file, {file}, or random data, {name}=random:0.1{unsaid}"


def generated(
    name: str,
    text: str,
    ranks: tuple[str, ...],
    sizes: dict[str, int],
    options: argparse.Namespace,
    faults: list[Diagnostic],
) -> SparseTensor | None:
    """Return random data, `dense` or `random:DENSITY`, of the sizes of some ranks; None, and why in
    `faults`, if that cannot be."""
    from polymodel.sparse.density import random_tensor

    lacking = [r for r in ranks if r not in sizes]
    given = dict(text.split("=", 1) for text in options.set if "=" in text)
    for r in lacking:
        remedy = f"write --size {r}={given[r]}" if r in given else f"add it, e.g. --size {r}=64"
        message = f"{name}={text}: the size of rank {r} is not known"
        faults.append(Diagnostic(message, remedy, code="missing-value"))
    try:
        density = 1.0 if text == "dense" else float(text.removeprefix("random:"))
    except ValueError:
        message = f"{name}={text}: a density is expected"
        faults.append(Diagnostic(message, f"write e.g. {name}=random:0.1", code="not-a-number"))
        return None
    if lacking:
        return None
    shape = tuple(sizes[r] for r in ranks)
    # Each tensor has its own seed, so that the order of the arguments does not matter.
    own = options.seed + sum(ord(c) * 31**i for i, c in enumerate(name))
    try:
        return random_tensor(ranks, shape, density, own % 2**32).renamed(name)
    except SpecError as error:
        faults += [replace(d, message=f"{name}={text}: {d.message}") for d in error.diagnostics]
        return None
