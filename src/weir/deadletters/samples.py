"""Shows what a patch does to the samples of a redrive before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_action_batch import compile_for
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.dead_letter import DeadLetter, read_letters, within_bytes
from weir.deadletters.evaluation import Unanswered, patched
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.store import PAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSample:
    """A dead letter that a bulk action matched, and its payload as the patch would leave it."""

    letter: DeadLetter
    patched: bytes | None
    """None if there is no patch, or if the patch has no answer for this letter."""
    problem: str | None = None


async def read_samples(database: Database, action: BulkAction) -> list[LetterSample]:
    """The samples of an action that are still dead letters, as many as fit into an answer."""
    sizes = await database.fetch(DEAD_LETTERS["sizes_of"], ids=list(action.samples))
    letters = await read_letters(database, within_bytes(sizes, PAGE_BYTES))
    if action.patch is None:
        return [LetterSample(letter=letter, patched=None) for letter in letters]
    definitions = QueueDefinitions(database)
    samples = []
    for letter in letters:
        patch = await compile_for(definitions, action.patch, letter.queue)
        samples += [_sample(letter, payload) for payload in await patched(patch, [letter])]
    return samples


def _sample(letter: DeadLetter, payload: bytes | Unanswered) -> LetterSample:
    if isinstance(payload, Unanswered):
        return LetterSample(letter=letter, patched=None, problem=payload.reason)
    return LetterSample(letter=letter, patched=payload)
