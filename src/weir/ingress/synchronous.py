"""Runs the command of a webhook without a queue, before the sender is answered."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import orjson

from weir.errors import InvalidInput, Unavailable
from weir.ingress.incoming_events import IncomingEvent
from weir.ingress.receive import ReceivedHook
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef
from weir.spec.cel import compile_mapping
from weir.spec.evaluation import evaluated, size_named
from weir.spec.ir import MapToCommand
from weir.spec.snapshot import Hook
from weir.workers.commands import Command, Commands, Context
from weir.workers.hook_keys import HookKey, HookKeys
from weir.workers.journal import result_text
from weir.workers.outcome import Ending, HandlerOutcome
from weir.workers.run_message import run_command
from weir.workers.variables import received_inputs

# Senders give up soon, and then send the event again.
TIMEOUT_S = 10.0


class SynchronousCommands:
    """Runs commands in this process, once per id of a sender."""

    def __init__(
        self,
        commands: Commands,
        *,
        executor: Executor,
        keys: HookKeys,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._commands = commands
        self._executor = executor
        self._keys = keys
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s

    async def run(self, hook: Hook, event: IncomingEvent, about: Mapping[str, Any]) -> ReceivedHook:
        action = hook.webhook.action
        if action is None:
            raise Unavailable(f"webhook `{hook.webhook.name}` has neither a queue nor a command")
        command = self._command(action, hook.environment)
        named = tuple(action.inputs.items())
        compiled = compile_mapping(named)
        inputs = await evaluated(
            received_inputs,
            named,
            event.payload,
            about,
            compiled=compiled,
            size=len(event.payload) + size_named(compiled, about),
            owner=hook.environment.organization,
            what=f"the inputs of webhook `{hook.webhook.name}`",
        )
        message_id = new_id()
        if event.id is None:
            return _answer(await self._execute(command, inputs, self._context(hook, event, message_id)))
        hook_key = HookKey(scope=hook.environment, name=hook.webhook.name, key=event.id)
        digest = hashlib.sha256(event.payload).digest()
        # Claim the id before the command runs, so that a retry during the run does not run it again.
        stored = await self._keys.begin(
            hook_key, digest=digest, message_id=message_id, now_ms=self._clock.now_ms()
        )
        if stored is not None:
            return ReceivedHook(status=200, body=stored, replayed=True)
        try:
            answer = _answer(await self._execute(command, inputs, self._context(hook, event, message_id)))
        except BaseException:
            # Whatever ended the command, the sender's retry must find the id free, even if we are cancelled.
            await asyncio.shield(self._keys.abandon(hook_key))
            raise
        await self._keys.finish(hook_key, answer.body)
        return answer

    def _command(self, action: MapToCommand, environment: EnvironmentRef) -> Command:
        name = f"{action.entity}.{action.command}"
        command = self._commands.find(name, environment=environment)
        if command is None:
            raise Unavailable(f"no command `{name}` is registered on this server", retry_after_s=30)
        return command

    async def _execute(self, command: Command, inputs: dict[str, Any], context: Context) -> HandlerOutcome:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await run_command(command, inputs, context, self._executor)
        except TimeoutError:
            raise Unavailable(
                f"the command took longer than {self._timeout_s:g} s", retry_after_s=5
            ) from None

    def _context(self, hook: Hook, event: IncomingEvent, message_id: str) -> Context:
        return Context(
            environment=hook.environment,
            queue=None,
            message_id=message_id,
            attempt=1,
            headers={"content-type": event.media_type},
            payload=event.payload,
            idempotency_key=event.id,
        )


def _answer(outcome: HandlerOutcome) -> ReceivedHook:
    """200 with the result, or the error of a failed command."""
    # The text of a failure is not sent: senders are strangers.
    match outcome.ending:
        case Ending.DONE:
            result = orjson.loads(result_text(outcome.result))
            return ReceivedHook(status=200, body=orjson.dumps({"status": "processed", "result": result}))
        case Ending.REJECTED:
            raise InvalidInput("the command rejected this event")
        case _:
            raise Unavailable("the command failed; send the event again", retry_after_s=5)
