"""Shows what a patch does to the samples of a redrive before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.dead_letter import DeadLetter, read_letters
from weir.deadletters.patch import Patch, compile_patch
from weir.errors import InvalidInput
from weir.model.names import QueueRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSample:
    """A dead letter that a bulk action matched, and its payload as the patch would leave it."""

    letter: DeadLetter
    patched: bytes | None
    """None if there is no patch, or if the patch has no answer for this letter."""
    problem: str | None = None


async def read_samples(database: Database, action: BulkAction) -> list[LetterSample]:
    """The samples of an action that are still dead letters."""
    letters = await read_letters(database, action.samples)
    if action.patch is None:
        return [LetterSample(letter=letter, patched=None) for letter in letters]
    patches = await _compile(database, action.patch, {letter.queue for letter in letters})
    return [_patched(letter, patches[letter.queue]) for letter in letters]


async def _compile(database: Database, text: str, queues: set[QueueRef]) -> dict[QueueRef, Patch]:
    definitions = QueueDefinitions(database)
    found = {queue: await definitions.find(queue) for queue in queues}
    return {
        queue: compile_patch(text, () if one is None else one.spec.message_type)
        for queue, one in found.items()
    }


def _patched(letter: DeadLetter, patch: Patch) -> LetterSample:
    try:
        return LetterSample(letter=letter, patched=patch.apply(letter))
    except InvalidInput as error:
        return LetterSample(letter=letter, patched=None, problem=error.message)
