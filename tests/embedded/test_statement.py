"""Cutting an insert from its rows, whatever stands between."""

from __future__ import annotations

import pytest

from weir.embedded.chdb.statement import find_insert, keeps_state, named_formats, reads, words


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"INSERT INTO t FORMAT TSV\n1\n", b"1\n"),
        (b"insert into `a b`.t (a, `FORMAT`) format Arrow\n\x00\xff", b"\x00\xff"),
        (b"/* FORMAT x */ INSERT INTO t -- FORMAT y\n SETTINGS a = 'FORMAT z' FORMAT CSV \r\n1", b"1"),
        (b"INSERT INTO t FORMAT Native \n\nrest", b"\nrest"),
        (b"INSERT INTO t FORMAT JSONEachRow {}", b"{}"),
    ],
)
def test_the_rows_of_an_insert_are_found(text: bytes, rows: bytes) -> None:
    insert = find_insert(text)
    assert insert is not None
    assert text[insert.data_at :] == rows


@pytest.mark.parametrize(
    "text",
    [
        b"INSERT INTO t VALUES (1)",
        b"INSERT INTO t SELECT 1 FORMAT Null",
        b"INSERT INTO t FROM INFILE 'x' FORMAT CSV",
        b"SELECT 1 FORMAT CSV",
        b"INSERT INTO t FORM",
        b"(SELECT 1)",
        b"",
    ],
)
def test_other_statements_are_left_alone(text: bytes) -> None:
    assert find_insert(text) is None


def test_settings_stay_in_front_of_the_format() -> None:
    insert = find_insert(b"INSERT INTO t SETTINGS async_insert = 0 FORMAT CSV\n1")
    assert insert is not None
    assert (insert.head, insert.settings, insert.format) == (
        "INSERT INTO t ",
        "SETTINGS async_insert = 0 ",
        "CSV",
    )


def test_words_skip_comments_and_brackets() -> None:
    assert words(b"-- x\n/* y */ ((select 1", 1) == (b"SELECT",)
    assert words(b"", 1) == ()


def test_what_reads_and_what_stays_behind() -> None:
    assert reads(b"WITH 1 AS a SELECT a")
    assert not reads(b"DROP TABLE t")
    assert keeps_state(b"SET a = 1")
    assert keeps_state(b"create temporary table t (a Int8)")
    assert not keeps_state(b"CREATE TABLE t (a Int8)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"SELECT 1", set()),
        (b"SELECT 1 FORMAT Native", {"Native"}),
        (b"SELECT 1\n format\nArrowStream SETTINGS max_threads = 1", {"ArrowStream"}),
        (b"SELECT format('{} FORMAT', x), 'FORMAT TSV' FROM t -- FORMAT CSV", set()),
        (b"SELECT (SELECT format FROM t) FORMAT JSON", {"JSON"}),
    ],
)
def test_output_formats_are_found_where_they_can_stand(text: bytes, found: set[str]) -> None:
    assert named_formats(text) == found
