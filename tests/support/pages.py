"""Code blocks of the documentation, as a reader meets them: each with its line, language and title."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OPEN = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w-]*)(?P<rest>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_REMARK = re.compile(r"^<!-- (not run|until it shows)(?:: (.*))? -->$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    not_run: str = ""
    """Why a test cannot run it, from the comment `<!-- not run: … -->` before it."""
    repeated: bool = False
    """Whether a reader waits for its output, from the comment `<!-- until it shows -->` before it."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def code_blocks(page: Path) -> list[CodeBlock]:
    """The blocks of a page in their order."""
    return list(_blocks(page, page.read_text().splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[CodeBlock]:
    remark: re.Match[str] | None = None
    numbered = iter(enumerate(lines, start=1))
    for number, line in numbered:
        opened = _OPEN.match(line)
        if opened is not None:
            body = _body(numbered, opened["fence"])
            yield _block(page, number, opened, body, remark)
        if line.strip():
            remark = _REMARK.match(line.strip())


def _body(numbered: Iterator[tuple[int, str]], fence: str) -> list[str]:
    """The lines up to the end of the block."""
    body: list[str] = []
    for _, line in numbered:
        if line.strip() == fence:
            return body
        body.append(line)
    raise ValueError("a block of code does not end")


def _block(
    page: Path, number: int, opened: re.Match[str], body: list[str], remark: re.Match[str] | None
) -> CodeBlock:
    title = _TITLE.search(opened["rest"])
    kind = remark[1] if remark is not None else ""
    return CodeBlock(
        page=page,
        line=number,
        language=opened["language"],
        title=title[1] if title else "",
        text=textwrap.dedent("\n".join(body)) + "\n",
        not_run=(remark[2] or "no reason is given") if remark is not None and kind == "not run" else "",
        repeated=kind == "until it shows",
    )
