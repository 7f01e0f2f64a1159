"""Switches the metrics of all shards off and on, in one act that may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.broker import replies
from weir.broker.failures import translated
from weir.broker.runner import RedisConnection, ScriptRunner, connect
from weir.errors import BrokerUnavailable, Unavailable
from weir.model.clock import Clock
from weir.telemetry.streams import switch_key
from weir.telemetry.switch import ShardSwitch, switch_of

OLD_SWITCH = b"weir:metrics"
"""The one key with which earlier versions switched metrics off: `0`, by hand."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchState:
    """The switches of all shards that answered, and why the others did not."""

    shards: Sequence[ShardSwitch]
    silent: Mapping[int, str]

    @property
    def off(self) -> bool:
        """Whether the metrics of any shard are off."""
        return any(switch.off for switch in self.shards)

    @property
    def mixed(self) -> bool:
        """Whether the shards differ: an act was cut short, and has to be repeated."""
        return len({switch.off for switch in self.shards}) > 1

    def require_all(self) -> None:
        """Raise if a shard did not answer."""
        if self.silent:
            names = ", ".join(map(str, sorted(self.silent)))
            first = self.silent[min(self.silent)]
            raise BrokerUnavailable(
                f"shards {names} did not answer ({first}), so nobody knows whether they were switched; "
                "the others were; repeat the command, which changes nothing where it is done",
                retry_after_s=1,
            )


class MetricsSwitch:
    """The switch of one installation."""

    def __init__(self, connection: RedisConnection, *, shards: int, clock: Clock | None = None) -> None:
        self._runner = ScriptRunner(connect(connection), patience_s=connection.patience_s, clock=clock)
        self._shards = range(shards)

    async def switch(self, *, on: bool, by: str, reason: str) -> SwitchState:
        """Switch every shard that answers. A shard that is already switched so keeps its time and reason."""
        arguments = (b"on" if on else b"off", by.encode(), reason.encode())
        if on:
            # The old key goes first: a process that starts now would take it over, and switch metrics off.
            with translated():
                await self._runner.client.execute_command("DEL", OLD_SWITCH)

        async def switch(shard: int) -> ShardSwitch:
            replies.check(await self._runner.run("switch_metrics", shard, *arguments))
            return await self._read(shard)

        return await self._ask_each(switch)

    async def read(self) -> SwitchState:
        return await self._ask_each(self._read)

    async def take_over(self) -> None:
        """Switch metrics off if the key of earlier versions says so, and remove that key."""
        with translated():
            stored = await self._runner.client.execute_command("GET", OLD_SWITCH)
        if stored == b"0":
            reason = "the key `weir:metrics` was set to 0"
            (await self.switch(on=False, by="an earlier version", reason=reason)).require_all()
            with translated():
                await self._runner.client.execute_command("DEL", OLD_SWITCH)

    async def families(self) -> AsyncIterator[Metric]:
        """The switch for Prometheus; a shard that does not answer is left out."""
        family = GaugeMetricFamily(
            "weir_metrics_switched_off", "1 while the metrics of a shard are off.", labels=("shard",)
        )
        for switch in (await self.read()).shards:
            family.add_metric((str(switch.shard),), int(switch.off))
        yield family

    async def aclose(self) -> None:
        await self._runner.aclose()

    async def _read(self, shard: int) -> ShardSwitch:
        with translated():
            return switch_of(shard, await cast(Any, self._runner.client).hgetall(switch_key(shard)))

    async def _ask_each(self, ask: Callable[[int], Awaitable[ShardSwitch]]) -> SwitchState:
        # One shard before the others: many first calls at once break the driver's client of a cluster.
        first = await _attempt(ask(self._shards[0]))
        others = await asyncio.gather(*(_attempt(ask(shard)) for shard in self._shards[1:]))
        answers = [first, *others]
        return SwitchState(
            shards=[one for one in answers if isinstance(one, ShardSwitch)],
            silent={
                shard: str(one)
                for shard, one in zip(self._shards, answers, strict=True)
                if isinstance(one, Unavailable)
            },
        )


async def _attempt(asked: Awaitable[T]) -> T | Unavailable:
    try:
        return await asked
    except Unavailable as error:
        return error
