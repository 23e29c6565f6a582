"""What an editor shows: no faults in shipped files, keys behind a tag, texts, wrong keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from polymodel.spec.yaml_text import TAGS

from .server import ROOT, SETTINGS, Server, command

START = command()
WHY = "no yaml-language-server (npm install yaml-language-server; POLYMODEL_YAML_SERVER=its script)"
HALF = """\
# yaml-language-server: $schema={schema}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [A], reuse: refill}}
  - !Storage {{}}
  - !Temporal {{rank_variable: m, tile_shape: 8, colour: red}}
  - !Storage
    component: GLB
    {rest}
  - !Storage {{component: DRAM, tensors: [A], reuse: always}}
"""
SHIPPED = [*ROOT.glob("arch/*.yaml"), *ROOT.glob("workloads/**/*.yaml"), *ROOT.glob("docs/sparse/*.yaml")]
# A template is not YAML before it is rendered, so that every editor marks it.
PLAIN = [p for p in sorted(SHIPPED) if not any(t in p.read_text("utf-8") for t in ("{{", "{%", "{#"))]


def test_the_settings_know_every_tag() -> None:
    assert SETTINGS["yaml.customTags"] == [f"!{tag} mapping" for tag in TAGS]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if START is None:
        pytest.skip(WHY)
    with Server(START) as found:
        yield found


@pytest.fixture(scope="module")
def half(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("editor") / "half.yaml"
    text = HALF.format(rest="", schema=(ROOT / "docs/schemas/spec.schema.json").as_uri())
    return path, server.faults(path, text)


@pytest.mark.slow
@pytest.mark.parametrize("path", PLAIN, ids=lambda p: str(p.relative_to(ROOT)))
def test_shipped_files_have_no_faults(server: Server, path: Path) -> None:
    assert server.faults(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.slow
def test_wrong_keys_and_words_are_marked(half: tuple[Path, list[str]]) -> None:
    _, faults = half
    assert "6: Property colour is not allowed." in faults
    assert [f for f in faults if f.startswith("5: ")] == [
        '5: Missing property "component".', '5: Missing property "tensors".'
    ]  # fmt: skip
    assert any(f.startswith("10: ") and "keep_previous" in f for f in faults)
    assert '8: Missing property "tensors".' in faults
    assert not any(f.startswith(("1:", "2:", "3:", "4:")) for f in faults)


@pytest.mark.slow
def test_a_tag_offers_its_keys(server: Server, half: tuple[Path, list[str]]) -> None:
    path, _ = half
    assert {"component", "tensors", "reuse"} <= server.offered(path, 5, 15)
    below = server.offered(path, 9, 5)
    assert {"tensors", "reuse"} <= below
    assert "component" not in below


@pytest.mark.slow
def test_hovering_shows_the_text(server: Server, half: tuple[Path, list[str]]) -> None:
    path, _ = half
    shown = server.at("hover", path, 4, 50)["contents"]["value"]
    assert "keeps whatever the next step needs" in shown
    assert "Default: refill" in shown
