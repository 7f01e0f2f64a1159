"""Annotations: what somebody noted at a moment, such as a deploy. All charts of the environment show them."""

from __future__ import annotations

from dataclasses import dataclass

from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import InvalidInput, NotFound
from weir.model.clock import Clock, SystemClock
from weir.model.ids import check_id, new_id
from weir.model.limits import MAX_TIME_MS
from weir.model.names import EnvironmentRef

SQL = load_queries("weir.control", "annotations.sql")
MAX_ANNOTATION = 200
"""In characters: the text must fit beside a line on a chart."""
# A deploy every hour fills this in seven months; the oldest go first.
KEPT = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    id: str
    text: str
    at_ms: int
    created_by: str
    created_at_ms: int


class Annotations:
    """The annotations in PostgreSQL."""

    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    async def add(
        self, environment: EnvironmentRef, *, text: str, at_ms: int | None = None, actor: str
    ) -> Annotation:
        """Note a text at a moment, or now. Beyond `KEPT` of them the oldest is forgotten."""
        now_ms = self._clock.now_ms()
        made = Annotation(
            id=new_id(),
            text=_checked(text),
            at_ms=now_ms if at_ms is None else _moment(at_ms),
            created_by=actor,
            created_at_ms=now_ms,
        )
        await self._database.execute(
            SQL["add_annotation"],
            id=made.id,
            text=made.text,
            at_ms=made.at_ms,
            created_by=actor,
            now_ms=now_ms,
            **scope_names(environment),
        )
        await self._database.execute(SQL["forget_old_annotations"], kept=KEPT, **scope_names(environment))
        return made

    async def of(self, environment: EnvironmentRef, *, limit: int = 100) -> list[Annotation]:
        """The annotations of an environment, newest first."""
        rows = await self._database.fetch(SQL["list_annotations"], limit=limit, **scope_names(environment))
        return [Annotation(**{**row, "id": str(row["id"])}) for row in rows]

    async def delete(self, environment: EnvironmentRef, annotation_id: str) -> None:
        annotation_id = check_id(annotation_id, what="annotation")
        if not await self._database.execute(
            SQL["delete_annotation"], id=annotation_id, **scope_names(environment)
        ):
            raise NotFound(f"there is no annotation `{annotation_id}` in this environment")


def _checked(text: str) -> str:
    text = text.strip()
    if not 0 < len(text) <= MAX_ANNOTATION or not text.isprintable():
        raise InvalidInput(f"an annotation is one line of 1 to {MAX_ANNOTATION} printable characters")
    return text


def _moment(at_ms: int) -> int:
    if not 0 <= at_ms <= MAX_TIME_MS:
        raise InvalidInput(f"`{at_ms}` is out of range; expected milliseconds from 1970 to 2099")
    return at_ms
