"""What a page shows, counts and sends belongs to one environment, one question and one form."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Route, expect

from weir.control.database import Database
from weir.control.tenants import Tenants
from weir.model.names import EnvironmentRef

from .answers import held, live_stream
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def staging(world: World) -> World:
    """An environment of the same name in another project, which the same token reaches."""
    here = world.site.environment
    other = EnvironmentRef(organization=here.organization, project="lab", environment=here.environment)
    async with Database(world.site.urls.postgres, max_size=1) as database:
        await Tenants(database).ensure(other)
    return replace(world, site=replace(world.site, environment=other))


async def letters_of(page: Page, site: Site) -> int:
    """How many dead letters the environment has, asked without the page."""
    scope = site.environment
    headers = {
        "Authorization": f"Bearer {site.admin}",
        "Weir-Organization": scope.organization,
        "Weir-Project": scope.project,
        "Weir-Environment": scope.environment,
    }
    found = await page.request.get(f"{site.url}/api/v1/dlq/groups", headers=headers)
    return sum(group["dead_count"] for group in (await found.json())["items"])


async def kill(world: World, count: int, *, error: str = "order not found") -> None:
    for _ in range(count):
        await world.kill("orders", payload=b"{}", error=error)


async def stored(page: Page, site: Site, count: int) -> None:
    for _ in range(200):
        if await letters_of(page, site) == count:
            return
        await page.wait_for_timeout(50)
    raise AssertionError(f"{await letters_of(page, site)} letters are stored, not {count}")


async def move(page: Page, link: str) -> None:
    """As a bookmark or an edited address does it: nothing is loaded again."""
    await page.evaluate("link => { location.hash = new URL(link).hash }", link)


async def open_purge(page: Page, site: Site) -> Locator:
    await page.goto(site.link("dead-letters"))
    await page.get_by_role("button", name="Purge…").click()
    return page.get_by_role("dialog", name="Delete dead letters")


async def test_what_was_counted_in_one_environment_is_not_deleted_in_another(
    page: Page, site: Site, world: World, staging: World
) -> None:
    await world.define("orders")
    await staging.define("orders")
    await kill(world, 2)
    await kill(staging, 3)
    await stored(page, site, 2)
    await stored(page, staging.site, 3)
    dialog = await open_purge(page, site)
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await expect(dialog.get_by_role("button", name="Delete 2")).to_be_enabled()
    await move(page, staging.site.link("dead-letters"))
    await expect(page.get_by_role("region", name="Groups", exact=True)).to_contain_text("3")
    await expect(page.locator("dialog[open]")).to_have_count(0)
    await page.get_by_role("button", name="Purge…").click()
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()


async def test_a_dry_run_is_followed_in_the_environment_that_began_it(
    page: Page, site: Site, world: World, staging: World
) -> None:
    await world.define("orders")
    await kill(world, 1)
    await stored(page, site, 1)
    asked: list[str] = []
    page.on(
        "request",
        lambda one: asked.append(one.headers.get("weir-project", "")) if "/dlq/tasks/" in one.url else None,
    )
    async with held(page, "**/api/v1/dlq/purges") as answer:
        dialog = await open_purge(page, site)
        await dialog.get_by_role("button", name="Dry run", exact=True).click()
        await answer.arrived()
        await move(page, staging.site.link("dead-letters"))
        await page.get_by_role("region", name="Tasks", exact=True).wait_for()
        await answer.release()
    await page.get_by_role("button", name="Purge…").click()
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()
    assert "lab" not in asked


async def test_rows_of_one_environment_never_stand_under_the_name_of_another(
    page: Page, site: Site, world: World, staging: World
) -> None:
    await world.define("orders")
    await page.goto(site.link())
    await page.get_by_role("link", name="orders").wait_for()
    async with held(page, "**/api/v1/live") as answer:
        await move(page, staging.site.link())
        await answer.arrived()
        await expect(page.get_by_role("link", name="orders")).to_have_count(0)
        await answer.release()
    await expect(page.get_by_text("No queue yet. Create one")).to_be_visible()


async def test_a_late_dry_run_of_something_else_enables_nothing(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await kill(world, 2)
    await kill(world, 3, error="card declined")
    await stored(page, site, 5)
    async with held(page, "**/api/v1/dlq/purges") as answer:
        dialog = await open_purge(page, site)
        await dialog.get_by_label("Expression").fill("error == 'card declined'")
        await dialog.get_by_role("button", name="Dry run", exact=True).click()
        await answer.arrived()
        await dialog.get_by_label("Expression").fill("")
        await answer.release()
        await page.wait_for_load_state("networkidle")
    button = dialog.get_by_role("button", name="Dry run first")
    await expect(button).to_be_disabled()
    await expect(dialog.get_by_text("match")).to_have_count(0)


async def test_a_dry_run_that_goes_on_enables_nothing(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await kill(world, 1)
    await stored(page, site, 1)
    looks = 0
    task: dict[str, Any] = {}

    async def still_running(route: Route) -> None:
        nonlocal looks, task
        looks += 1
        task = task or await (await route.fetch()).json()
        part = {"state": "running", "scanned": 20_000, "expected": 1_000_000, "matched": 500}
        await route.fulfill(json={**task, **part})

    # A minute of looks in a few seconds.
    await page.evaluate(
        "() => { const later = setTimeout; window.setTimeout = (act, ms) => later(act, ms === 250 ? 1 : ms) }"
    )
    dialog = await open_purge(page, site)
    await page.route("**/api/v1/dlq/purges", still_running)
    await page.route("**/api/v1/dlq/tasks/*", still_running)
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    async with asyncio.timeout(60):
        while looks < 250:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await expect(dialog.get_by_role("status").first).to_have_text("20,000 of 1,000,000 looked at")
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()


async def test_what_died_after_the_dry_run_stays(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await kill(world, 3)
    await stored(page, site, 3)
    dialog = await open_purge(page, site)
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await expect(dialog.get_by_role("button", name="Delete 3")).to_be_enabled()
    await kill(world, 4)
    await stored(page, site, 7)
    async with page.expect_request("**/api/v1/dlq/purges") as asked:
        await dialog.get_by_role("button", name="Delete 3").click()
    assert json.loads((await asked.value).post_data or "").keys() == {"from_dry_run"}
    await stored(page, site, 4)


async def test_a_queue_that_is_gone_does_not_show_the_numbers_of_the_one_before(
    page: Page, site: Site, world: World
) -> None:
    await world.define("big")
    await world.push("big", 77)
    await page.goto(site.link("queue", "big"))
    await expect(page.get_by_role("region", name="Now", exact=True)).to_contain_text("77")
    await move(page, site.link("queue", "gone"))
    await expect(page.get_by_role("alert").first).to_contain_text("gone")
    await expect(page.get_by_role("region", name="Now", exact=True)).to_have_count(0)
    await expect(page.get_by_role("button", name="Pause")).to_be_disabled()


async def test_two_clicks_on_pause_pause_once(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.goto(site.link("queue", "orders"))
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url.rsplit("/", 1)[1]) if one.method == "POST" else None)
    button = page.get_by_role("button", name="Pause")
    await expect(button).to_be_enabled()
    box = await button.bounding_box()
    assert box
    where = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.click(*where)
    await page.get_by_role("button", name="Resume").wait_for()
    await page.mouse.click(*where)
    await expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    assert asked == ["pause"]
    assert (await world.state("orders")).paused


async def test_a_stream_that_was_refused_is_asked_for_again_and_called_unknown(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await page.route("**/api/v1/live", lambda route: route.fulfill(status=404, json={"detail": "not here"}))
    await page.goto(site.link("wall"))
    await page.reload()
    await expect(page.get_by_role("alert").last).to_contain_text("not here")
    await page.unroute("**/api/v1/live")
    await expect(page.locator(".wall-verdict")).to_have_text("All queues keep up.")
    assert await page.get_by_text("stopped answering").count() == 0


async def test_a_stream_that_is_refused_later_makes_the_verdict_unknown(
    page: Page, site: Site, world: World
) -> None:
    stream = live_stream({"name": "orders", "depth": 0})
    await page.route("**/api/v1/live", stream)
    await page.goto(site.link("wall"))
    await page.reload()
    verdict = page.locator(".wall-verdict")
    await expect(verdict).to_have_text("All queues keep up.")
    await page.unroute("**/api/v1/live", stream)
    await page.route("**/api/v1/live", lambda route: route.fulfill(status=429, json={"detail": "too many"}))
    await expect(verdict).to_contain_text("Not known")
    await expect(page.get_by_text("stopped answering")).to_be_visible()


async def test_without_alerts_nobody_says_that_all_is_well(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.route("**/api/v1/alerts?*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    await page.goto(site.link())
    await page.reload()
    health = page.get_by_role("status", name="Health")
    await expect(health).to_have_text("Not known: the alerts cannot be read.")
    await expect(page.get_by_text("stopped answering")).to_be_visible()
    await page.goto(site.link("wall"))
    await expect(page.locator(".wall-figures div").filter(has_text="alerts")).to_contain_text("–")


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ({"running": 4, "limit": 4}, "All queues keep up."),
        ({"paused": True}, "orders is paused with 6 waiting."),
        ({}, "orders has 6 waiting, the oldest for 1 min 5 s, and no worker takes them."),
    ],
)
async def test_only_a_queue_without_workers_is_said_to_have_none(
    page: Page, site: Site, queue: dict[str, Any], said: str
) -> None:
    stream = live_stream({"name": "orders", "depth": 6, "oldest_age_ms": 65_000, **queue})
    await page.route("**/api/v1/live", stream)
    await page.goto(site.link())
    await page.reload()
    await expect(page.get_by_role("status", name="Health")).to_have_text(said)
