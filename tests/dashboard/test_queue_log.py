"""The log of a queue, read and replayed in a real browser against a real server."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page, expect

from support.lives import emitted_log, land_log
from weir.model.durations import DAY_MS
from weir.model.message import NewMessage
from weir.spec.ir import QueueSpec
from weir.telemetry.streams import stream_key

from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def end(world: World, *keys: str) -> None:
    """Let a message with each key end in `orders`, and land them as the pipeline does."""
    queue = world.site.environment.queue("orders")
    await world.broker.define(queue, QueueSpec(name="orders", log_ms=30 * DAY_MS))
    messages = [NewMessage(payload=b'{"for": "%s"}' % key.encode(), key=key) for key in keys]
    await world.broker.enqueue(queue, messages)
    taken = await world.broker.dequeue(queue, consumer="test", limit=len(keys))
    await world.broker.ack([one.lease for one in taken])
    logged = await emitted_log(world.broker, queue)
    await asyncio.to_thread(land_log, world.warehouse, logged)
    streams = [stream_key("log", shard) for shard in range(world.broker.shards)]
    await world.broker._runner.client.execute_command("DEL", *streams)


async def test_the_log_is_searched_and_what_was_found_is_replayed(
    page: Page, site: Site, world: World
) -> None:
    await world.define("again")
    await end(world, "ann", "bob")
    await page.goto(site.link("queue", "orders", "log"))
    panel = page.get_by_role("region", name="Log", exact=True)
    await expect(panel).to_contain_text('{"for":"ann"}')
    await panel.get_by_label("Expression").fill("payload['for'] == 'bob'")
    await panel.get_by_role("button", name="Find").click()
    await expect(panel.locator("tbody tr")).to_have_count(1)
    await panel.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Send messages of the log into a queue")
    await dialog.get_by_label("Into the queue").fill("again")
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await dialog.get_by_role("button", name="Replay 1").click()
    await world.wait_for_depth("again", 1)


async def test_an_expression_that_is_none_is_called_that(page: Page, site: Site, world: World) -> None:
    await end(world, "ann")
    await page.goto(site.link("queue", "orders", "log"))
    panel = page.get_by_role("region", name="Log", exact=True)
    await panel.get_by_label("Expression").fill("payload.")
    await panel.get_by_role("button", name="Find").click()
    await expect(panel).to_contain_text("is not a CEL expression")
