"""Evaluates filters and patches over a batch: the one place where bulk actions run what a tenant wrote."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.patch import Patch
from weir.model.item_loops import text_of

Item = TypeVar("Item")
Answer = TypeVar("Answer")

SLICE_S = 0.005
"""The event loop is given a turn after so much evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Why an expression has no answer for an item. The item is skipped, and the others go on."""

    reason: str


async def judged(holds: Callable[[Item], bool], items: Sequence[Item]) -> list[bool | Unanswered]:
    """Whether a filter holds for each item."""
    return await _each(holds, items)


async def patched(patch: Patch, letters: Sequence[DeadLetter]) -> list[bytes | Unanswered]:
    """The payload that a patch makes of each letter."""
    return await _each(patch.apply, letters)


async def _each(answer: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer | Unanswered]:
    answers: list[Answer | Unanswered] = []
    slice_ends_s = time.perf_counter() + SLICE_S
    for item in items:
        answers.append(_one(answer, item))
        if time.perf_counter() > slice_ends_s:
            await asyncio.sleep(0)
            slice_ends_s = time.perf_counter() + SLICE_S
    return answers


def _one(answer: Callable[[Item], Answer], item: Item) -> Answer | Unanswered:
    try:
        return answer(item)
    except Exception as error:
        # A payload may hold what nobody thought of, such as half an emoji; that is this letter's affair.
        return Unanswered(reason=text_of(error))
