"""The embedded ClickHouse, seen by the clients that will use it."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import clickhouse_connect
import httpx2
import pyarrow as pa
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from clickhouse_connect.driver.external import ExternalData

from support.waiting import wait_until


def test_it_answers_ping_and_its_version(client: Any) -> None:
    assert client.ping()
    assert client.server_version == client.command("SELECT version()")


def test_rows_come_back_as_they_went_in(client: Any) -> None:
    client.command("CREATE TABLE t (a Int64, b String, c Nullable(Float64)) ENGINE = MergeTree ORDER BY a")
    rows = [(1, "x", 1.5), (2, "blank\n\nline; -- '✓", None)]
    client.insert("t", rows, column_names=["a", "b", "c"])
    assert client.query("SELECT * FROM t ORDER BY a").result_rows == rows


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip", False])
def test_arrow_goes_in_and_comes_out(url: str, compression: str | bool) -> None:
    with clickhouse_connect.get_client(dsn=url, compress=compression) as client:
        client.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
        table = pa.table({"a": list(range(5000)), "b": [f"row {n}" for n in range(5000)]})
        client.insert_arrow("t", table)
        back = client.query_arrow("SELECT * FROM t ORDER BY a", use_strings=True)
        assert back.to_pydict() == table.to_pydict()


def test_parameters_are_never_code(client: Any) -> None:
    awkward = "'; DROP TABLE t; -- ✓\\"
    rows = client.query("SELECT {x:String} AS x, {n:UInt8} AS n", parameters={"x": awkward, "n": 7})
    assert rows.result_rows == [(awkward, 7)]


def test_settings_hold_for_one_request(client: Any) -> None:
    assert client.command("SELECT getSetting('max_threads')", settings={"max_threads": 3}) == 3
    assert client.command("SELECT getSetting('max_threads')") != 3


def test_a_token_makes_an_insert_idempotent(client: Any) -> None:
    window = "SETTINGS non_replicated_deduplication_window = 100"
    client.command(f"CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a {window}")
    for _ in range(3):
        client.insert_arrow("t", pa.table({"a": [1, 2]}), settings={"insert_deduplication_token": "one"})
    client.insert_arrow("t", pa.table({"a": [1, 2]}), settings={"insert_deduplication_token": "two"})
    assert client.command("SELECT count() FROM t") == 4


def test_a_failing_view_fails_the_insert(client: Any) -> None:
    client.command("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    client.command("CREATE TABLE u (a Int64) ENGINE = MergeTree ORDER BY a")
    client.command("CREATE MATERIALIZED VIEW v TO u AS SELECT throwIf(a = 13) + a AS a FROM t")
    with pytest.raises(DatabaseError, match="395"):
        client.insert_arrow("t", pa.table({"a": [13]}))


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELEC 1", 62),
        ("SELECT * FROM missing", 60),
        ("SELECT * FROM missing_database.t", 81),
        ("SELECT 1 SETTINGS no_such_setting = 1", 115),
        ("SELECT throwIf(1)", 395),
    ],
)
def test_errors_carry_clickhouse_codes(client: Any, statement: str, code: int) -> None:
    with pytest.raises(DatabaseError, match=f"{code}"):
        client.command(statement)
    assert client.command("SELECT 1") == 1


def test_a_wrong_password_is_refused(clickhouse_url: str) -> None:
    parts = urlsplit(clickhouse_url)
    with pytest.raises(DatabaseError, match="516"):
        clickhouse_connect.get_client(host=parts.hostname, port=parts.port, username="weir", password="no")


def test_an_insert_may_be_cut_anywhere(http: httpx2.Client, client: Any, url: str) -> None:
    client.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    body = b"INSERT INTO t FORMAT TSV\n1\tone\n2\ttwo\n"
    for cut in (3, 15, 24, 25, 30):
        pieces = (piece for piece in (body[:cut], body[cut:]))
        answer = http.post("/", params={"database": urlsplit(url).path[1:]}, content=pieces)
        assert answer.status_code == 200, answer.text
    assert client.command("SELECT count() FROM t") == 10


def test_a_statement_may_come_compressed(http: httpx2.Client) -> None:
    answer = http.post("/", content=gzip.compress(b"SELECT 40 + 2"), headers={"Content-Encoding": "gzip"})
    assert answer.text == "42\n"


def test_an_unknown_encoding_is_refused_and_the_connection_goes_on(http: httpx2.Client) -> None:
    answer = http.post("/", content=b"SELECT 1", headers={"Content-Encoding": "rot13"})
    assert answer.headers["X-ClickHouse-Exception-Code"] == "89"
    assert http.get("/", params={"query": "SELECT 2"}).text == "2\n"


def test_the_summary_says_what_was_written(client: Any) -> None:
    client.command("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    assert client.insert("t", [[1], [2], [3]], column_names=["a"]).written_rows == 3


def test_the_reader_can_read_and_nothing_else(clickhouse_url: str, client: Any, url: str) -> None:
    client.command("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    parts = urlsplit(url)
    with clickhouse_connect.get_client(
        host=parts.hostname,
        port=parts.port,
        username="reader",
        password=parts.password,
        database=parts.path[1:],
    ) as reader:
        assert reader.command("SELECT count() FROM t") == 0
        for forbidden in (
            "INSERT INTO t VALUES (1)",
            "CREATE TABLE u (a Int64) ENGINE = Memory",
            "DROP TABLE t",
            "SET readonly = 0",
            "SELECT * FROM file('/etc/passwd', 'LineAsString')",
            "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        ):
            with pytest.raises(DatabaseError):
                reader.command(forbidden)
        with pytest.raises(DatabaseError):
            reader.insert("t", [[1]], column_names=["a"])
    assert client.command("SELECT count() FROM t") == 0


def test_a_session_keeps_its_temporary_tables_to_itself(url: str) -> None:
    with (
        clickhouse_connect.get_client(dsn=url, session_id="one") as one,
        clickhouse_connect.get_client(dsn=url, session_id="two") as two,
    ):
        one.command("CREATE TEMPORARY TABLE mine (a Int64)")
        one.command("INSERT INTO mine VALUES (5)")
        assert one.command("SELECT a FROM mine", settings={"max_threads": 1}) == 5
        with pytest.raises(DatabaseError, match="60"):
            two.command("SELECT a FROM mine")


def test_a_setting_of_one_request_does_not_stick_to_its_session(url: str) -> None:
    with clickhouse_connect.get_client(dsn=url, session_id="sticky") as client:
        client.command("SET max_threads = 2")
        assert client.command("SELECT getSetting('max_threads')", settings={"max_threads": 3}) == 3
        assert client.command("SELECT getSetting('max_threads')") == 2


def test_a_session_that_must_exist_is_refused_when_it_does_not(http: httpx2.Client) -> None:
    query = {"query": "SELECT 1", "session_id": "nobody", "session_check": "1"}
    assert http.get("/", params=query).headers["X-ClickHouse-Exception-Code"] == "372"


def test_external_data_joins_a_query(client: Any) -> None:
    data = ExternalData(data=b"1,one\n2,two\n", file_name="names", fmt="CSV", structure="a Int64, b String")
    rows = client.query("SELECT b FROM names WHERE a = 2", external_data=data)
    assert rows.result_rows == [("two",)]


def test_many_clients_at_once_see_only_their_own(url: str) -> None:
    def work(number: int) -> list[int]:
        with clickhouse_connect.get_client(dsn=url) as client:
            setting = {"max_block_size": 1000 + number}
            return [client.command("SELECT getSetting('max_block_size')", settings=setting) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(24)))
    assert answers == [[1000 + number] * 5 for number in range(24)]


def test_a_reader_that_hangs_up_stops_its_query(http: httpx2.Client, client: Any) -> None:
    slow = "SELECT sum(sipHash64(number)) FROM numbers(100000000000) -- hang up"
    with pytest.raises(httpx2.ReadTimeout):
        http.get("/", params={"query": slow}, timeout=0.5)
    running = (
        "SELECT count() FROM system.processes WHERE query LIKE '%-- hang up' AND query NOT LIKE '%processes%'"
    )
    wait_until(lambda: client.command(running) == 0, what="the end of the query")


def test_large_results_come_back_whole(client: Any) -> None:
    total = 0
    with client.query_row_block_stream("SELECT number FROM numbers(1000000)") as blocks:
        for block in blocks:
            total += len(block)
    assert total == 1_000_000


def test_an_unknown_path_is_not_found(http: httpx2.Client) -> None:
    assert http.get("/nothing").status_code == 404
    assert http.get("/ping").text == "Ok.\n"
