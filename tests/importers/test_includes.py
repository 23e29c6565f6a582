"""Templates that fetch other files: what they may read, and that nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import polymodel as pm
from tests.faults import faults

BASE = """\
product: &product
  version: 0.4
  shape:
    name: Product
    dimensions: [M, K]
    coefficients: [{name: Stride, default: 1}]
    data_spaces:
    - {name: A, projection: [[[M, Stride]], [[K]]]}
    - {name: Z, projection: [[[M]]], read_write: true}
  instance: {M: 1, K: 1, W: 7}
"""
LAYER = """\
{{include_text('../base.yaml')}}
problem:
  <<<: *product
  instance: {M: 4, K: %s}
"""
ARCH = """\
architecture:
  version: 0.4
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {datawidth: 8}}
  - !Component {name: MAC, class: intmac}
"""
TOP = """\
{{add_to_path(cwd())}}
{% set own = cwd() ~ '/' ~ design ~ '/problem.yaml' %}
{% if path_exists(own) %}{% set problem = problem | default(own) %}{% endif %}
{% set problem = problem | default('_include/problem.yaml') %}
problem: {{include(problem, 'problem')}}
architecture: {{include(cwd() ~ '/' ~ design ~ '/arch.yaml', 'architecture')}}
mapping: []
components: {classes: {{include_all('_parts/*.yaml', 'compound.classes')}}}
"""


def written(folder: Path, **files: str) -> Path:
    """The files, whose names have two underscores for a folder; the first one is returned."""
    paths = [folder / name.replace("__", "/").replace("_yaml", ".yaml") for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def refusal(folder: Path, text: str) -> str:
    """Why a template in this folder is refused."""
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(written(folder, inner__top_yaml=text))
    return str(caught.value)


def test_a_layer_takes_its_shape_from_another_file_and_its_sizes_go_first(tmp_path: Path) -> None:
    layer = written(tmp_path, net__one_yaml=LAYER % 6, base_yaml=BASE)
    imported = pm.import_timeloop(layer)
    assert "m: 0 <= m < 4, k: 0 <= k < 6" in imported.text
    assert any("W is neither a dimension nor a coefficient" in d.message for d in imported.notes)
    assert imported.complete


def test_the_file_that_holds_the_shape_alone_is_a_problem(tmp_path: Path) -> None:
    assert "Z[m] = A[m, k]" in pm.import_timeloop(written(tmp_path, base_yaml=BASE)).text


def test_a_size_that_may_be_misspelt_is_a_fault(tmp_path: Path) -> None:
    text = BASE.replace("W: 7", "Strid: 2")
    with faults("unknown-name", at="problem.instance"):
        pm.import_timeloop(written(tmp_path, base_yaml=text))


def test_a_top_file_chooses_its_parts_by_variables(tmp_path: Path) -> None:
    problem = BASE.replace("product: &product", "problem:")
    parts = "compound: {classes: [{name: x}]}"
    top = written(
        tmp_path, top_yaml=TOP, _include__problem_yaml=problem, one__arch_yaml=ARCH, two__arch_yaml=ARCH,
        two__problem_yaml=problem.replace("M: 1, K: 1", "M: 3, K: 1"), _parts__a_yaml=parts,
    )  # fmt: skip
    assert "m: 0 <= m < 1" in pm.import_timeloop(top, variables={"design": "one"}).text
    assert "m: 0 <= m < 3" in pm.import_timeloop(top, variables={"design": "two"}).text
    with faults("syntax-error", "design", at=""):
        pm.import_timeloop(top)


def test_a_fault_of_an_included_file_stands_in_that_file(tmp_path: Path) -> None:
    top = written(
        tmp_path, top_yaml="problem: {{include('p.yaml', 'problem')}}\n", p_yaml="problem:\n  shape: 3\n"
    )
    with faults("missing-key", at="problem"):
        pm.import_timeloop(top)


def test_merge_keys_join_lists_of_mappings_and_what_they_hold(tmp_path: Path) -> None:
    text = BASE + "other: &other {instance: {M: 9, K: 8}}\nproblem:\n  <<<: [*other, *product]\n"
    assert "m: 0 <= m < 9, k: 0 <= k < 8" in pm.import_timeloop(written(tmp_path, p_yaml=text)).text


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("include_text('/etc/passwd')", "outside the folder"),
        ("include_text('../../../../../../etc/passwd')", "outside the folder"),
        ("include('../../../far.yaml')", "outside the folder"),
        ("include_all('/etc/*')", "outside the folder"),
        ("include_all('../../../*.yaml')", "outside the folder"),
        ("add_to_path('/etc')", "outside the folder"),
        ("path_exists('/etc/passwd')", "outside the folder"),
        ("find_path('../../../far.yaml')", "outside the folder"),
        ("include_text('secret.txt')", "there is no file"),
        ("include_text('link.yaml')", "outside the folder"),
        ("include_text('deep')", "there is no file"),
        ("include_text('top.yaml')", "includes itself"),
        ("include('top.yaml', 'problem')", "includes itself"),
        ("include_text('a\\0b.yaml')", "not a path"),
        ("include_text.__globals__", "not available"),
        ("max.__self__.open('x')", "has no attribute"),
        ("dict.__mro__", "has no attribute"),
        ("cwd.__func__", "not available"),
        ("add_to_path('.').__class__", "not available"),
        ("include('ok.yaml')._mark", "not available"),
        ("round(1, 10 ** 9)", "at most 60 digits"),
        ("float('1' * 400000) + len('x' * 4000000)", "too much work"),
        ("'x' | indent(10 ** 8)", "too much work"),
        ("ceil('x')", "template"),
        ("include('ok.yaml', 'nothing')", "has no nothing"),
        ("include('broken.yaml')", "YAML syntax"),
        ("include('ok.yaml').nothing", "has no nothing"),
        ("include('ok.yaml') ~ 'x'", "mixed with other text"),
    ],
)
def test_what_a_template_may_not_do(tmp_path: Path, call: str, why: str) -> None:
    home = tmp_path / "a/b"
    far = tmp_path.parent / "far.yaml"
    far.write_text("problem: {}\n")
    folder = home / "inner"
    written(folder, secret_txt="x", deep__x_yaml="x: 1", ok_yaml="x: 1", broken_yaml="x: [")
    (folder / "secret.txt").write_text("x")
    os.symlink(far, folder / "link.yaml")
    assert why in refusal(home, "problem: {{" + call + "}}\n")


def test_an_assertion_that_fails_is_told_in_its_words(tmp_path: Path) -> None:
    text = "{% set N = N | default(3) %}{% assert N <= 2, 'at most 2' %}problem: {}\n"
    assert "template: at most 2" in refusal(tmp_path, text)


def test_includes_that_multiply_are_bounded(tmp_path: Path) -> None:
    twice = "a: {{{{include('f{0}.yaml')}}}}\nb: {{{{include('f{0}.yaml')}}}}\n"
    files = {f"f{i}_yaml": twice.format(i + 1) for i in range(9)}
    folder = tmp_path / "inner"
    written(folder, **files, f9_yaml="x: 1\n")
    assert "too many files" in refusal(tmp_path, "problem: {{include('f0.yaml')}}\n")
