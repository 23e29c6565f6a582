"""Per-tensor figures of a workload: bits per value, persistence, scale of the backing storage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from polymodel.spec import Workload
from polymodel.spec.faults import Faults, Path, TextFault
from polymodel.spec.numbers import Value, evaluate_number
from polymodel.spec.setexpr import SetScope, parse_set, tensor_set

Symbols = Mapping[str, Value | None]


def bits_per_value(
    workload: Workload, scopes: Sequence[SetScope], symbols: Symbols, faults: Faults
) -> dict[str, int]:
    """Bits of every tensor: an access's own value, else the key of `bits_per_value` that has it."""
    before = len(faults)
    found = _explicit_bits(workload, symbols, faults)
    general = _keyed_bits(workload, scopes, symbols, faults)
    for tensor, bits in general.items():
        found.setdefault(tensor, bits)
    if len(faults) > before:
        return found
    for i, einsum in enumerate(workload.einsums):
        lacking = [a.name for a in einsum.tensor_accesses if a.name not in found]
        if lacking:
            remedy = "add `bits_per_value: {All: 8}` to the workload, or bits_per_value to each access"
            message = f"no bits_per_value for {', '.join(lacking)}"
            faults.add(("workload", "einsums", i, "tensor_accesses"), message, remedy)
            found.update(dict.fromkeys(lacking, 0))
    return found


def _explicit_bits(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if access.bits_per_value is None:
                continue
            path: Path = ("workload", "einsums", i, "tensor_accesses", j, "bits_per_value")
            bits = _bits(access.bits_per_value, path, symbols, faults)
            if found.setdefault(access.name, bits) != bits:
                message = f"tensor {access.name} has {bits} bits here and {found[access.name]} elsewhere"
                faults.add(path, message, "give the same bits in all accesses")
    return found


def _keyed_bits(
    workload: Workload, scopes: Sequence[SetScope], symbols: Symbols, faults: Faults
) -> dict[str, int]:
    found: dict[str, int] = {}
    keys: dict[str, str] = {}
    ordered = sorted(workload.bits_per_value.items(), key=lambda item: item[0].strip() == "Other")
    for key, value in ordered:
        path: Path = ("workload", "bits_per_value", key)
        bits = _bits(value, path, symbols, faults)
        if key.strip() == "Other":
            covered = {t for s in scopes for t in s.tensors} - set(found)
        else:
            covered = _covered(key, scopes, path, faults)
        for tensor in sorted(covered):
            if found.setdefault(tensor, bits) != bits:
                message = f"`{keys[tensor]}` and `{key}` give tensor {tensor} {found[tensor]} and {bits} bits"
                faults.add(path, message, "use Other for the tensors that no other key names", key=True)
            keys.setdefault(tensor, key)
    return found


def _covered(key: str, scopes: Sequence[SetScope], path: Path, faults: Faults) -> set[str]:
    tree = parse_set(key, key=True)
    covered: set[str] = set()
    for scope in scopes:
        try:
            covered |= tensor_set(tree, scope)
        except TextFault as fault:
            faults.text(path, fault, key=True)
    return covered


def _bits(value: Value | str, path: Path, symbols: Symbols, faults: Faults) -> int:
    wrong = f"{value} bits per value", "write a whole number of at least 1"
    return at_least_one(value, path, symbols, faults, wrong)


def at_least_one(
    value: Value | str, path: Path, symbols: Symbols, faults: Faults, wrong: tuple[str, str]
) -> int:
    """A whole number from 1 up; else 1, and a fault with the message and remedy of `wrong`."""
    try:
        found = evaluate_number(value, symbols)
    except TextFault as fault:
        faults.text(path, fault)
        return 1
    if math.isinf(found) or found < 1 or found != int(found):
        faults.add(path, *wrong)
        return 1
    return int(found)


def persistent_tensors(workload: Workload, scopes: Sequence[SetScope], faults: Faults) -> frozenset[str]:
    """Tensors that the workload's `persistent_tensors` names in any Einsum."""
    found: set[str] = set()
    for i, text in enumerate(workload.persistent_tensors):
        tree = parse_set(text)
        for scope in scopes:
            try:
                found |= tensor_set(tree, scope)
            except TextFault as fault:
                faults.text(("workload", "persistent_tensors", i), fault)
    return frozenset(found)


def scales(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, Fraction]:
    """`backing_storage_size_scale` of the tensors that have one."""
    found: dict[str, Fraction] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if "backing_storage_size_scale" not in access.model_fields_set:
                continue
            path: Path = ("workload", "einsums", i, "tensor_accesses", j, "backing_storage_size_scale")
            try:
                value = evaluate_number(access.backing_storage_size_scale, symbols)
            except TextFault as fault:
                faults.text(path, fault)
                continue
            if math.isinf(value) or value < 0:
                faults.add(path, f"the scale {value} is not a number of at least 0", "write e.g. 0.5")
                continue
            scale = Fraction(str(value))
            if found.setdefault(access.name, scale) != scale:
                message = (
                    f"tensor {access.name} has scale {value} here and {float(found[access.name])} elsewhere"
                )
                faults.add(path, message, "give the same scale in all accesses")
    return found
