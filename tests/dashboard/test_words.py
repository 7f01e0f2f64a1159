"""The pages speak as people do: units, plurals, now beside the usual, and no alarm without a reason."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import Page, Route, expect

from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_a_queue_in_which_nothing_waits_is_not_amber(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await world.broker.pause(site.environment.queue("orders"))
    await page.goto(site.link("queue", "orders"))
    verdict = page.get_by_label("Verdict")
    await expect(verdict).to_contain_text("the queue is paused; nothing waits for `resume`")
    await expect(verdict).to_have_class("panel verdict ")
    await world.push("orders", 1)
    await page.reload()
    await expect(verdict).to_contain_text("1 message waits for `resume`")
    await expect(verdict).to_have_class("panel verdict warn")


async def test_evidence_is_a_table_of_now_and_usual(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    await page.route("**/explain", lambda route: explained(route, SLOW))
    await page.goto(site.link("queue", "orders"))
    verdict = page.get_by_label("Verdict")
    await expect(verdict).to_contain_text("handlers take 3.5 s, usually 0.2 s")
    row = verdict.get_by_role("row", name="a handler takes")
    await expect(row.get_by_role("cell")).to_have_text(["3.5 s", "0.2 s"])
    await expect(verdict.get_by_role("columnheader")).to_have_text(["What", "now", "usually"])


async def test_a_queue_that_recovered_says_since_when(page: Page, site: Site, world: World) -> None:
    await world.define("orders")
    now_ms = int(time.time() * 1_000)
    for ago_s, age_ms in ((300, 90_000), (240, 0)):
        await world.land("orders", depth=0, acked=5, at_ms=now_ms - ago_s * 1_000, oldest_age_ms=age_ms)
    await page.goto(site.link("queue", "orders"))
    verdict = page.get_by_label("Verdict")
    await expect(verdict).to_contain_text("messages had waited up to 1 min 30 s")
    await expect(verdict).to_contain_text("recovered 4 min")
    await expect(verdict).to_have_class("panel verdict ")


async def test_a_firing_alert_says_its_rule_in_words(page: Page, site: Site) -> None:
    await page.route("**/api/v1/alerts?state=active*", lambda route: route.fulfill(json={"items": [ALERT]}))
    await page.goto(site.link("alerts"))
    fires = page.get_by_role("region", name="Active alerts")
    await expect(fires).to_contain_text("p95 wait over 30 s for 1 minute. Now it is 42.6 s.")
    await expect(fires.get_by_role("row", name="a handler takes")).to_contain_text("0.2 s")


async def test_a_pipeline_that_never_ran_does_not_claim_that_everything_landed(
    page: Page, site: Site
) -> None:
    await page.goto(site.link("pipeline"))
    gaps = page.get_by_role("region", name="Gaps", exact=True)
    await expect(gaps).to_contain_text("the pipeline has never run: nothing is on the charts yet")
    await expect(gaps).not_to_contain_text("every event")


async def explained(route: Route, document: dict[str, object]) -> None:
    await route.fulfill(json=document)


TABLE = [{"what": "a handler takes", "now": "3.5 s", "usual": "0.2 s"}]
SLOW = {
    "cause": "slow_handlers",
    "summary": "handlers take 3.5 s, usually 0.2 s",
    "evidence_table": TABLE,
    "outlook": "does not drain",
    "backed_up": True,
    "recovered": None,
}
ALERT = {
    "id": "1",
    "rule_name": "Payments back up",
    "queue": "payments",
    "state": "firing",
    "unknown_since_ms": None,
    "fired_at_ms": 1_790_000_000_000,
    "resolved_at_ms": None,
    "cause": "slow_handlers",
    "summary": "handlers take 3.5 s, usually 0.2 s",
    "evidence_table": TABLE,
    "condition": "p95 wait over 30 s for 1 minute",
    "metric_words": "p95 wait",
    "value_text": "42.6 s",
    "acknowledged_at_ms": None,
    "acknowledged_by": None,
}
