"""Options that several commands share, and settings built from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from weir.errors import InvalidInput
from weir.settings import EmbeddedSettings, Settings, load_settings

Result = TypeVar("Result")

DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder in which the embedded servers keep their data.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option(min=1, max=500, help="Show at most this many.")]
LongLimitOption = Annotated[int, typer.Option(min=1, max=1_000, help="Show at most this many.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count the matches, and change nothing.")]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Return at once, while the servers do the work.")
]
FromDryRunOption = Annotated[
    str | None,
    typer.Option(
        "--from-dry-run",
        metavar="TASK_ID",
        help="Take what this dry run counted, and nothing that came after it.",
    ),
]
CanaryOption = Annotated[
    int, typer.Option(min=0, max=1_000, help="Send this many first, and go on only if they succeed.")
]
OrganizationOption = Annotated[
    str | None, typer.Option("--organization", "-o", help="Organization that owns the environment.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Project that owns the environment.")
]


def settings_with(data_dir: Path | None = None) -> Settings:
    """The settings of the environment, with a data directory given on the command line."""
    settings = load_settings()
    if data_dir is None:
        return settings
    embedded = EmbeddedSettings(**{**settings.embedded.model_dump(), "data_dir": data_dir})
    return settings.model_copy(update={"embedded": embedded})


def moment_ms(text: str) -> int:
    """A moment as people write it, in milliseconds; UTC if it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"`{text:.40}` is not a time; write `2027-01-31T09:00`, which is UTC, or `2027-01-31T09:00+01:00`"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def given(**values: object) -> dict[str, Any]:
    """The values of the options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def with_options(**makers: Callable[..., Any]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a command the parameters of each maker as options.

    The command gets the maker's result as one argument: `@with_options(scope=chosen_scope)` adds the options
    of `chosen_scope`, and calls the command with `scope=chosen_scope(…)`.
    """
    shared = {name: _parameters(maker) for name, maker in makers.items()}

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        own = [one for one in _parameters(command) if one.name not in makers]

        @wraps(command)
        def run(**given: Any) -> Result:
            made = {
                name: makers[name](**{one.name: given.pop(one.name) for one in parameters})
                for name, parameters in shared.items()
            }
            return command(**given, **made)

        parameters = [*own, *(one for group in shared.values() for one in group)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters as keyword-only ones, so that one with a default may precede one without."""
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]
