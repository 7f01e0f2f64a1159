"""Alert channels: their kinds, the configuration that each needs, and their register in PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from weir.alerts.channel_kinds import ChannelKind, Tls
from weir.control.database import Database, Row
from weir.control.scopes import scope_names, scope_of
from weir.control.sealing import Sealed, SealingKeys
from weir.control.secrets import MAX_SECRET_BYTES, NO_KEY, check_secret_value
from weir.control.sql import load_queries
from weir.errors import InvalidInput, NotFound, Unavailable
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef, check_name
from weir.outbound.address_guard import GuardPolicy, check_url

MAX_RECIPIENTS = 50
_MASK = "********"
_ADDRESS = re.compile(r"[^\s@<>\"',;:\\()\[\]]{1,64}@[A-Za-z0-9.-]{1,253}")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,253}")


_FIELDS: Mapping[ChannelKind, tuple[frozenset[str], frozenset[str]]] = {
    ChannelKind.SLACK: (frozenset({"url"}), frozenset()),
    ChannelKind.WEBHOOK: (frozenset({"url"}), frozenset({"secrets"})),
    ChannelKind.APPRISE: (frozenset({"url"}), frozenset()),
    ChannelKind.EMAIL: (
        frozenset({"host", "from", "to"}),
        frozenset({"port", "tls", "username", "password"}),
    ),
}
_SECRET = frozenset({"secrets", "password"})
_BY_URL = (ChannelKind.SLACK, ChannelKind.APPRISE)
"""Anyone who has the URL of such a channel can send through it, so it is a secret."""
_UNOPENED = "its credentials cannot be opened: no key of this process sealed them; set the channel again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChannel:
    environment: EnvironmentRef
    name: str
    kind: ChannelKind
    config: Mapping[str, Any] = field(repr=False)
    disabled_reason: str | None = None

    def shown(self) -> dict[str, Any]:
        """The configuration with its secrets masked."""
        shown = {name: _MASK if name in _SECRET else value for name, value in self.config.items()}
        if self.kind in _BY_URL and "url" in shown:
            shown["url"] = str(self.config["url"])[:16] + "…"
        return shown

    @property
    def credentials(self) -> dict[str, Any]:
        """The part of the configuration that is stored sealed."""
        hidden = _SECRET | {"url"} if self.kind in _BY_URL else _SECRET
        return {name: value for name, value in self.config.items() if name in hidden}


APPRISE_REFUSED = "Apprise is not allowed here; the operator can allow it (`WEIR_ALERTS__ALLOW_APPRISE`)"


def channel_of(
    environment: EnvironmentRef,
    *,
    name: str,
    kind: str,
    config: Mapping[str, Any],
    policy: GuardPolicy,
    allow_apprise: bool = False,
) -> AlertChannel:
    """The channel that a request describes; InvalidInput says what to change."""
    chosen = _kind(kind)
    if chosen is ChannelKind.APPRISE and not allow_apprise:
        raise InvalidInput(APPRISE_REFUSED)
    check_name(name, what="alert channel")
    required, optional = _FIELDS[chosen]
    missing, unknown = required - config.keys(), config.keys() - required - optional
    if missing or unknown:
        raise InvalidInput(
            f"a `{chosen}` channel needs {_list(required)} and may have {_list(optional)};"
            f" missing {_list(missing)}, unknown {_list(unknown)}"
        )
    checked = _email(config, policy) if chosen is ChannelKind.EMAIL else _by_url(chosen, config, policy)
    return AlertChannel(environment=environment, name=name, kind=chosen, config=checked)


def _kind(text: str) -> ChannelKind:
    try:
        return ChannelKind(text)
    except ValueError:
        known = _list(frozenset(kind.value for kind in ChannelKind))
        raise InvalidInput(f"`{text!s:.32}` is not a kind of channel; expected one of {known}") from None


def _by_url(kind: ChannelKind, config: Mapping[str, Any], policy: GuardPolicy) -> dict[str, Any]:
    url = _text(config["url"], what="url", most=2_000)
    if kind is ChannelKind.APPRISE:
        if "://" not in url:
            raise InvalidInput("an Apprise URL looks like `service://…`")
        return {"url": url}
    check_url(url, policy=policy)
    secrets = config.get("secrets", [])
    if not isinstance(secrets, list) or len(secrets) > 4:
        raise InvalidInput("`secrets` is a list of at most 4 texts: the current one first")
    for secret in secrets:
        check_secret_value(_text(secret, what="secret", most=MAX_SECRET_BYTES))
    return {"url": url, **({"secrets": secrets} if secrets else {})}


def _email(config: Mapping[str, Any], policy: GuardPolicy) -> dict[str, Any]:
    host = _text(config["host"], what="host", most=253)
    if not _HOST.fullmatch(host):
        raise InvalidInput(f"`{host:.64}` is not a host name")
    port = config.get("port", 587)
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise InvalidInput(f"`{port!s:.16}` is not a port; expected 1 to 65535")
    # The guard checks URLs, so the host is put into one. Its addresses are checked again on connecting.
    check_url(f"http://[{host}]/" if ":" in host else f"http://{host}/", policy=_any_port(policy))
    recipients = config["to"]
    if not isinstance(recipients, list) or not 1 <= len(recipients) <= MAX_RECIPIENTS:
        raise InvalidInput(f"`to` is a list of 1 to {MAX_RECIPIENTS} addresses")
    optional = {
        name: _text(config[name], what=name, most=255) for name in ("username", "password") if name in config
    }
    return {
        "host": host,
        "port": port,
        "tls": _tls(config.get("tls", Tls.START.value)),
        "from": _address(config["from"]),
        "to": [_address(one) for one in recipients],
        **optional,
    }


def _any_port(policy: GuardPolicy) -> GuardPolicy:
    return GuardPolicy(allowed=policy.allowed)


def _tls(value: Any) -> str:
    try:
        return Tls(value).value
    except ValueError:
        raise InvalidInput(f"`tls` is `{value!s:.16}`; expected `starttls`, `tls` or `none`") from None


def _address(value: Any) -> str:
    text = _text(value, what="address", most=320)
    if not _ADDRESS.fullmatch(text):
        raise InvalidInput(f"`{text:.64}` is not a mail address")
    return text


def _text(value: Any, *, what: str, most: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise InvalidInput(f"the {what} must be a printable text of 1 to {most} characters")
    return value


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


SQL = load_queries("weir.alerts", "alert_channels.sql")


class AlertChannels:
    """The register of alert channels in PostgreSQL."""

    def __init__(
        self, database: Database, *, keys: SealingKeys | None = None, clock: Clock | None = None
    ) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock or SystemClock()

    async def put(self, channel: AlertChannel) -> None:
        if channel.credentials and self._keys is None:
            raise Unavailable(NO_KEY)
        await self._database.execute(
            SQL["put_channel"],
            name=channel.name,
            kind=channel.kind.value,
            now_ms=self._clock.now_ms(),
            **self._stored(channel),
            **scope_names(channel.environment),
        )

    async def seal_again(self) -> int:
        """Seal credentials that another key sealed, or none; returns how many channels that were."""
        if self._keys is None:
            return 0
        rows = await self._database.fetch(
            SQL["sealed_otherwise"], key_id=self._keys.current_id, known=self._keys.ids
        )
        channels = [(row, self._channel(row)) for row in rows]
        return sum(
            [
                await self._database.execute(
                    SQL["seal_channel"],
                    name=channel.name,
                    old_config=Jsonb(row["config"]),
                    old_sealed=row["sealed"],
                    **self._stored(channel),
                    **scope_names(channel.environment),
                )
                for row, channel in channels
                if channel.credentials
            ]
        )

    def _stored(self, channel: AlertChannel) -> dict[str, Any]:
        """The columns of the configuration: what may be read in PostgreSQL, and the rest sealed."""
        hidden = channel.credentials
        shown = {name: value for name, value in channel.config.items() if name not in hidden}
        sealed = None
        if hidden and self._keys is not None:
            sealed = self._keys.seal(json.dumps(hidden), place=_place(channel.environment, channel.name))
        return {
            "config": Jsonb(shown),
            "key_id": None if sealed is None else sealed.key_id,
            "sealed": None if sealed is None else sealed.data,
        }

    def _channel(self, row: Row) -> AlertChannel:
        environment, name, config = scope_of(row), row["name"], row["config"]
        reason = row["disabled_reason"]
        if row["sealed"] is not None:
            sealed = Sealed(key_id=row["key_id"], data=bytes(row["sealed"]))
            opened = self._keys and self._keys.open(sealed, place=_place(environment, name))
            config = {**config, **json.loads(opened or "{}")}
            reason = reason if opened else _UNOPENED
        return AlertChannel(
            environment=environment,
            name=name,
            kind=ChannelKind(row["kind"]),
            config=config,
            disabled_reason=reason,
        )

    async def find(self, environment: EnvironmentRef, name: str) -> AlertChannel:
        row = await self._database.fetch_one(SQL["find_channel"], name=name, **scope_names(environment))
        if row is None:
            raise NotFound(f"there is no alert channel `{name:.64}` in this environment")
        return self._channel(row)

    async def of(self, environment: EnvironmentRef) -> list[AlertChannel]:
        rows = await self._database.fetch(SQL["list_channels"], **scope_names(environment))
        return [self._channel(row) for row in rows]

    async def delete(self, environment: EnvironmentRef, name: str) -> None:
        if not await self._database.execute(SQL["delete_channel"], name=name, **scope_names(environment)):
            raise NotFound(f"there is no alert channel `{name:.64}` in this environment")

    async def disable(self, environment: EnvironmentRef, name: str, *, reason: str) -> None:
        """Send nothing more through this channel until somebody changes it."""
        await self._database.execute(
            SQL["disable_channel"], name=name, reason=reason, **scope_names(environment)
        )


def _place(environment: EnvironmentRef, name: str) -> tuple[str, ...]:
    """What the credentials are bound to; no secret has a place of so many names."""
    return (*environment.names, "alert channel", name)
