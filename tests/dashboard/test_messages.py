"""The messages of a queue and the page of one message, in a real browser against a real server."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from playwright.async_api import Page, Route, expect

from support.lives import land_lives
from weir.control.database import Database
from weir.lineage.children import ChildMessage, Kinship, record_children
from weir.model.ids import MessageId, new_id
from weir.model.inspection import WaitParts
from weir.model.lives import AttemptEnd, Life, LifeAttempt, LifeOutcome
from weir.model.message import NewMessage
from weir.model.wording import duration
from weir.spec.ir import Ordering, QueueSpec

from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOUR_MS = 3_600_000


async def put(world: World, payload: bytes, *, key: str | None = None, delay_ms: int = 0) -> str:
    """One message in `orders`; its id."""
    new = NewMessage(payload=payload, key=key, delay_ms=delay_ms or None, headers={"kind": "test"})
    await world.broker.enqueue(world.site.environment.queue("orders"), [new])
    return new.id


async def test_the_tab_shows_states_with_counts_and_finds_messages(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    first = await put(world, b'{"order": "seventeen"}', key="c1")
    second = await put(world, b'{"order": "<b>eighteen</b>"}', key="c2")
    later = await put(world, b"{}", delay_ms=HOUR_MS)
    await page.goto(site.link("queue", "orders"))
    await page.get_by_role("link", name="Messages", exact=True).click()
    panel = page.get_by_role("region", name="Messages", exact=True)
    links = panel.locator("tbody a")
    await expect(links).to_have_text([first, second])
    await expect(panel).to_contain_text('{"order": "<b>eighteen</b>"}')
    await expect(panel.get_by_role("button", name="ready 2")).to_have_attribute("aria-pressed", "true")
    await panel.get_by_label("Key").fill("c2")
    await panel.get_by_role("button", name="Find").click()
    await expect(links).to_have_text([second])
    await page.reload()
    await expect(links).to_have_text([second])
    await panel.get_by_label("Key").fill("")
    await panel.get_by_label("Text in the payload").fill("seventeen")
    await panel.get_by_role("button", name="Find").click()
    await expect(links).to_have_text([first])
    await panel.get_by_label("Text in the payload").fill("")
    await panel.get_by_role("button", name="Find").click()
    await panel.get_by_role("button", name="scheduled 1").click()
    await expect(links).to_have_text([later])
    await expect(panel).to_contain_text("in 59 min")
    await panel.get_by_label("Text in the payload").fill(first)
    await panel.get_by_role("button", name="Find").click()
    await expect(page.get_by_role("heading", name=first)).to_be_visible()


async def test_a_long_list_is_read_page_by_page(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.push("orders", 51)
    await page.goto(site.link("queue", "orders", "messages"))
    links = page.get_by_role("region", name="Messages", exact=True).locator("tbody a")
    await expect(links).to_have_count(50)
    await page.get_by_role("button", name="Next page").click()
    await expect(links).to_have_count(1)
    await page.get_by_role("button", name="First page").click()
    await expect(links).to_have_count(50)


async def test_a_task_shows_its_progress_while_it_runs_and_its_result_when_it_is_done(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    queue = world.site.environment.queue("orders")
    new = NewMessage(
        payload=b'{"image":"a.png"}', headers={"weir-task": "resize", "content-type": "application/json"}
    )
    await world.broker.enqueue(queue, [new])
    (delivery,) = await world.broker.dequeue(queue, consumer="worker-1")
    await world.broker.keep_progress(delivery.lease, b'{"done": 3, "of": 10}')
    await page.goto(site.link("message", new.id))
    progress = page.get_by_role("region", name="Progress")
    await expect(progress).to_contain_text('"done": 3')
    await expect(page.get_by_role("region", name="Payload")).to_contain_text('"image": "a.png"')
    await world.broker.ack([delivery.lease], results=[b'{"url": "https://x.example/a.png"}'])
    await expect(page.get_by_role("region", name="Result")).to_contain_text("https://x.example/a.png")
    await expect(progress).to_have_count(0)


async def test_a_message_says_in_one_bar_why_it_waits(page: Page, site: Site, world: World) -> None:
    queue = world.site.environment.queue("orders")
    await world.broker.define(queue, QueueSpec(name="orders", ordering=Ordering.PER_KEY))
    await world.broker.pause(queue)
    head = await put(world, b'{"n": 1}', key="k")
    behind = await put(world, b'{"n": 2}', key="k")
    await page.goto(site.link("message", head))
    why = page.get_by_role("region", name="Why it waited")
    await expect(why.get_by_role("img")).to_have_attribute("aria-label", re.compile("^Waited: paused "))
    await expect(why.get_by_label("Parts of its wait")).to_contain_text("paused")
    await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"n": 1')
    await expect(page.get_by_label("Payload", exact=True)).to_contain_text('"kind": "test"')
    await expect(page.get_by_label("Timeline")).to_contain_text("enqueued")
    await page.goto(site.link("message", behind))
    await expect(page.get_by_label("Now")).to_contain_text(f"Waits behind {head}")
    await expect(why.get_by_label("Parts of its wait")).to_contain_text("behind the head of its key")


async def test_the_whole_wait_and_its_parts_are_said_alike(page: Page, site: Site, world: World) -> None:
    """The page words the one, the server the others."""
    await world.define("orders")
    waiting = await put(world, b"{}")
    waited_ms = 193_600
    part = {"reason": "paused", "waited_ms": waited_ms, "text": f"paused {duration(waited_ms)}"}

    async def answer(route: Route) -> None:
        found = await (await route.fetch()).json()
        await route.fulfill(json={**found, "waited_ms": waited_ms, "parts": [part]})

    await page.route("**/why", answer)
    await page.goto(site.link("message", waiting))
    panel = page.get_by_role("region", name="Why it waited")
    await expect(panel).to_contain_text("Waited 3 min 14 s")
    await expect(panel).to_contain_text("paused 3 min 14 s")


async def test_a_message_links_to_its_trace_and_its_relatives(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    queue, trace_id = site.environment.queue("orders"), "0af7651916cd43dd8448eb211c80319c"
    traced = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    parent = NewMessage(payload=b"1", headers=traced)
    child = NewMessage(payload=b"2", headers={"weir-chained-from": parent.id})
    await world.broker.enqueue(queue, [parent, child])
    about = ChildMessage(queue=queue, message_id=child.id, parent_id=parent.id, kind=Kinship.CHAINED, at_ms=1)
    async with Database(site.urls.postgres, max_size=1) as database, database.transaction() as connection:
        await record_children(connection, [about])
    await page.goto(site.link("message", parent.id))
    link = page.get_by_role("link", name=trace_id)
    await expect(link).to_have_attribute("href", f"https://traces.example/{trace_id}")
    relatives = page.get_by_role("region", name="Relatives")
    await expect(relatives).to_contain_text("Child")
    await relatives.get_by_role("link", name=child.id).click()
    await expect(page.get_by_role("heading", name=child.id)).to_be_visible()
    await expect(relatives).to_contain_text("Parent")
    await expect(relatives).to_contain_text("chained")
    await expect(relatives.get_by_role("link", name=parent.id)).to_be_visible()


async def test_a_message_is_run_now_and_cancelled_after_a_confirmation(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    one = await put(world, b"{}", delay_ms=HOUR_MS)
    await page.goto(site.link("message", one))
    await page.get_by_role("button", name="Run now…").click()
    assert (await world.state("orders")).delayed == 1
    await page.get_by_role("dialog").get_by_role("button", name="Run it now").click()
    await expect(page.get_by_role("region", name="Now", exact=True)).to_contain_text("ready")
    assert (await world.state("orders")).delayed == 0
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    await expect(page.get_by_role("region", name="Messages", exact=True)).to_contain_text("No message here.")
    assert (await world.state("orders")).depth == 0


async def test_what_a_search_finds_is_cancelled_after_a_dry_run(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    for number in range(5):
        await put(world, b"{}", key="odd" if number % 2 else "even")
    await page.goto(site.link("queue", "orders", "messages", query="key=even"))
    await page.get_by_role("button", name="Cancel all that match…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await expect(dialog).to_contain_text("3 messages match.")
    assert (await world.state("orders")).depth == 5
    await dialog.get_by_role("button", name="Cancel 3").click()
    await expect(page.get_by_role("region", name="Messages", exact=True)).to_contain_text("No message here.")
    assert (await world.state("orders")).depth == 2


async def test_a_reader_may_look_at_messages_and_not_touch_them(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    one = await put(world, b"{}")
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token").fill(site.reader)
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(site.link("message", one))
    await expect(page.get_by_label("Timeline")).to_contain_text("enqueued")
    await expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)


async def test_a_message_that_ended_shows_its_life_as_one_bar_with_its_attempts(
    page: Page, site: Site, world: World
) -> None:
    ended = lived(world, "k", turn_ms=6_000, blocked_ms=1_000)
    await asyncio.to_thread(land_lives, world.warehouse, [ended])
    await page.goto(site.link("message", ended.message_id))
    life = page.get_by_role("region", name="Its life")
    await expect(life.get_by_role("heading", name="Lived 10 s")).to_be_visible()
    label = "Life: behind the head of its key 1 s, in turn behind others 6 s, leased 3 s"
    await expect(life.get_by_role("img")).to_have_attribute("aria-label", label)
    attempts = life.get_by_label("Attempts of its life").get_by_role("listitem")
    await expect(attempts).to_have_text(
        ["Attempt 1: lapsed after 1 s, by w1", "Attempt 2: acked after 2 s, by w2"]
    )
    await expect(page.get_by_role("region", name="Now", exact=True)).to_contain_text("done")
    await expect(page.get_by_label("Timeline")).to_contain_text("attempt lapsed")


async def test_a_queue_says_which_keys_waited_and_took_most(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    lives = [lived(world, key, turn_ms=wait) for key, wait in (("slow", 9_000), ("quick", 10))]
    await asyncio.to_thread(land_lives, world.warehouse, lives)
    await page.goto(site.link("queue", "orders"))
    fairness = page.get_by_role("region", name="Fairness by key")
    waited = fairness.get_by_role("table", name="Keys that waited most")
    await expect(waited.locator("tbody tr").first).to_contain_text("slow")
    await expect(waited.locator("tbody tr").first).to_contain_text("9 s")
    await expect(fairness).to_contain_text("50 %")


def lived(world: World, key: str, **parts: int) -> Life:
    """A message of `orders` that ended a minute ago, 10 s after it was enqueued, at its second attempt."""
    end_ms = int(time.time() * 1_000) - 60_000
    return Life(
        queue=world.site.environment.queue("orders"),
        message_id=MessageId(new_id()),
        key=key,
        outcome=LifeOutcome.ACKED,
        reason=None,
        enqueued_at_ms=end_ms - 10_000,
        available_at_ms=end_ms - 10_000,
        handed_out_at_ms=end_ms - 2_000,
        ended_at_ms=end_ms,
        priority=4,
        attempts=2,
        last_attempts=(
            LifeAttempt(
                started_at_ms=end_ms - 6_000, ended_at_ms=end_ms - 5_000, end=AttemptEnd.LAPSED, consumer="w1"
            ),
            LifeAttempt(
                started_at_ms=end_ms - 2_000, ended_at_ms=end_ms, end=AttemptEnd.ACKED, consumer="w2"
            ),
        ),
        handler_ms=1_900,
        leased_ms=3_000,
        parts=WaitParts(**parts),
        blocked_by_id=None,
        payload_bytes=2,
    )
