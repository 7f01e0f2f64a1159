"""What pages, messages and the dashboard tell people to type exists: commands, options and links."""

from __future__ import annotations

import html
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

import weir
from dev.reference.pages import GENERATED
from weir.cli.main import RENAMED, app

ROOT = Path(weir.__file__).parents[2]
HISTORY = ROOT / "CHANGELOG.md"
"""Speaks of old spellings too."""
FOLDERS = (ROOT / "docs", ROOT / "examples")
DOCS = [
    page
    for page in (*ROOT.glob("*.md"), *(found for folder in FOLDERS for found in sorted(folder.rglob("*.md"))))
    if page != HISTORY
]
WRITTEN_LATER = {ROOT / "docs" / page for page in GENERATED}
"""Pages that are made when the site is built."""
SCREENS = sorted((ROOT / "src/weir/dashboard/web/src").rglob("*.tsx"))
SOURCES = [path for path in sorted((ROOT / "src/weir").rglob("*.py")) if path.name != "main.py"]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")
INLINE = re.compile(r"`(?:\./)?weir ([a-z][^`]*)`")
LINE = re.compile(r"(?:^|[;$] ?|do )\s*(?:\./)?weir ([a-z].*)")
SCREEN = re.compile(r"<(?:pre|code)>(.*?)</(?:pre|code)>", re.DOTALL)
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")
UsageError: Any = typer.BadParameter.__base__


def test_old_spellings_are_not_commands() -> None:
    assert [old for old in RENAMED if problem_of(" ".join(old)) is None] == []


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_the_page_parses(page: Path) -> None:
    assert problems(in_markdown(page.read_text())) == {}


@pytest.mark.parametrize("page", SCREENS, ids=lambda page: page.name)
def test_every_command_on_the_screen_parses(page: Path) -> None:
    assert problems(on_screen(page.read_text())) == {}


def test_every_command_in_a_message_or_help_text_parses() -> None:
    found = {path: problems(INLINE.findall(path.read_text())) for path in SOURCES}
    assert {path.name: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("page", [*DOCS, HISTORY], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    targets = {target: (page.parent / target).resolve() for target in LINK.findall(page.read_text())}
    broken = [target for target, file in targets.items() if not file.exists() and file not in WRITTEN_LATER]
    assert broken == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("alert channel put ops", "alert channel"),
        ("queue list --jsonn", "No such option"),
        ("queue show", None),
        ("queue show q extra", "unexpected extra argument"),
        ("dlq check --warn 1", "Missing option"),
        ("queue list|shwo", "queue shwo"),
        ("spec show [--history]", None),
    ],
)
def test_what_does_not_parse_is_found(line: str, complaint: str | None) -> None:
    found = problems([line])
    assert complaint in str(found) if complaint else found == {}


def in_markdown(text: str) -> Iterator[str]:
    """Commands in code: whole lines of blocks, and within a line of text."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            # What follows in a pipe, or as the next command, is another program.
            yield from (re.split(r" \| |;", found)[0] for found in LINE.findall(line.partition(" # ")[0]))
        else:
            yield from INLINE.findall(line)


def on_screen(text: str) -> Iterator[str]:
    for piece in SCREEN.findall(text):
        spoken = re.sub(r'\{("(?:[^"\\]|\\.)*")\}', lambda found: str(json.loads(found[1])), piece)
        for line in re.split(r"\n|&&", html.unescape(spoken)):
            if line.strip().startswith("weir "):
                yield line.strip().removeprefix("weir ")


def problems(lines: Iterator[str] | list[str]) -> dict[str, str]:
    """Lines that are not commands, and why."""
    found = {spelled: problem_of(spelled) for line in lines for spelled in spellings(line)}
    return {spelled: problem for spelled, problem in found.items() if problem is not None}


def spellings(line: str) -> Iterator[str]:
    """What a line stands for: `a|b` is two commands, `[c]` may be typed, and `…` stands for more."""
    described = re.split(r"\s{2,}", line.replace("\\|", "|").strip())[0]
    words = [re.sub(r"^\[|\]$", "", word) for word in shlex.split(described)]
    choices = [word.split("|") if re.fullmatch(r"[\w|-]+", word) else [word] for word in words]
    for chosen in itertools.product(*choices):
        yield shlex.join(chosen)


def problem_of(spelled: str) -> str | None:
    words = [word for word in shlex.split(spelled) if word != "--help"]
    command: Any = get_command(app)
    context = command.make_context("weir", [], resilient_parsing=True)
    for depth, word in enumerate(words):
        if not hasattr(command, "list_commands"):
            return _problem_of_options(command, context, words[depth:])
        if word in ("…", "NAME"):
            return None
        found = command.get_command(context, word)
        if found is None:
            return f"there is no `weir {' '.join(words[: depth + 1])}`"
        command, context = found, found.make_context(word, [], parent=context, resilient_parsing=True)
    return None


def _problem_of_options(command: Any, context: Any, words: list[str]) -> str | None:
    """A command with arguments is whole; `…` at its end stands for the rest."""
    whole = words[-1] != "…" or words[-2:-1] == [] or words[-2].startswith("-")
    given = [_value(word) for word in (words if whole else words[:-1])]
    try:
        command.make_context(context.info_name, given, parent=context.parent)
    except UsageError as error:
        if whole or "Missing" not in error.format_message():
            return str(error.format_message())
    return None


def _value(word: str) -> str:
    """Something to parse in place of a placeholder, which may stand for a number."""
    return "1" if PLACEHOLDER.fullmatch(word.rstrip("…")) else word
