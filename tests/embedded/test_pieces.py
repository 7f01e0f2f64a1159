"""Large answers of the embedded ClickHouse come in pieces, and nobody can tell."""

from __future__ import annotations

from typing import Any

import httpx2
import psutil
import pytest

from support.servers import TestServers

JOINABLE = ["Native", "TSV", "TabSeparatedRaw", "CSV", "JSONEachRow", "JSONCompactEachRow", "RowBinary"]


@pytest.mark.parametrize("rows", [0, 1, 300_000])
@pytest.mark.parametrize("name", JOINABLE)
def test_the_pieces_make_one_answer(http: httpx2.Client, name: str, rows: int) -> None:
    query = f"SELECT number, toString(number) AS s, [number] AS a FROM numbers({rows})"
    answer = http.get("/", params={"query": f"{query} FORMAT {name}"})
    assert answer.status_code == 200
    assert ("transfer-encoding" in answer.headers) == (rows > 1)
    # What is read back from the bytes is what was asked for: nothing twice, nothing missing.
    structure = "number UInt64, s String, a Array(UInt64)"
    read = http.post(
        "/",
        params={
            "query": "SELECT count(), sum(number), max(s = toString(number)) FROM sent",
            "sent_structure": structure,
            "sent_format": name,
        },
        files={"sent": ("sent", answer.content)},
    )
    assert read.text.split() == [str(rows), str(sum(range(rows))), str(int(rows > 0))]


@pytest.mark.parametrize("name", ["JSONCompact", "TSVWithNames", "Arrow"])
def test_formats_with_a_head_are_sent_whole(http: httpx2.Client, name: str) -> None:
    answer = http.get("/", params={"query": f"SELECT number FROM numbers(300000) FORMAT {name}"})
    assert "content-length" in answer.headers


def test_rows_can_be_read_as_they_come(client: Any) -> None:
    with client.query_row_block_stream("SELECT number FROM numbers(2000000)") as stream:
        blocks = list(stream)
    assert len(blocks) > 2
    assert sum(len(block) for block in blocks) == 2_000_000


def test_a_large_answer_costs_no_memory(servers: TestServers, http: httpx2.Client) -> None:
    process = psutil.Process(servers.clickhouse.pid)
    http.get("/", params={"query": "SELECT 1"})
    before, peak, size = process.memory_info().rss, 0, 0
    query = "SELECT number, repeat('x', 100) FROM numbers(10000000) FORMAT Native"
    with http.stream("GET", "/", params={"query": query}) as answer:
        for piece in answer.iter_raw():
            size += len(piece)
            peak = max(peak, process.memory_info().rss)
    assert size > 1_000_000_000
    assert peak - before < 300 << 20


def test_an_error_in_the_middle_reaches_the_client(client: Any) -> None:
    query = "SELECT throwIf(number = 1900000) FROM numbers(2000000)"
    with (
        pytest.raises(Exception, match="throwIf"),
        client.query_row_block_stream(query) as stream,
    ):
        list(stream)
    assert client.command("SELECT 1") == 1
