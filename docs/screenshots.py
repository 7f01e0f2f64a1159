"""Takes pictures of a demo's pages: the pictures of the README, or every page in both themes and widths.

.venv/bin/python docs/screenshots.py               # starts a demo, takes the pictures of the README
.venv/bin/python docs/screenshots.py --every OUT   # every page, light and dark, desk and phone, into OUT
.venv/bin/python docs/screenshots.py --link LINK   # from a demo that runs, with the link that it printed
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "images"
SCOPE = "#/e/acme/shop/production"
DESK, PHONE = 1200, 390
PATIENCE_MS = 300_000
# Long enough for all pictures on a slow machine; the demo ends when they are taken.
DEMO_S = 1_800


def overview_is_full(page: Page) -> None:
    """Wait until every queue has its line, which shows that the past has landed."""
    expect(page.locator("svg.spark polyline")).to_have_count(8)


def charts_are_drawn(page: Page) -> None:
    expect(page.get_by_role("img", name="Depth: depth ")).to_be_visible()
    expect(page.get_by_label("Verdict")).to_be_visible()
    expect(page.get_by_label("Verdict")).not_to_contain_text("telemetry")


def incident_shows(page: Page) -> None:
    """The payments slow down a minute and a half after the start of a demo, and recover."""
    charts_are_drawn(page)
    expect(page.get_by_label("Verdict")).to_contain_text(re.compile("handlers take|are in use|recovered"))


def group_is_open(page: Page) -> None:
    page.get_by_role("region", name="Groups of dead letters").get_by_role("button", name="ValueError").click()
    expect(page.get_by_role("region", name="Dead letters", exact=True)).to_contain_text("catalog")


def deaths_are_drawn(page: Page) -> None:
    expect(page.get_by_role("img", name="Deaths: died ")).to_be_visible()
    nothing_loads(page)


def message_is_open(page: Page) -> None:
    """Go from the list of messages to the first message."""
    page.get_by_role("region", name="Messages", exact=True).locator("tbody a").first.click()
    expect(page.get_by_label("Timeline")).to_contain_text("enqueued")
    nothing_loads(page)


def schedule_is_open(page: Page) -> None:
    page.get_by_role("region", name="Schedules", exact=True).locator("tbody a").first.click()
    expect(page.get_by_role("region", name="Next ticks", exact=True)).to_be_visible()
    nothing_loads(page)


def signed_out(page: Page) -> None:
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def nothing_loads(page: Page) -> None:
    page.get_by_role("main").get_by_role("heading", level=1).first.wait_for()
    expect(page.get_by_text("Loading…")).to_have_count(0)
    page.wait_for_timeout(1_500)


@dataclass(frozen=True, kw_only=True)
class Picture:
    name: str
    path: str
    height: int
    ready: Callable[[Page], None]
    scope: str = SCOPE
    theme: str = "light"
    width: int = DESK
    whole: bool = False
    """The whole page, not only what a screen shows."""


README = (
    Picture(name="overview", path="", height=690, ready=overview_is_full),
    Picture(name="overview-dark", path="", height=690, ready=overview_is_full, theme="dark"),
    Picture(name="queue", path="/queue/payments?period=7d", height=900, ready=incident_shows),
    Picture(name="dead-letters", path="/dead-letters?period=7d", height=760, ready=group_is_open),
)
LISTS = "environments", "sign-in"
"""Pages that belong to no environment."""
PAGES = {
    "environments": "",
    "sign-in": "",
    "overview": "",
    "wall": "/wall",
    "queue-2h": "/queue/payments?period=2h",
    "queue-7d": "/queue/thumbnails?period=7d",
    "queue-30d": "/queue/orders?period=30d",
    "messages": "/queue/exports/messages",
    "message": "/queue/exports/messages",
    "dead-letters": "/dead-letters?period=7d",
    "workers": "/workers",
    "operations": "/operations",
    "schedules": "/schedules",
    "schedule": "/schedules",
    "alerts": "/alerts",
    "channels": "/channels",
    "pipeline": "/pipeline",
    "specs": "/specs",
    "access": "/access",
}
READY: dict[str, Callable[[Page], None]] = {
    "overview": overview_is_full,
    "wall": overview_is_full,
    "queue-2h": charts_are_drawn,
    "queue-7d": charts_are_drawn,
    "queue-30d": charts_are_drawn,
    "dead-letters": deaths_are_drawn,
    "message": message_is_open,
    "schedule": schedule_is_open,
    "sign-in": signed_out,
}
"""Pages that take more than an address."""


def every_page() -> Iterator[Picture]:
    for name, path in PAGES.items():
        for theme in ("light", "dark"):
            for device, width in (("desk", DESK), ("phone", PHONE)):
                yield Picture(
                    name=f"{name}-{theme}-{device}",
                    path=path,
                    scope="#/" if name in LISTS else SCOPE,
                    height=800,
                    ready=READY.get(name, nothing_loads),
                    theme=theme,
                    width=width,
                    whole=True,
                )


def main() -> None:
    asked = _arguments()
    pictures = README if asked.every is None else tuple(every_page())
    folder = FOLDER if asked.every is None else asked.every
    folder.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with nullcontext(asked.link) if asked.link else running_demo() as link, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        # The first page that is complete shows that the past has landed.
        take(browser, link, README[0], Path(tempfile.mkdtemp()))
        for picture in pictures:
            take(browser, link, picture, folder)
        browser.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--link", help="sign-in link of a demo that runs; left out: one is started")
    parser.add_argument("--every", type=Path, metavar="OUT", help="take every page into this folder")
    return parser.parse_args()


@contextmanager
def running_demo() -> Iterator[str]:
    """A demo of its own in a new folder; its sign-in link."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(ROOT / "weir"), "demo", "--data-dir", folder, "--for", str(DEMO_S)]
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert demo.stdout is not None
            yield next(link for line in demo.stdout for link in re.findall(r"http\S+/#/sign-in\S+", line))
        finally:
            demo.terminate()
            demo.wait()


def take(browser: Browser, link: str, picture: Picture, folder: Path) -> None:
    size = {"width": picture.width, "height": picture.height}
    page = browser.new_page(viewport=size, color_scheme=picture.theme, locale="en-GB")
    page.goto(link)
    expect(page.get_by_role("heading", name="Environments")).to_be_visible()
    page.goto(f"{link.partition('#')[0]}{picture.scope}{picture.path}")
    picture.ready(page)
    page.mouse.move(0, 0)
    page.screenshot(path=folder / f"{picture.name}.png", animations="disabled", full_page=picture.whole)
    page.close()


if __name__ == "__main__":
    main()
