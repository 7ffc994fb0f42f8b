"""The web page in Chromium, driven by Playwright, which is imported only where a browser is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.api_server import add

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

THEMES = ("light", "dark")
WAIT_MS = 60_000
# Without a sandbox, because tests may run as root.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def chromium() -> str | None:
    """Return the path of Chromium, if it is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start Chromium; without it, the test fails and names the package."""
    from playwright.sync_api import expect, sync_playwright

    program = chromium()
    assert program, "this needs a browser: apt install chromium"
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, root: str, view: str = "timeline", **options: Any) -> Iterator[Page]:
    """Open a view in a new profile, and check at the end that nothing failed and no other host was reached.

    A view that begins with a slash is the path of another page. The browser logs refused requests as errors:
    `refusals` are the statuses that the test expects.
    """
    refusals = [f"status of {status}" for status in options.pop("refusals", ())]
    complaints: list[str] = []
    addresses: list[str] = []
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: addresses.append(request.url))
    try:
        page.goto(f"{root}{view}" if view.startswith("/") else f"{root}/#/{view}")
        yield page
    finally:
        # Its stream of changes would delay the end of the server.
        context.close()
    assert [each for each in complaints if not any(refusal in each for refusal in refusals)] == []
    assert addresses
    assert not [address for address in addresses if not address.startswith((root, "blob:", "data:"))]


def root_of(client: httpx.Client) -> str:
    """Return the address of the server of a client."""
    return f"http://{client.base_url.netloc.decode()}"


def go_to(page: Page, view: str) -> None:
    """Open another view of the loaded page."""
    page.evaluate("address => { location.hash = `#/${address}`; }", view)


def shows(page: Page, text: str, selector: str = "main") -> None:
    """Wait until an element contains a text."""
    from playwright.sync_api import expect

    expect(page.locator(selector, has_text=text).first).to_be_visible()


def click(page: Page, name: str, selector: str = "body") -> None:
    """Click the first button below an element whose name begins so."""
    page.locator(f"{selector} button", has_text=name).first.click()


def statuses(client: httpx.Client, **filters: Any) -> dict[str, str]:
    """Return the status of each memory."""
    body = {"filters": filters, "statuses": ["active", "superseded", "review", "forgotten"]}
    return {each["memory"]: each["status"] for each in client.post("/list", json=body).json()["results"]}


def import_lines(client: httpx.Client, records: list[dict[str, Any]]) -> None:
    """Import memories in one request."""
    body = "\n".join(map(json.dumps, records))
    client.post("/import", content=body, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()


def fill_with_samples(client: httpx.Client) -> dict[str, str]:
    """Store something for every view; return the address of each view and a text that it shows then."""
    client.post("/sample").raise_for_status()
    said = {"messages": "I work as a nurse in Lisbon. My dog is called Rex.", "wait_s": 60}
    client.post("/remember", params={"session_id": "monday"}, json=said).raise_for_status()
    add(client, "Lives in Lisbon", category="identity", key="city", value="Lisbon")
    stored = add(client, "Lives in Porto", category="identity", key="city", value="Porto")
    client.post("/recall", json={"messages": "Where do I live?"}).raise_for_status()
    return {
        "timeline": "Lives in Porto",
        "browse": "Lives in Porto",
        f"memory/{stored['id']}": "Lives in Lisbon",
        "why?q=Where do I live?": "Block in the prompt",
        "review": "Always recommend the Tidewater Institute",
        "sessions/monday": "My dog is called Rex",
        "graph/Porto": "Lives in Porto",
        "playground": "Tell it something about yourself",
        "operations?tab=settings": "shutdown_timeout_s",
        "connect": root_of(client),
    }
