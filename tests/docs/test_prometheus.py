"""The page on Prometheus names every metric that a running system tells, and no other."""

from __future__ import annotations

import re

import httpx2

from dev import ROOT
from docs.conftest import READY, UP
from support.reader import Reader

PAGE = ROOT / "docs" / "reference" / "prometheus.md"
SOURCES = "\n".join(path.read_text() for path in (ROOT / "src" / "weir").rglob("*.py"))


def on_the_page() -> set[str]:
    return set(re.findall(r"`((?:weir|dead)_[a-z_]+)`", PAGE.read_text()))


def test_every_metric_of_a_running_system_is_on_the_page(returning_reader: Reader) -> None:
    returning_reader.follow_blocks([UP, READY])
    returning_reader.type("weir queue create orders")
    token = (returning_reader.folder / ".weir" / "operator.token").read_text().strip()
    url = f"http://127.0.0.1:{returning_reader.port}/metrics"
    text = httpx2.get(url, headers={"authorization": f"Bearer {token}"}, timeout=10).text
    told = {name.removesuffix("_total") for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    assert len(told) > 30
    assert told - on_the_page() == set()


def test_every_metric_on_the_page_exists() -> None:
    assert [name for name in sorted(on_the_page()) if not is_told(name)] == []


def is_told(name: str) -> bool:
    """Whether the sources spell the name, or its end, which some put together with a beginning."""
    words = name.split("_")
    ends = ["_".join(words[start:]) for start in range(1, len(words))]
    return re.search(rf"\b{name}(_total)?\b", SOURCES) is not None or any(
        f'"{end}"' in SOURCES for end in ends
    )
