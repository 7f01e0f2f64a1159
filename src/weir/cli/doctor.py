"""`weir doctor`: which servers run, whether they are well, and what is misconfigured."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import run_until_done
from weir.embedded.append_only import repair_append_only
from weir.embedded.datadir import DataDir
from weir.embedded.redis_binary import redis_binary
from weir.errors import InvalidInput, Misconfigured
from weir.settings import Settings
from weir.stores.checkup import checkup

app = typer.Typer()
_SHOWN = ("name", "version", "port", "shards")


@app.command()
def doctor(
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    repair_redis: Annotated[
        bool,
        typer.Option("--repair-redis", help="Mend a damaged append-only file, if that loses nothing."),
    ] = False,
    cut: Annotated[
        bool,
        typer.Option("--cut", help="With `--repair-redis`: cut it at its first bad entry; the rest is lost."),
    ] = False,
) -> None:
    """Look at every server, Java, Spark and the disk; exit status 1 if something is wrong."""
    settings = settings_with(data_dir)
    if cut and not repair_redis:
        raise InvalidInput("`--cut` goes with `--repair-redis`")
    if repair_redis:
        _repair(settings, cut=cut)
    logging.disable()  # The report names each problem once; drivers would log it again and again.
    report = run_until_done(checkup(settings), doing="looking at the servers")
    if report is None:
        raise typer.Exit(130)
    typer.echo(json.dumps(report) if as_json else readable(report))
    raise typer.Exit(0 if report["ok"] else 1)


def _repair(settings: Settings, *, cut: bool) -> None:
    directory = DataDir(settings.embedded.data_dir)
    if directory.in_use():
        raise Misconfigured(f"`{directory.path}` is in use; stop what runs there before the repair")
    server = redis_binary(settings.embedded.redis_server)
    typer.echo(repair_append_only(directory.path / "redis", server, cut=cut), err=True)


def readable(report: dict[str, Any]) -> str:
    lines = []
    for name, section in report.items():
        if isinstance(section, dict):
            facts = ", ".join(f"{key} {section[key]}" for key in _SHOWN if key in section)
            lines.append(f"{name:<10} {'ok' if section['ok'] else 'NOT OK':<6}  {facts}".rstrip())
    lines += [f"- {problem}" for problem in report["problems"]]
    lines += [f"- note: {note}" for note in report["notes"]]
    return "\n".join(lines)
