"""The pages in a real browser, against a real server."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens

from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_the_overview_says_in_one_sentence_how_the_environment_is(page: Page, world: World) -> None:
    await world.define("orders", concurrency=4)
    await world.push("orders", 3)
    await expect(
        page.get_by_role("region", name="Queues", exact=True).get_by_role("link", name="orders")
    ).to_be_visible()
    await expect(page.get_by_role("row", name="orders")).to_contain_text("3")
    await expect(page.get_by_label("Health")).to_contain_text("All queues keep up")


async def test_queues_can_be_searched_and_sorted_and_the_address_keeps_it(page: Page, world: World) -> None:
    for name, depth in (("alpha", 1), ("beta", 5), ("gamma", 3)):
        await world.define(name)
        await world.push(name, depth)
    await expect(page.get_by_role("row", name="beta")).to_contain_text("5")
    links = page.get_by_role("region", name="Queues", exact=True).locator("tbody a")
    await expect(links).to_have_text(["beta", "gamma", "alpha"])
    await page.get_by_role("button", name="Queue", exact=True).click()
    await expect(links).to_have_text(["gamma", "beta", "alpha"])
    await page.get_by_role("searchbox", name="Search queues").fill("ga")
    await expect(links).to_have_text(["gamma"])
    await page.reload()
    await expect(links).to_have_text(["gamma"])


async def test_a_queue_is_paused_resumed_and_pushed_to_from_its_page(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await page.goto(site.link("queue", "orders"))
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_label("Now")).to_contain_text("paused")
    assert (await world.state("orders")).paused
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_label("Now")).to_contain_text("open")
    await page.get_by_role("button", name="Push a test message").click()
    await page.get_by_label("Payload (JSON)").fill("{not json")
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("This is not JSON.")).to_be_visible()
    await page.get_by_label("Payload (JSON)").fill('{"n": 1}')
    await page.get_by_role("button", name="Push", exact=True).click()
    await expect(page.get_by_text("Pushed one message")).to_be_visible()
    assert (await world.state("orders")).depth == 1


async def test_charts_show_what_was_measured_and_zoom_into_the_address(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await world.land("orders", depth=12, acked=30)
    await page.goto(site.link("queue", "orders", query="period=30m"))
    chart = page.get_by_role("img", name="Depth")
    # Other tests of this server leave events that nobody lands: then what it is now is not known.
    await expect(chart).to_have_attribute("aria-label", re.compile("^Depth: depth (12|–)$"))
    # It pushes the charts down when it comes.
    await expect(page.get_by_label("Verdict")).to_be_visible()
    box = await chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=5)
    await page.mouse.up()
    await page.wait_for_url("**from=*&to=*")


async def test_hostile_names_and_payloads_are_shown_and_never_run(
    page: Page, site: Site, world: World
) -> None:
    name = '<img src=x onerror="window.__pwned=1">'
    await world.define(name)
    await world.kill(
        name, payload=b'{"a": "<script>window.__pwned=1</script>"}', error="<b onclick=x>boom</b>"
    )
    await expect(page.get_by_role("link", name=name)).to_be_visible()
    await page.goto(site.link("dead-letters"))
    await page.get_by_role("button", name="boom").click()
    await page.get_by_role("region", name="Letters", exact=True).get_by_role("button").first.click()
    await expect(page.get_by_role("dialog")).to_contain_text("<script>window.__pwned=1</script>")
    assert await page.evaluate("window.__pwned") is None


async def test_what_stands_below_the_chart_of_deaths_stays_where_it_is_when_the_chart_comes(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await world.kill("orders", payload=b"{}", error="boom")
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route("**/queue-metrics?*", hold)
    await page.goto(site.link("dead-letters"))
    button = page.get_by_role("button", name="boom")
    await expect(button).to_be_visible()
    before = await button.bounding_box()
    released.set()
    await expect(page.get_by_role("heading", name="Deaths: not known in this period")).to_be_visible()
    after = await button.bounding_box()
    assert before is not None
    assert after == before


async def test_a_redrive_goes_from_dry_run_to_done(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    for number in range(3):
        await world.kill("orders", payload=b"{}", error=f"order {number} not found")
    await page.goto(site.link("dead-letters"))
    groups = page.get_by_role("region", name="Groups", exact=True)
    # A cell of its own: the times in the other cells have digits too.
    await expect(groups.get_by_role("cell", name="3", exact=True).first).to_be_visible()
    await page.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Queue").fill("orders")
    await dialog.get_by_label("Canary").fill("0")
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await expect(dialog).to_contain_text("3 letters match.")
    await dialog.get_by_role("button", name="Redrive 3").click()
    await expect(page.get_by_role("region", name="Tasks", exact=True)).to_contain_text("completed")
    await world.wait_for_depth("orders", 3)


async def test_a_purge_asks_first_and_takes_only_what_matches(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.kill("orders", payload=b"{}", error="boom", attempts=1)
    await page.goto(site.link("dead-letters"))
    await expect(page.get_by_role("region", name="Groups", exact=True)).to_contain_text("boom")
    await page.get_by_role("button", name="Purge…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Queue").fill("orders")
    await expect(dialog.get_by_role("button", name="Dry run first")).to_be_disabled()
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await dialog.get_by_role("button", name="Delete 1").click()
    await expect(page.get_by_role("region", name="Groups", exact=True)).to_contain_text("Nothing has died")


async def test_a_reader_sees_no_buttons_that_change_things(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token").fill(site.reader)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("link", name="orders").click()
    await expect(page.get_by_label("Now")).to_be_visible()
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)


async def test_a_token_that_no_longer_holds_leads_back_to_the_door(page: Page, site: Site) -> None:
    await page.evaluate("sessionStorage.setItem('weir.token', 'weir_x_y_z')")
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("no longer accepted")
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_numbers_that_are_old_say_so_until_the_server_answers_again(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await page.goto(site.link("operations"))
    await expect(page.get_by_label("Pressure")).to_be_visible()
    await page.route("**/api/**", lambda route: route.abort())
    await expect(page.get_by_role("alert").first).to_contain_text("stopped answering")
    await page.unroute("**/api/**")
    await expect(page.get_by_text("stopped answering")).to_have_count(0)


@pytest.mark.parametrize(
    "name", ["workers", "operations", "alerts", "channels", "schedules", "pipeline", "specs", "dead-letters"]
)
async def test_every_page_has_an_empty_state_that_teaches(page: Page, site: Site, name: str) -> None:
    await page.goto(site.link(name))
    await expect(page.get_by_role("main").get_by_role("heading", level=1)).to_be_visible()
    await expect(page.locator(".empty, .verdict").first).to_be_visible()
    await expect(page.locator(".failed")).to_have_count(0)
    await expect(page.get_by_label("every environment")).to_have_count(0)


async def test_the_pages_say_that_metrics_are_off_and_why(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.land("orders", depth=3, acked=1)
    switch = MetricsSwitch(RedisConnection(url=site.urls.redis), shards=world.broker.shards)
    try:
        await switch.switch(on=False, by="anna", reason="a load test")
        await page.goto(site.link("pipeline"))
        told = page.get_by_label("Metrics are off")
        await expect(told).to_contain_text("by anna: a load test")
        await expect(told).to_contain_text("shards 0, 1, 2, 3")
        await page.goto(site.link("queue", "orders"))
        reasons = page.get_by_label("Why parts are unknown")
        await expect(reasons).to_contain_text("metrics are switched off since 20")
        await switch.switch(on=True, by="anna", reason="")
        await page.goto(site.link("pipeline"))
        await expect(page.get_by_role("region", name="Streams")).to_be_visible()
        await expect(told).to_have_count(0)
    finally:
        await switch.switch(on=True, by="anna", reason="")
        await switch.aclose()


async def test_an_operator_may_do_what_an_admin_may(page: Page, site: Site, world: World) -> None:
    await world.define("imports")
    await world.kill("imports", payload=b"{}", error="poisoned")
    async with Database(site.urls.postgres, max_size=1) as database:
        token, _ = await Tokens(database).create(NewToken(name="op", role=Role.OPERATOR, organization=None))
    await page.goto(f"{site.url}/#/sign-in?token={token}")
    await page.get_by_role("dialog").get_by_role("button", name="Sign in with it").click()
    await page.wait_for_function("!location.hash.includes('sign-in')")
    await page.goto(site.link("dead-letters"))
    await expect(page.get_by_role("button", name="Purge…")).to_be_visible()
    await page.get_by_role("button", name="poisoned").click()
    await page.get_by_role("region", name="Letters", exact=True).get_by_role("button").first.click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete…").click()
    await page.get_by_role("button", name="Delete it", exact=True).click()
    await expect(page.locator(".toast.good")).to_contain_text("Deleted")
    await page.goto(site.link("specs"))
    await expect(page.get_by_role("button", name="Plan")).to_be_visible()
    await page.goto(site.link("workers"))
    await expect(page.get_by_role("heading", level=1)).to_have_text("Processes")
    async with page.expect_response(lambda one: "/workers?all_environments=true" in one.url) as answered:
        await page.get_by_label("every environment").check()
    assert (await answered.value).ok


async def test_a_rule_is_written_changed_and_removed(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.goto(site.link("alerts"))
    await page.get_by_role("button", name="New rule…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("orders back up")
    await dialog.get_by_label("Queue").fill("no such queue")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.bad")).to_contain_text("no such queue")
    await dialog.get_by_label("Queue").fill("orders")
    await dialog.get_by_role("button", name="Save").click()
    rules = page.get_by_role("region", name="Rules", exact=True)
    await expect(rules).to_contain_text("backlog over 1,000 messages for 5 minutes")
    await rules.get_by_role("button", name="Change…").click()
    await page.get_by_role("dialog").get_by_label("Threshold").fill("50")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(rules).to_contain_text("backlog over 50 messages for 5 minutes")
    await rules.get_by_role("button", name="Change…").click()
    await page.get_by_role("dialog").get_by_label("Metric").select_option("oldest_age")
    await page.get_by_role("dialog").get_by_label("Threshold").fill("42.6")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(rules).to_contain_text("age of the oldest message over 42.6 s for 5 minutes")
    await rules.get_by_role("button", name="Change…").click()
    await expect(page.get_by_role("dialog").get_by_label("Threshold")).to_have_value("42.6")
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await rules.get_by_role("button", name="Remove…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    await expect(rules).to_contain_text("No rule yet")


async def test_a_spec_is_planned_and_applied_from_its_page(page: Page, site: Site, world: World) -> None:
    await page.goto(site.link("specs"))
    await page.get_by_label("Spec", exact=True).fill("app Shop { queue orders { concurrency: 3 } }")
    await expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    await page.get_by_role("button", name="Plan").click()
    await expect(page.get_by_label("Change", exact=True)).to_contain_text("queue orders")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("region", name="Revisions", exact=True)).to_contain_text("spec.weir")
    assert (await world.state("orders")).limit == 3


async def test_the_page_of_specs_says_which_webhook_has_no_secret(page: Page, site: Site) -> None:
    await page.goto(site.link("specs"))
    await page.get_by_label("Spec", exact=True).fill(
        "app Shop { queue orders {} webhook Paid { queue: orders, "
        'verify stripe { secret: "NOT_SET_HERE" } } }'
    )
    await page.get_by_role("button", name="Plan").click()
    await page.get_by_role("button", name="Apply").click()
    webhooks = page.get_by_role("region", name="Webhooks", exact=True)
    row = webhooks.get_by_role("row", name="Paid")
    await expect(row).to_contain_text("stripe")
    await expect(row).to_contain_text("every request is refused; set NOT_SET_HERE with weir secret set")
