"""`weir dlq redrive`, `purge` and `task`: begin, follow, pause, resume and cancel bulk actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.bulk_action_progress import begin_action, summary_of
from weir.cli.options import CanaryOption, DetachOption, DryRunOption, JsonOption, LimitOption, with_options
from weir.cli.output import Columns, print_fields, print_items, print_json
from weir.cli.tables import id_column, long_column
from weir.errors import InvalidInput

task_app = typer.Typer(
    no_args_is_help=True, help="Redrives, purges and cancellations: how far they are; pause, resume, cancel."
)

ActionId = Annotated[
    str, typer.Argument(metavar="TASK_ID", help="Id of the task, as `weir dlq task list` shows it.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkActionOptions:
    """The options that redrives and purges share."""

    filter: dict[str, Any]
    dry_run: bool
    rate_per_s: float | None
    yes: bool
    detach: bool
    as_json: bool

    def confirm(self, question: str) -> None:
        """End the command unless the answer is yes. The question is not part of the output."""
        if not self.yes and not self.dry_run:
            typer.confirm(question, abort=True, err=True)

    def body(self, **more: Any) -> dict[str, Any]:
        """The request. An empty filter means everything, which `all` must say; the user has confirmed it."""
        return {
            "filter": self.filter,
            "all": not self.filter,
            "dry_run": self.dry_run,
            "rate_per_s": self.rate_per_s,
            **more,
        }


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
    rate: Annotated[float | None, typer.Option(help="Take at most this many per second.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
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
    canary: CanaryOption = 0,
    tolerance: Annotated[float, typer.Option(help="Share of the canary that may die again.")] = 0.0,
    patch: Annotated[
        str | None, typer.Option(help="CEL expression whose result is merged into each payload.")
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
    if not options.filter:
        options.confirm(f"Send the dead letters of every queue of {_named(scope)} back?")
    body = options.body(canary=canary, canary_tolerance=tolerance, patch=patch)
    begin_action(scope, ("dlq", "redrives"), body, detach=options.detach, as_json=options.as_json)


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
    every = f"the dead letters of every queue of {_named(scope)}"
    options.confirm(f"Delete {'these dead letters' if options.filter else every} for good?")
    body = options.body(include_unexhausted=everything)
    begin_action(scope, ("dlq", "purges"), body, detach=options.detach, as_json=options.as_json)


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


def _named(scope: ApiScope) -> str:
    return f"`{scope.environment}`" if scope.environment else "the environment"


def _change(scope: ApiScope, verb: str, action_id: str) -> None:
    changed = ask_api(scope, lambda api: api.post("dlq", "tasks", action_id, verb))
    typer.echo(f"{action_id} {changed['state']}")
