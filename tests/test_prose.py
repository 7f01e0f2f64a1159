"""Prose keeps to plain English: ways to write that need a second reading are refused."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src/weir", "benches", "dev", "tests/support")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "examples", "deploy")
UNITS = "second|minute|hour|day|call|batch|queue|message|shard|process|round|worker|key|request|tenant|slot"
REFUSED = {
    'write "is not a"': re.compile(
        r"\b(?<!there )(is|are|was|were) no (?!longer|more|other|such|better|worse|one\b)\w", re.IGNORECASE
    ),
    'write "per"': re.compile(
        rf"\b(one|two|[1-9][\d,]*) (?!of|in|at|for|after|when|kB|ms)\w+ an? ({UNITS})\b", re.IGNORECASE
    ),
}
_MARKDOWN_CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|<!--.*?-->", re.S)


def comments_of(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    if path.suffix in (".lua", ".sql"):
        yield from (
            (at, line) for at, line in enumerate(text.splitlines(), start=1) if line.lstrip()[:2] == "--"
        )
        return
    for node in ast.walk(ast.parse(text)):
        for one in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if (
                isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            ):
                yield one.lineno, " ".join(one.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def paragraphs_of(path: Path) -> Iterator[tuple[int, str]]:
    text = _MARKDOWN_CODE.sub(lambda code: "\n" * code[0].count("\n"), path.read_text())
    yield from enumerate(text.splitlines(), start=1)


def sources() -> list[Path]:
    found = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".lua", ".sql")
    ]
    # Migrations are checksummed, so their words stay as they were.
    return [path for path in found if "migrations" not in path.parts and "node_modules" not in path.parts]


def pages() -> list[Path]:
    places = [ROOT / name for name in PAGES]
    return [path for place in places for path in ([place] if place.is_file() else place.rglob("*.md"))]


def refused_in(texts: Iterator[tuple[int, str]]) -> Iterator[str]:
    for at, text in texts:
        for advice, pattern in REFUSED.items():
            if found := pattern.search(text):
                yield f"{at}: {advice}: … {text[max(0, found.start() - 30) : found.end() + 30]} …"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("a bare NULL is no text", True),
        ("one event a call", True),
        ("at most 5 events a second", True),
        ("about once a second", False),
        ("there is no queue", False),
        ("it is no longer there", False),
        ("one event per call", False),
        ("one call a caller makes", False),
    ],
)
def test_the_rule_tells_riddles_from_plain_words(text: str, is_refused: bool) -> None:
    assert bool(list(refused_in(iter([(1, text)])))) is is_refused


def test_comments_and_docstrings_are_in_plain_words() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{one}" for path in sources() for one in refused_in(comments_of(path))
    ] == []


def test_the_documentation_is_in_plain_words() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{one}" for path in pages() for one in refused_in(paragraphs_of(path))
    ] == []
