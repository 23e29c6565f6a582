"""The page runner: what it runs, what it finds, and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.outputs import agree
from tests.documents.page import blocks
from tests.documents.run import main
from tests.documents.runner import run

PAGE = """# A page

```yaml
# file: small.yaml
workload:
  rank_sizes: {M: 4, K: 4, N: 4}
  bits_per_value: {All: 8}
  einsums:
  - Z[m, n] = A[m, k] * B[k, n]
```

```python
import polymodel as pm

x = len(pm.load("small.yaml").workload.einsums)
print(x + 1)
```

```text
2
```

```python
print(x)
```

Not its output, as words stand between:

```text
anything
```

```console
$ polymodel validate nothing.yaml ; echo $?
nothing.yaml: there is no such file
...
2
$ polymodel validate small.yaml
$ git status
whatever
```

<!-- not run: it would not end -->

```python
while True: ...
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_blocks_know_what_they_follow_and_why_they_are_not_run() -> None:
    found = blocks(PAGE)
    assert [b.language for b in found] == ["yaml", "python", "text", "python", "text", "console", "python"]
    assert [b.follows for b in found] == [None, 0, 1, 2, None, 4, None]
    assert [b.skipped for b in found][-1] == "it would not end"
    assert not any(b.skipped for b in found[:-1])
    lines = PAGE.splitlines()
    assert lines[found[2].first : found[2].last] == ["2"]


def test_a_page_that_is_right(page: Path) -> None:
    assert run(page) == ([], PAGE)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("```text\n2", "```text\n3", "+2"),
        ("...\n2", "...\n0", "+2"),
        ("validate small.yaml", "validate small.yaml\nno such line", "-no such line"),
        ("validate small.yaml", "validate nothing.yaml", "exit code 2"),
        ("validate small.yaml", "frobnicate", "exit code 2"),
        ("# file: small.yaml", "# file: ../small.yaml", "outside the page's folder"),
        ("```text\nanything", "```yaml\na: [", "not yaml"),
        ("```text\nanything", "```json\n[1,", "not json"),
        ("```text\nanything", "```toml\na = ", "not toml"),
    ],
)
def test_a_page_that_is_wrong(page: Path, old: str, new: str, told: str) -> None:
    assert old in PAGE
    changed = PAGE.replace(old, new, 1)
    # Without its file, the code of the page would raise.
    page.write_text(changed.split("```python")[0] if "../" in new else changed, encoding="utf-8")
    faults, _ = run(page)
    assert any(told in fault.message for fault in faults), faults


def test_write_refreshes_and_fills_in(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = PAGE.replace("```text\n2\n", "```text\n").replace("there is no such file\n...", "?")
    page.write_text(wrong.replace("nothing.yaml: ?", "?"), encoding="utf-8")
    assert main([str(page)]) == 1
    assert main([str(page), "--write"]) == 0
    written = page.read_text(encoding="utf-8")
    assert "```text\n2\n```" in written
    assert "nothing.yaml: there is no such file\n  remedy: check the path\n2\n$ polymodel" in written
    # What no command printed stays as it was.
    assert "$ git status\nwhatever\n" in written
    assert "0 faults" in capsys.readouterr().out


def test_an_error_of_a_block_is_told_at_its_line_in_the_page(page: Path) -> None:
    page.write_text("text\n\n```python\nx = 1\nx / 0\n```\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError) as told:
        run(page)
    assert (told.traceback[-1].path, told.traceback[-1].lineno) == (page, 4)


def test_three_dots_stand_for_any_lines() -> None:
    assert agree("a\n...\nd", "a\nb\nc\nd\n")
    assert agree("...\nd", "d")
    assert agree("a \n\n", "\na\n")
    assert agree("in ... s\n(b)", "in 0.146 s\n(b)")
    assert not agree("in ... s", "in 0.146\ns")
    assert not agree("a\n...\nd", "a\nb")
    assert not agree("a", "a\nb")
