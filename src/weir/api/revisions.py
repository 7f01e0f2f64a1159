"""Nobody is overwritten: what is changed as a whole has a revision, and `If-Match` names the one read before.

A revision is a digest of what is stored. Behind the dot it has a short digest per member, so that a refusal
can name the members that changed meanwhile. Without `If-Match` a change is made whatever came before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Header

from weir.api.auth import Access
from weir.api.schemas.shared import Revised
from weir.api.services import Services, all_or_nothing, present
from weir.errors import Conflict

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=256,
        description="The `revision` that was read. If another change came first, nothing is done: 409 with "
        "what is stored now (`current`) and which members were `changed`. `*` demands only that it exists.",
    ),
]


@asynccontextmanager
async def unchanged(
    services: Services,
    access: Access,
    expected: str | None,
    *,
    what: str,
    read: Callable[[], Awaitable[Revised | None]],
) -> AsyncIterator[None]:
    """One transaction for the block; Conflict if what is stored is not at the expected revision."""
    async with all_or_nothing(services):
        if expected is not None:
            # From here on no other change is made to this environment.
            await present(services.changes, "PostgreSQL").lock(access.environment)
            check_revision(expected, await read(), what=what)
        yield


def check_revision(expected: str | None, current: Revised | None, *, what: str) -> None:
    """Conflict if `If-Match` names another revision. The caller has locked what it read."""
    if expected is None or (current is not None and expected.strip() == "*"):
        return
    if current is None:
        raise Conflict(f"{what} does not exist, or not any more; leave out `If-Match` to create it")
    known = expected.strip().removeprefix("W/").strip('"')
    if known == current.revision:
        return
    changed = _changed(known, current)
    which = ", ".join(f"`{name}`" for name in changed)
    raise Conflict(
        f"{what} was changed meanwhile" + (f" ({which})" if changed else "") + "; read it again, and repeat "
        "your change with its `revision` if it still holds",
        changed=changed,
        current=current.model_dump(mode="json"),
    )


def _changed(known: str, current: Revised) -> list[str]:
    """The members that differ from a revision; none if it is not one of this kind of thing."""
    before, after = known.partition(".")[2], current.revision.partition(".")[2]
    if len(before) != len(after):
        return []
    names = sorted(current.stored())
    width = len(after) // max(len(names), 1)
    return [
        name
        for at, name in enumerate(names)
        if before[at * width : (at + 1) * width] != after[at * width : (at + 1) * width]
    ]
