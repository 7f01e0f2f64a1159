"""Options and arguments that the commands of `weir message` share."""

from __future__ import annotations

from typing import Annotated

import typer

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
