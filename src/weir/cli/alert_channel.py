"""`weir alert-channel`: where alerts are sent, and whether that works."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from weir.alerts.channel_kinds import ChannelKind, Tls
from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption, with_options
from weir.cli.output import Columns, print_items, print_json
from weir.cli.tables import long_column
from weir.errors import InvalidInput, NotFound, Unavailable

app = typer.Typer(no_args_is_help=True)

_TEST_S = 30.0
_LOOK_S = 0.3
_SETTLED = ("delivered", "failed")

NameArgument = Annotated[str, typer.Argument(help="Name of the alert channel.")]
KindArgument = Annotated[ChannelKind, typer.Argument(help="How the channel sends alerts.")]


def _configuration(
    url: Annotated[
        str | None, typer.Option(help="Address of the Slack webhook, of the webhook, or for Apprise.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="Secret that signs a webhook, the current one first; `-` asks for it."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Mail server.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the mail server.")] = None,
    tls: Annotated[
        Tls | None, typer.Option(help="How the connection to the mail server is encrypted.")
    ] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Sender of the mails.")] = None,
    to: Annotated[
        list[str] | None, typer.Option(help="Recipient of the mails; repeat it for several.")
    ] = None,
    username: Annotated[str | None, typer.Option(help="Account at the mail server.")] = None,
    password: Annotated[
        str | None, typer.Option(help="Password at the mail server; `-` asks for it without showing it.")
    ] = None,
) -> dict[str, Any]:
    """The configuration that the options give. The API checks what each kind of channel needs."""
    options = {
        "url": url,
        "secrets": [_ask_secret(one, "Secret") for one in secret] if secret else None,
        "host": host,
        "port": port,
        "tls": None if tls is None else tls.value,
        "from": sender,
        "to": to or None,
        "username": username,
        "password": None if password is None else _ask_secret(password, "Password"),
    }
    return {name: value for name, value in options.items() if value is not None}


def _ask_secret(text: str, what: str) -> str:
    """The secret as it was given. For `-`, a person types it, because others can see a command line."""
    return str(typer.prompt(what, hide_input=True, err=True)) if text == "-" else text


@app.command("list")
@about_environment
def list_channels(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the alert channels of an environment; credentials are not shown."""
    found = ask_api(scope, lambda api: api.get("alert-channels"))["items"]
    columns: Columns = {
        "name": "name",
        "kind": "kind",
        "state": lambda row: "disabled" if row["disabled_reason"] else "enabled",
        long_column("configuration"): _told,
        long_column("reason"): "disabled_reason",
    }
    print_items(found, columns, as_json=as_json)


@app.command()
@about_environment
@with_options(config=_configuration)
def create(scope: ApiScope, config: dict[str, Any], name: NameArgument, kind: KindArgument) -> None:
    """Create an alert channel: `weir alert-channel create ops slack --url https://hooks.slack.com/…`."""

    async def make(api: ApiSession) -> None:
        if await _exists(api, name):
            raise InvalidInput(f"the alert channel `{name}` exists; use `weir alert-channel change`")
        await api.put("alert-channels", name, body={"kind": kind.value, "config": config})

    ask_api(scope, make)


@app.command()
@about_environment
@with_options(config=_configuration)
def change(scope: ApiScope, config: dict[str, Any], name: NameArgument, kind: KindArgument) -> None:
    """Replace an alert channel and enable it; give all of it, because credentials cannot be read back."""

    async def replace(api: ApiSession) -> None:
        if not await _exists(api, name):
            raise NotFound(f"there is no alert channel `{name}`; use `weir alert-channel create`")
        await api.put("alert-channels", name, body={"kind": kind.value, "config": config})

    ask_api(scope, replace)


@app.command()
@about_environment
def delete(scope: ApiScope, name: NameArgument) -> None:
    """Delete an alert channel; notifications that are still on their way to it fail."""
    ask_api(scope, lambda api: api.delete("alert-channels", name))


@app.command("test")
@about_environment
def send_test(scope: ApiScope, name: NameArgument, as_json: JsonOption = False) -> None:
    """Send a test notification the whole way; exit status 1 if it was not delivered."""

    async def send(api: ApiSession) -> dict[str, Any]:
        fired = await api.post("alert-channels", name, "test")
        return await _wait_for_attempt(api, fired["notification_id"])

    entry = ask_api(scope, send)
    if as_json:
        print_json(entry)
    else:
        typer.echo(f"{entry['state']}: {entry['last_error'] or 'no error'}")
    if entry["state"] != "delivered":
        raise typer.Exit(1)


async def _wait_for_attempt(api: ApiSession, notification_id: str) -> dict[str, Any]:
    """Wait until the servers delivered the notification, or tried to, and return it."""
    deadline = time.monotonic() + _TEST_S
    while time.monotonic() < deadline:
        for entry in (await api.get("alert-notifications"))["items"]:
            if entry["id"] == notification_id and (entry["deliveries"] or entry["state"] in _SETTLED):
                return dict(entry)
        await asyncio.sleep(_LOOK_S)
    raise Unavailable("the test notification is still on its way; look at `weir alert-notification list`")


async def _exists(api: ApiSession, name: str) -> bool:
    return any(one["name"] == name for one in (await api.get("alert-channels"))["items"])


def _told(channel: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in channel["config"].items())
