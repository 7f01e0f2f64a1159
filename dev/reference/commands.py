"""The page of all commands with their options, generated from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from weir.cli.main import CHECKOUT_COMMANDS, app, commands

_INTRO = """# Every command

Each command with its arguments and options, as `--help` prints them. [Commands](commands.md) says how a
command finds the API, the token and the environment.

Generated from `weir.cli`. In a checkout, type `./weir` for `weir`.
"""
_HIDDEN = {"--help", "--install-completion", "--show-completion"}


def commands_page() -> str:
    root: Any = get_command(app)
    context = root.make_context("weir", [], resilient_parsing=True)
    installed = [name for name in commands() if name not in CHECKOUT_COMMANDS]
    parts = (line for name in installed for line in _noun(root, context, name))
    return "\n".join([_INTRO, *parts])


def _noun(root: Any, context: Any, name: str) -> Iterator[str]:
    command = root.get_command(context, name)
    yield f"\n## weir {name}\n"
    yield from _described(command, context, f"weir {name}", level=3)


def _described(command: Any, parent: Any, spelled: str, *, level: int) -> Iterator[str]:
    context = command.make_context(spelled.split()[-1], [], parent=parent, resilient_parsing=True)
    yield f"{_text(command)}\n"
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield f"\n{'#' * level} {spelled} {name}\n"
            yield from _described(
                command.get_command(context, name), context, f"{spelled} {name}", level=level + 1
            )
        return
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield f"```text\n{' '.join([spelled, *pieces, '[OPTIONS]'])}\n```\n"
    yield from _options(command, context)


def _options(command: Any, context: Any) -> Iterator[str]:
    rows = [row for one in command.get_params(context) for row in _rows(one, context)]
    if rows:
        yield "| Option | Meaning |"
        yield "|---|---|"
        yield from rows
        yield ""


def _rows(one: Any, context: Any) -> Iterator[str]:
    record = one.get_help_record(context)
    if record is None or getattr(one, "hidden", False) or _HIDDEN & set(one.opts):
        return
    name, text = (part.replace("|", "\\|").strip() for part in record)
    yield f"| `{name}` | {text or one.name.replace('_', ' ')} |"


def _text(command: Any) -> str:
    return " ".join((command.help or command.get_short_help_str()).split())
