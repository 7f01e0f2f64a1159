"""Every route that the pages name exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from weir.api.app import describe as describe_anew
from weir.api.routes.moved import MOVED

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
WEB = ROOT / "src" / "weir" / "dashboard" / "web" / "src"
METHOD = r"(?:GET|POST|PUT|DELETE|OPTIONS)"
NAMED = re.compile(
    rf"`(?P<methods>{METHOD}(?:\|{METHOD})*)? ?"
    r"(?P<path>/(?:api/v1|admin|channel|hook|dlq-status|healthz|livez|readyz|metrics)\b[^`\s]*)`"
)
FETCHED = re.compile(r"[\"`](?P<path>/(?:api/v1|admin)/[^\"`\s]*)[\"`]")


describe = cache(describe_anew)


@cache
def routes() -> dict[str, set[str]]:
    """By the pattern of a path, the methods that it takes."""
    return {
        re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)): {method.upper() for method in methods}
        for path, methods in describe()["paths"].items()
    }


def methods_of(path: str) -> set[str]:
    """The methods of a route; of a path that is cut with `…`, those of all routes below it."""
    bare = path.partition("?")[0]
    if bare.endswith(("…", "/")) or bare == "/api/v1":
        start = bare.rstrip("…").rstrip("/")
        return set().union(
            *(methods for route, methods in routes().items() if route.startswith(re.escape(start)))
        )
    return set().union(*(methods for route, methods in routes().items() if re.fullmatch(route, bare)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_route_on_a_page_exists(page: Path) -> None:
    for found in NAMED.finditer(page.read_text()):
        path, methods = found["path"], set((found["methods"] or "").split("|")) - {""}
        if path not in MOVED:
            known = methods_of(path)
            assert known, f"{path} does not exist"
            assert methods <= known, f"{path} does not take {methods - known}"


@pytest.mark.parametrize("source", sorted(WEB.rglob("*.ts*")), ids=lambda source: source.name)
def test_every_route_that_the_dashboard_asks_exists(source: Path) -> None:
    for found in FETCHED.finditer(source.read_text()):
        asked = re.sub(r"\\\$\\\{.*?\\\}+", "[^/]+", re.escape(found["path"].partition("?")[0]))
        assert any(re.fullmatch(asked, path) for path in describe()["paths"]), (
            f"{found['path']} does not exist"
        )
