"""`weir token`: manages tokens. All commands but `bootstrap` use the API, so they are scoped and audited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_token, ask_api
from weir.cli.options import DataDirOption, JsonOption, given, settings_with
from weir.cli.output import Columns, Document, print_items, print_result, scope_text, shown_time
from weir.cli.running import run_until_done, say
from weir.cli.tables import id_column, long_column
from weir.control.principals import Role
from weir.model.durations import duration_ms
from weir.settings import Settings

app = typer.Typer(no_args_is_help=True)

Organization = Annotated[
    str | None, typer.Option("--organization", "-o", help="Organization that the token belongs to.")
]
Project = Annotated[
    str | None, typer.Option("--project", "-p", help="Project of the token; left out: every project.")
]
Environment = Annotated[
    str | None,
    typer.Option("--environment", "-e", help="Environment of the token; left out: every environment."),
]
TokenId = Annotated[str, typer.Argument(help="Id of the token, as `weir token list` shows it.")]


@app.command()
@about_token
def create(
    scope: ApiScope,
    name: Annotated[str, typer.Argument(help="Name that people will recognise the token by.")],
    organization: Organization = None,
    project: Project = None,
    environment: Environment = None,
    role: Annotated[
        Role, typer.Option(help="What the token may do; each role includes those before it.")
    ] = Role.WRITE,
    expires: Annotated[
        str | None,
        typer.Option(help="How long the token is valid, such as `12h` or `90d`; left out: for ever."),
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Make a user of Redis too, for trusted clients in direct mode.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a token, and the environment that it names; its text is shown only once."""
    names = {"organization": organization, "project": project, "environment": environment}
    lifetime_ms = None if expires is None else duration_ms(expires)

    async def make(api: ApiSession) -> dict[str, Any]:
        owner = await _choose_scope(api, role, names)
        body = given(name=name, role=role.value, lifetime_ms=lifetime_ms, direct=direct or None, **owner)
        return await api.post("tokens", body=body)

    _show_new(ask_api(scope, make), as_json=as_json)


@app.command("list")
@about_token
def list_tokens(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the tokens inside the scope of your token; an operator sees all."""
    tokens = ask_api(scope, lambda api: api.get("tokens"))["items"]
    columns: Columns = {
        id_column(): "id",
        "name": "name",
        "role": "role",
        "scope": scope_text,
        long_column("created"): lambda row: shown_time(row["created_at_ms"]),
        long_column("last used"): lambda row: shown_time(row["last_used_at_ms"]),
        long_column("state"): _state,
    }
    print_items(tokens, columns, as_json=as_json)


@app.command()
@about_token
def rotate(
    scope: ApiScope,
    token_id: TokenId,
    grace: Annotated[str, typer.Option(help="How long the old token stays valid, such as `1h`.")] = "0s",
    as_json: JsonOption = False,
) -> None:
    """Replace a token by a new one of the same scope and role."""
    body = {"grace_ms": duration_ms(grace)}
    _show_new(ask_api(scope, lambda api: api.post("tokens", token_id, "rotate", body=body)), as_json=as_json)


@app.command()
@about_token
def delete(scope: ApiScope, token_id: TokenId) -> None:
    """End a token at once; running processes notice within seconds."""
    ask_api(scope, lambda api: api.delete("tokens", token_id))
    typer.echo(f"deleted {token_id}", err=True)


@app.command()
def bootstrap(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Create an operator's token directly in PostgreSQL, as the first token of an installation."""
    text = run_until_done(_bootstrap(settings_with(data_dir)), doing="waiting for PostgreSQL")
    if text is not None:
        _show_new({"token": text}, as_json=as_json)


async def _bootstrap(settings: Settings) -> str:
    from weir.control.tokens import Tokens
    from weir.serve.bootstrap import OPERATOR
    from weir.stores.open import opened_database
    from weir.stores.urls import resolve_urls

    async with opened_database(resolve_urls(settings).postgres, say=say) as database:
        text, _ = await Tokens(database).create(OPERATOR)
    return text


async def _choose_scope(api: ApiSession, role: Role, names: dict[str, str | None]) -> dict[str, str | None]:
    """The scope of a new token. An operator who names none means the default environment."""
    if any(names.values()) or role is Role.OPERATOR:
        return names
    asked_by_operator = (await api.get("me"))["role"] == Role.OPERATOR
    return dict.fromkeys(names, "default") if asked_by_operator else names


def _show_new(made: dict[str, Any], *, as_json: bool) -> None:
    if not as_json:
        typer.echo("This is the only time that the token is shown:", err=True)
    print_result(made, made["token"], as_json=as_json)


def _state(token: Document) -> str:
    if token["revoked_at_ms"] is not None:
        return "deleted"
    if token["expires_at_ms"] is None:
        return "holds"
    word = "holds until" if token["expires_at_ms"] > datetime.now(UTC).timestamp() * 1000 else "expired"
    return f"{word} {shown_time(token['expires_at_ms'])}"
