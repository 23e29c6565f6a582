"""What an importer answers: a spec as YAML text, and a word on everything that is not as it was."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.loading import Spec, load
from polymodel.spec.output import write_text
from polymodel.spec.source import Source
from polymodel.spec.yaml_text import parse_yaml


@dataclass(frozen=True, repr=False)
class Imported:
    """A converted file.

    `text` is the spec as YAML, which loads as it stands. `notes` say what was read otherwise than it was
    written (an assumption, a default). `left_out` names, with place and remedy, what has no counterpart:
    nothing of the file is dropped without being listed there.
    """

    source: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    left_out: tuple[Diagnostic, ...] = ()

    @property
    def spec(self) -> Spec:
        """The text, loaded."""
        root, faults = parse_yaml(self.text, Source(self.source, tuple(self.text.split("\n"))))
        plain = root.plain() if root is not None else None
        if faults or not isinstance(plain, dict):
            raise SpecError(faults)
        return load(plain)

    @property
    def complete(self) -> bool:
        """Whether everything in the file has its counterpart in the spec."""
        return not self.left_out

    def save(self, file: str | Path) -> Path:
        """Write the YAML to a new file; an existing one is left alone."""
        path = Path(file)
        if path.exists():
            raise SpecError([Diagnostic(f"{path} exists already", "name a new file")])
        with writing(path):
            write_text(path, self.text)
        return path

    def __str__(self) -> str:
        parts = [self.text]
        parts += [f"note: {d.render()}" for d in self.notes]
        parts += [f"left out: {d.render()}" for d in self.left_out]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"Imported({self.source}: {len(self.notes)} notes, {len(self.left_out)} left out)"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
