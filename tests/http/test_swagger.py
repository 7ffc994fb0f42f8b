"""The API documentation page loads local files only, and works in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from recollect.config.settings import load
from recollect.model.key import new_key
from recollect.wiring import open_service
from tests.support.api_server import served
from tests.support.browser import Browser, browsing

TRY = "#operations-memories-list_memories"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path) as client:
        yield client


def test_the_page_loads_local_files_only(server: httpx.Client) -> None:
    root = f"http://{server.base_url.netloc.decode()}"
    page = server.get(f"{root}/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "<script>" not in page.text
    assert "://" not in page.text
    for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        part = server.get(f"{root}{path}")
        assert part.status_code == 200, path
        assert part.headers["content-type"].startswith(("text/javascript", "text/css")), path
        assert len(part.content) > 100
    assert server.get(f"{root}/redoc").status_code == 404


async def _wait_for(browser: Browser, selector: str) -> None:
    await browser.until(f"document.querySelector({selector!r}) !== null")


async def _click(browser: Browser, selector: str) -> None:
    await _wait_for(browser, selector)
    await browser.run(f"document.querySelector({selector!r}).click()")


async def _authorize(browser: Browser, key: str) -> None:
    """Enter a key in the first field for one."""
    await _click(browser, ".auth-wrapper .btn.authorize")
    field = ".auth-container input"
    await _wait_for(browser, field)
    await browser.run(
        f"{{ const field = document.querySelector({field!r});"
        "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value')"
        f".set.call(field, {key!r});"
        "field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    await _click(browser, ".auth-container .auth-btn-wrapper .authorize")
    await _click(browser, ".auth-container .btn-done")


async def _executed(browser: Browser) -> str:
    """Send the request of the page and return the status."""
    answered = f"{TRY} .live-responses-table tr.response .response-col_status"
    await _click(browser, f"{TRY} .execute")
    await _wait_for(browser, answered)
    return str(await browser.run(f"document.querySelector({answered!r}).firstChild.textContent.trim()"))


async def _key(home: Path) -> str:
    service = await open_service(load({"home": home}, environ={}).settings)
    try:
        return (await service.api_keys.add(new_key(user="alex"))).text
    finally:
        await service.close()


@pytest.mark.browser
async def test_a_browser_sends_requests_with_the_entered_key(tmp_path: Path) -> None:
    with served(tmp_path / "home", auth="keys") as server:
        root = f"http://{server.base_url.netloc.decode()}"
        key = await _key(tmp_path / "home")
        async with browsing(tmp_path / "profile") as browser:
            await browser.open(f"{root}/docs")
            await _click(browser, "#operations-tag-memories")
            await _click(browser, f"{TRY} .opblock-summary-control")
            assert await _executed(browser) == "401"
            await _click(browser, f"{TRY} .btn-clear")
            await _authorize(browser, key)
            assert await _executed(browser) == "200"
            assert browser.complaints == []
            assert not [address for address in browser.requests if not address.startswith((root, "data:", "blob:"))]
