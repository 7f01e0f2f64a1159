"""A form sends back what it got, plus what its reader changed; numbers are sent as they were typed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from .answers import held
from .test_actions import create_queue
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HUGE = '{"id": 9007199254740993, "price": 1.0, "far": 1e400}'


async def call(page: Page, site: Site, method: str, path: str, data: str | None = None) -> Any:
    scope = site.environment
    headers = {
        "Authorization": f"Bearer {site.admin}",
        "Weir-Organization": scope.organization,
        "Weir-Project": scope.project,
        "Weir-Environment": scope.environment,
        "Content-Type": "application/json",
    }
    answer = await page.request.fetch(
        f"{site.url}/api/v1/{path}", method=method, headers=headers, data=data or ""
    )
    assert answer.ok, await answer.text()
    return answer


async def test_a_rule_that_is_opened_and_saved_stays_as_it_is(page: Page, site: Site, world: World) -> None:
    rule = {
        "name": "slow",
        "metric": "latency_p95",
        "operator": ">",
        "threshold": 12_345.678,
        "clear_threshold": 40,
        "window_ms": 31_001,
        "cooldown_ms": 7_001,
        "auto_resolve": False,
        "enabled": False,
    }
    made = await (await call(page, site, "POST", "alert-rules", json.dumps(rule))).json()
    await page.goto(site.link("alerts"))
    await page.get_by_role("region", name="Rules", exact=True).get_by_role("button", name="Change…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.good")).to_contain_text("slow saved")
    (after,) = (await (await call(page, site, "GET", "alert-rules")).json())["items"]
    assert {**after, "updated_at_ms": None} == {**made, "updated_at_ms": None}


async def test_a_schedule_that_is_opened_and_saved_stays_as_it_is(
    page: Page, site: Site, world: World
) -> None:
    await create_queue(page, site, "reports")
    body = (
        '{"name": "nightly", "queue": "reports", "every_ms": 90001, "missed": "all", "overlap": "skip",'
        ' "payload": {"id": 9007199254740993, "price": 1.0}}'
    )
    await call(page, site, "POST", "schedules", body)
    before = await (await call(page, site, "GET", "schedules/nightly")).text()
    await page.goto(site.link("schedules", "nightly"))
    said = page.get_by_role("region", name="What it says", exact=True)
    await expect(said).to_contain_text("9007199254740993")
    await page.get_by_role("button", name="Change…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.good")).to_contain_text("nightly saved")
    after = await (await call(page, site, "GET", "schedules/nightly")).text()
    kept = ("queue", "every_ms", "cron", "timezone", "missed", "overlap", "payload", "paused")
    assert {name: json.loads(after)[name] for name in kept} == {
        name: json.loads(before)[name] for name in kept
    }
    for number in ("9007199254740993", "1.0"):
        assert number in after


async def test_a_channel_that_is_opened_and_saved_stays_as_it_is(
    page: Page, site: Site, world: World
) -> None:
    await create_queue(page, site, "payments")
    consumers = [{"id": "billing", "name": "Billing", "queue": "payments"}]
    await call(page, site, "PUT", "channels/orders", json.dumps({"name": "Orders", "consumers": consumers}))
    before = await (await call(page, site, "GET", "channels")).json()
    await page.goto(site.link("channels"))
    await page.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog", name="Change channel")
    await dialog.get_by_label("Id of consumer 1").fill("")
    await dialog.get_by_role("button", name="Save").click()
    assert await dialog.get_by_label("Id of consumer 1").evaluate("box => box.validity.valueMissing")
    await dialog.get_by_label("Id of consumer 1").fill("billing")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.locator(".toast.good")).to_contain_text("Orders saved")
    assert await (await call(page, site, "GET", "channels")).json() == before


async def test_a_test_message_is_pushed_as_it_was_typed_and_only_once(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await page.goto(site.link("queue", "orders"))
    await page.get_by_role("button", name="Push a test message").click()
    dialog = page.get_by_role("dialog", name="Push to orders")
    await dialog.get_by_label("Payload").fill(HUGE.replace(', "far": 1e400', ""))
    bodies: list[str] = []
    page.on("request", lambda one: bodies.append(one.post_data or "") if one.url.endswith("/push") else None)
    async with held(page, "**/api/v1/push") as answer:
        await dialog.get_by_role("button", name="Push").click()
        await dialog.get_by_role("button", name="Push").dispatch_event("click")
        await answer.arrived()
        await answer.release()
    await world.wait_for_depth("orders", 1)
    await expect(page.locator("dialog[open]")).to_have_count(0)
    assert len(bodies) == 1
    assert '"payload":{"id": 9007199254740993, "price": 1.0}' in bodies[0]


async def test_an_environment_that_exists_keeps_its_limit(page: Page, site: Site) -> None:
    name = site.environment.environment
    await call(page, site, "PUT", f"environments/{name}", '{"concurrency": 5}')
    made = await (await call(page, site, "PUT", f"environments/{name}", "{}")).json()
    assert made["concurrency"] == 5
    await page.goto(f"{site.url}/#/")
    await page.get_by_role("button", name="New environment…").click()
    await page.get_by_role("dialog").get_by_label("Environment").fill(name)
    await page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("dialog").locator(".toast.bad")).to_have_text(f"{name} exists already")


async def test_a_limit_that_was_set_is_shown_at_once(page: Page, site: Site) -> None:
    await page.goto(site.link("access"))
    limit = page.get_by_label("Messages that may be leased at once")
    await limit.fill("50")
    await page.get_by_role("button", name="Set").click()
    await expect(page.locator(".toast.good")).to_contain_text("At most 50")
    await page.goto(site.link("queue", "orders"))
    await page.goto(site.link("access"))
    await expect(limit).to_have_value("50")


async def test_what_goes_wrong_in_a_dialog_is_said_in_it(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.goto(site.link("dead-letters"))
    await page.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog", name="Send dead letters back")
    await dialog.get_by_label("Expression").fill("payload.")
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    await expect(dialog.locator(".toast.bad")).to_contain_text("is not a CEL expression")
    await expect(page.locator(".toast.bad")).to_have_count(1)


async def test_a_secret_is_shown_although_its_page_was_left(page: Page, site: Site) -> None:
    await page.goto(site.link("access"))
    await page.get_by_role("button", name="New token…").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("checkout")
    async with held(page, "**/api/v1/tokens") as answer:
        await page.get_by_role("dialog").get_by_role("button", name="Make it").click()
        await answer.arrived()
        await page.evaluate("link => { location.hash = new URL(link).hash }", site.link("specs"))
        await page.get_by_role("heading", name="Specs").wait_for()
        await answer.release()
    await expect(page.get_by_role("dialog", name="The new token").locator("pre")).to_contain_text("weir_")


async def test_a_spec_that_somebody_changed_since_the_plan_is_not_overwritten(page: Page, site: Site) -> None:
    await page.goto(site.link("specs"))
    await page.get_by_label("Spec", exact=True).fill("app Shop { queue orders {} }")
    await page.get_by_role("button", name="Plan").click()
    await expect(page.get_by_role("button", name="Apply")).to_be_enabled()
    theirs = {"source": "app Shop { queue orders {} queue refunds {} }", "file": "spec.weir"}
    await call(page, site, "PUT", "spec", json.dumps(theirs))
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator(".toast.bad")).to_contain_text("changed")
    queues = await (await call(page, site, "GET", "queues")).json()
    assert {queue["name"] for queue in queues["items"]} == {"orders", "refunds"}


async def test_a_letter_is_deleted_only_after_a_question(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.kill("orders", payload=HUGE.replace("1e400", "2").encode(), error="poisoned")
    await page.goto(site.link("dead-letters"))
    await page.get_by_role("button", name="poisoned").click()
    await page.get_by_role("region", name="Letters", exact=True).get_by_role("button").first.click()
    await expect(page.get_by_role("dialog")).to_contain_text('"id": 9007199254740993')
    await expect(page.get_by_role("dialog")).to_contain_text('"price": 1.0')
    async with page.expect_request(lambda one: one.method == "DELETE") as asked:
        await page.get_by_role("button", name="Delete…").click()
        await page.get_by_role("button", name="Delete it", exact=True).click()
    assert "force" not in (await asked.value).url
    await expect(page.locator(".toast.good")).to_have_text("Deleted")


async def test_a_late_refusal_of_the_old_token_does_not_end_the_new_session(page: Page, site: Site) -> None:
    late = asyncio.Event()

    async def refuse_the_old_one_late(route: Route) -> None:
        if site.reader not in (await route.request.all_headers())["authorization"]:
            await route.continue_()
            return
        await late.wait()
        await route.fulfill(status=401, json={"detail": "ended"})

    await page.goto(site.link())
    await page.get_by_role("button", name="Sign out").click()
    await page.route("**/api/v1/me", refuse_the_old_one_late)
    await page.get_by_label("Token").fill(site.reader)
    async with page.expect_request("**/api/v1/me") as asked:
        await page.get_by_role("button", name="Sign in").click()
    await asked.value
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token").fill(site.admin)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("heading", name="prod").wait_for()
    async with page.expect_response(lambda one: one.status == 401):
        late.set()
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
