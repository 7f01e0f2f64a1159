"""What commands print: JSON for programs, and tables, fields and times for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from weir.cli.tables import OutputTable, TableColumn
from weir.model.wording import duration

Document = Mapping[str, Any]
Cell = str | Callable[[Any], object]
"""The name of a field, or a function that makes the text of a row's cell."""
Columns = Mapping[TableColumn | str, Cell]
"""The columns of a table in order -> the cell that each row has there."""
_FIRST_MOMENT_MS = 10**12
"""A field with at least this many milliseconds is a moment (2001 or later); a smaller one is a duration."""


def print_json(document: object) -> None:
    typer.echo(json.dumps(document))


def print_result(document: object, text: str = "", *, as_json: bool) -> None:
    """Print the outcome of a command: the whole document as JSON, or its text if there is any."""
    if as_json:
        print_json(document)
    elif text:
        typer.echo(text)


def print_items(items: Sequence[Document], columns: Columns, *, as_json: bool) -> None:
    """Print a list: as the API answered it, or as a table with these columns."""
    if as_json:
        print_json(items)
        return
    table = OutputTable(*columns)
    for item in items:
        table.add_row(*(_cell(item, cell) for cell in columns.values()))
    table.print()


def print_fields(document: Document, *, as_json: bool) -> None:
    """Print one document: as the API answered it, or as one line per field."""
    if as_json:
        print_json(document)
        return
    table = OutputTable("what", "value")
    for name, value in flat_fields(document):
        table.add_row(name, value)
    table.print()


def flat_fields(document: Document, prefix: str = "") -> list[tuple[str, str]]:
    """Every field with its text. A field of a nested object is named after both."""
    rows: list[tuple[str, str]] = []
    for name, value in document.items():
        words = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += flat_fields(value, f"{words} ")
        elif name.endswith("_ms"):
            text = _shown_ms(value) if isinstance(value, int) else shown(value)
            rows.append((words.removesuffix(" ms").removesuffix(" at"), text))
        else:
            rows.append((words, shown(value)))
    return rows


def shown(value: object) -> str:
    """A value of a document as people read it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(shown, value))
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def shown_time(time_ms: int | None) -> str:
    """A moment in UTC, to the second."""
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def scope_text(item: Document) -> str:
    """The tenant that something belongs to, as far as it is named."""
    names = (item["organization"], item["project"], item["environment"])
    return " / ".join(name for name in names if name) or "everything"


def _cell(item: Document, cell: Cell) -> str:
    return shown(item[cell] if isinstance(cell, str) else cell(item))


def _shown_ms(value: int) -> str:
    """A moment or a duration, which is never as long as thirty years."""
    return shown_time(value) if value >= _FIRST_MOMENT_MS else duration(value)
