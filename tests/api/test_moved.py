"""A route that moved tells where to, and does nothing."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from weir.api.app import describe
from weir.api.routes.moved import MOVED

from .harness import Tenant

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


@pytest.mark.parametrize(("old", "new"), MOVED.items())
async def test_a_moved_route_answers_404_with_its_new_path(tenant: Tenant, old: str, new: str) -> None:
    names = {"channel_id": "a/b ✓", "consumer_id": "c"}
    quoted = {name: quote(value, safe="") for name, value in names.items()}
    answer = await tenant.client.post(old.format(**quoted))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (404, "not_found")
    assert problem["moved_to"] == new.format(**quoted)
    assert problem["moved_to"] in problem["detail"]


def test_a_moved_route_is_gone_from_the_description_and_its_new_path_is_there() -> None:
    known = describe()["paths"].keys()
    assert not MOVED.keys() & known
    assert set(MOVED.values()) <= known


def test_the_page_lists_what_moved() -> None:
    _, _, section = PAGE.read_text().partition("## Moved routes\n")
    rows = re.findall(r"^\| `(/[^`]+)` \| `(/[^`]+)` \|$", section.partition("\n## ")[0], flags=re.MULTILINE)
    assert dict(rows) == MOVED
