"""`weir dlq redrive`, `purge` and `task`: begin, follow, pause, resume and cancel bulk actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.bulk_action_progress import begin_action, show_dry_run, summary_of
from weir.cli.options import (
    CanaryOption,
    DetachOption,
    DryRunOption,
    FromDryRunOption,
    JsonOption,
    LimitOption,
    with_options,
)
from weir.cli.output import Columns, print_fields, print_items, print_json
from weir.cli.tables import id_column, long_column
from weir.errors import InvalidInput
from weir.model.wording import amount

task_app = typer.Typer(
    no_args_is_help=True, help="Redrives, purges and cancellations: how far they are; pause, resume, cancel."
)

ActionId = Annotated[
    str, typer.Argument(metavar="TASK_ID", help="Id of the task, as `weir dlq task list` shows it.")
]


CANARY = 10
"""How many a redrive sends first, on the page too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkActionOptions:
    """The options that redrives and purges share."""

    filter: dict[str, Any]
    dry_run: bool
    from_dry_run: str | None
    rate_per_s: float | None
    yes: bool
    detach: bool
    as_json: bool

    def begin(
        self,
        scope: ApiScope,
        path: str,
        *,
        selection: dict[str, Any],
        limits: dict[str, Any] | None = None,
        asked: str,
    ) -> None:
        """Begin what the options say. Unless the user said yes before, a dry run counts first, and that is
        asked about and begun."""
        route = ("dlq", path)
        limits = {"rate_per_s": self.rate_per_s, **(limits or {})}
        if self.from_dry_run is not None:
            self._refuse_more(selection)
            body = {"from_dry_run": self.from_dry_run, **limits}
        else:
            # An empty filter means everything, which `all` must say; the user has confirmed it.
            body = {"filter": self.filter, "all": not self.filter, **selection, **limits}
            if self.dry_run:
                show_dry_run(scope, route, body | {"dry_run": True}, as_json=self.as_json)
                return
            if not self.yes:
                counted = show_dry_run(scope, route, body | {"dry_run": True}, to_stderr=True)
                if not counted["matched"]:
                    return
                typer.confirm(asked.format(amount(counted["matched"], "dead letter")), abort=True, err=True)
                body = {"from_dry_run": counted["id"], **limits}
        begin_action(scope, route, body, detach=self.detach, as_json=self.as_json)

    def _refuse_more(self, selection: dict[str, Any]) -> None:
        if self.dry_run or self.filter or any(selection.values()):
            raise InvalidInput(
                "`--from-dry-run` takes what was counted; leave out `--dry-run`, filters and `--patch`"
            )


def _read_options(
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="Take only dead letters of this queue.")
    ] = None,
    fingerprint: Annotated[str | None, typer.Option(help="Take only dead letters of this group.")] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Take only matches of this CEL expression, such as `payload.amount > 100`."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(help="Take only this reason of death: attempts, rejected, expired or lapsed."),
    ] = None,
    died_from: Annotated[
        int | None, typer.Option(help="Take only deaths at or after this time, in milliseconds since 1970.")
    ] = None,
    died_to: Annotated[
        int | None, typer.Option(help="Take only deaths at or before this time, in milliseconds since 1970.")
    ] = None,
    dry_run: DryRunOption = False,
    from_dry_run: FromDryRunOption = None,
    rate: Annotated[float | None, typer.Option(help="Take at most this many per second.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin at once: no dry run, no question.")] = False,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> BulkActionOptions:
    conditions = {
        "queue": queue,
        "fingerprint": fingerprint,
        "reason": reason,
        "died_from_ms": died_from,
        "died_to_ms": died_to,
        "expression": where,
    }
    return BulkActionOptions(
        filter={name: value for name, value in conditions.items() if value is not None},
        dry_run=dry_run,
        from_dry_run=from_dry_run,
        rate_per_s=rate,
        yes=yes,
        detach=detach,
        as_json=as_json,
    )


@about_environment
@with_options(options=_read_options)
def redrive(
    scope: ApiScope,
    options: BulkActionOptions,
    canary: CanaryOption = CANARY,
    tolerance: Annotated[float, typer.Option(help="Share of the canary that may die again.")] = 0.0,
    patch: Annotated[
        str | None,
        typer.Option(
            help="CEL expression whose result, an object, is merged into each payload; after `replace:` the "
            "result is the payload."
        ),
    ] = None,
    letter_id: Annotated[
        str | None,
        typer.Option("--id", help="Send only this dead letter back, and print the id of the new message."),
    ] = None,
) -> None:
    """Send dead letters back to their queues."""
    if letter_id is not None:
        _redrive_one(scope, options, letter_id)
        return
    options.begin(
        scope,
        "redrives",
        selection={"patch": patch},
        limits={"canary": canary, "canary_tolerance": tolerance},
        asked=f"Send {{}}{_whose(scope, options)} back?",
    )


@about_environment
@with_options(options=_read_options)
def purge(
    scope: ApiScope,
    options: BulkActionOptions,
    everything: Annotated[
        bool, typer.Option("--include-unexhausted", help="Delete also dead letters with attempts left.")
    ] = False,
) -> None:
    """Delete dead letters for good."""
    options.begin(
        scope,
        "purges",
        selection={"include_unexhausted": everything},
        asked=f"Delete {{}}{_whose(scope, options)} for good?",
    )


@task_app.command("list")
@about_environment
def list_actions(scope: ApiScope, limit: LimitOption = 20, as_json: JsonOption = False) -> None:
    """List the newest redrives, purges and cancellations."""
    found = ask_api(scope, lambda api: api.get("dlq", "tasks", limit=limit))["items"]
    columns: Columns = {
        id_column(): "id",
        "kind": lambda action: f"{action['kind']} (dry run)" if action["dry_run"] else action["kind"],
        "state": "state",
        long_column("what it did"): summary_of,
    }
    print_items(found, columns, as_json=as_json)


@task_app.command()
@about_environment
def show(scope: ApiScope, action_id: ActionId, as_json: JsonOption = False) -> None:
    """Show what a redrive, purge or cancellation was asked to do, and how far it is."""
    print_fields(ask_api(scope, lambda api: api.get("dlq", "tasks", action_id)), as_json=as_json)


@task_app.command()
@about_environment
def pause(scope: ApiScope, action_id: ActionId) -> None:
    """Pause a redrive, purge or cancellation; its changes so far stay."""
    _change(scope, "pause", action_id)


@task_app.command()
@about_environment
def resume(scope: ApiScope, action_id: ActionId) -> None:
    """Continue a redrive, purge or cancellation where it was paused."""
    _change(scope, "resume", action_id)


@task_app.command()
@about_environment
def cancel(scope: ApiScope, action_id: ActionId) -> None:
    """End a redrive, purge or cancellation; its changes so far stay."""
    _change(scope, "cancel", action_id)


def _redrive_one(scope: ApiScope, options: BulkActionOptions, letter_id: str) -> None:
    if options.filter.keys() != {"queue"}:
        raise InvalidInput(
            "`--id` goes with `--queue`, the queue of the dead letter, and with no other filter"
        )
    path = ("dlq", "letters", letter_id, "redrive")
    done = ask_api(scope, lambda api: api.post(*path, queue=options.filter["queue"]))
    if options.as_json:
        print_json(done)
    else:
        typer.echo(done["new_message_id"])


def _whose(scope: ApiScope, options: BulkActionOptions) -> str:
    """What a question says if there is no filter."""
    if options.filter:
        return ""
    return f" of every queue of {f'`{scope.environment}`' if scope.environment else 'the environment'}"


def _change(scope: ApiScope, verb: str, action_id: str) -> None:
    changed = ask_api(scope, lambda api: api.post("dlq", "tasks", action_id, verb))
    typer.echo(f"{action_id} {changed['state']}")
