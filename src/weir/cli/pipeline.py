"""`weir pipeline …`: run the pipeline, show its status, rebuild from the archive, audit, repair, bundle."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from weir.cli import metrics_switch
from weir.cli.options import DataDirOption, JsonOption, moment_ms, settings_with
from weir.cli.running import import_from_here, run_until_done, say, telling
from weir.cli.service_manager import pinging, tell_ready
from weir.embedded.java import find_java
from weir.model.wording import amount
from weir.settings import Settings
from weir.stores.urls import resolve_urls

app = typer.Typer(no_args_is_help=True)
app.add_typer(metrics_switch.app, name="metrics")


@app.command()
def run(
    master: Annotated[str | None, typer.Option(help="Spark master, such as `spark://host:7077`.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port on which Prometheus metrics are served.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Stop when the streams are empty.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Move events from the streams to ClickHouse and the archive, until Ctrl-C."""
    from weir.pipeline.process import run_pipeline
    from weir.serve.pipeline import audit_in_thread, jvm_answers, session_options

    run_until_done(find_java())
    settings = settings_with(data_dir)
    options = _options(settings)
    with pinging(jvm_answers), ExitStack() as starting:
        starting.enter_context(telling("starting Spark"))
        run_pipeline(
            options,
            session_options(settings, master=master),
            metrics_port=metrics_port if metrics_port is not None else settings.pipeline.metrics_port,
            available_now=drain,
            on_started=lambda: _say_started(starting),
            run_audit=audit_in_thread(options),
        )


def _say_started(starting: ExitStack) -> None:
    starting.close()
    say("the pipeline runs")
    tell_ready()


@app.command()
def tables(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Definitions as `module:definitions`; left out: all that are registered."),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Print the SQL that creates the tables and views of registered metrics; `weir migrate` runs it."""
    from weir.pipeline.metric_tables import statements
    from weir.pipeline.registry import load_definitions, registered, with_registered

    settings = settings_with(data_dir)
    import_from_here()
    found = with_registered(targets) if targets else load_definitions(settings.pipeline.metrics)
    for definition in registered(found):
        for statement in statements(definition, settings.warehouse.retention):
            typer.echo(f"{statement};\n")


@app.command()
def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the status again every second, until Ctrl-C.")
    ] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show offsets, lag in events and seconds, gaps and batch times."""
    from weir.pipeline.status import read_pipeline, shown

    options = _options(settings_with(data_dir))
    while True:
        found = read_pipeline(
            redis_url=options.redis_url,
            clickhouse_url=options.clickhouse_url,
            metrics=[definition.name for definition in options.definitions],
            shards=options.shards,
        )
        typer.echo(json.dumps(asdict(found)) if as_json else shown(found))
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(1)


@app.command()
def rebuild(
    from_: Annotated[
        str, typer.Option("--from", help="Start of the span in ISO 8601, UTC; widened to the hour.")
    ],
    to: Annotated[str, typer.Option("--to", help="End of the span, exclusive; widened to the hour.")],
    metric: Annotated[
        list[str] | None, typer.Option(help="Rebuild only this metric; repeat it for several.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Rebuild hours of which the archive lacks events, and record them as gaps."
        ),
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master, such as `spark://host:7077`.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a span of time in every tier, from the archive."""
    from weir.pipeline.metric_migration import require_tables
    from weir.pipeline.rebuild import rebuild as rebuild_span
    from weir.pipeline.rebuild import whole_hours
    from weir.pipeline.session import open_session
    from weir.serve.pipeline import session_options
    from weir.warehouse.connection import ClickHouseConnection

    span = {"from_ms": moment_ms(from_), "to_ms": moment_ms(to)}
    whole_hours(**span)
    run_until_done(find_java())
    settings = settings_with(data_dir)
    options = _options(settings)
    with closing(ClickHouseConnection(options.clickhouse_url)) as connection:
        require_tables(connection, options.definitions)
    with telling("rebuilding from the archive"):
        spark = open_session(session_options(settings, master=master))
        try:
            done = rebuild_span(spark, options, **span, metrics=tuple(metric or ()), force=force)
        finally:
            spark.stop()
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    else:
        counts = ", ".join(f"{count} of `{name}`" for name, count in done.events.items())
        lost = f"; the archive lacks events, so {amount(done.gaps, 'gap')} were recorded" if done.gaps else ""
        typer.echo(f"rebuilt from {amount(done.files, 'file')}: {counts} events{lost}")


@app.command()
def audit(
    wait_s: Annotated[
        float, typer.Option(help="Wait at most this many seconds until all events have landed.")
    ] = 30,
    history: Annotated[
        bool, typer.Option("--history", help="Make no new audit, and show what the newest audits found.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="With `--history`: show at most this many audits.")
    ] = 20,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare odometers, tiers and live queues; exit status 1 if anything drifted or was not compared."""
    from weir.pipeline.audit_words import shown_audit, shown_history

    if history:
        found = _past_audits(_options(settings_with(data_dir)), limit)
        typer.echo(json.dumps([asdict(one) for one in found]) if as_json else shown_history(found))
        return
    options = _options(settings_with(data_dir))
    report = run_until_done(_audit(options, wait_s), doing="waiting for the last events, and comparing")
    if report is None:
        return
    if as_json:
        typer.echo(report.as_json())
    else:
        typer.echo(shown_audit(report))
    if report.drift != 0:
        raise typer.Exit(1)


@app.command("repair-checkpoint")
def repair(
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of the checkpoint; left out: the one in the settings.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the files that would be removed.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Remove half-written journal entries after a power cut or a full disk. Stop the pipeline first."""
    from weir.pipeline.checkpoint import broken_files, repair_checkpoint
    from weir.serve.pipeline import checkpoint_folder

    folder = checkpoint or Path(checkpoint_folder(settings_with(data_dir)))
    removed = broken_files(folder) if dry_run else repair_checkpoint(folder)
    typer.echo("\n".join(removed) if removed else "the checkpoint is whole")


@app.command()
def bundle(
    output: Annotated[Path, typer.Option(help="File to write; it must not exist.")] = Path(
        "weir-bundle.tar.gz"
    ),
    package: Annotated[
        list[str] | None,
        typer.Option(help="Installed package to add, with its requirements; repeat it for several."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Pack Weir and the packages that it requires, for Spark workers on which Weir is not installed."""
    from weir.pipeline.bundle import write_bundle

    with telling("packing Weir and what it requires"):
        done = write_bundle(output, packages=package or ())
    if as_json:
        typer.echo(json.dumps({**asdict(done), "path": str(done.path)}))
    else:
        typer.echo(f"wrote {done.path}: {done.packages} packages, {done.size_bytes / 1e6:.0f} MB")
        typer.echo(f"for workers with {done.runs_on}; set WEIR_PIPELINE__BUNDLE={done.path}")


def _options(settings: Settings) -> Any:
    from weir.serve.pipeline import pipeline_options
    from weir.stores.ready import redis_ready
    from weir.telemetry.store import StreamStore

    import_from_here()
    urls = resolve_urls(settings)
    run_until_done(redis_ready(urls.redis, say=say))
    with closing(StreamStore(urls.redis)) as store:
        store.require_shards(settings.shards)
    return pipeline_options(settings, urls)


async def _audit(options: Any, wait_s: float) -> Any:
    from weir.serve.pipeline import audit_pipeline

    return await audit_pipeline(options, wait_s=wait_s)


def _past_audits(options: Any, limit: int) -> Any:
    from weir.warehouse.audit_history import AuditHistory
    from weir.warehouse.connection import ClickHouseConnection

    connection = ClickHouseConnection(options.clickhouse_url)
    try:
        return AuditHistory(connection).newest(limit=limit)
    finally:
        connection.close()
