"""`weir spec`: check, format, plan, apply and show what queues and webhooks are."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from weir.cli.options import JsonOption
from weir.cli.scope import ACTOR, Desk, Place, at_desk, scoped
from weir.control.specs import Applied, AppliedSpec, Specs
from weir.errors import Conflict, InvalidInput, SpecInvalid
from weir.serve.hooks import open_specs
from weir.spec.dump import dumped
from weir.spec.fmt import formatted
from weir.spec.ir import AppSpec
from weir.spec.language import read_spec
from weir.spec.parse import parse
from weir.spec.plan import Plan, rendered_plan

app = typer.Typer(no_args_is_help=True, help="Specs: what queues, webhooks, channels and alerts are.")

File = Annotated[Path, typer.Argument(help="`.weir`, `.yaml` or `.json`; `-` reads spec text from stdin.")]
Files = Annotated[list[Path], typer.Argument(help="Spec files.")]


@app.command()
def check(files: Files, as_json: JsonOption = False) -> None:
    """Read specs and show every mistake at its place; exit status 1 if there is one."""
    found: list[dict[str, object]] = []
    for path in files:
        try:
            spec = _read(path)
        except SpecInvalid as error:
            found.append({"file": str(path), "ok": False, "errors": error.extra.get("errors", [])})
            if not as_json:
                typer.echo(error.message, err=True)
        else:
            found.append({"file": str(path), "ok": True, "queues": len(spec.queues)})
            if not as_json:
                typer.echo(f"{path}: ok ({len(spec.queues)} queues, {len(spec.webhooks)} webhooks)")
    if as_json:
        typer.echo(json.dumps(found))
    raise typer.Exit(0 if all(one["ok"] for one in found) else 1)


@app.command()
def fmt(
    files: Files,
    check_only: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit status 1 if a file would change.")
    ] = False,
) -> None:
    """Write spec files in their canonical form; every comment is kept."""
    changed = False
    for path in files:
        text = _text(path)
        new = formatted(parse(text, file=str(path)))
        if str(path) == "-":
            typer.echo(new, nl=False)
            continue
        if new != text:
            changed = True
            typer.echo(f"{'would change' if check_only else 'formatted'} {path}")
            if not check_only:
                path.write_text(new)
    raise typer.Exit(1 if changed and check_only else 0)


@app.command()
@scoped
def plan(
    place: Place,
    file: File,
    as_json: JsonOption = False,
) -> None:
    """Show what applying would change; exit status 1 if it would be refused."""
    spec = _read(file)

    async def work(desk: Desk) -> Plan:
        return await _register(desk).plan(desk.environment, spec)

    found = at_desk(place, work)
    typer.echo(json.dumps(asdict(found)) if as_json else rendered_plan(found))
    raise typer.Exit(0 if found.allowed else 1)


@app.command()
@scoped
def apply(
    place: Place,
    file: File,
    as_json: JsonOption = False,
) -> None:
    """Make a spec hold, all of it or none; every process follows within a second."""
    source = _text(file)
    spec = read_spec(source, file=_name(file))

    async def work(desk: Desk) -> tuple[Applied, dict[str, str]]:
        applied = await _register(desk).apply(
            desk.environment, spec, source=source, file=_name(file), actor=ACTOR
        )
        return applied, applied.addresses(desk.environment)

    try:
        applied, addresses = at_desk(place, work)
    except Conflict as error:
        for refusal in error.extra.get("refusals", [error.message]):
            typer.echo(f"✗ {refusal}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps({"revision": applied.revision, "hooks": addresses, **asdict(applied.plan)}))
        return
    typer.echo(rendered_plan(applied.plan))
    typer.echo(f"applied as revision {applied.revision}")
    for name, address in addresses.items():
        typer.echo(f"webhook {name} receives at {address}")


@app.command()
@scoped
def show(
    place: Place,
    history: Annotated[bool, typer.Option("--history", help="The last revisions instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the spec that holds, as it was written."""

    async def work(desk: Desk) -> list[AppliedSpec]:
        specs = _register(desk)
        return await specs.history(desk.environment, limit=50 if history else 1)

    found = at_desk(place, work)
    if not found:
        raise InvalidInput("no spec is applied to this environment yet; apply one with `weir spec apply`")
    if as_json:
        rows = [{**asdict(one), "app": dumped(one.app)} for one in found]
        typer.echo(json.dumps(rows if history else rows[0]))
    elif history:
        for one in found:
            typer.echo(f"{one.revision:>5}  {one.applied_at_ms}  {one.actor}  {one.file}")
    else:
        typer.echo(found[0].source, nl=not found[0].source.endswith("\n"))


def _register(desk: Desk) -> Specs:
    return open_specs(desk.database, desk.broker, desk.settings.worker)


def _read(path: Path) -> AppSpec:
    return read_spec(_text(path), file=_name(path))


def _name(path: Path) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{path}` cannot be read: {error}") from None
