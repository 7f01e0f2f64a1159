"""Shell completion: nouns without importing their modules, then the verbs and options of one noun."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from weir.cli.main import commands

WEIR = (sys.executable, "-m", "weir.cli")


def completed(line: str) -> list[str]:
    """What bash would offer at the end of a line, by the protocol of the completion script."""
    asked = {"_WEIR_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(WEIR, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("weir alert", {"alert", "alert-rule", "alert-channel", "alert-silence", "alert-notification"}),
        ("weir queue p", {"push", "pop", "pause"}),
        ("weir queue list --js", {"--json"}),
        ("weir operation list --status ", {"pending", "processing", "completed", "failed", "cancelled"}),
    ],
)
def test_what_was_begun_is_completed(line: str, expected: set[str]) -> None:
    assert set(completed(line)) == expected


def test_all_commands_are_offered() -> None:
    assert set(completed("weir ")) == set(commands())


def test_offering_the_commands_imports_none_of_them() -> None:
    script = (
        "import sys; from typer.main import get_command; from weir.cli.main import app;"
        "group = get_command(app);"
        "group.shell_complete(group.make_context('weir', [], resilient_parsing=True), '');"
        "print([name for name in sys.modules if name.startswith('weir.cli.') and name != 'weir.cli.main'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_script_for_a_shell_is_shown() -> None:
    environment = {**os.environ, "_WEIR_COMPLETE": "source_bash"}
    done = subprocess.run(WEIR, env=environment, capture_output=True, text=True, check=True)
    assert "_WEIR_COMPLETE=complete_bash" in done.stdout
