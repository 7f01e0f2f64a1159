"""Reads evidence about attempts: their errors, how long handlers ran, and disabled endpoints."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from weir.alerts.situation import Errors, Handlers
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.deadletters.fingerprint import normalise
from weir.errors import NotFound, Unavailable
from weir.model.item_loops import storable_text
from weir.model.names import EnvironmentRef
from weir.warehouse.reading.arithmetic import mean
from weir.warehouse.reading.flows import Cuts

SQL = load_queries("weir.alerts", "attempts.sql")
# The newest failures of a queue show what fails; more of them show the same.
_ERRORS_READ = 200
# The most queues whose last errors are read: each costs a call to Redis.
_ONE_BY_ONE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """The errors of one queue by kind, with one sample per kind."""

    now: Counter[str] = field(default_factory=Counter)
    recently: Counter[str] = field(default_factory=Counter)
    samples: dict[str, str] = field(default_factory=dict)

    def add(self, error: str, *, count: int = 1, is_now: bool) -> None:
        # Verdicts are stored, and consumers over HTTP may send any text.
        error = storable_text(error)
        kind = normalise(error)
        self.samples.setdefault(kind, error)
        self.recently[kind] += count
        if is_now:
            self.now[kind] += count

    def errors(self) -> tuple[Errors, ...]:
        """The errors of now, or of the recent past if there are none now; the most frequent first."""
        kinds = self.now or self.recently
        return tuple(Errors(sample=self.samples[kind], count=count) for kind, count in kinds.most_common())


class AttemptReader:
    """Reads attempts of workers from PostgreSQL, and the last errors of messages from Redis."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker

    async def errors(
        self, environment: EnvironmentRef, names: Sequence[str], *, cuts: Cuts
    ) -> dict[str, tuple[Errors, ...]]:
        """The errors of workers' attempts; for queues without any, errors of dead and waiting messages."""
        said: dict[str, _Said] = defaultdict(_Said)
        for row in await self._database.fetch(
            SQL["failed_attempts"],
            queues=list(names),
            since_ms=cuts.recent_ms,
            limit=_ERRORS_READ,
            **scope_names(environment),
        ):
            said[row["queue"]].add(row["error"], is_now=row["finished_at_ms"] >= cuts.just_now_ms)
        # Attempts of workers are exact. Deaths and last errors are only read where there are none.
        others = [name for name in names if name not in said]
        if others:
            await self._add_deaths(said, environment, others, cuts=cuts)
            await self._add_last_errors(said, environment, others)
        return {name: one.errors() for name, one in said.items()}

    async def _add_deaths(
        self, said: dict[str, _Said], environment: EnvironmentRef, names: Sequence[str], *, cuts: Cuts
    ) -> None:
        for row in await self._database.fetch(
            SQL["recent_errors"],
            queues=list(names),
            now_ms=cuts.end_ms,
            since_ms=cuts.recent_ms,
            **scope_names(environment),
        ):
            count = max(math.ceil(row["heat"]), 1)
            is_now = row["last_seen_ms"] >= cuts.now_ms
            said[row["queue"]].add(row["sample_error"], count=count, is_now=is_now)

    async def _add_last_errors(
        self, said: dict[str, _Said], environment: EnvironmentRef, names: Sequence[str]
    ) -> None:
        """Add the last errors of waiting messages: consumers over HTTP record no attempts."""
        for name in names[:_ONE_BY_ONE]:
            try:
                errors = await self._broker.last_errors(environment.queue(name), limit=_ERRORS_READ)
            except (NotFound, Unavailable):
                continue
            for error in errors:
                said[name].add(error, is_now=True)

    async def handlers(
        self, environment: EnvironmentRef, names: Sequence[str], *, cuts: Cuts
    ) -> dict[str, Handlers]:
        rows = await self._database.fetch(
            SQL["handler_times"],
            queues=list(names),
            now_ms=cuts.just_now_ms,
            split_ms=cuts.recent_ms,
            since_ms=cuts.start_ms,
            **scope_names(environment),
        )
        return {
            row["queue"]: Handlers(
                ended=row["ended"],
                failed=row["failed"],
                ended_ms=mean(row["ended_ms"], row["ended"]) or 0.0,
                usual_ms=mean(row["usual_ms"], row["usual"]),
            )
            for row in rows
        }

    async def disabled_endpoints(self, environment: EnvironmentRef) -> dict[str, str]:
        """The reason why each disabled endpoint of an environment is disabled, by URL."""
        rows = await self._database.fetch(SQL["disabled_endpoints_of"], **scope_names(environment))
        return {row["url"]: row["reason"] for row in rows}
