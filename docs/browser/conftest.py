"""The built site behind a local server, and Chromium to look at it; without one of them the tests say so and skip."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

SITE = Path(__file__).parents[1] / "_build" / "html"
PICTURES = SITE.parent / "screenshots"
PATIENCE = 120_000  # milliseconds
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that does not print every request."""

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built site."""
    if not (SITE / "index.html").exists():
        pytest.skip(f"no site in {SITE}: run `make docs` first")
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def chromium() -> str | None:
    """The browser to use: HGP_REF_CHROMIUM, or the first of the usual names on the path."""
    names = (os.environ.get("HGP_REF_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium with a profile of its own that is thrown away."""
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium): the site was not opened in a browser")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *sandbox])
        yield launched
        launched.close()


def window(browser: Browser, width: int = 1280, scheme: str = "light") -> BrowserContext:
    """A window of that width in that colour scheme, patient with a busy machine."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    return context


@dataclass
class Watched:
    """A page and everything that went wrong on it."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to `path` of the site and wait until everything is loaded."""
        self.page.goto(f"{self.address}/{path}", wait_until="load")
        return self.page


def watch(page: Page, address: str) -> Watched:
    """Console errors, exceptions, failed answers and requests to any other host become faults."""
    watched = Watched(page, address)
    note = watched.faults.append
    page.on("console", lambda m: note(f"{page.url}: console {m.type}: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda error: note(f"{page.url}: {error}"))
    left = "net::ERR_ABORTED"  # the test went on to the next page before the icon had arrived
    page.on("requestfailed", lambda r: None if r.failure == left else note(f"{page.url}: failed {r.url}: {r.failure}"))
    page.on("response", lambda r: note(f"{page.url}: {r.status} {r.url}") if r.status >= 400 else None)
    own = (address, "data:", "blob:")
    page.on("request", lambda r: None if r.url.startswith(own) else note(f"{page.url}: asks outside for {r.url}"))
    return watched


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    """A fresh page of a laptop's width."""
    context = window(browser)
    yield watch(context.new_page(), address)
    context.close()
