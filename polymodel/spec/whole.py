"""What was loaded, as text: the files as they were read, and one YAML document of all of it."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from polymodel.spec.base import SchemaObject
from polymodel.spec.faults import Joined, Locator, Without
from polymodel.spec.numbers import Value
from polymodel.spec.source import NodeLocator


class _Dumper(yaml.SafeDumper):
    """Without anchors: equal lists in two places are written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def whole_yaml(
    sections: Mapping[str, SchemaObject], symbols: Mapping[str, Value | str | None] | None = None
) -> str:
    """One document that loads to the same spec: symbols with their values, every section as it was read.

    Templates are filled in and files are joined; comments are gone, tags are `type:` keys.
    """
    lines: dict[str, object] = {"schema_version": 1}
    if symbols:
        lines["symbols"] = dict(symbols)
    for name, section in sections.items():
        lines[name] = section.model_dump(exclude_unset=True, by_alias=True)
    return yaml.dump(
        lines, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )


def files_as_read(locator: Locator) -> dict[str, str]:
    """The text of every file that a section came from, by name, before templates are filled in."""
    if isinstance(locator, Joined):
        return {**files_as_read(locator.second), **files_as_read(locator.first)}
    if isinstance(locator, Without):
        return files_as_read(locator.base)
    if not isinstance(locator, NodeLocator):
        return {}
    sources = [entry.source for entry in locator.sections.values()]
    return {s.file: "\n".join(s.original or s.lines) for s in sources if s.file}
