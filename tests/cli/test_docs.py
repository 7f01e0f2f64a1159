"""What the pages tell people to type exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weir
from weir.cli.main import commands

ROOT = Path(weir.__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
COMMAND = re.compile(r"(?:\./weir|`weir) ([a-z][a-z-]*)")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_the_page_exists(page: Path) -> None:
    unknown = {name for name in COMMAND.findall(page.read_text()) if name not in commands()}
    assert unknown == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    broken = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert broken == []
