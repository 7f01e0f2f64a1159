"""Credentials of alert channels in PostgreSQL: sealed, and bound to their channel."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from weir.alerts.alert_channels import AlertChannel, AlertChannels, channel_of
from weir.control.database import Database
from weir.control.sealing import KEY_BYTES, SealingKeys
from weir.errors import Unavailable
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy
from weir.outbound.addresses import parse_networks

OLD, NEW = (SealingKeys(letter * KEY_BYTES) for letter in (b"o", b"n"))
BOTH = SealingKeys(b"n" * KEY_BYTES, b"o" * KEY_BYTES)
HIDDEN = "hidden-value-of-24-bytes"
LOOPBACK = GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))
KINDS = {
    "webhook": {"url": "http://127.0.0.1:9/", "secrets": [HIDDEN]},
    "slack": {"url": f"http://127.0.0.1:9/{HIDDEN}"},
    "email": {"host": "127.0.0.1", "from": "a@b.c", "to": ["d@e.f"], "username": "u", "password": HIDDEN},
    "apprise": {"url": f"json://127.0.0.1/{HIDDEN}"},
}


def channel(environment: EnvironmentRef, kind: str) -> AlertChannel:
    return channel_of(
        environment, name=kind, kind=kind, config=KINDS[kind], policy=LOOPBACK, allow_apprise=True
    )


async def stored(database: Database) -> str:
    async with database.connection() as connection:
        return str(await (await connection.execute("SELECT * FROM weir.alert_channels")).fetchall())


@pytest.mark.parametrize("kind", KINDS)
async def test_credentials_are_found_as_they_were_given_and_never_stored_in_the_clear(
    database: Database, environment: EnvironmentRef, kind: str
) -> None:
    given = channel(environment, kind)
    await AlertChannels(database, keys=OLD).put(given)
    assert HIDDEN not in await stored(database)
    assert await AlertChannels(database, keys=OLD).find(environment, kind) == given
    assert await AlertChannels(database, keys=BOTH).seal_again() == 1
    assert await AlertChannels(database, keys=BOTH).seal_again() == 0
    assert await AlertChannels(database, keys=NEW).of(environment) == [given]
    lost = await AlertChannels(database, keys=OLD).find(environment, kind)
    assert lost.disabled_reason is not None
    assert "cannot be opened" in lost.disabled_reason
    assert HIDDEN not in str(lost.shown())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_of_an_older_release_is_sealed_at_the_next_start(
    database: Database, environment: EnvironmentRef, kind: str
) -> None:
    given = channel(environment, kind)
    await AlertChannels(database, keys=OLD).put(given)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE weir.alert_channels SET config = %s, key_id = NULL, sealed = NULL",
            (Jsonb(dict(given.config)),),
        )
    assert await AlertChannels(database).find(environment, kind) == given
    assert await AlertChannels(database).seal_again() == 0
    assert await AlertChannels(database, keys=OLD).seal_again() == 1
    assert HIDDEN not in await stored(database)
    assert await AlertChannels(database, keys=OLD).find(environment, kind) == given


async def test_credentials_of_another_channel_open_nowhere_else(
    database: Database, environment: EnvironmentRef
) -> None:
    await AlertChannels(database, keys=OLD).put(channel(environment, "slack"))
    async with database.connection() as connection:
        await connection.execute("UPDATE weir.alert_channels SET organization = 'thief'")
    thief = EnvironmentRef(
        organization="thief", project=environment.project, environment=environment.environment
    )
    found = await AlertChannels(database, keys=OLD).find(thief, "slack")
    assert (dict(found.config), found.shown()) == ({}, {})


async def test_without_a_key_only_a_channel_without_credentials_is_stored(
    database: Database, environment: EnvironmentRef
) -> None:
    keyless = AlertChannels(database)
    for kind in KINDS:
        with pytest.raises(Unavailable, match="WEIR_SECRETS__KEY_FILE"):
            await keyless.put(channel(environment, kind))
    url = {"url": "http://127.0.0.1:9/"}
    plain = channel_of(environment, name="plain", kind="webhook", config=url, policy=LOOPBACK)
    await keyless.put(plain)
    assert await keyless.of(environment) == [plain]
