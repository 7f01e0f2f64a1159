"""`weir secret`: the secrets of an environment, which its spec names."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items, shown_time
from weir.errors import InvalidInput
from weir.model.durations import duration_ms
from weir.settings import variables_set

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the secret, as the spec writes it.")]

_COLUMNS: Columns = {
    "name": "name",
    "set": lambda row: shown_time(row["set_at_ms"]),
    "by": "set_by",
    "old value": lambda row: (
        f"holds until {shown_time(row['previous_until_ms'])}" if row["previous_until_ms"] else "none"
    ),
}


@app.command("set")
@about_environment
def set_secret(
    scope: ApiScope,
    name: NameArgument,
    keep_old: Annotated[
        str, typer.Option(help="How long the value before holds too; `0s` ends it at once.")
    ] = "24h",
) -> None:
    """Store a secret or replace it: `openssl rand -base64 32 | weir secret set HOOK_SECRET`.

    The value comes from standard input, because others can see a command line.
    """
    body = {"value": _value(), "keep_old_ms": duration_ms(keep_old)}
    ask_api(scope, lambda api: api.put("secrets", name, body=body))


@app.command("list")
@about_environment
def list_secrets(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the secrets of an environment by name; a value is never shown."""
    print_items(ask_api(scope, lambda api: api.get("secrets"))["items"], _COLUMNS, as_json=as_json)


@app.command()
@about_environment
def delete(
    scope: ApiScope,
    name: NameArgument,
    only_old: Annotated[
        bool, typer.Option("--only-old", help="End only the value that was replaced.")
    ] = False,
) -> None:
    """Delete a secret; what is signed with it is refused from then on."""
    ask_api(scope, lambda api: api.delete("secrets", name, only_old=only_old or None))


@app.command("import-environment")
@about_environment
def import_environment(
    scope: ApiScope,
    names: Annotated[
        list[str] | None, typer.Argument(help="Variables to store as secrets of the same names.")
    ] = None,
) -> None:
    """Store variables of this shell as secrets, for a spec that named variables before.

    Without a name it says which of them the spec of the environment names, and stores nothing. Name only
    those that belong to the tenant of this environment: its spec may name any.
    """
    if not names:
        wanted = ask_api(scope, _missing)
        found = variables_set(wanted)
        for name in wanted:
            typer.echo(f"{name}: {'set here' if name in found else 'not set here'}")
        if found:
            typer.echo(f"weir secret import-environment {' '.join(found)}")
        return
    values = variables_set(names)
    if unset := [name for name in names if name not in values]:
        raise InvalidInput(f"the variable `{unset[0]}` is not set here")

    async def store(api: ApiSession) -> None:
        for name, value in values.items():
            await api.put("secrets", name, body={"value": value})
            typer.echo(f"stored {name}")

    ask_api(scope, store, doing=None)


async def _missing(api: ApiSession) -> list[str]:
    """The secrets that the spec of the environment names and that are not stored."""
    stored = {one["name"] for one in (await api.get("secrets"))["items"]}
    spec = (await api.get("spec"))["spec"]
    named = [
        *(hook.get("verify", {}) for hook in spec.get("webhooks", {}).values()),
        *(queue.get("deliver", {}) for queue in spec.get("queues", {}).values()),
    ]
    wanted = dict.fromkeys(name for one in named for name in one.get("secret", ()))
    return [name for name in wanted if name not in stored]


def _value() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise InvalidInput("the value is not UTF-8 text") from None
