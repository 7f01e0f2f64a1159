"""By page what is by command: tokens, channels, alerts, silences, search, and a patch before it runs."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from .conftest import opened
from .world import Site, World

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_a_token_is_made_shown_once_and_ended(page: Page, site: Site) -> None:
    await page.goto(site.link("access"))
    tokens = page.get_by_role("region", name="Tokens", exact=True)
    await tokens.get_by_role("button", name="New token…").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("checkout")
    await page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    shown = page.get_by_role("dialog", name="The new token")
    await expect(shown.locator("pre")).to_contain_text("weir_")
    await shown.get_by_role("button", name="Close").click()
    row = tokens.get_by_role("row", name="checkout")
    await expect(row).to_contain_text("write")
    await row.get_by_role("button", name="End…").click()
    await page.get_by_role("dialog").get_by_role("button", name="End it").click()
    await expect(row).to_have_count(0)
    await tokens.get_by_label("ended ones too").check()
    await expect(row).to_contain_text("ended")
    await expect(page.get_by_role("region", name="Audit log", exact=True)).to_contain_text("token.revoke")


async def test_the_limit_of_the_environment_is_set_from_its_page(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await page.goto(site.link("access"))
    limit = page.get_by_role("region", name="Environment", exact=True)
    await limit.get_by_role("spinbutton").fill("7")
    await limit.get_by_role("button", name="Set").click()
    await expect(page.get_by_text("At most 7 at once")).to_be_visible()
    assert (await world.state("orders")).environment_limit == 7


async def test_a_reader_is_told_what_an_admin_would_see(page: Page, site: Site) -> None:
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_label("Token").fill(site.reader)
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(site.link("access"))
    await expect(page.get_by_role("region", name="Access", exact=True)).to_contain_text("shown to admins")


async def test_a_channel_is_made_changed_and_removed(page: Page, site: Site, world: World) -> None:
    await world.define("payments")
    await page.goto(site.link("channels"))
    await expect(page.get_by_text("No channel yet")).to_be_visible()
    await page.get_by_role("button", name="New channel…").click()
    dialog = page.get_by_role("dialog", name="New channel")
    await dialog.get_by_label("Id", exact=True).fill("order-events")
    await dialog.get_by_label("Id of consumer 1").fill("billing")
    await dialog.get_by_label("Queue of consumer 1").fill("payments")
    await dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("region", name="Channels", exact=True).get_by_role("row", name="order-events")
    await expect(row.get_by_role("link", name="payments")).to_be_visible()
    await row.get_by_role("button", name="Change…").click()
    await page.get_by_role("dialog", name="Change channel").get_by_label("Name", exact=True).fill("Orders")
    await page.get_by_role("dialog", name="Change channel").get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("Orders")
    await row.get_by_role("button", name="New token").first.click()
    await expect(page.get_by_role("dialog", name="The new token").locator("pre")).not_to_be_empty()
    await page.get_by_role("dialog", name="The new token").get_by_role("button", name="Close").click()
    await row.get_by_role("button", name="Remove…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    await expect(page.get_by_text("No channel yet")).to_be_visible()


async def test_an_alert_channel_is_made_tested_and_removed(page: Page, site: Site) -> None:
    await page.goto(site.link("alerts"))
    channels = page.get_by_role("region", name="Channels", exact=True)
    await channels.get_by_role("button", name="New alert channel…").click()
    dialog = page.get_by_role("dialog", name="New alert channel")
    await dialog.get_by_label("Name").fill("ops")
    await dialog.get_by_label("Webhook URL").fill("https://hooks.slack.com/services/T")
    await dialog.get_by_role("button", name="Save").click()
    row = channels.get_by_role("row", name="ops")
    await expect(row).to_contain_text("slack")
    sent = {"id": "n", "channel": "ops", "kind": "test", "created_at_ms": 1, "deliveries": []}
    answer = {"items": [{**sent, "state": "failed", "last_error": "the endpoint answered 403"}]}
    await page.route("**/ops/test", lambda route: route.fulfill(status=202, json={"notification_id": "n"}))
    await page.route("**/alert-notifications?*", lambda route: route.fulfill(json=answer))
    await row.get_by_role("button", name="Test").click()
    await expect(page.locator(".toast.bad")).to_contain_text("did not arrive: the endpoint answered 403")
    answer["items"][0] |= {"state": "delivered", "last_error": None}
    await row.get_by_role("button", name="Test").click()
    await expect(page.locator(".toast.good")).to_contain_text("The test arrived at ops")
    await row.get_by_role("button", name="Remove…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    await expect(channels).to_contain_text("No channel yet")


async def test_a_silence_is_made_and_ended(page: Page, site: Site) -> None:
    await page.goto(site.link("alerts"))
    silences = page.get_by_role("region", name="Silences", exact=True)
    await silences.get_by_role("button", name="New silence…").click()
    dialog = page.get_by_role("dialog", name="New silence")
    await dialog.get_by_label("Queue").fill("orders")
    await dialog.get_by_label("Why").fill("a deploy")
    await dialog.get_by_role("button", name="Silence").click()
    row = silences.get_by_role("row", name="every rule, orders")
    await expect(row).to_contain_text("a deploy")
    await row.get_by_role("button", name="End now").click()
    await expect(silences).to_contain_text("None.")


@pytest.mark.parametrize("keys", ["/", "Control+k"])
async def test_search_finds_queues_messages_and_pages_by_keyboard(
    page: Page, site: Site, world: World, keys: str
) -> None:
    await world.define("orders")
    (message,) = await world.push("orders", 1)
    await page.keyboard.press(keys)
    box = page.get_by_role("combobox", name="Search")
    await expect(box).to_be_focused()
    await box.fill("order")
    await expect(page.get_by_role("option", name="queue orders")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    # The keys close a search that is still open.
    await expect(box).to_have_count(0)
    await page.keyboard.press(keys)
    await box.fill(str(message))
    await expect(page.get_by_role("option", name="message, ready")).to_be_visible()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/message/{message}")
    await expect(box).to_have_count(0)
    await page.keyboard.press(keys)
    await box.fill("dead")
    await expect(page.get_by_role("option", name="page Dead letters")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(box).to_have_count(0)


async def test_a_slash_that_is_typed_is_a_slash(page: Page, world: World) -> None:
    await world.define("orders")
    search = page.get_by_role("searchbox", name="Search queues")
    await search.focus()
    await page.keyboard.type("a/b")
    await expect(search).to_have_value("a/b")
    await expect(page.get_by_role("combobox", name="Search")).to_have_count(0)


async def test_a_redrive_shows_what_its_patch_does_before_it_runs(
    page: Page, site: Site, world: World
) -> None:
    await world.define("orders")
    await world.kill("orders", payload=b'{"currency": "usd", "amount": 5}', error="unknown currency")
    await page.goto(site.link("dead-letters"))
    await expect(page.get_by_role("region", name="Groups", exact=True)).to_contain_text("unknown currency")
    await page.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator("datalist option")).to_have_attribute("value", "orders")
    await dialog.get_by_label("Group").select_option(label="1 dead: unknown currency")
    await dialog.get_by_label("Patch").fill('{"currency": payload.currency == "usd" ? "USD" : "EUR"}')
    await dialog.get_by_label("Canary").fill("0")
    await dialog.get_by_role("button", name="Dry run", exact=True).click()
    samples = dialog.get_by_role("region", name="Samples")
    await expect(samples.locator(".diff-remove")).to_contain_text('"usd"')
    await expect(samples.locator(".diff-add")).to_contain_text('"USD"')
    await dialog.get_by_role("button", name="Redrive 1").click()
    await world.wait_for_depth("orders", 1)


async def test_the_navigation_of_a_phone_is_closed_until_it_is_asked_for(
    browser: Browser, site: Site, world: World
) -> None:
    await world.define("orders")
    async with opened(browser, viewport={"width": 360, "height": 740}) as page:
        await page.goto(f"{site.url}/#/sign-in?token={site.admin}")
        await page.get_by_role("link", name="orders").wait_for()
        header = await page.locator("header.bar").bounding_box()
        assert header is not None
        assert header["height"] < 740 / 6
        await expect(page.get_by_role("link", name="Pipeline")).to_have_count(0)
        await page.get_by_role("button", name="Overview").click()
        await page.get_by_role("link", name="Pipeline").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Pipeline")
        await expect(page.get_by_role("link", name="Specs")).to_have_count(0)
        await page.goto(site.link("dead-letters"))
        await expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        header = await page.locator("header.bar").bounding_box()
        assert header is not None
        assert header["height"] < 60, "the name of a page makes a second line"


async def test_an_environment_is_made_from_the_list_of_them(page: Page, site: Site) -> None:
    await page.get_by_role("link", name="Weir", exact=True).click()
    await page.get_by_role("button", name="New environment…").click()
    dialog = page.get_by_role("dialog", name="New environment")
    await expect(dialog.get_by_label("Organization")).to_have_value(site.environment.organization)
    await dialog.get_by_label("Environment", exact=True).fill("staging")
    await dialog.get_by_role("button", name="Make it").click()
    await page.wait_for_url("**/shop/staging")
    await expect(page.get_by_role("heading", level=1)).to_have_text("staging")
    await expect(page.get_by_text("No queue yet. Create one")).to_be_visible()
