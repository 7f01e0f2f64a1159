"""Starts what a dry run counted: its selection up to its bound in time, so that nothing newer is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weir.deadletters.bulk_action_states import BulkActionState
from weir.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from weir.deadletters.bulk_actions import BulkAction, BulkActionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBy:
    """The dry run whose selection a bulk action takes over."""

    dry_run: str
    is_stated: bool = False
    """Whether the request also says what is meant; it must be what the dry run counted."""


def check_counted(counted: CountedBy | None, *, dry_run: bool) -> None:
    if counted is not None and dry_run:
        raise InvalidInput("`from_dry_run` starts what was counted; leave out `dry_run`")


def check_dry_run(dry: BulkAction, kind: BulkActionKind, **same: bool) -> None:
    """Refuse a dry run that is of another kind, not finished, or of something else than what is meant."""
    if dry.kind != kind or not dry.dry_run:
        raise Conflict(f"`{dry.id}` is not a dry run of a {kind}; begin one with `dry_run`")
    if dry.state is not BulkActionState.COMPLETED:
        raise Conflict(
            f"the dry run `{dry.id}` is {dry.state}, so its count is not complete; "
            "wait for it, or begin another"
        )
    for name, is_same in same.items():
        if not is_same:
            raise Conflict(f"the dry run `{dry.id}` counted another `{name}`; begin a dry run of this one")
