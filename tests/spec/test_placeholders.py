"""Files whose variables are only filled in are rendered to what jinja2 makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.spec.faults import Source
from polymodel.spec.files import filled, is_template
from polymodel.spec.template import Rendered, render

ROOT = Path(__file__).parents[2]
FILES = [p for folder in ("workloads", "arch") for p in sorted((ROOT / folder).rglob("*.yaml"))]
VARIABLES = {"GLB_KIB": 7, "N_TOKENS": 12, "M": "3 * 4", "ALLOCATION": "live"}


def both(text: str, variables: dict[str, object]) -> tuple[Rendered | None, Rendered | None]:
    source = Source("a.yaml", tuple(text.split("\n")), folder="here")
    return filled(text, source, variables), render(text, source, variables)[0]


@pytest.mark.slow
def test_files_of_the_library_are_rendered_alike() -> None:
    texts = [t for t in (p.read_text(encoding="utf-8") for p in FILES) if is_template(t)]
    compared = 0
    for text in texts:
        for variables in ({}, VARIABLES):
            plain, full = both(text, variables)
            assert plain is None or plain == full
            compared += plain is not None
    assert compared > 20


PARTS = st.sampled_from(
    [
        "a: ",
        "\n",
        "{{ M }}",
        "{% if GIVEN is defined %}",
        "{% if N is defined %}",
        "{% endif %}",
        "{{M|default(8)}}",
        "{{ N | default('x') }}",
        '{{ N | default("{") }}',
        "{{ K }}",
        "{",
        "}",
        "}}",
        "{{",
        "{%",
        "{#",
        "#}",
        "{{- M }}",
        "{{ M }",
        "{{ True }}",
        "{{ M | default(08) }}",
        " ",
        "\r",
        "\ue000",
        "{{ N | default('\\n') }}",
        "{{ M + 1 }}",
        "{% raw %}",
        "{% endraw %}",
        "{{ range }}",
    ]
)
VALUES = st.sampled_from([8, "x", "a\nb", "{{ M }}", None, True, 1.5, 10**20, -3, "", "\ue001", [1]])


@settings(max_examples=2000, deadline=None)
@given(st.lists(PARTS, max_size=8), st.dictionaries(st.sampled_from("MN"), VALUES))
def test_what_is_filled_in_is_what_jinja_renders(parts: list[str], variables: dict[str, object]) -> None:
    plain, full = both("".join(parts), variables)
    assert plain is None or plain == full


@pytest.mark.parametrize(
    "text", ["{{ M }}", "{{ M + 1 }}", "{{{ M | default(8) }}", "{% set M = 1 %}{{ M }}"]
)
def test_the_rest_is_left_to_jinja(text: str) -> None:
    assert both(text, {})[0] is None
