"""`weir message cancel`: cancels messages by id, or those of a queue that match, as a bulk action."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.bulk_action_progress import begin_action, selected
from weir.cli.message_options import HeaderOption, KeyOption, TextOption
from weir.cli.options import DetachOption, DryRunOption, FromDryRunOption, JsonOption, given
from weir.cli.output import print_json
from weir.errors import InvalidInput
from weir.model.durations import duration_ms

_ANY = "any"


@about_environment
def cancel_command(
    scope: ApiScope,
    message_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of the messages to cancel.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="Cancel the messages of this queue that match the other options.")
    ] = None,
    state: Annotated[
        str,
        typer.Option(help="State to match: `ready`, `scheduled`, `retrying`, `blocked`, `leased` or `any`."),
    ] = "ready",
    key: KeyOption = None,
    header: HeaderOption = None,
    text: TextOption = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="Only messages that were enqueued at least this long ago, such as `2h`."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel every message of the queue in this state.")
    ] = False,
    dry_run: DryRunOption = False,
    from_dry_run: FromDryRunOption = None,
    rate: Annotated[float | None, typer.Option(help="Cancel at most this many per second.")] = None,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel messages for good, by id or by what they match. A leased message loses its lease."""
    if bool(message_ids) is (queue is not None):
        raise InvalidInput("say which: give either ids, or `--queue` and what to match")
    if queue is None:
        _cancel_ids(scope, message_ids or [], dry_run=dry_run, as_json=as_json)
        return
    match = given(
        state=None if state == _ANY or from_dry_run is not None else state,
        key=key,
        header=_header(header),
        text=text,
        older_than_ms=None if older_than is None else duration_ms(older_than),
    )
    body = {
        **selected(match, everything=everything, dry_run=dry_run, from_dry_run=from_dry_run),
        "rate_per_s": rate,
    }
    path = ("queues", queue, "messages", "cancellations")
    begin_action(scope, path, body, detach=detach, as_json=as_json)


def _cancel_ids(scope: ApiScope, message_ids: list[str], *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        raise InvalidInput("`--dry-run` belongs to `--queue`; look at a message with `weir message show ID`")

    async def cancel(api: ApiSession) -> list[dict[str, Any]]:
        done = []
        for message_id in message_ids:
            done.append(await api.post("messages", message_id, "cancel"))
            # Printed at once, so that the user knows which were cancelled if the next one is refused.
            if not as_json:
                typer.echo(_in_words(done[-1]))
        return done

    done = ask_api(scope, cancel)
    if as_json:
        print_json({"items": done})


def _in_words(done: dict[str, Any]) -> str:
    tail = "; its lease is revoked" if done["result"] == "revoked" else ""
    return f"{done['message_id']} is cancelled{tail}"


def _header(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidInput(f"`{text:.40}` is not a header; write `name=value`")
    return {"name": name, "value": value}
