"""Schemas of files: what is shipped passes, wrong structure does not, every key has its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from pydantic import BaseModel

from polymodel.cli.schema import write_schemas
from polymodel.spec.document import SECTIONS, Document, root_of
from polymodel.spec.schemas import KINDS, schema, schema_text
from polymodel.spec.schemas.texts import TEXTS
from polymodel.spec.teaal import bindings, hardware, is_teaal
from polymodel.spec.yaml_text import TAGS

ROOT = Path(__file__).parents[3]
FOLDERS = ("arch/*.yaml", "workloads/**/*.yaml", "docs/**/*.yaml")
SHIPPED = sorted(p for pattern in FOLDERS for p in ROOT.glob(pattern))
TESTED = sorted((ROOT / "tests/spec").glob("**/*.yaml"))
# Faults of meaning, which no schema can know, by the first word of the file's name.
MEANING = (
    "affine", "arch_bad", "arch_component", "arch_data_tiles", "arch_negative", "arch_no",
    "arch_size", "arch_unknown_action", "arch_units", "arch_zero", "copy", "einsum_text", "energy",
    "expression", "mapping", "node_without", "projection_list", "rename", "set", "shape", "symbols",
    "template", "workload", "key_misspelt_section",
)  # fmt: skip


@cache
def validator(kind: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(schema(kind))


def plain(path: Path) -> tuple[str, object] | None:
    """The kind of a file and its data with `type:` keys, None where it is not YAML or has a broken tag."""
    document = Document()
    root, broken = root_of(path, document, {})
    if root is None or broken:
        return None
    return "teaal" if is_teaal(root) else "spec", root.plain()


def untagged(data: object) -> object:
    """As an editor sees it: tags are gone."""
    if isinstance(data, dict):
        return {k: untagged(v) for k, v in data.items() if not (k == "type" and v in TAGS)}
    return [untagged(v) for v in data] if isinstance(data, list) else data


def faults(kind: str, data: object) -> list[str]:
    return [f"{list(e.absolute_path)}: {e.message[:200]}" for e in validator(kind).iter_errors(data)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_a_schema_and_the_committed_copy_is_equal(kind: str) -> None:
    jsonschema.Draft7Validator.check_schema(schema(kind))
    assert (ROOT / f"docs/schemas/{kind}.schema.json").read_text(encoding="utf-8") == schema_text(kind)


def test_all_are_written(tmp_path: Path) -> None:
    written = write_schemas(str(tmp_path / "new"))
    assert sorted(p.name for p in written) == sorted(p.name for p in (ROOT / "docs/schemas").glob("*.json"))


@pytest.mark.parametrize("path", [*SHIPPED, *TESTED], ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.thin(5)
def test_what_is_shipped_is_right_with_and_without_tags(path: Path) -> None:
    found = plain(path)
    assert found is not None
    kind, data = found
    assert faults(kind, data) == []
    assert faults(kind, untagged(data)) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.thin(5)
def test_the_first_line_names_the_schema(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n")[0]
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert found is not None
    target = (path.parent / found[1]).resolve()
    assert target.parent == ROOT / "docs/schemas"
    data = plain(path)
    assert data is not None
    assert faults(target.name.removesuffix(".schema.json"), data[1]) == []


@pytest.mark.slow
def test_wrong_structure_is_refused_and_the_rest_is_a_matter_of_meaning() -> None:
    passed, refused = [], 0
    for path in sorted((ROOT / "tests/bad").glob("*.yaml")):
        found = plain(path)
        if found is not None and faults(*found):
            refused += 1
        elif found is not None:
            passed.append(path.stem)
    assert refused >= 12
    assert [p for p in passed if not p.startswith(MEANING)] == []


def models(kind: type[BaseModel], found: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """All models that a section is made of."""
    if kind in found:
        return found
    found.add(kind)
    for field in kind.model_fields.values():
        for inner in inside(field.annotation):
            models(inner, found)
    return found


def inside(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from inside(part)


def test_texts_and_models_have_the_same_keys() -> None:
    found: set[type[BaseModel]] = set()
    for section in SECTIONS.values():
        models(section, found)
    keys = {m.__name__: {k for k in m.model_fields if k != "type"} for m in found}
    assert {name: set(texts) for name, texts in TEXTS.items()} == keys
    defined = schema("spec")["$defs"]
    for model in found:
        assert set(defined[model.__name__]["properties"]) == set(model.model_fields)


def described(part: object) -> Iterator[tuple[str, dict[str, object]]]:
    if isinstance(part, dict):
        for key, value in (
            part.get("properties", {}).items() if isinstance(part.get("properties"), dict) else ()
        ):
            yield key, value
        for value in part.values():
            yield from described(value)
    elif isinstance(part, list):
        for value in part:
            yield from described(value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_says_what_it_means(kind: str) -> None:
    found = list(described(schema(kind)))
    assert found
    for key, value in found:
        text = value.get("description")
        assert isinstance(text, str), key
        assert text.endswith("."), (key, text)


def test_teaal_keys_are_those_of_its_readers() -> None:
    defined = schema("teaal")["$defs"]
    older = {"einsum", "swap_depth", "ranks", "init_ranks", "final_ranks"}
    wanted = {k for keys in bindings.KEYS.values() for k in keys} | older
    assert set(defined["TeaalBinding"]["properties"]) == wanted
    assert set(defined["TeaalLevel"]["properties"]) == set(hardware.LEVEL)
    numbers = {n for kind, names in hardware.NUMBERS.items() if kind for n in names}
    words = {w for names in hardware.WORDS.values() for w in names}
    assert set(defined["TeaalComponent"]["properties"]["attributes"]["properties"]) == numbers | words


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("mapping", {"mapping": {"nodes": [{"component": "GLB", "tensors": ["A"], "colour": 1}]}}),
        ("mapping", {"mapping": {"nodes": [{"type": "Temporal", "component": "GLB", "tensors": ["A"]}]}}),
        ("arch", {"arch": {"nodes": [{"name": "GLB", "ports": "both"}]}}),
        ("arch", {"workload": {"einsums": []}}),
        ("spec", {"schema_version": 2}),
        ("symbols", {"symbols": {"TM": [1]}}),
        ("teaal", {"einsum": {"declaration": {}, "expressions": []}, "mapping": {"loop_order": {}}}),
        ("sweep", {"sweep": {"keep": "best"}}),
    ],
)
def test_slips_are_refused(kind: str, data: object) -> None:
    assert faults(kind, data)
