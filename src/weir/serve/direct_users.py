"""Keeps one user of Redis per token for direct mode in PostgreSQL, also if Redis lost its users."""

from __future__ import annotations

import asyncio

import structlog

from weir.broker.direct_users import DirectUsers
from weir.control.tokens import Tokens
from weir.errors import WeirError
from weir.model.clock import Clock

log = structlog.get_logger("weir.serve")
EVERY_S = 10.0


class DirectUserKeeper:
    """Makes users again that a restart of Redis lost, with the scripts that they run.

    It removes the users of tokens that ended. Other users are left alone: another installation may share this
    Redis.
    """

    def __init__(self, users: DirectUsers, tokens: Tokens, *, clock: Clock) -> None:
        self._users = users
        self._tokens = tokens
        self._clock = clock
        self._made: set[str] = set()
        """Tokens whose users have the rights that this version needs."""

    async def run(self) -> None:
        while True:
            try:
                await self.run_round()
            except WeirError as error:
                log.warning("the users for direct mode are not kept for now", error=str(error))
            await asyncio.sleep(EVERY_S)

    async def run_round(self) -> None:
        """Look at every token for direct mode."""
        now_ms = self._clock.now_ms()
        tokens = await self._tokens.direct()
        if tokens:
            await self._users.load_scripts()
        for token in tokens:
            exists = await self._users.exists(token.id)
            if now_ms < token.ends_at_ms and token.scope is not None:
                if not exists or token.id not in self._made:
                    await self._users.allow(token.id, digest=token.secret_sha256, environment=token.scope)
                    self._made.add(token.id)
            elif exists:
                await self._users.remove(token.id)
