"""Takes the pictures of the README from a running demo.

./weir demo                                  # in one terminal; wait until the charts are full
.venv/bin/python docs/screenshots.py LINK    # in another, with the sign-in link that the demo printed
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent / "images"
SCOPE = "#/e/acme/shop/production"
PICTURES = {
    "overview": ("", "text=Queues"),
    "queue": ("/queue/payments?period=2h", "role=img >> nth=5"),
    "dead-letters": ("/dead-letters", "text=What they have in common"),
}


def main(link: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(link)
        page.get_by_role("heading", name="Environments").wait_for()
        for name, (path, sign) in PICTURES.items():
            page.goto(f"{link.partition('#')[0]}{SCOPE}{path}")
            page.wait_for_selector(sign)
            settle(page)
            page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()


def settle(page: Page) -> None:
    """Two rounds of polling, so that the charts have what is to be had."""
    page.wait_for_timeout(6_000)


if __name__ == "__main__":
    main(sys.argv[1])
