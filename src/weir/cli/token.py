"""`weir token`: who may ask. Works on PostgreSQL directly: whoever reaches that is the operator."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Column, Table

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import run_until_done
from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.control.tokens import NewToken, Token, Tokens
from weir.embedded.urls import resolve_urls
from weir.errors import InvalidInput
from weir.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Tokens: a role inside an organization, project or environment.")
Result = TypeVar("Result")

Organization = Annotated[str, typer.Option("--organization", "-o", help="Whose.")]
Project = Annotated[str | None, typer.Option("--project", "-p", help="Left out: every project.")]
Environment = Annotated[str | None, typer.Option("--environment", "-e", help="Left out: every environment.")]
TokenId = Annotated[str, typer.Argument(help="The id, as `weir token list` shows it.")]
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What people will recognise it by.")],
    organization: Organization = "default",
    project: Project = None,
    environment: Environment = None,
    role: Annotated[
        Role, typer.Option(help="What it may do; each role includes those before it.")
    ] = Role.WRITE,
    expires: Annotated[str | None, typer.Option(help="Ends after, say, `12h` or `90d`.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token, and the tenant it names; its text is shown this once."""
    new = NewToken(
        name=name,
        role=role,
        organization=organization,
        project=project,
        environment=environment,
        lifetime_ms=None if expires is None else span_ms(expires),
    )
    _show_new(_with_tokens(settings_with(data_dir), lambda tokens: tokens.create(new)), as_json=as_json)


@app.command("list")
def list_tokens(
    organization: Organization = "default",
    project: Project = None,
    environment: Environment = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """The tokens inside a scope."""
    owner = _operator(organization, project, environment)
    tokens = _with_tokens(settings_with(data_dir), lambda register: register.inside(owner))
    if as_json:
        typer.echo(json.dumps([document(token) for token in tokens]))
    else:
        Console().print(_table(tokens))


@app.command()
def rotate(
    token_id: TokenId,
    organization: Organization = "default",
    grace: Annotated[str, typer.Option(help="How long the old one holds on.")] = "0s",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a token by a fresh one of the same scope and role."""
    owner, grace_ms = _operator(organization), span_ms(grace)
    _show_new(
        _with_tokens(
            settings_with(data_dir), lambda tokens: tokens.rotate(token_id, by=owner, grace_ms=grace_ms)
        ),
        as_json=as_json,
    )


@app.command()
def revoke(token_id: TokenId, organization: Organization = "default", data_dir: DataDirOption = None) -> None:
    """End a token at once; running processes notice within seconds."""
    owner = _operator(organization)
    _with_tokens(settings_with(data_dir), lambda tokens: tokens.revoke(token_id, by=owner))
    typer.echo(f"revoked {token_id}", err=True)


def span_ms(text: str) -> int:
    """`90d`, `12h`, `30m` or `45s` in milliseconds."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit()) or unit not in _UNITS_MS:
        raise InvalidInput(f"`{text}` is not a time; write `45s`, `30m`, `12h` or `90d`")
    return int(number) * _UNITS_MS[unit]


def document(token: Token) -> dict[str, Any]:
    """A token as JSON, without its digest."""
    members = asdict(token)
    del members["secret_sha256"]
    return members


def _operator(organization: str, project: str | None = None, environment: str | None = None) -> Principal:
    return Principal(
        token_id="operator",
        role=Role.ADMIN,
        organization=organization,
        project=project,
        environment=environment,
    )


def _with_tokens(settings: Settings, work: Callable[[Tokens], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with Database(resolve_urls(settings).postgres, max_size=1) as database:
            return await work(Tokens(database))

    return cast(Result, run_until_done(run()))


def _show_new(made: tuple[str, Token], *, as_json: bool) -> None:
    text, token = made
    if as_json:
        typer.echo(json.dumps({**document(token), "token": text}))
        return
    typer.echo("This is the only time that the token is shown:", err=True)
    typer.echo(text)


def _table(tokens: list[Token]) -> Table:
    table = Table(Column("id", no_wrap=True), "name", "role", "scope", "created", "last used", "state")
    for token in tokens:
        scope = " / ".join(part for part in (token.organization, token.project, token.environment) if part)
        table.add_row(
            token.id,
            token.name,
            str(token.role),
            scope,
            _moment(token.created_at_ms),
            _moment(token.last_used_at_ms),
            _state(token),
        )
    return table


def _state(token: Token) -> str:
    if token.revoked_at_ms is not None:
        return "revoked"
    if token.expires_at_ms is None:
        return "holds"
    word = "holds until" if token.holds_at(int(datetime.now(UTC).timestamp() * 1000)) else "expired"
    return f"{word} {_moment(token.expires_at_ms)}"


def _moment(time_ms: int | None) -> str:
    return "" if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
