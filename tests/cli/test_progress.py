"""Whoever waits for a command for more than two seconds is told what it does."""

from __future__ import annotations

import re
import threading

import pytest

from support.waiting import wait_until
from weir.cli import running


def test_what_takes_long_is_told_again_and_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_FIRST_WORD_S", 0.05)
    monkeypatch.setattr(running, "_NEXT_WORD_S", 0.05)
    said: list[str] = []

    def has_told_twice() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return len(said) >= 2

    with running.telling("rebuilding"):
        wait_until(has_told_twice)
    assert all(re.fullmatch(r"weir: rebuilding … \d+ s", line) for line in said)
    assert [thread for thread in threading.enumerate() if thread.name == "telling"] == []


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async def quick() -> int:
        return 7

    assert running.run_until_done(quick(), doing="waiting") == 7
    assert capsys.readouterr().err == ""
