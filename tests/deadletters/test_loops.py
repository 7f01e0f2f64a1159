"""The loops of dead letters go on, pause and back off."""

from __future__ import annotations

import pytest

from weir.deadletters import loops
from weir.errors import ControlUnavailable, WeirError


async def test_a_loop_goes_on_at_once_after_work_and_backs_off_after_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = ControlUnavailable("PostgreSQL is away")
    script: list[object] = [True, away, away, away, None, away, KeyboardInterrupt()]
    pauses: list[float] = []

    async def step() -> object:
        outcome = script.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(loops.asyncio, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        await loops.repeat(step, idle_s=0.5, longest_s=1.5, waits="dead letters")
    assert pauses == [0.5, 1.0, 1.5, 0.5, 0.5]


async def test_an_error_that_is_not_of_the_tree_ends_the_loop() -> None:
    assert not issubclass(ZeroDivisionError, WeirError)

    async def step() -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await loops.repeat(step, idle_s=0.5, waits="dead letters")
