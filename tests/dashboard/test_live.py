"""The numbers on the pages stay true: streams that break, tokens that end, days that are compared."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from support.tcp_proxy import TcpProxy
from weir.control.database import Database

from .conftest import new_token, opened
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
OLD = "stopped answering"


async def sign_in(page: Page, url: str, token: str) -> None:
    await page.goto(f"{url}/#/sign-in?token={token}")
    await page.get_by_role("heading", name="prod").wait_for()


def queue_rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Queues", exact=True).locator("tbody tr")


def depth_cell(page: Page) -> Locator:
    """Where the overview shows the depth of the only queue."""
    return queue_rows(page).locator("td").nth(2)


async def shows_depth(page: Page, depth: int) -> None:
    """The overview has one row of the queue, with this depth, and believes it."""
    await expect(depth_cell(page)).to_have_text(str(depth))
    await expect(queue_rows(page)).to_have_count(1)
    await expect(page.get_by_text(OLD)).to_have_count(0)


async def runs_until_depth(page: Page, depth: int) -> None:
    """The page's clock runs ahead until the overview shows this depth: at most two minutes of it."""
    for _ in range(60):
        await page.clock.run_for(2_000)
        if await depth_cell(page).text_content() == str(depth):
            break
    await shows_depth(page, depth)


async def test_a_stream_that_was_cut_comes_back_with_every_queue_once(
    browser: Browser, site: Site, world: World
) -> None:
    await world.define("orders")
    await world.push("orders", 1)
    async with TcpProxy.to(site.url) as proxy, opened(browser) as page:
        await sign_in(page, proxy.url, site.admin)
        await shows_depth(page, 1)
        for depth in (2, 3):
            proxy.cut()
            await world.push("orders", 1)
            await shows_depth(page, depth)


async def test_a_server_that_went_away_is_said_to_be_gone_until_it_is_back(
    browser: Browser, site: Site, world: World
) -> None:
    await world.define("orders")
    async with TcpProxy.to(site.url) as proxy, opened(browser) as page:
        await sign_in(page, proxy.url, site.admin)
        await shows_depth(page, 0)
        proxy.refuse()
        await expect(page.get_by_text(OLD)).to_be_visible()
        await world.push("orders", 2)
        proxy.heal()
        await shows_depth(page, 2)


async def test_a_stream_that_fell_silent_is_opened_again(browser: Browser, site: Site, world: World) -> None:
    await world.define("orders")
    async with TcpProxy.to(site.url) as proxy, opened(browser) as page:
        await page.clock.install()
        await sign_in(page, proxy.url, site.admin)
        await shows_depth(page, 0)
        proxy.strand()
        await world.push("orders", 2)
        await runs_until_depth(page, 2)


async def test_a_stream_whose_request_was_never_answered_is_asked_for_again(
    browser: Browser, site: Site, world: World
) -> None:
    await world.define("orders")
    async with TcpProxy.to(site.url) as proxy, opened(browser) as page:
        await page.clock.install()
        await sign_in(page, proxy.url, site.admin)
        await shows_depth(page, 0)
        proxy.blackhole()
        asked = proxy.swallowed(b"GET /api/v1/live")
        while not asked.is_set():
            await page.clock.run_for(1_000)
        proxy.strand()
        proxy.heal()
        await world.push("orders", 2)
        await runs_until_depth(page, 2)


async def test_a_token_that_expires_leads_back_to_the_door(browser: Browser, site: Site) -> None:
    async with Database(site.urls.postgres, max_size=2) as database:
        token = await new_token(database, site.environment, lifetime_ms=2_000)
    async with opened(browser) as page:
        await page.goto(f"{site.url}/#/sign-in?token={token}")
        await expect(page.get_by_role("alert")).to_contain_text("no longer accepted")
        await expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize(("earlier", "days", "rate"), [("yesterday", 1, "6.0/s"), ("last week", 7, "0.50/s")])
async def test_an_earlier_day_is_drawn_at_its_own_time_and_in_its_own_measure(
    page: Page, site: Site, world: World, earlier: str, days: int, rate: str
) -> None:
    """Thirty messages in the last five seconds of the span: 6/s there, 0.5/s where points are minutes."""
    await world.define("orders")
    end_ms = int(time.time() * 1_000) // MINUTE_MS * MINUTE_MS - MINUTE_MS
    await world.land("orders", depth=12, acked=10, at_ms=end_ms - 1_000)
    await world.land("orders", depth=7, acked=30, at_ms=end_ms - 1_000 - days * DAY_MS)
    span = "&".join(f"{name}={iso(ms)}" for name, ms in (("from", end_ms - 30 * MINUTE_MS), ("to", end_ms)))
    await page.goto(site.link("queue", "orders", query=span))
    await page.get_by_label("Compare with").select_option(earlier)
    depth, throughput = (page.get_by_role("img", name=name) for name in ("Depth:", "Throughput:"))
    await expect(depth).to_have_attribute("aria-label", f"Depth: depth 12, {earlier} 7")
    await expect(throughput).to_have_attribute(
        "aria-label", f"Throughput: in 2.0/s, out 0/s, done 2.0/s, {earlier} {rate}"
    )


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_paused_queue_is_not_said_to_grow(page: Page, world: World) -> None:
    await world.define("orders")
    await world.push("orders", 200)
    await world.broker.pause(world.site.environment.queue("orders"))
    await world.land("orders", depth=200, acked=0, enqueued=200)
    await expect(page.get_by_label("Health")).to_contain_text("orders is paused with 200 waiting.")
    await expect(page.get_by_label("Totals")).to_contain_text("0.11/s")
    await expect(page.get_by_label("Health")).to_contain_text("orders is paused with 200 waiting.")
