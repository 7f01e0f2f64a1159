"""Syntax tree to IR, fourth part: schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weir.errors import InvalidInput, TooLarge
from weir.spec.ir import MissedTicks, Overlap, ScheduleSpec, Timing
from weir.spec.payloads import check_payload
from weir.spec.read import Notes, SpecSection, open_block
from weir.spec.syntax import JsonValue, SourceSpan, SyntaxEntry
from weir.spec.timing import MIN_EVERY_MS, check_cron, check_timezone


def read_schedule(entry: SyntaxEntry, notes: Notes) -> ScheduleSpec:
    name, section = open_block(entry, "schedule", notes, ("schedule",))
    timing = _timing(section, entry)
    queue = section.name("queue")
    if queue is None and ("schedule", name, "queue") not in notes.spans:
        notes.add(f"schedule `{name}` needs a queue; write `queue: Name`", entry.key_span)
    missed = section.choice("missed", list(MissedTicks))
    overlap = section.choice("overlap", list(Overlap))
    spec = ScheduleSpec(
        name=name,
        queue=queue or "",
        timing=timing,
        payload=_payload(section),
        missed=MissedTicks(missed) if missed else MissedTicks.SKIP,
        overlap=Overlap(overlap) if overlap else Overlap.ALLOW,
    )
    section.finish()
    return spec


def _timing(section: SpecSection, entry: SyntaxEntry) -> Timing:
    notes, path = section.notes, section.path
    cron, zone = section.text("cron"), section.text("timezone")
    every_ms = section.duration_ms("every", at_least_ms=MIN_EVERY_MS)
    written = [key for key in ("cron", "every", "every_seconds", "every_ms") if (*path, key) in notes.spans]
    if not written or ("cron" in written and len(written) > 1):
        span = notes.spans[(*path, written[1])] if written else entry.key_span
        notes.add("a schedule needs either `cron` or `every`; give one of them", span)
    if zone is not None and "cron" not in written:
        notes.add("`timezone` belongs to `cron`; an interval needs none", notes.spans[(*path, "timezone")])
    elif zone is not None and not _run_check(notes, (*path, "timezone"), partial(check_timezone, zone)):
        zone = None
    timezone = zone or Timing().timezone
    if cron is not None:
        _run_check(notes, (*path, "cron"), partial(check_cron, cron, timezone))
    return Timing(cron=cron, every_ms=every_ms, timezone=timezone)


def _run_check(notes: Notes, path: tuple[str, ...], check: Callable[[], None]) -> bool:
    """Run a check and return whether it passes; note its mistake at the position of the property."""
    try:
        check()
    except (InvalidInput, TooLarge) as error:
        notes.add(error.message, notes.spans[path])
        return False
    return True


def _payload(section: SpecSection) -> object:
    entry = section.take("payload")
    if entry is None:
        return {}
    found = entry.value
    if not isinstance(found, JsonValue):
        section.notes.add("`payload` is a JSON value; write `payload: { … }`", _span(entry))
        return {}
    for message, span in found.mistakes:
        section.notes.add(message, span)
    if not found.mistakes:
        _run_check(section.notes, (*section.path, "payload"), partial(check_payload, found.value))
    return found.value


def _span(entry: SyntaxEntry) -> SourceSpan:
    return entry.value.span if entry.value else entry.key_span
