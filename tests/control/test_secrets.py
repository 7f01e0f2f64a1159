"""Secrets in PostgreSQL: sealed, each in one environment, and changed without a gap."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from support.tcp_proxy import TcpProxy
from support.waiting import until
from weir.control.audit_log import AuditLog
from weir.control.database import Database
from weir.control.sealing import KEY_BYTES, Sealed, SealingKeys, new_key, read_keys
from weir.control.secrets import (
    KEEP_OLD_MS,
    MAX_SECRET_BYTES,
    MAX_SECRETS,
    MAX_VALUES,
    Secrets,
    values_of,
)
from weir.errors import ControlUnavailable, InvalidInput, Misconfigured, NotFound, Unavailable
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.names import EnvironmentRef
from weir.testing.clocks import ManualClock

OLD_KEY, NEW_KEY = b"1" * KEY_BYTES, b"2" * KEY_BYTES
FIRST, SECOND, THIRD = ("first " + "x" * 24, "second " + "x" * 24, "third " + "x" * 24)


@pytest.fixture
def here() -> EnvironmentRef:
    return EnvironmentRef(organization="acme", project="shop", environment="prod")


@pytest.fixture
def secrets(database: Database, manual_clock: ManualClock) -> Secrets:
    return Secrets(database, SealingKeys(OLD_KEY), clock=manual_clock)


async def put(secrets: Secrets, here: EnvironmentRef, name: str, value: str, **options: int) -> bool:
    changed = await secrets.put(here, name, value, actor="token:test", **options)
    await secrets.load()
    return changed


async def test_a_secret_is_found_under_its_own_environment_and_no_other(
    secrets: Secrets, here: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", "a variable of the process")
    others = [
        replace(here, organization="other"),
        replace(here, project="other"),
        replace(here, environment="other"),
    ]
    await put(secrets, here, "HOOK", FIRST)
    await put(secrets, others[0], "OTHER", SECOND)
    assert (secrets.of(here, "HOOK"), secrets.of(others[0], "OTHER")) == ([FIRST], [SECOND])
    assert [secrets.of(one, "HOOK") for one in others] == [(), (), ()]
    assert secrets.of(here, "OTHER") == ()
    assert [one.name for one in await secrets.listed(here)] == ["HOOK"]
    with pytest.raises(NotFound, match="there is no secret `OTHER` in this environment"):
        await secrets.delete(here, "OTHER")
    with pytest.raises(NotFound):
        await secrets.end_previous(here, "OTHER")


async def test_the_value_before_holds_for_a_day_or_until_it_is_ended(
    secrets: Secrets, here: EnvironmentRef, manual_clock: ManualClock
) -> None:
    await put(secrets, here, "HOOK", FIRST)
    await put(secrets, here, "HOOK", SECOND)
    assert secrets.of(here, "HOOK") == [SECOND, FIRST]
    manual_clock.advance(KEEP_OLD_MS - 1)
    assert secrets.of(here, "HOOK") == [SECOND, FIRST]
    assert (await secrets.listed(here))[0].previous_until_ms == manual_clock.now_ms() + 1
    manual_clock.advance(1)
    assert secrets.of(here, "HOOK") == [SECOND]
    assert (await secrets.listed(here))[0].previous_until_ms is None
    await put(secrets, here, "HOOK", THIRD)
    await secrets.end_previous(here, "HOOK")
    await secrets.load()
    assert secrets.of(here, "HOOK") == [THIRD]
    await put(secrets, here, "HOOK", FIRST, keep_old_ms=0)
    assert secrets.of(here, "HOOK") == [FIRST]


async def test_the_same_value_again_ends_nothing(secrets: Secrets, here: EnvironmentRef) -> None:
    assert await put(secrets, here, "HOOK", FIRST)
    assert await put(secrets, here, "HOOK", SECOND)
    assert not await put(secrets, here, "HOOK", SECOND)
    assert secrets.of(here, "HOOK") == [SECOND, FIRST]


async def test_another_process_follows_and_remembers_while_postgresql_is_away(
    secrets: Secrets, here: EnvironmentRef, database_url: str, manual_clock: ManualClock
) -> None:
    elsewhere = replace(here, organization="elsewhere")
    async with TcpProxy.to(database_url) as proxy, Database(proxy.url) as far:
        other = Secrets(far, SealingKeys(OLD_KEY), clock=manual_clock, every_s=0.01)
        following = asyncio.create_task(other.run())
        await put(secrets, here, "HOOK", FIRST)
        await put(secrets, here, "HOOK", SECOND)
        await put(secrets, elsewhere, "HOOK", THIRD)
        await until(
            lambda: other.of(here, "HOOK") == [SECOND, FIRST] and other.of(elsewhere, "HOOK") == [THIRD]
        )
        proxy.refuse()
        await put(secrets, here, "HOOK", THIRD)
        with pytest.raises(ControlUnavailable):
            await other.refresh()
        assert (other.of(here, "HOOK"), following.done()) == ([SECOND, FIRST], False)
        proxy.heal()
        await until(lambda: other.of(here, "HOOK") == [THIRD, SECOND])
        await secrets.delete(here, "HOOK")
        await until(lambda: not other.of(here, "HOOK"))
        await cancel_and_wait([following])


async def test_what_postgresql_holds_tells_no_secret_and_opens_nowhere_else(
    secrets: Secrets, here: EnvironmentRef, database: Database
) -> None:
    await put(secrets, here, "HOOK", FIRST)
    thief = replace(here, organization="thief")
    columns = "project, environment, name, key_id, sealed, set_at_ms, set_by"
    async with database.connection() as connection:
        rows = str(await (await connection.execute("SELECT * FROM weir.secrets")).fetchall())
        for statement in (
            f"INSERT INTO weir.secrets (organization, {columns}) SELECT 'thief', {columns} FROM weir.secrets",
            "INSERT INTO weir.secret_changes "
            "VALUES ('thief', 'shop', 'prod', nextval('weir.secrets_version'))",
        ):
            await connection.execute(statement)
    assert FIRST not in rows
    assert FIRST.encode().hex() not in rows
    with structlog.testing.capture_logs() as lines:
        await secrets.load()
    assert (secrets.of(thief, "HOOK"), secrets.of(here, "HOOK")) == ([], [FIRST])
    assert [line["organization"] for line in lines] == ["thief"]
    sealed = SealingKeys(OLD_KEY).seal(FIRST, place=("a", "b"))
    changed = Sealed(key_id=sealed.key_id, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    assert SealingKeys(OLD_KEY).open(changed, place=("a", "b")) is None


async def test_a_new_first_key_seals_everything_again_and_then_the_old_key_may_go(
    secrets: Secrets, here: EnvironmentRef, database: Database, manual_clock: ManualClock
) -> None:
    await put(secrets, here, "HOOK", FIRST)
    await put(secrets, here, "HOOK", SECOND)
    both = Secrets(database, SealingKeys(NEW_KEY, OLD_KEY), clock=manual_clock)
    assert (await both.seal_again(), await both.seal_again()) == (1, 0)
    new = Secrets(database, SealingKeys(NEW_KEY), clock=manual_clock)
    await new.load()
    assert new.of(here, "HOOK") == [SECOND, FIRST]
    old = Secrets(database, SealingKeys(OLD_KEY), clock=manual_clock)
    await old.load()
    assert (old.of(here, "HOOK"), await old.seal_again()) == ([], 0)
    # A secret whose key is lost can be set again, and its lost value holds nowhere.
    await put(old, here, "HOOK", THIRD)
    assert old.of(here, "HOOK") == [THIRD]


async def test_a_key_is_in_use_while_a_replaced_value_under_it_holds(
    secrets: Secrets, here: EnvironmentRef, database: Database
) -> None:
    await put(secrets, here, "HOOK", FIRST)
    old_id, new_id = SealingKeys(OLD_KEY).current_id, SealingKeys(NEW_KEY).current_id
    # A process that was started with the new key first replaces what another one, not yet restarted, stored.
    turned = Secrets(database, SealingKeys(NEW_KEY, OLD_KEY))
    before = await turned.count_by_key()
    await put(turned, here, "HOOK", SECOND)
    after = await turned.count_by_key()
    assert after[new_id] == before.get(new_id, 0) + 1
    assert after[old_id] == before[old_id]
    await turned.end_previous(here, "HOOK")
    assert (await turned.count_by_key()).get(old_id, 0) == before[old_id] - 1


def test_a_sealed_text_that_was_cut_off_opens_as_nothing() -> None:
    keys = SealingKeys(OLD_KEY)
    assert keys.open(Sealed(key_id=keys.current_id, data=b"cut"), place=("a",)) is None


async def test_without_a_key_nothing_is_stored_and_a_start_says_what_is_missing(
    secrets: Secrets, here: EnvironmentRef, database: Database
) -> None:
    keyless = Secrets(database, None)
    await keyless.demand_key()
    with pytest.raises(Unavailable, match="WEIR_SECRETS__KEY_FILE"):
        await keyless.put(here, "HOOK", FIRST, actor="test")
    await put(secrets, here, "HOOK", FIRST)
    with pytest.raises(Misconfigured, match="WEIR_SECRETS__KEY_FILE"):
        await keyless.demand_key()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "at least 24 bytes"),
        (" ", "at its ends"),
        (" " * 40, "at its ends"),
        ("x" * 23, "at least 24 bytes"),
        ("whsec_", "at least 24 bytes"),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "at least 24 bytes"),
        ("x" * 30 + "\n", "at its ends"),
        ("x" * 30 + "\x00", "printable"),
        ("x" * (MAX_SECRET_BYTES + 1), "at most"),
        ("\ud800" * 30, "surrogate"),
    ],
)
async def test_what_can_be_guessed_is_refused(
    secrets: Secrets, here: EnvironmentRef, value: str, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await put(secrets, here, "HOOK", value)


@pytest.mark.parametrize("name", ["", "1HOOK", "a-b", "x" * 129, "ä", "a b", "../x"])
async def test_a_name_that_no_spec_can_write_is_refused(
    secrets: Secrets, here: EnvironmentRef, name: str
) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a secret"):
        await put(secrets, here, name, FIRST)


async def test_an_environment_has_so_many_secrets_and_a_request_tries_so_many(
    secrets: Secrets, here: EnvironmentRef
) -> None:
    for number in range(MAX_SECRETS):
        await secrets.put(here, f"S{number}", FIRST + str(number), actor="test")
    with pytest.raises(InvalidInput, match="at most 50 secrets"):
        await secrets.put(here, "more", FIRST, actor="test")
    await put(secrets, here, "S0", SECOND)
    names = [f"S{number}" for number in range(MAX_SECRETS)]
    assert values_of(secrets.of, here, names[:1] * 50) == [SECOND, FIRST + "0"]
    assert len(values_of(secrets.of, here, names)) == MAX_VALUES


async def test_a_change_that_is_undone_changes_nothing(
    secrets: Secrets, here: EnvironmentRef, database: Database
) -> None:
    async def put_and_fail() -> None:
        async with AuditLog(database).together():
            await secrets.put(here, "HOOK", FIRST, actor="test")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await put_and_fail()
    assert await secrets.listed(here) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("not Base64!", "key 1 in"),
        (f"{new_key()}\nc2hvcnQ=", "key 2 in"),
        (None, "cannot be read"),
    ],
    # A key is another one in each process of a test run.
    ids=["empty", "not Base64", "too short", "no file"],
)
def test_a_file_of_keys_that_cannot_be_used_says_which_line_and_never_shows_it(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Misconfigured, match=reason) as refused:
        read_keys(path)
    assert "c2hvcnQ" not in str(refused.value)
