"""Sends the demo's pushes and webhooks over HTTP, at the rates of its queues."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import httpx2
import structlog

from weir.demo.payloads import key_of, pagerduty_request, payload_of
from weir.demo.scenario import QueueStory, arrivals_per_second
from weir.demo.setup import DemoAccount
from weir.model.clock import Clock, SystemClock

TICK_S = 0.25
# Bursts at high speed must stay below the limit of a push.
MAX_PUSH = 500
WEBHOOKS = {"pagerduty": "pagerduty"}
"""The queues that a webhook feeds instead of pushes, with the name of the webhook."""

log = structlog.get_logger("weir.demo")


class Traffic:
    """Sends until cancelled; failures are counted, and the traffic goes on."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        accounts: list[DemoAccount],
        *,
        secret: str,
        speed: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._accounts = accounts
        self._secret = secret
        self._speed = speed
        self._clock = clock or SystemClock()
        self._dice = random.Random(7)
        self.answers: Counter[str] = Counter()
        self.pushed = 0
        self.webhooks = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for account in self._accounts:
                for story in account.tenant.queues:
                    if not story.paused:
                        group.create_task(self._feed(account, story), name=f"feed {story.name}")

    async def _feed(self, account: DemoAccount, story: QueueStory) -> None:
        due, number = 0.0, 0
        while True:
            await asyncio.sleep(TICK_S)
            due += arrivals_per_second(story, self._clock.now_ms()) * TICK_S * self._speed
            count = min(int(due), MAX_PUSH)
            # Messages over `MAX_PUSH` are dropped; sent later they would become a growing burst.
            due -= int(due)
            if not count:
                continue
            try:
                if story.name in WEBHOOKS:
                    await self._call_hook(account, WEBHOOKS[story.name], number, count)
                else:
                    await self._push(account, story, number, count)
            except httpx2.HTTPError as error:
                self.answers[type(error).__name__] += 1
            number += count

    async def _push(self, account: DemoAccount, story: QueueStory, number: int, count: int) -> None:
        items = []
        for index in range(number, number + count):
            payload = payload_of(story.name, index, self._dice)
            items.append({"queue": story.name, "key": key_of(payload), "payload": payload})
        response = await self._client.post(
            "/api/v1/push",
            content=json.dumps({"items": items}),
            headers={**account.headers, "content-type": "application/json"},
        )
        self.answers[str(response.status_code)] += 1
        self.pushed += count if response.is_success else 0

    async def _call_hook(self, account: DemoAccount, name: str, number: int, count: int) -> None:
        for index in range(number, number + count):
            body, headers = pagerduty_request(index, self._dice, self._secret)
            response = await self._client.post(account.hooks[name], content=body, headers=headers)
            self.answers[str(response.status_code)] += 1
            self.webhooks += int(response.is_success)
