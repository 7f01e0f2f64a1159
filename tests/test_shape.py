"""Nothing is declared and never read, and no class name stands twice."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import weir
from weir.api.schemas.queues import QueueBody
from weir.control.sql import parse_queries
from weir.model import durations, limits
from weir.settings import Settings
from weir.spec import ir
from weir.spec.history import read_history
from weir.telemetry import events

SOURCE = Path(weir.__file__).parent
ROOT = SOURCE.parents[1]


@cache
def texts() -> dict[Path, str]:
    return {path.relative_to(SOURCE): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in texts().items()}


def words_of(text: str) -> Counter[str]:
    """How often each word occurs. To look for one after the other takes seconds."""
    return Counter(re.findall(r"\w+", text))


@cache
def attributes_read_by_the_product() -> frozenset[str]:
    """Every name that is read as an attribute outside the language; `message_values.py` checks messages."""
    found: set[str] = set()
    for path, tree in trees().items():
        if path.parts[0] == "spec" and path.name != "message_values.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return frozenset(found)


@pytest.mark.parametrize(
    "cls", [one for one in vars(ir).values() if isinstance(one, type) and is_dataclass(one)], ids=str
)
def test_every_field_of_a_spec_is_read_outside_of_the_language(cls: type) -> None:
    unread = {one.name for one in fields(cls)} - attributes_read_by_the_product()  # type: ignore[arg-type]
    assert unread == set()


def test_every_setting_is_read() -> None:
    read = {
        match
        for path, text in texts().items()
        for match in re.findall(r"self\.(\w+)" if path == Path("settings.py") else r"\.([a-z_0-9]+)\b", text)
    }
    assert _setting_names(Settings) - read == set()


def test_every_field_of_an_event_is_named_where_events_are_made_or_landed() -> None:
    """A field that is neither emitted by a script nor by a process is a column of zeros."""
    everything = "".join(texts().values()) + "".join(
        path.read_text() for path in SOURCE.rglob("*") if path.suffix in (".lua", ".sql")
    )
    counts = words_of(everything)
    for kind in (events.QUEUE, events.WORKER):
        for field in kind.fields:
            assert counts[field.name] > 1, field.name


def test_the_schemas_of_the_api_stand_together() -> None:
    """A model of a request or an answer is found in `api/schemas`, under the name of its routes."""
    model = re.compile(r"\((BaseModel|Schema)\):")
    outside = [
        path
        for path, text in texts().items()
        if path.parts[0] == "api" and path.parts[1] != "schemas" and model.search(text)
    ]
    assert not outside


def test_a_queue_has_the_same_defaults_over_http_as_in_a_spec() -> None:
    queue, body = ir.QueueSpec(name="orders"), QueueBody()
    for name in set(QueueBody.model_fields) - {"retention", "delivery", "history"}:
        assert getattr(body, name) == getattr(queue, name)
    assert read_history(body.history) == queue.history
    assert body.retention.model_dump() == asdict(queue.retention)
    assert body.delivery.model_dump() == asdict(queue.delivery)


def _setting_names(model: type[BaseModel]) -> set[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names |= _setting_names(inner)
        else:
            names.add(name)
    return names


def test_no_public_class_name_is_defined_twice() -> None:
    """A reader who meets a name knows which class it is."""
    homes: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_file_of_a_journey_exists() -> None:
    journeys = (ROOT / "ARCHITECTURE.md").read_text().partition("## Journeys")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+/\w+\.(?:py|lua|sql))`", journeys)
    assert named
    assert [name for name in named if not (SOURCE / name).exists()] == []


MODULES = {
    "backports-zstd": "backports",
    "chdb-core": "chdb",
    "clickhouse-connect": "clickhouse_connect",
    "cel-expr-python": "cel_expr_python",
    "opentelemetry-api": "opentelemetry",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "pyyaml": "yaml",
}
"""What a package is imported as, where its own name does not say it."""
IMPORTED_BY_OTHERS = {
    "async-timeout": "redis-py, on Python 3.11.0 to 3.11.2",
    "httptools": "uvicorn's parser, which serve/protocol.py extends",
    "pandas": "pyspark",
    "tzdata": "zoneinfo, on machines without time zones of their own",
}


def test_every_dependency_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for group in project["optional-dependencies"].values() for one in group),
    ]
    names = {re.split(r"[\[<>=]", one)[0] for one in wanted} - {project["name"], *IMPORTED_BY_OTHERS}
    code = "\n".join(texts().values())
    unused = [
        name
        for name in sorted(names)
        if not re.search(rf"(import|from|[\"']) ?{MODULES.get(name, name.replace('-', '_'))}\b", code)
    ]
    assert unused == []


def test_every_named_query_is_used() -> None:
    files = [*SOURCE.rglob("*.sql"), *(ROOT / "benches").glob("*.sql")]
    code = "\n".join([*texts().values(), *(path.read_text() for path in (ROOT / "benches").glob("*.py"))])
    quoted = set(re.findall(r"[\"'](\w+)[\"']", code))
    unused = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        if file.parent.name != "migrations"
        for name in parse_queries(file.read_text(), origin=file.name)
        if name not in quoted
    ]
    assert unused == []


def _constants() -> Iterator[tuple[str, Path]]:
    """Every constant of a module, and where it is defined."""
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.Assign):
                yield from ((one.id, path) for one in node.targets if isinstance(one, ast.Name))


TOGETHER = re.compile(r"all_or_nothing|_?unchanged(?:_rule)?\(|changes\.change\(")


def test_a_change_over_http_and_its_audit_record_are_one_transaction() -> None:
    outside = []
    for path, tree in trees().items():
        if path.parts[:2] != ("api", "routes"):
            continue
        together = [
            node
            for node in ast.walk(tree)
            if (isinstance(node, ast.AsyncWith) and TOGETHER.search(ast.unparse(node.items[0])))
            # The registers of specs and apps call it inside their transaction.
            or (isinstance(node, ast.AsyncFunctionDef) and node.name == "record")
        ]
        covered = {id(inner) for node in together for inner in ast.walk(node)}
        outside += [
            f"{path}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and ast.unparse(node).startswith(("audit(services,", "_audit(services,"))
            and id(node) not in covered
        ]
    assert outside == []


def test_limits_defaults_and_lengths_of_time_have_one_definition() -> None:
    shared = {name for name in (*vars(limits), *vars(durations)) if name.isupper()}
    homes: dict[str, list[str]] = {}
    for name, path in _constants():
        if name in shared or name.startswith("DEFAULT"):
            homes.setdefault(name, []).append(str(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_hours_and_days_are_spelled_by_name() -> None:
    spelled = [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in (durations.HOUR_MS, durations.DAY_MS)
    ]
    assert spelled == []


def test_every_word_of_the_glossary_is_spelled_in_the_code() -> None:
    """Each row names the identifier that spells its word; a rename that forgets the row is found here."""
    rows = re.findall(
        r"^\|[^|]+\|[^|]+\|([^|]+)\|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"`([\w./]+)", row)}
    words = {name.rpartition(".")[2] for name in named if not name.endswith(".py")}
    assert words - set(words_of("\n".join(texts().values()))) == set()
    assert all((SOURCE / name).exists() for name in named if name.endswith(".py"))
