"""Takes the pictures of the README from a running demo.

./weir demo                                  # in one terminal; an incident makes the best picture
.venv/bin/python docs/screenshots.py LINK    # in another, with the sign-in link that the demo printed
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

FOLDER = Path(__file__).parent / "images"
SCOPE = "#/e/acme/shop/production"
WIDTH = 1200
PATIENCE_MS = 120_000


def overview_is_full(page: Page) -> None:
    """Every queue has its line, so the past has landed."""
    expect(page.locator("svg.spark polyline")).to_have_count(8)


def charts_are_drawn(page: Page) -> None:
    expect(page.get_by_role("img", name="Depth: depth ")).to_be_visible()
    expect(page.get_by_label("Verdict")).to_be_visible()
    expect(page.get_by_label("Verdict")).not_to_contain_text("telemetry")


def group_is_open(page: Page) -> None:
    page.get_by_role("region", name="Groups of dead letters").get_by_role("button", name="ValueError").click()
    expect(page.get_by_role("region", name="Dead letters", exact=True)).to_contain_text("catalog")


@dataclass(frozen=True, kw_only=True)
class Picture:
    name: str
    path: str
    height: int
    ready: Callable[[Page], None]
    theme: str = "light"


PICTURES = (
    Picture(name="overview", path="", height=690, ready=overview_is_full),
    Picture(name="overview-dark", path="", height=690, ready=overview_is_full, theme="dark"),
    Picture(name="queue", path="/queue/payments?period=2h", height=800, ready=charts_are_drawn),
    Picture(name="dead-letters", path="/dead-letters", height=620, ready=group_is_open),
)


def main(link: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for picture in PICTURES:
            take(browser, link, picture)
        browser.close()


def take(browser: Browser, link: str, picture: Picture) -> None:
    size = {"width": WIDTH, "height": picture.height}
    page = browser.new_page(viewport=size, color_scheme=picture.theme, locale="en-GB")
    page.goto(link)
    expect(page.get_by_role("heading", name="Environments")).to_be_visible()
    page.goto(f"{link.partition('#')[0]}{SCOPE}{picture.path}")
    picture.ready(page)
    page.mouse.move(0, 0)
    page.screenshot(path=FOLDER / f"{picture.name}.png", animations="disabled")
    page.close()


if __name__ == "__main__":
    main(sys.argv[1])
