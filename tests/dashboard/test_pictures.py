"""Charts with bands and marks, one cursor over all of them, deaths over time, and the wall."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Page, expect

from .conftest import opened
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_a_point_under_the_cursor_is_told_on_every_chart_with_its_band(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    bucket_ms = (int(time.time() * 1_000) - 300_000) // 5_000 * 5_000
    for after_ms, deep in ((1_000, 10), (3_000, 30)):
        await world.land("orders", depth=deep, acked=30, at_ms=bucket_ms + after_ms)
    start, end = (
        datetime.fromtimestamp((bucket_ms + shift) / 1_000, UTC).isoformat().replace("+00:00", "Z")
        for shift in (-10_000, 15_000)
    )
    await page.goto(site.link("queue", "orders", query=f"from={start}&to={end}"))
    await expect(page.get_by_label("Verdict")).to_be_visible()
    depth = page.locator("figure", has_text="Depth")
    wait = page.locator("figure", has_text="Wait")
    await expect(depth.locator(".pointed")).to_have_count(0)
    # Five points, the third of which is the bucket: it stands in the middle of the plot.
    await depth.locator(".u-over").hover()
    await expect(depth.locator(".legend")).to_contain_text("depth 20 (10 to 30)")
    told = await depth.locator(".pointed").inner_text()
    await expect(wait.locator(".pointed")).to_have_text(told)
    await page.mouse.move(0, 0)
    await expect(wait.locator(".pointed")).to_have_count(0)


async def test_what_is_marked_from_a_page_is_on_every_chart_and_in_the_list(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await world.land("orders", depth=3, acked=9)
    await page.goto(site.link("queue", "orders", query="period=30m"))
    happened = page.get_by_role("region", name="Marks", exact=True)
    await expect(happened).to_contain_text("Nothing is marked in this period")
    await happened.get_by_label("Annotation").fill("v42 out")
    await happened.get_by_role("button", name="Mark it now").click()
    await expect(happened.get_by_role("listitem")).to_contain_text("annotation: v42 out")
    await page.get_by_role("button", name="Pause").click()
    await page.reload()
    await expect(happened).to_contain_text("pause: orders paused, goes on")
    log = page.get_by_role("region", name="Audit log", exact=True)
    await page.goto(site.link("access"))
    await expect(log).to_contain_text("annotation.create")


async def test_the_page_of_dead_letters_shows_deaths_over_time(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.land("orders", depth=0, acked=9, dead=4)
    await page.goto(site.link("dead-letters", query="period=30m"))
    deaths = page.get_by_role("region", name="Deaths over time")
    await expect(deaths).to_contain_text("4 deaths in this period")
    await page.goto(site.link("dead-letters", query="period=30m&queue=orders"))
    await expect(deaths).to_contain_text("4 deaths in this period")


@pytest.mark.parametrize("width", [360, 1920])
async def test_the_wall_says_in_one_look_how_it_is(
    browser: Browser, site: Site, world: World, width: int
) -> None:
    await world.define("orders")
    await world.push("orders", 3)
    async with opened(browser, viewport={"width": width, "height": 900}) as page:
        await page.goto(f"{site.url}/#/sign-in?token={site.admin}")
        await page.get_by_role("link", name="Wall page").click()
        await expect(page.get_by_role("status").first).to_have_text("All queues keep up.")
        await expect(page.get_by_role("list", name="Queues")).to_contain_text("orders")
        await expect(page.get_by_role("navigation")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_queue_that_is_held_back_is_amber_on_the_wall_and_an_empty_one_is_not(
    page: Page, site: Site, world: World
) -> None:
    for name in ("orders", "mails"):
        await world.define(name)
        await world.broker.pause(site.environment.queue(name))
    await world.push("orders", 3)
    await page.goto(site.link("wall"))
    tiles = page.get_by_role("list", name="Queues").get_by_role("listitem")
    await expect(tiles.filter(has_text="orders")).to_have_class("warn")
    await expect(tiles.filter(has_text="mails")).to_have_class("good")


async def test_only_a_queue_with_messages_drains(page: Page, site: Site, world: World) -> None:
    for name in ("orders", "mails"):
        await world.define(name)
        await world.land(name, depth=0, acked=5)
    await world.push("orders", 3)
    await page.goto(site.link())
    rows = page.get_by_role("row")
    # What was measured is a minute old, and knows nothing of these three messages.
    await expect(rows.filter(has_text="orders").get_by_role("cell").last).to_have_text("–")
    await expect(rows.filter(has_text="mails").get_by_role("cell").last).to_have_text("empty")
    await page.goto(site.link("queue", "mails"))
    now = page.get_by_role("region", name="Now", exact=True)
    await expect(now.locator(".stat", has_text="Oldest waits")).to_contain_text("–")
