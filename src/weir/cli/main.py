"""The `weir` command: nouns, each in a module of its own that is imported only when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from weir.errors import Misconfigured, WeirError

COMMANDS: dict[str, tuple[str, str]] = {}
"""Command or noun -> (module below `weir.cli`, one line of help). The module's `app` is a Typer app."""


class LazyGroup(TyperGroup):
    """Lists every command without importing any."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = get_command(import_module(f"weir.cli.{module}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def main(argv: list[str] | None = None) -> Any:
    """Run one command; errors of the tree are one line, and bad settings are exit status 2."""
    group = LazyGroup(name="weir", help="Weir: a message queue that you can see through.")
    try:
        return group(args=argv, prog_name="weir")
    except Misconfigured as error:
        typer.echo(f"weir: {error}", err=True)
        sys.exit(2)
    except WeirError as error:
        typer.echo(f"weir: {error}", err=True)
        sys.exit(1)
