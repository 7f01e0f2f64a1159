"""Users' modules register metrics; what is wrong with one is said in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weir.errors import Misconfigured
from weir.pipeline.definition import DEFINITIONS
from weir.pipeline.registry import load_definitions, registered, with_registered

MODULE = """
from weir.metrics import Aggregate, EventKind, Field, MetricDefinition

def metric(name):
    sent = Field(name="sent", width=4, aggregates=(Aggregate.SUM,))
    return MetricDefinition(kind=EventKind(name=name, dimensions=("sender",), fields=(sent,)))

mail = metric("mail")
both = [mail, metric("letter")]
twice = (mail, metric("mail"))
taken = metric("worker")
bad = metric("Not a name")
number = 7
mixed = [mail, "mail"]

class Special(MetricDefinition):
    pass

special = Special(kind=mail.kind)
"""
OWN = [one.name for one in DEFINITIONS]
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file into a folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("own_metrics.py", MODULE)
    yield write
    for name in ("own_metrics", "broken_metrics"):
        sys.modules.pop(name, None)


def names(setting: str | None) -> list[str]:
    return [one.name for one in load_definitions(setting)]


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        (None, []),
        ("", []),
        ("own_metrics:mail", ["mail"]),
        ("own_metrics:both", ["mail", "letter"]),
        (" own_metrics:mail , own_metrics:mail,", ["mail"]),
    ],
)
def test_the_setting_adds_metrics_to_those_of_the_package(
    write: Write, setting: str | None, found: list[str]
) -> None:
    assert names(setting) == [*OWN, *found]
    assert [one.name for one in registered(load_definitions(setting))] == found


def test_an_installed_package_registers_metrics_by_its_entry_point(write: Write) -> None:
    write("own-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    write("own-1.0.dist-info/entry_points.txt", "[weir.metrics]\nmail = own_metrics:mail\n")
    assert names(None) == [*OWN, "mail"]
    assert names("own_metrics:mail") == [*OWN, "mail"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("own_metrics", "write `module:definitions`"),
        ("absent_metrics:all", "importing `absent_metrics` failed .*; install it"),
        ("broken_metrics:all", "importing `broken_metrics` failed .ZeroDivisionError"),
        ("own_metrics:absent", "`own_metrics` has no `absent`; name the variable"),
        ("own_metrics:number", "is not a `MetricDefinition` or a list"),
        ("own_metrics:mixed", "is not a `MetricDefinition` or a list"),
        ("own_metrics:special", "is not a `MetricDefinition` or a list"),
        ("own_metrics:twice", "metric `mail` is defined twice; rename"),
        ("own_metrics:taken", "metric `worker` is defined twice; rename"),
        ("own_metrics:bad", "`Not a name` is not a valid name; use at most 40"),
    ],
)
def test_what_is_wrong_with_a_module_is_said_in_one_line(write: Write, target: str, reason: str) -> None:
    write("broken_metrics.py", "1 / 0")
    with pytest.raises(Misconfigured, match=reason) as found:
        load_definitions(target)
    assert "\n" not in str(found.value)


def test_the_package_alone_has_its_own_metrics() -> None:
    assert with_registered([]) == DEFINITIONS
