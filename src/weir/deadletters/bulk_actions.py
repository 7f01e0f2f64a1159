"""Bulk actions as values: what was asked, their state, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.control.database import Row
from weir.control.scopes import scope_of
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.counted import CountedBy, check_counted
from weir.deadletters.filters import Filter, check_boolean
from weir.deadletters.log_selection import LogSelection
from weir.deadletters.message_selection import MessageSelection, selection_of
from weir.deadletters.patch import compile_patch
from weir.deadletters.rates import NO_LIMITS, SendLimits
from weir.errors import InvalidInput
from weir.model.names import EnvironmentRef

MAX_SAMPLES = 10
"""Ids of letters that an action keeps to show what it is about."""
NIL = "00000000-0000-0000-0000-000000000000"


class BulkActionKind(StrEnum):
    REDRIVE = "redrive"
    PURGE = "purge"
    CANCEL = "cancel"
    """Cancels messages that wait or are leased."""
    REPLAY = "replay"
    """Sends messages of a log into a queue."""

    @property
    def subject(self) -> str:
        """The first word of its entries in the audit log."""
        return {BulkActionKind.CANCEL: "message", BulkActionKind.REPLAY: "log"}.get(self, "dlq")

    @property
    def request(self) -> str:
        """Its entry in the audit log when somebody asks for it, such as `dlq.purge`."""
        return f"{self.subject}.{self}"


class CanaryState(StrEnum):
    OFF = "off"
    SENDING = "sending"
    WATCHING = "watching"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBulkAction:
    """A request to redrive or purge dead letters."""

    kind: BulkActionKind
    filter: Filter
    everything: bool = False
    """Take every dead letter of the environment; must be set if the filter is empty."""
    dry_run: bool = False
    limits: SendLimits = NO_LIMITS
    patch: str | None = None
    counted: CountedBy | None = None
    """Take the selection of a dry run instead of the filter and the patch."""

    def __post_init__(self) -> None:
        check_counted(self.counted, dry_run=self.dry_run)
        self._check_extent()
        if self.kind in (BulkActionKind.CANCEL, BulkActionKind.REPLAY):
            raise InvalidInput("messages are cancelled by a `NewCancellation`, replayed by a `NewLogReplay`")
        if self.kind is BulkActionKind.PURGE and (self.patch is not None or self.limits.canary):
            raise InvalidInput("a purge replays nothing, so it takes neither a patch nor a canary")
        if self.filter.expression is not None:
            check_boolean(self.filter.expression)
        if self.patch is not None:
            compile_patch(self.patch)

    def _check_extent(self) -> None:
        """Refuse an empty filter without `all`, and `all` with a filter. A dry run needs no `all`."""
        if self.everything and not self.filter.empty:
            raise InvalidInput("`all` goes without a filter; leave one of them out")
        if self.filter.empty and not (self.everything or self.dry_run or self.counted):
            raise InvalidInput(
                f"a {self.kind} without a filter would take every dead letter of the environment; "
                "name a queue, or ask for `all`"
            )

    def described(self) -> dict[str, Any]:
        """The request as the audit log keeps it; members that are left out have their defaults."""
        members = {
            "dry_run": self.dry_run,
            "all": self.everything,
            **self.limits.described(),
            "patch": self.patch,
        }
        given = {name: value for name, value in members.items() if value}
        return {"filter": self.filter.described(), **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """A bulk action as it stands in the table."""

    id: str
    environment: EnvironmentRef
    kind: BulkActionKind
    state: BulkActionState
    dry_run: bool
    filter: Filter
    selection: MessageSelection | None
    """Which messages a cancellation is about; None for other kinds."""
    log_selection: LogSelection | None
    """Which messages of a log a replay is about; None for other kinds."""
    into: str | None
    """The queue that a replay sends into."""
    rate_per_s: float | None
    canary: int
    canary_tolerance: float
    canary_patience_ms: int
    canary_state: CanaryState
    canary_ids: tuple[str, ...]
    canary_since_ms: int | None
    patch: str | None
    by_group: bool
    walk_keys: tuple[int, ...]
    """The keys that it walks one after another: consumers or, if `by_group`, their groups with one
    fingerprint. A cancellation walks positions in `message_selection.WALK`. A replay from a log has one."""
    walked: int
    """How many of the walk keys are done; the cursor below is inside the next one."""
    after_enqueued_at_ms: int
    after_id: str
    cursor: str | None
    """Where a cancellation goes on within its state, or a replay within its log."""
    high_water: int
    """The last arrival when it was created. It takes no letters that arrived later."""
    retried_to: int
    """After a restart it also takes its own replays that died, up to this arrival."""
    expected: int
    scanned: int
    matched: int
    done: int
    skipped: int
    died_again: int
    done_before: int
    died_before: int
    """`done` and `died_again` when it was last restarted, after its canary had stopped it."""
    samples: tuple[str, ...]
    note: str | None
    """Why it waits or ended."""
    problem: str | None
    """The latest reason why a letter was skipped."""
    created_by: str
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    next_at_ms: int
    claim: str | None
    """The claim of the runner that works on it, or worked on it last if its process ended."""
    tries: int
    """Claims since the last batch that was saved."""

    def described_filter(self) -> dict[str, Any]:
        """The filter or selection that was asked for."""
        if self.log_selection is not None:
            return {**self.log_selection.described(), "into": self.into}
        return self.filter.described() if self.selection is None else self.selection.described()


def action_of(row: Row) -> BulkAction:
    """The bulk action that a row describes; the table calls walk keys `lanes`."""
    others = ("organization", "project", "lanes", "lane", "claimed_until_ms")
    values = {name: value for name, value in row.items() if name not in others}
    values |= {
        "id": str(row["id"]),
        "environment": scope_of(row),
        "kind": BulkActionKind(row["kind"]),
        "state": BulkActionState(row["state"]),
        "filter": Filter(**row["filter"]),
        **_selections(row),
        "canary_state": CanaryState(row["canary_state"]),
        "canary_ids": tuple(str(id_) for id_ in row["canary_ids"]),
        "walk_keys": tuple(row["lanes"]),
        "walked": row["lane"],
        "after_id": str(row["after_id"]),
        "claim": None if row["claim"] is None else str(row["claim"]),
        "samples": tuple(str(id_) for id_ in row["samples"]),
    }
    return BulkAction(**values)


def _selections(row: Row) -> dict[str, Any]:
    """The selection of a cancellation or of a replay from a log. One column holds either."""
    stored = row["selection"]
    found: dict[str, Any] = {"selection": None, "log_selection": None, "into": None}
    if row["kind"] == BulkActionKind.REPLAY:
        return found | {"log_selection": LogSelection(**stored["log"]), "into": stored["into"]}
    return found if stored is None else found | {"selection": selection_of(stored)}
