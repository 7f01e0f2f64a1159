"""`weir up`: the whole embedded system, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weir.api.logs import configure_logs
from weir.cli.extras import require_extras
from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import import_from_here, run_until_done, say, telling
from weir.embedded.java import find_java
from weir.embedded.open import stack_from
from weir.model.masking import masked_url
from weir.serve.address import ADMIN_FILE
from weir.serve.system import System, first_ending, pipeline_command, running_api, running_children
from weir.settings import Settings, StoreUrls

app = typer.Typer()


class OnlyPart(StrEnum):
    """A part of the system that can run alone."""

    SERVERS = "servers"


class LeftOut(StrEnum):
    """A part of the system that can be left out."""

    PIPELINE = "pipeline"


@app.command()
def up(
    only: Annotated[
        OnlyPart | None, typer.Option(help="Run this part of the system and nothing else.")
    ] = None,
    without: Annotated[LeftOut | None, typer.Option(help="Leave this part of the system out.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start Redis, PostgreSQL, ClickHouse, the API and the pipeline; Ctrl-C stops them all."""
    settings = settings_with(data_dir)
    if only is OnlyPart.SERVERS or without is LeftOut.PIPELINE:
        require_extras("embedded")
    else:
        require_extras("embedded", "spark", otherwise=" (`weir up --without pipeline` needs no Spark)")
    import_from_here()
    configure_logs(level=settings.api.log_level)
    if only is OnlyPart.SERVERS:
        run_until_done(_servers(settings, as_json=as_json))
    else:
        run_until_done(
            _system(settings, pipeline=without is not LeftOut.PIPELINE, as_json=as_json), fast=True
        )


async def _servers(settings: Settings, *, as_json: bool) -> None:
    async with AsyncExitStack() as exits:
        with telling("starting the servers"):
            stack = await exits.enter_async_context(stack_from(settings, report=say))
        folder = stack.data_dir.path
        if as_json:
            typer.echo(json.dumps({"data_dir": str(folder), **_shown(stack.urls)}))
        else:
            typer.echo(f"the servers run in {folder}; other commands find them there. Ctrl-C stops them.")
        await stack.wait_for_failure()


async def _system(settings: Settings, *, pipeline: bool, as_json: bool) -> None:
    if pipeline:
        await find_java()
    async with AsyncExitStack() as stack:
        with telling("starting the servers and the API"):
            system = await stack.enter_async_context(running_api(settings, report=say))
        folder = system.stack.data_dir.path
        commands = {"pipeline": pipeline_command(folder)} if pipeline else {}
        await stack.enter_async_context(running_children(system, commands, environment=_paths(settings)))
        typer.echo(_document(system, folder) if as_json else _welcome(system, folder))
        await first_ending(system.endings())


def _paths(settings: Settings) -> dict[str, str]:
    """Lets the pipeline import registered metrics from the current folder, since it runs in another one."""
    if settings.pipeline.metrics is None:
        return {}
    return {"PYTHONPATH": os.pathsep.join(str(Path(one).absolute()) for one in sys.path)}


def _shown(urls: StoreUrls) -> dict[str, str]:
    """The URLs without their passwords; the owner of the data directory finds those in `run.json`."""
    return {name: masked_url(url) for name, url in asdict(urls).items()}


def _document(system: System, folder: Path) -> str:
    return json.dumps({"data_dir": str(folder), "url": system.url, **_shown(system.stack.urls)})


def _welcome(system: System, folder: Path) -> str:
    charts = "Charts fill as soon as Spark is up.\n" if system.children else ""
    return (
        f"ready\n\n"
        f"  dashboard   {system.url}/\n"
        f"  token       in {folder / ADMIN_FILE}; commands find it there\n\n"
        f"{charts}Ctrl-C stops everything."
    )
