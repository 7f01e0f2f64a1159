"""Every guide works as it is written, on servers that start for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import ROOT
from docs.conftest import READY, UP, pages_of
from support.pages import CodeBlock, code_blocks
from support.reader import Reader

GUIDES = pages_of(ROOT / "docs" / "how-to")


def typed(page: Path) -> list[CodeBlock]:
    return [block for block in code_blocks(page) if block.language == "sh" and not block.not_run]


def starts_itself(page: Path) -> bool:
    return any("weir up" in block.text for block in typed(page))


@pytest.mark.parametrize("page", [page for page in GUIDES if typed(page)], ids=lambda page: page.stem)
def test_a_guide_works_as_it_is_written(page: Path, returning_reader: Reader) -> None:
    if not starts_itself(page):
        returning_reader.follow_blocks([UP, READY])
    returning_reader.follow(page)
