"""Commands that put messages into other queues: once each, and both messages know each other."""

from __future__ import annotations

import pytest

from support.waiting import until
from weir.model.message_headers import CHAINED_FROM
from weir.worker import Context
from workers.rig import Rig

SPEC = """
app A {
  queue Q {
    delivery { max_attempts: 3, initial_backoff_ms: 1, max_backoff_ms: 2 }
    map_to: command Thing.Do { }
  }
  queue Next { retention { max_depth: 2 } }
}
"""


async def taken(rig: Rig) -> list[tuple[bytes, str | None]]:
    found = await rig.broker.dequeue(rig.environment.queue("Next"), consumer="c", limit=10)
    return [(one.payload, one.headers.get(CHAINED_FROM)) for one in found]


async def test_an_asynchronous_command_passes_on_once_though_it_is_tried_again(rig: Rig) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        for _ in range(2):
            await context.apush("Next", {"attempts": "any"}, key="k", priority=2)
        if context.attempt == 1:
            raise OSError("the network is away")

    await rig.apply(SPEC)
    (message_id,) = await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: rig.endings() == ["failed", "done"])
    assert await taken(rig) == [(b'{"attempts":"any"}', message_id)] * 2


async def test_a_synchronous_command_passes_bytes_on_as_they_are(rig: Rig) -> None:
    told: list[str] = []

    @rig.commands.command("Thing.Do")
    def do(context: Context) -> None:
        told.append(context.push("Next", b"\x00\xff"))

    await rig.apply(SPEC)
    (message_id,) = await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: rig.endings() == ["done"])
    found = await rig.broker.dequeue(rig.environment.queue("Next"), consumer="c", limit=10)
    assert [(one.message_id, one.payload) for one in found] == [(told[0], b"\x00\xff")]
    assert found[0].headers[CHAINED_FROM] == message_id


async def test_a_push_of_a_command_waits_for_room_and_then_costs_no_attempt(rig: Rig) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        await context.apush("Next", 3)

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 1"))
    await rig.put("Next", b"1", b"2")
    await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: rig.endings() == ["failed"], within_s=15)
        assert "takes nothing now" in rig.journal.attempts[0].error
        for one in await rig.broker.dequeue(rig.environment.queue("Next"), consumer="c", limit=10):
            await rig.broker.ack([one.lease])
        await until(lambda: rig.endings()[-1] == "done", within_s=15)
    assert await rig.outbox() == []
    assert [payload for payload, _ in await taken(rig)] == [b"3"]


@pytest.mark.parametrize("queue", ["Next", "Nowhere"])
async def test_wrong_pushes_fail_the_attempt_and_say_why(rig: Rig, queue: str) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        if queue == "Next":
            context.push(queue, 1)
        await context.apush(queue, 1)

    await rig.apply(SPEC)
    await rig.put("Q", b"{}")
    async with rig.working():
        await until(lambda: "failed" in rig.endings())
    error = rig.journal.attempts[0].error
    assert ("await context.apush" if queue == "Next" else "Nowhere") in error


def test_a_command_of_a_webhook_without_a_queue_cannot_push(rig: Rig) -> None:
    context = Context(
        environment=rig.environment, queue=None, message_id="m", attempt=1, headers={}, payload=b""
    )
    with pytest.raises(RuntimeError, match="give the webhook a queue"):
        context.push("Next", 1)
