"""`weir dlq analyse`: all dead letters regrouped in Spark, straight from PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.output import print_json
from weir.cli.tables import OutputTable, id_column, long_column, number_column


def analyse(
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Parts of the table that are read side by side.")
    ] = 8,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Print at most so many groups.")] = 20,
    output: Annotated[
        Path | None, typer.Option(help="Folder to which all groups are written as Parquet.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, such as `spark://host:7077`.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Regroup the whole table in Spark and show the trends, for tables too large for one query."""
    from weir.serve.deadletters import analyse_dead_letters

    found = analyse_dead_letters(
        settings_with(data_dir), partitions=partitions, limit=limit, output=output, master=master
    )
    if as_json:
        print_json(found)
        return
    table = OutputTable(
        id_column("group"),
        *(number_column(name) for name in ("dead", "queues", "tenants", "busiest hour", "trend")),
        long_column("error"),
    )
    for group in found["groups"]:
        table.add_row(
            group["fingerprint"],
            f"{group['dead']:,}",
            str(group["queues"]),
            str(group["tenants"]),
            f"{group['busiest_hour']:,}",
            f"{group['trend']:+.0%}",
            group["template"][:80],
        )
    table.print()
    typer.echo(f"{found['letters']:,} dead letters in {found['kinds']:,} groups", err=True)
