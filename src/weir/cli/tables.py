"""Tables for people: columns on a terminal, plain lines in a pipe. An id is never cut at any width.

If a row is too wide for the terminal, its `below` cells move to lines under it, and the other cells wrap.
If it is still too wide, every cell gets a line of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = 2
_LEAST_WIDTH = 10
"""A text is not wrapped to a narrower column, because nobody can read a column of single words."""
_INDENT = "    "

Row = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column, and whether it may wrap or move where the terminal is narrow."""

    name: str
    whole: bool = False
    """Never wrapped: an id or a number."""
    right: bool = False
    below: bool = False
    """Long or less important: the cell moves under its row if the row would be too wide."""


def id_column(name: str = "id") -> TableColumn:
    """A column with ids, which people copy into the next command."""
    return TableColumn(name=name, whole=True)


def number_column(name: str) -> TableColumn:
    return TableColumn(name=name, whole=True, right=True)


def long_column(name: str) -> TableColumn:
    """A column with long or less important text, which may move under its row."""
    return TableColumn(name=name, below=True)


class OutputTable:
    """Rows for standard output: `OutputTable(id_column(), "name")`, `add_row` for each, then `print`."""

    def __init__(self, *columns: TableColumn | str, title: str = "") -> None:
        self._columns = [TableColumn(name=one) if isinstance(one, str) else one for one in columns]
        self._rows: list[Row] = []
        self._title = title

    def add_row(self, *cells: str) -> None:
        self._rows.append([_one_line(cell) for cell in cells])

    def print(self) -> None:
        """Print a table with a header on a terminal; in a pipe, one line with tabs per row and no header."""
        if not sys.stdout.isatty():
            for row in self._rows:
                print("\t".join(row))
            return
        console = Console(soft_wrap=True, highlight=False)
        if self._title:
            console.print(Text(self._title))
        for line in layout(self._columns, self._rows, width=console.width):
            console.print(line)


def layout(columns: Sequence[TableColumn], rows: Sequence[Row], *, width: int) -> Iterator[Text]:
    """The lines of a table that is at most `width` wide, unless one id is wider."""
    natural = [max([cell_len(name), *map(cell_len, cells)]) for name, cells in _columns(columns, rows)]
    if _total(natural) <= width:
        return _grid(columns, rows, natural)
    upper, lower = _parted(columns)
    widths = _fitted([columns[at] for at in upper], [natural[at] for at in upper], width=width)
    if not upper or widths is None:
        return _records(columns, rows, width=width)
    return _grid(
        [columns[at] for at in upper],
        [[row[at] for at in upper] for row in rows],
        widths,
        below=[list(_beneath([(columns[at], row[at]) for at in lower], width)) for row in rows],
    )


def _parted(columns: Sequence[TableColumn]) -> tuple[list[int], list[int]]:
    """The places of the columns that stay in the row, and of those that may stand under it."""
    places = range(len(columns))
    return [at for at in places if not columns[at].below], [at for at in places if columns[at].below]


def _beneath(cells: Sequence[tuple[TableColumn, str]], width: int) -> Iterator[str]:
    """The lines under a row. If several columns moved there, each cell names its column."""
    for column, cell in cells:
        if cell:
            text = f"{column.name}: {cell}" if len(cells) > 1 else cell
            lines = [text] if column.whole else _wrapped(text, width - len(_INDENT))
            yield from (_INDENT + line for line in lines)


def _one_line(cell: str) -> str:
    """A cell without line ends and control characters of the terminal."""
    return "".join(char if char.isprintable() else " " for char in cell).strip()


def _columns(columns: Sequence[TableColumn], rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    for at, column in enumerate(columns):
        yield column.name, [row[at] for row in rows]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fitted(columns: Sequence[TableColumn], natural: Sequence[int], *, width: int) -> list[int] | None:
    """The width of each column so that a row fits; None if a text would get too little room."""
    widths = list(natural)
    texts = [at for at, column in enumerate(columns) if not column.whole]
    while _total(widths) > width:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= _LEAST_WIDTH:
            return None
        widths[widest] -= 1
    return widths


def _grid(
    columns: Sequence[TableColumn],
    rows: Sequence[Row],
    widths: Sequence[int],
    *,
    below: Sequence[Row] = (),
) -> Iterator[Text]:
    yield from _row(columns, [column.name for column in columns], widths, style="bold")
    for at, row in enumerate(rows):
        yield from _row(columns, row, widths)
        yield from map(Text, below[at] if below else ())


def _row(
    columns: Sequence[TableColumn], row: Row, widths: Sequence[int], *, style: str = ""
) -> Iterator[Text]:
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for at in range(max(map(len, cells))):
        parts = [
            _padded(lines[at] if at < len(lines) else "", width, right=column.right)
            for column, lines, width in zip(columns, cells, widths, strict=True)
        ]
        yield Text((" " * _GAP).join(parts).rstrip(), style=style)


def _records(columns: Sequence[TableColumn], rows: Sequence[Row], *, width: int) -> Iterator[Text]:
    """One line per cell, and an empty line between rows."""
    margin = max(cell_len(column.name) for column in columns) + _GAP
    for number, row in enumerate(rows):
        if number:
            yield Text("")
        for column, cell in zip(columns, row, strict=True):
            first, *others = _wrapped(cell, max(_LEAST_WIDTH, width - margin))
            if first:
                shown = [cell] if column.whole else [first, *others]
                yield Text.assemble((_padded(column.name, margin), "bold"), shown[0])
                yield from (Text(" " * margin + line) for line in shown[1:])


def _wrapped(cell: str, width: int) -> list[str]:
    lines = Text(cell).wrap(Console(width=width), width, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


def _padded(text: str, width: int, *, right: bool = False) -> str:
    padding = " " * max(0, width - cell_len(text))
    return padding + text if right else text + padding
