"""Options and arguments that the commands of `weir message` share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from weir.errors import InvalidInput

MessageIdArgument = Annotated[
    str, typer.Argument(help="Id of the message, as the answer to the push gave it.", metavar="ID")
]
StateOption = Annotated[
    str,
    typer.Option(help="State: `ready`, `scheduled`, `retrying`, `blocked`, `leased`, `queued` (operations)."),
]
KeyOption = Annotated[str | None, typer.Option(help="Only messages with this key.")]
HeaderOption = Annotated[str | None, typer.Option(help="Only messages with this header, as `name=value`.")]
TextOption = Annotated[str | None, typer.Option(help="Only messages whose payload holds this text.")]


def moment_ms(text: str) -> int:
    """A moment as people write it, in milliseconds; UTC if it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"`{text:.40}` is not a time; write `2027-01-31T09:00:00+01:00`") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
