"""`weir spec`: check, format, plan, apply and show specs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, RefusedByApi, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items, print_json, print_result, shown_time
from weir.cli.plans import plan_of
from weir.cli.running import import_from_here
from weir.cli.tables import number_column
from weir.errors import InvalidInput, SpecInvalid
from weir.model.wording import amount
from weir.serve.spec_checks import SPEC_CHECKS
from weir.spec.dump import dumped
from weir.spec.fmt import formatted
from weir.spec.ir import AppSpec
from weir.spec.language import read_spec
from weir.spec.parse import parse
from weir.spec.plan import rendered_plan

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(help="Spec file: `.weir`, `.yaml` or `.json`; `-` reads spec text from stdin.")
]
Files = Annotated[list[Path], typer.Argument(help="Spec files; `-` reads spec text from stdin.")]


_REVISIONS: Columns = {
    number_column("revision"): "revision",
    "applied": lambda row: shown_time(row["applied_at_ms"]),
    "actor": "actor",
    "file": "file",
}


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
                queues, webhooks = amount(len(spec.queues), "queue"), amount(len(spec.webhooks), "webhook")
                typer.echo(f"{path}: ok ({queues}, {webhooks})")
    if as_json:
        print_json(found)
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
                _replace(path, new)
    raise typer.Exit(1 if changed and check_only else 0)


@app.command()
def export(
    target: Annotated[str, typer.Argument(help="App of tasks, as `module:app`.")],
    as_json: JsonOption = False,
) -> None:
    """Write the queues and schedules that an app of tasks declares as a spec, in YAML."""
    import yaml

    from weir.tasks.load import load_app

    import_from_here()
    document = dumped(load_app(target).spec())
    if as_json:
        print_json(document)
    else:
        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


@app.command()
@about_environment
def plan(scope: ApiScope, file: File, as_json: JsonOption = False) -> None:
    """Show what applying would change; exit status 1 if it would be refused."""
    body = _body(file)
    found = ask_api(scope, lambda api: api.post("spec", "plan", body=body))
    text = f"{rendered_plan(plan_of(found))}\nplanned at revision {found['revision']}"
    print_result(found, text, as_json=as_json)
    raise typer.Exit(0 if found["allowed"] else 1)


@app.command()
@about_environment
def apply(
    scope: ApiScope,
    file: File,
    revision: Annotated[
        int | None,
        typer.Option(help="Revision of the plan; nothing is done if the environment changed since then."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Apply a spec, all of it or nothing; every process follows within a second."""
    body = {**_body(file), "revision": revision}
    try:
        applied = ask_api(scope, lambda api: api.put("spec", body=body))
    except RefusedByApi as error:
        refusals = error.problem.get("refusals")
        if not refusals:
            raise
        for refusal in refusals:
            typer.echo(f"✗ {refusal}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json(applied)
        return
    typer.echo(rendered_plan(plan_of(applied["plan"])))
    typer.echo(f"applied as revision {applied['revision']}")
    if not applied["told"]:
        typer.echo("Redis does not answer; it is told as soon as it does")
    for name, address in applied["hooks"].items():
        typer.echo(f"webhook {name} receives at {address}")


@app.command()
@about_environment
def show(
    scope: ApiScope,
    history: Annotated[
        bool, typer.Option("--history", help="List the last revisions instead of the source.")
    ] = False,
    revision: Annotated[
        int | None, typer.Option(help="Revision to show; the one in force if it is left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the spec that is in force, as it was written, and where the environment differs from it."""
    if history:
        found = ask_api(scope, lambda api: api.get("spec", "history"))
        print_items(found["items"], _REVISIONS, as_json=as_json)
        return
    found = ask_api(scope, lambda api: _shown(api, revision))
    if as_json:
        print_json(found)
        return
    typer.echo(found["source"], nl=not found["source"].endswith("\n"))
    if found.get("differs"):
        difference = rendered_plan(plan_of({"changes": found["differs"], "refusals": [], "warnings": []}))
        typer.echo(f"The environment differs from this spec; applying it would do:\n{difference}", err=True)


async def _shown(api: ApiSession, revision: int | None) -> dict[str, Any]:
    """A revision. That in force comes with `differs`: the changes that make the environment equal to it."""
    if revision is not None:
        return await api.get("spec", "history", str(revision))
    found = await api.get("spec")
    plan = await api.post("spec", "plan", body={"source": found["source"], "file": found["file"]})
    return {**found, "differs": plan["changes"]}


def _body(path: Path) -> dict[str, str]:
    """The request for a spec. It is read here first, so that an error names its place in the file."""
    source = _text(path)
    read_spec(source, file=_name(path), more=SPEC_CHECKS)
    return {"source": source, "file": _name(path)}


def _read(path: Path) -> AppSpec:
    return read_spec(_text(path), file=_name(path), more=SPEC_CHECKS)


def _name(path: Path) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the permissions that it has."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written.write_bytes(text.encode())
        shutil.copymode(path, written)
        written.replace(path.resolve())
    finally:
        written.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{path}` cannot be read: {error}") from None
