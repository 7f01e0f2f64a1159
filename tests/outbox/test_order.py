"""Messages of one key stand in the order in which their transactions committed."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from support.waiting import wait_until
from weir.outbox import push


def payloads(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT payload FROM weir_outbox.messages ORDER BY position").fetchall()
    return [json.loads(payload) for (payload,) in found]


def test_a_transaction_that_began_first_and_commits_last_comes_last(shop_url: str) -> None:
    """By the numbers of transactions and of rows it would come first."""
    with psycopg.connect(shop_url) as slow, psycopg.connect(shop_url) as quick:
        push(slow, "q", "slow", key="k")
        push(quick, "q", "quick", key="k")
        quick.commit()
        slow.commit()
    assert payloads(shop_url) == ["quick", "slow"]


def test_a_long_transaction_holds_nothing_up(shop_url: str) -> None:
    with psycopg.connect(shop_url) as slow, psycopg.connect(shop_url) as quick:
        push(slow, "q", "slow", key="k")
        push(quick, "q", "quick", key="k")
        quick.commit()
        assert payloads(shop_url) == ["quick"]
        slow.rollback()


def test_messages_of_one_transaction_keep_their_order(shop_url: str) -> None:
    with psycopg.connect(shop_url) as connection:
        for number in range(200):
            push(connection, "q", number, key=f"k{number % 3}")
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        push(connection, "q", 200, key="k0")
    assert payloads(shop_url) == list(range(201))


def test_transactions_with_many_keys_in_any_order_never_wait_for_each_other_in_a_circle(
    shop_url: str,
) -> None:
    def work(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(shop_url) as connection:
            for _ in range(25):
                with connection.transaction():
                    for key in chance.sample(range(40), 20):
                        push(connection, "q", [seed, key], key=str(key))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(payloads(shop_url)) == 8 * 25 * 20


def test_positions_of_a_key_follow_what_its_transactions_saw(shop_url: str) -> None:
    """Each transaction counts a customer up and pushes the count: counts say the order of the commits."""

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(shop_url) as connection:
            for _ in range(40):
                customer = chance.randint(0, 4)
                with connection.transaction():
                    # A number of a transaction that says nothing about the order of the commits.
                    connection.execute("SELECT pg_current_xact_id()")
                    row = connection.execute(
                        "UPDATE counts SET n = n + 1 WHERE customer = %s RETURNING n", (customer,)
                    ).fetchone()
                    assert row is not None
                    push(connection, "q", [customer, row[0]], key=str(customer))

    with psycopg.connect(shop_url) as connection:
        connection.execute("CREATE TABLE counts (customer int PRIMARY KEY, n int NOT NULL)")
        connection.execute("INSERT INTO counts SELECT c, 0 FROM generate_series(0, 4) c")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    seen: dict[int, int] = {}
    for customer, n in payloads(shop_url):
        assert n == seen.get(customer, 0) + 1
        seen[customer] = n
    assert sum(seen.values()) == 240


def test_a_commit_waits_for_one_with_the_same_key_that_has_its_positions(shop_url: str) -> None:
    """The first commit stops between its positions and its end; a second with its key must not pass it."""
    with (
        psycopg.connect(shop_url, autocommit=True) as keeper,
        psycopg.connect(shop_url) as first,
        psycopg.connect(shop_url) as second,
        psycopg.connect(shop_url) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        keeper.execute(_STOP_COMMITS)
        keeper.execute("SELECT pg_advisory_lock(42)")
        try:
            push(first, "q", "first", key="k")
            first.execute("INSERT INTO orders VALUES (1, 'stops')")
            stopped = pool.submit(first.commit)
            wait_until(lambda: waiting_on_locks(keeper) == 1, what="the first commit to stop")
            push(second, "q", "second", key="k")
            behind = pool.submit(second.commit)
            wait_until(lambda: waiting_on_locks(keeper) == 2, what="the second commit to wait")
            push(other, "q", "other", key="another key")
            other.commit()
            assert payloads(shop_url) == ["other"]
        finally:
            keeper.execute("SELECT pg_advisory_unlock(42)")
        stopped.result(timeout=10)
        behind.result(timeout=10)
    assert [one for one in payloads(shop_url) if one != "other"] == ["first", "second"]


_STOP_COMMITS = """
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER stop AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION stop();
"""


_WAITING = """
SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted
"""


def waiting_on_locks(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(_WAITING).fetchone()
    return 0 if row is None else int(row[0])
