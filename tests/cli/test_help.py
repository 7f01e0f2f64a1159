"""Every command and option says in a sentence what it is for, and every list can be read by programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from weir.cli.main import CHECKOUT_COMMANDS, COMMANDS, app

OF_TYPER = {"help", "install_completion", "show_completion", "version"}


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command that runs, with the words that call it."""
    root: Any = get_command(app)
    yield from _below("", root, root.make_context("weir", [], resilient_parsing=True))


def _below(words: str, command: Any, context: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield words.strip(), command
        return
    for name in command.list_commands(context):
        if words or name not in CHECKOUT_COMMANDS:
            found = command.get_command(context, name)
            below = found.make_context(name, [], parent=context, resilient_parsing=True)
            yield from _below(f"{words} {name}", found, below)


def test_every_command_and_option_has_a_sentence() -> None:
    poor = [
        f"{words} {parameter.name}: {parameter.help}"
        for words, command in leaves()
        for parameter in (command, *command.params)
        if parameter.name not in OF_TYPER and not _is_sentence(parameter.help)
    ]
    assert poor == []


def _is_sentence(text: str | None) -> bool:
    return text is not None and text.strip().endswith(".") and " " in text


def test_every_list_and_every_show_has_json() -> None:
    without = [
        words
        for words, command in leaves()
        if words.split()[-1] in ("list", "show", "status", "stats")
        and not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == []


def test_completion_is_installed_by_weir_alone() -> None:
    assert [
        words for words, command in leaves() if "install_completion" in {one.name for one in command.params}
    ] == []


def nouns() -> Iterator[tuple[str, Any, Any]]:
    root: Any = get_command(app)
    context = root.make_context("weir", [], resilient_parsing=True)
    for name in COMMANDS:
        found = root.get_command(context, name)
        if hasattr(found, "list_commands"):
            yield name, found, context


def test_the_line_of_a_noun_ends_with_exactly_its_commands() -> None:
    for name, noun, context in nouns():
        verbs = COMMANDS[name][1].removesuffix(".").rpartition(": ")[2].split(", ")
        assert (name, sorted(verbs)) == (name, sorted(noun.list_commands(context)))


def test_a_noun_says_the_same_as_the_list_of_nouns() -> None:
    assert [name for name, noun, _ in nouns() if noun.help != COMMANDS[name][1]] == []
