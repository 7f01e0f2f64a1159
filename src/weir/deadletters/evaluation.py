"""Evaluates filters and patches over a batch: the one place where bulk actions run what a tenant wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.filters import Predicate, holds, letter_name, record_of
from weir.deadletters.patch import Patch, patch_payload
from weir.errors import InvalidInput, OverBudget
from weir.spec.cel import Expression
from weir.spec.evaluation import Record, evaluated_each

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Why an expression has no answer for an item. The item is skipped, and the others go on."""

    reason: str


async def judged(predicate: Predicate[Item] | None, items: Sequence[Item]) -> list[bool | Unanswered]:
    """Whether a filter holds for each item; OverBudget says for which item it takes too much."""
    if predicate is None:
        return [True] * len(items)
    expression = predicate.expression
    records = [predicate.record_of(item, expression) for item in items]
    names = [predicate.name_of(item) for item in items]
    return await _each(holds, expression.text, records=records, names=names, expression=expression)


async def patched(patch: Patch, letters: Sequence[DeadLetter]) -> list[bytes | Unanswered]:
    """The payload that a patch makes of each letter; OverBudget says for which letter it takes too much."""
    expression = patch.expression
    records = [(letter.payload, record_of(letter, expression)[1]) for letter in letters]
    names = [letter_name(letter) for letter in letters]
    return await _each(
        *(patch_payload, expression.text, patch.fields, patch.replaces),
        records=records,
        names=names,
        expression=expression,
    )


async def _each(
    answer: Callable[..., Answer],
    *args: object,
    records: Sequence[Record],
    names: Sequence[tuple[str, str]],
    expression: Expression,
) -> list[Answer | Unanswered]:
    if not records:
        return []
    try:
        answers = await evaluated_each(
            answer,
            *args,
            records=records,
            compiled=expression,
            owner=names[0][0],
            what=f"`{expression.text:.200}`",
        )
    except OverBudget as error:
        name = names[error.extra["item"]][1]
        raise OverBudget(f"message `{name}`: {error.message}") from None
    return [Unanswered(reason=one.message) if isinstance(one, InvalidInput) else one for one in answers]
