"""Tables of commands: an id is never cut, whatever the terminal; in a pipe there are plain lines."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import weir.cli
from support.terminal import lines_on_terminal
from weir.cli.tables import TableColumn, id_column, layout, long_column, number_column

ID = "0198c0de-7aaa-7bbb-8ccc-0123456789ab"
COLUMNS = (
    TableColumn(name="state"),
    TableColumn(name="rule"),
    TableColumn(name="queue"),
    number_column("value"),
    long_column("summary"),
    id_column(),
)
WIDE = (
    "firing",
    "orders back up",
    "orders: ✓",
    "1,204",
    "480 are ready and none runs; start a worker " * 3,
    ID,
)


def lines(width: int, *rows: tuple[str, ...]) -> list[str]:
    return [line.plain for line in layout(COLUMNS, rows, width=width)]


def test_what_fits_is_one_line_per_row() -> None:
    short = (*WIDE[:4], "no workers", ID)
    header, row = lines(120, short)
    assert header.split() == ["state", "rule", "queue", "value", "summary", "id"]
    assert row == f"firing  orders back up  orders: ✓  1,204  no workers  {ID}"


def test_at_80_columns_long_text_stands_under_its_row_and_the_id_is_whole() -> None:
    header, row, *below = lines(80, WIDE)
    assert "summary" not in header
    assert row.endswith(ID)
    assert " ".join(line.strip() for line in below) == WIDE[4].strip()


def test_at_80_columns_other_texts_are_wrapped_before_an_id_is() -> None:
    row = (*WIDE[:1], "a rule with a name that goes on for quite a while", *WIDE[2:])
    shown = lines(80, row)
    assert sum(ID in line for line in shown) == 1
    assert "quite a while" in " ".join(" ".join(shown).split())


def test_where_little_fits_every_cell_has_a_line_and_the_id_is_still_whole() -> None:
    shown = lines(40, WIDE, WIDE)
    assert shown.count("") == 1
    assert [line for line in shown if ID in line] == [f"id       {ID}"] * 2


TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=60)


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), max_size=4),
    kinds=st.lists(
        st.builds(
            TableColumn, name=st.just("name"), whole=st.booleans(), right=st.booleans(), below=st.booleans()
        ),
        min_size=4,
        max_size=4,
    ),
    width=st.integers(20, 200),
)
def test_every_cell_is_there_and_nothing_is_wider_than_the_terminal(
    rows: list[tuple[str, ...]], kinds: list[TableColumn], width: int
) -> None:
    shown = [line.plain for line in layout(kinds, rows, width=width)]
    for row in rows:
        for column, cell in zip(kinds, row, strict=True):
            if column.whole:
                assert any(cell in line for line in shown)
    longest = max([0, *(cell_len(cell) for row in rows for cell in row)])
    assert max([0, *map(cell_len, shown)]) <= max(width, longest + len("name: ") + 4)


SNIPPET = """
from weir.cli.tables import OutputTable, id_column
table = OutputTable("name", id_column())
table.add_row("[red]\\x1b[2Jtwo\\nlines", "{id}")
table.add_row("{long}", "{id}")
table.print()
"""


COMMAND = (sys.executable, "-c", SNIPPET.format(id=ID, long="word " * 30))


def test_on_a_terminal_ids_are_whole_and_texts_are_neither_markup_nor_escapes() -> None:
    shown = lines_on_terminal(COMMAND, columns=80)
    assert sum(ID in line for line in shown) == 2
    assert any("[red] [2Jtwo lines" in line for line in shown)
    assert max(map(len, shown)) <= 80


def test_in_a_pipe_a_row_is_a_line_with_tabs_and_there_is_no_header() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"[red] [2Jtwo lines\t{ID}",
        f"{('word ' * 30).strip()}\t{ID}",
    ]


def test_no_command_draws_a_table_of_its_own() -> None:
    drawing = [
        path.name
        for path in Path(weir.cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "rich.table"
    ]
    assert drawing == []
