"""The `weir` command: nouns, each in a module of its own that is imported only when it is used."""

from __future__ import annotations

import difflib
import errno
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import weir as weir_package
from weir import __version__
from weir.errors import Misconfigured, WeirError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Run everything with lifelike traffic to look at."),
    "up": ("up", "Run the whole embedded system until Ctrl-C."),
    "serve": ("serve", "Serve the HTTP API and run its loops until Ctrl-C."),
    "worker": ("worker", "Run handlers of messages, or the tasks of an app, until Ctrl-C."),
    "spec": (
        "spec",
        "Specs of queues, webhooks, channels, alerts and schedules: check, fmt, export, plan, apply, show.",
    ),
    "queue": (
        "queue",
        "Queues: list, show, create, change, delete, push, pop, ack, nack, pause, resume, log.",
    ),
    "message": ("message", "Messages: list, find, show, why, run, reschedule, priority, cancel."),
    "endpoint": ("endpoint", "Endpoints of deliveries that answered 410: list, enable."),
    "token": (
        "token",
        "Tokens of the API, each with a role in a scope: list, create, rotate, delete, bootstrap.",
    ),
    "environment": ("environment", "Environments, each with queues of its own: list, create, change."),
    "audit": ("audit", "The audit log, which says who changed what in the scope of the token: list."),
    "process": ("process", "Processes of Weir, their health and figures: list, show."),
    "webhook": ("webhook", "Webhooks, which specs define, and which of their secrets are missing: list."),
    "secret": (
        "secret",
        "Secrets of an environment, which its spec names: set, list, delete, import-environment.",
    ),
    "openapi": ("openapi", "Print the description of the HTTP API."),
    "operation": (
        "operation",
        "Operations, which are pushes and settlements queued under load: stats, list, show, cancel, retry.",
    ),
    "dlq": (
        "dlq",
        "Dead letters: status, check, list, show, redrive, purge, delete, audit, analyse, group, task.",
    ),
    "channel": (
        "channel",
        "Channels, which bring one message to many consumers: list, create, change, delete, token.",
    ),
    "schedule": (
        "schedule",
        "Schedules, which push at set times: list, show, create, change, delete, pause, resume, run.",
    ),
    "outbox": (
        "outbox",
        "The outbox, for pushes that belong to a transaction: migrate, relay, status, list, show, retry.",
    ),
    "migrate": ("migrate", "Bring PostgreSQL and ClickHouse up to date."),
    "pipeline": (
        "pipeline",
        "The pipeline, which brings events to the charts: run, status, rebuild, audit, tables, metrics, "
        "bundle, repair-checkpoint.",
    ),
    "alert": ("alert", "Alerts that the rules raised: list, show, acknowledge, resolve, status."),
    "alert-rule": (
        "alert_rule",
        "Alert rules, which say what raises an alert: list, show, create, change, delete.",
    ),
    "alert-channel": (
        "alert_channel",
        "Alert channels, through which alerts are sent: list, create, change, delete, test.",
    ),
    "alert-silence": (
        "alert_silence",
        "Alert silences, times in which alerts are recorded but not sent: list, create, delete.",
    ),
    "alert-notification": (
        "alert_notification",
        "Notifications that were sent through alert channels, with every attempt: list.",
    ),
    "annotate": ("annotate", "Note a deploy, or anything else that happened, on every chart."),
    "explain": ("explain", "Say why a queue is backed up, with the evidence."),
    "doctor": ("doctor", "Check which servers run, whether they are well, and what is misconfigured."),
    "config": ("config", "Settings, their values and where they come from: show."),
}
"""Command or noun -> (module below `weir.cli`, one line of help). The module's `app` is a Typer app.

The line of a noun ends with its commands, and is also the help of the noun: modules give none."""
CHECKOUT_COMMANDS: dict[str, tuple[str, str]] = {
    "test": ("test", "Run the tests."),
    "check": ("check", "Run the gates: format, lint, types, layers, headers, site."),
    "bench": ("bench", "Run a benchmark and print what it measured."),
    "docs": ("docs", "Build the site of the documentation, or show it."),
}
"""The same for modules of `dev`, which stands beside `src` in a checkout and is not installed."""
_CHECKOUT = Path(weir_package.__file__).parents[2]


def commands() -> dict[str, tuple[str, str]]:
    """Every command that exists here: name -> (module, one line of help)."""
    found = {name: (f"weir.cli.{module}", text) for name, (module, text) in COMMANDS.items()}
    if (_CHECKOUT / "dev" / "__init__.py").is_file():
        found |= {name: (f"dev.{module}", text) for name, (module, text) in CHECKOUT_COMMANDS.items()}
    return found


class LazyGroup(TyperGroup):
    """Lists every command without importing any."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(commands())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A mistyped command is answered with the nearest one."""
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`weir --help` lists them all"
            raise Misconfigured(f"there is no command `{name}`; {hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = commands()
        if cmd_name not in known:
            return None
        if cmd_name in CHECKOUT_COMMANDS:
            _see_the_checkout()
        path, text = known[cmd_name]
        module = import_module(path)
        # Only `weir` itself installs completion; Typer would offer it at every command that stands alone.
        module.app._add_completion = False
        command = get_command(module.app)
        command.name = cmd_name
        if isinstance(command, TyperGroup):
            command.help = text
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands that begin with this text. The module of a noun completes the noun's own commands."""
        from typer._click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, (_, text) in commands().items()]
        # Typer's group would import every module here to read its help text.
        options = (
            super(TyperGroup, self).shell_complete(ctx, incomplete) if incomplete.startswith("-") else []
        )
        return [*(one for one in found if one.value.startswith(incomplete)), *options]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in commands().items()])


def _see_the_checkout() -> None:
    """Let `dev` and `benches` be imported."""
    if str(_CHECKOUT) not in sys.path:
        sys.path.insert(0, str(_CHECKOUT))


# Rich help would import every command to read its text.
app = typer.Typer(cls=LazyGroup, no_args_is_help=True, rich_markup_mode=None)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weir {__version__}")
        raise typer.Exit


@app.callback()
def weir(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Weir: a message queue that you can see through."""


RENAMED = {
    ("token", "revoke"): "token delete",
    ("queue", "define"): "queue create` or `weir queue change",
    ("queue", "forget"): "queue delete",
    ("channel", "put"): "channel create` or `weir channel change",
    ("channel", "remove"): "channel delete",
    ("operations",): "operation",
    ("dlq", "replay"): "dlq redrive --queue QUEUE --id ID",
    ("dlq", "groups"): "dlq group list",
    ("dlq", "tasks"): "dlq task list",
    ("dlq", "pause"): "dlq task pause",
    ("dlq", "resume"): "dlq task resume",
    ("dlq", "cancel"): "dlq task cancel",
    ("alerts", "list"): "alert list",
    ("alerts", "show"): "alert show",
    ("alerts", "ack"): "alert acknowledge",
    ("alerts", "resolve"): "alert resolve",
    ("alerts", "status"): "alert status",
    ("alerts", "rules"): "alert-rule list",
    ("alerts", "create"): "alert-rule create",
    ("alerts", "delete"): "alert-rule delete",
    ("alerts", "channels"): "alert-channel list",
    ("alerts", "set-channel"): "alert-channel create` or `weir alert-channel change",
    ("alerts", "test"): "alert-channel test",
    ("alerts", "silence"): "alert-silence create",
    ("alerts", "silences"): "alert-silence list",
    ("alerts", "unsilence"): "alert-silence delete",
    ("alerts", "log"): "alert-notification list",
    ("alerts",): "alert",
}
"""Old spelling of a command -> the new one, which the error about the old one gives."""


RENAMED_OPTIONS = {("queue", "log", "replay", "--to"): "--into"}
"""Command and old spelling of an option -> its new one."""


def _refuse_old_spelling(words: list[str]) -> None:
    for old, new in RENAMED.items():
        if tuple(words[: len(old)]) == old:
            raise Misconfigured(f"`weir {' '.join(old)}` is now `weir {new}`")
    for (*command, option), new in RENAMED_OPTIONS.items():
        if words[: len(command)] == command and option in {word.partition("=")[0] for word in words}:
            raise Misconfigured(f"`{option}` of `weir {' '.join(command)}` is now `{new}`")


_FULL = "the disk is full ({}); free some space"
_CLOSED = "cannot write to `{}`; give yourself the right to, or choose another place with `--data-dir`"
_DISK_TROUBLE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _CLOSED,
    errno.EACCES: _CLOSED,
}


def main(argv: list[str] | None = None) -> Any:
    """Run one command. A `WeirError` is printed as one line: exit status 2 for bad settings, else 1."""
    group = get_command(app)
    words = sys.argv[1:] if argv is None else argv
    try:
        _refuse_old_spelling(words)
        return group(args=argv, prog_name="weir")
    except ModuleNotFoundError as error:
        from weir.cli.extras import missing_extra

        missing = missing_extra(error, words)
        if missing is None:
            raise
        typer.echo(f"weir: {missing}", err=True)
        sys.exit(2)
    except Misconfigured as error:
        typer.echo(f"weir: {error}", err=True)
        sys.exit(2)
    except WeirError as error:
        typer.echo(f"weir: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in _DISK_TROUBLE:
            raise
        typer.echo(f"weir: {_DISK_TROUBLE[error.errno].format(error.filename or error.strerror)}", err=True)
        sys.exit(2)
