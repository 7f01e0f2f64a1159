"""What can be done from a page is done: schedules, endpoints, tokens, alerts, messages and bulk actions."""

from __future__ import annotations

import json
import time

import pytest
from playwright.async_api import Page, expect

from weir.control.database import Database
from weir.model.message import NewMessage
from weir.outbound.delivery_log import PostgresDeliveryLog

from .test_words import ALERT
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

GONE = "https://shop.example/hooks"


async def create_queue(page: Page, site: Site, name: str) -> None:
    """Through the API, so that PostgreSQL knows it, too."""
    scope = site.environment
    headers = {
        "Authorization": f"Bearer {site.admin}",
        "Weir-Organization": scope.organization,
        "Weir-Project": scope.project,
        "Weir-Environment": scope.environment,
    }
    made = await page.request.put(f"{site.url}/api/v1/queues/{name}", data={}, headers=headers)
    assert made.ok, await made.text()


async def test_a_schedule_is_made_changed_and_removed(page: Page, site: Site) -> None:
    await create_queue(page, site, "reports")
    await page.goto(site.link("schedules"))
    await expect(page.get_by_text("No schedule yet. Make one here")).to_be_visible()
    await page.get_by_role("button", name="New schedule…").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    await expect(dialog.locator("datalist option")).to_have_attribute("value", "reports")
    await dialog.get_by_label("Name").fill("nightly")
    await dialog.get_by_label("Queue").fill("reports")
    await dialog.get_by_label("Minute, hour").fill("0 3 * *")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.bad")).to_contain_text("five fields")
    await dialog.get_by_label("Minute, hour").fill("0 3 * * *")
    await dialog.get_by_label("Payload").fill("{not JSON")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.bad")).to_contain_text("The payload is not JSON")
    await dialog.get_by_label("Payload").fill('{"kind": "daily"}')
    await dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("region", name="Schedules", exact=True).get_by_role("row", name="nightly")
    await expect(row).to_contain_text("0 3 * * * UTC")
    await row.get_by_role("link", name="nightly").click()
    await page.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog", name="Change schedule")
    await expect(dialog.get_by_label("Payload")).to_have_value(json.dumps({"kind": "daily"}, indent=2))
    await dialog.get_by_label("It pushes").select_option("interval")
    await dialog.get_by_label("Every").fill("90")
    await dialog.get_by_role("button", name="Save").click()
    said = page.get_by_role("region", name="What it says", exact=True)
    await expect(said).to_contain_text("every 1 h 30 min")
    await page.get_by_role("button", name="Remove…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    await expect(page.get_by_text("No schedule yet")).to_be_visible()


async def test_a_schedule_of_the_spec_is_run_paused_and_resumed_and_not_changed(
    page: Page, site: Site, world: World
) -> None:
    await page.goto(site.link("specs"))
    await page.get_by_label("Spec", exact=True).fill(
        'app Shop { queue reports {} schedule Nightly { queue: reports, cron: "0 3 * * *" } }'
    )
    await page.get_by_role("button", name="Plan").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("region", name="Revisions", exact=True)).to_contain_text("spec.weir")
    await page.goto(site.link("schedules", "Nightly"))
    await expect(page.get_by_text("It belongs to the spec, which changes it.")).to_be_visible()
    await expect(page.get_by_role("button", name="Change…")).to_have_count(0)
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("None while it is paused.")).to_be_visible()
    await page.get_by_role("button", name="Run now").click()
    await world.wait_for_depth("reports", 1)
    await expect(page.get_by_role("region", name="Last runs", exact=True)).to_contain_text("requested")
    await page.get_by_role("button", name="Resume").click()
    ticks = page.get_by_role("region", name="Next ticks", exact=True)
    await expect(ticks.get_by_role("listitem")).to_have_count(10)


async def test_an_endpoint_that_answered_410_is_enabled(page: Page, site: Site) -> None:
    async with Database(site.urls.postgres, max_size=1) as database:
        log = PostgresDeliveryLog(database)
        now_ms = int(time.time() * 1_000)
        await log.disable(site.environment, GONE, now_ms=now_ms, reason="answered 410 Gone")
        await page.goto(site.link("channels"))
        disabled = page.get_by_role("region", name="Disabled endpoints", exact=True)
        await expect(disabled).to_contain_text("answered 410 Gone")
        await disabled.get_by_role("button", name="Enable").click()
        await expect(disabled).to_contain_text("None. An endpoint that answers 410")
        assert await log.list_disabled(site.environment) == []


async def test_a_token_is_rotated_and_the_audit_log_is_filtered(page: Page, site: Site) -> None:
    await page.goto(site.link("access"))
    tokens = page.get_by_role("region", name="Tokens", exact=True)
    await tokens.get_by_role("button", name="New token…").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("checkout")
    await page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    shown = page.get_by_role("dialog", name="The new token")
    first = await shown.locator("pre").text_content()
    await shown.get_by_role("button", name="Close").click()
    await tokens.get_by_role("row", name="checkout").get_by_role("button", name="Rotate…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Rotate it").click()
    await expect(shown.locator("pre")).to_contain_text("weir_")
    assert await shown.locator("pre").text_content() != first
    await shown.get_by_role("button", name="Close").click()
    log = page.get_by_role("region", name="Audit log", exact=True)
    await expect(log).to_contain_text("token.create")
    await log.get_by_label("Filter the audit log").fill("rotate")
    await expect(log).to_contain_text("token.rotate")
    await expect(log.get_by_role("row", name="token.rotate")).to_contain_text("test")
    await expect(log).not_to_contain_text("token.create")
    await log.get_by_label("Filter the audit log").fill("no such thing")
    await expect(log).to_contain_text("Nothing matches on this page.")


async def test_a_private_address_of_an_alert_channel_is_refused_with_the_setting_that_allows_it(
    page: Page, site: Site
) -> None:
    await page.goto(site.link("alerts"))
    channels = page.get_by_role("region", name="Channels", exact=True)
    await channels.get_by_role("button", name="New alert channel…").click()
    dialog = page.get_by_role("dialog", name="New alert channel")
    await dialog.get_by_label("Kind").select_option("webhook")
    await dialog.get_by_label("Name").fill("pager")
    await dialog.get_by_label("URL").fill("http://127.0.0.1:9/alerts")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.bad")).to_contain_text("WEIR_WORKER__ALLOWED_SUBNETS")
    await dialog.get_by_label("URL").fill("https://pager.example/alerts")
    await dialog.get_by_role("button", name="Save").click()
    row = channels.get_by_role("row", name="pager")
    await row.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog", name="Change alert channel")
    await dialog.get_by_label("URL").fill("https://other.example/alerts")
    await dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("other.example")


async def test_search_finds_messages_by_their_key(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    one = NewMessage(payload=b"{}", key="customer-7")
    await world.broker.enqueue(site.environment.queue("orders"), [one])
    await page.keyboard.press("/")
    await page.get_by_role("combobox", name="Search").fill("customer-7")
    await page.get_by_role("option", name="message, ready").click()
    await page.wait_for_url(f"**/message/{one.id}")


async def test_a_message_is_rescheduled_and_given_another_priority(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    (message,) = await world.push("orders", 1)
    await page.goto(site.link("message", message))
    await page.get_by_role("button", name="Reschedule…").click()
    await page.get_by_role("dialog").get_by_label("Minutes from now").fill("10")
    await page.get_by_role("dialog").get_by_role("button", name="Reschedule it").click()
    now = page.get_by_role("region", name="Now", exact=True)
    await expect(now).to_contain_text("scheduled")
    assert (await world.state("orders")).delayed == 1
    await page.get_by_role("button", name="Priority…").click()
    await page.get_by_role("dialog").get_by_label("Priority").fill("7")
    await page.get_by_role("dialog").get_by_role("button", name="Change its priority").click()
    await expect(page.locator(".toast.good")).to_contain_text("Its priority is changed")
    await expect(now).to_contain_text("7")


async def test_one_dead_letter_is_sent_back_from_its_dialog(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.kill("orders", payload=b"{}", error="poisoned")
    await page.goto(site.link("dead-letters"))
    await page.get_by_role("button", name="poisoned").click()
    await page.get_by_role("region", name="Letters", exact=True).get_by_role("button").first.click()
    await page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await expect(page.locator(".toast.good")).to_contain_text("Sent back to its queue")
    await world.wait_for_depth("orders", 1)


async def test_a_redrive_is_paused_resumed_and_cancelled(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    for number in range(20):
        await world.kill("orders", payload=b"{}", error=f"order {number} not found")
    await page.goto(site.link("dead-letters"))
    groups = page.get_by_role("region", name="Groups", exact=True)
    await expect(groups.get_by_role("cell", name="20", exact=True).first).to_be_visible()
    await page.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Queue").fill("orders")
    await dialog.get_by_label("Canary").fill("0")
    await dialog.get_by_label("Letters per second").fill("1")
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await dialog.get_by_role("button", name="Redrive 20").click()
    tasks = page.get_by_role("region", name="Tasks", exact=True)
    row = tasks.locator("tbody tr").filter(has_not_text="dry run")
    await row.get_by_role("button", name="Pause").click()
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Resume").click()
    await expect(row).to_contain_text("running")
    await row.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    await expect(row).to_contain_text("cancelled")
    assert (await world.state("orders")).depth < 20


@pytest.mark.parametrize(
    ("buttons", "verb", "said"),
    [(["Acknowledge"], "acknowledge", "acknowledged"), (["Resolve…", "Resolve it"], "resolve", "resolved")],
)
async def test_a_firing_alert_is_acknowledged_and_resolved(
    page: Page, site: Site, buttons: list[str], verb: str, said: str
) -> None:
    await page.route("**/api/v1/alerts?state=active*", lambda route: route.fulfill(json={"items": [ALERT]}))
    await page.route(f"**/api/v1/alerts/1/{verb}", lambda route: route.fulfill(json=ALERT))
    await page.goto(site.link("alerts"))
    async with page.expect_request(f"**/api/v1/alerts/1/{verb}") as asked:
        for button in buttons:
            await page.get_by_role("button", name=button).click()
    assert (await asked.value).method == "POST"
    await expect(page.locator(".toast.good")).to_contain_text(f"Payments back up: {said}")
