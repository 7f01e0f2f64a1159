"""The whole table of dead letters in Spark: read in parts, regrouped, trended."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from weir.deadletters.export import ExportRange, ranges, read_range
from weir.pipeline.dead_letter_analysis import analyse

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS

CONSUMERS = """
INSERT INTO weir.consumers (
    organization, project, environment, queue, consumer_id, consumer_name, created_at_ms
)
VALUES ('a', 'p', 'e', 'orders', 'orders', 'orders', 0), ('b', 'p', 'e', 'orders', 'orders', 'orders', 0)
RETURNING consumer_key
"""
LETTER = """
INSERT INTO weir.dead_letters (
    id, consumer_key, group_key, enqueued_at_ms, died_at_ms, attempts, max_attempts, reason, error, payload,
    envelope, replayed_at_ms
)
VALUES (gen_random_uuid(), %s, 1, %s, %s, 5, 5, 'attempts', %s, '', '{}', %s)
"""


def fill(url: str) -> None:
    with psycopg.connect(url) as connection:
        one, other = (row[0] for row in connection.execute(CONSUMERS).fetchall())
        for number in range(300):
            # Twice as many in the last day as in the one before.
            age_h = number % 24 if number % 3 else 24 + number % 24
            died = NOW_MS - age_h * HOUR_MS
            error = f"connect to 10.0.0.{number % 250} refused"
            connection.execute(LETTER, (one if number % 2 else other, died, died, error, None))
        for number in range(7):
            connection.execute(LETTER, (one, NOW_MS, NOW_MS, f"order {number} not found", None))
        connection.execute(LETTER, (one, NOW_MS, NOW_MS, "replayed before", NOW_MS))


def test_ranges_cover_every_letter_once(database_url: str) -> None:
    assert [rows for part in ranges(database_url, parts=4) for rows in read_range(database_url, part)] == []
    fill(database_url)
    parts = ranges(database_url, parts=7)
    assert 1 < len(parts) <= 7
    assert all(left.end == right.first for left, right in pairwise(parts))
    rows = [row for part in parts for batch in read_range(database_url, part) for row in batch]
    assert len(rows) == 307
    assert list(read_range(database_url, ExportRange(first=10_000, end=20_000))) == []


def test_ranges_are_even_although_the_oldest_letters_are_gone(database_url: str) -> None:
    fill(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM weir.dead_letters WHERE seq <= 200")
    parts = ranges(database_url, parts=4)
    sizes = [sum(len(batch) for batch in read_range(database_url, part)) for part in parts]
    assert sum(sizes) == 107
    assert max(sizes) <= 30


def test_spark_regroups_and_trends_the_whole_table(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    fill(database_url)
    found = analyse(spark, url=database_url, partitions=5, limit=10, output=tmp_path)
    assert (found["letters"], found["kinds"]) == (307, 2)
    first, second = found["groups"]
    assert (first["template"], first["dead"]) == ("connect to <address> refused", 300)
    assert (first["queues"], first["tenants"], first["last_day"], first["day_before"]) == (2, 2, 200, 100)
    assert first["trend"] == 1.0
    assert (second["template"], second["dead"], second["tenants"]) == ("order <n> not found", 7, 1)
    assert second["busiest_hour"] == 7
    json.dumps(found)
    assert spark.read.parquet(str(tmp_path / "hours")).groupBy().sum("deaths").collect()[0][0] == 307
