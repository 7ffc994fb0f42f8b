"""The API documentation page loads local files only, and works in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.api_server import served
from tests.support.web_page import opened, root_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path) as client:
        yield client


def test_the_page_loads_local_files_only(server: httpx.Client) -> None:
    root = root_of(server)
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


@pytest.mark.browser
def test_a_browser_sends_requests_with_the_entered_key(tmp_path: Path, browser: Browser) -> None:
    from playwright.sync_api import expect

    with served(tmp_path) as server:
        key = server.post("/admin/keys", json={"for_user": "alex"}).json()["key"]
        with opened(browser, root_of(server), "/docs", refusals=(401,)) as page:
            page.locator("#operations-tag-memories").click()
            request = page.locator("#operations-memories-list_memories")
            request.locator(".opblock-summary-control").click()
            status = request.locator(".live-responses-table tr.response .response-col_status")
            request.locator(".execute").click()
            expect(status).to_contain_text("401")
            request.locator(".btn-clear").click()
            page.locator(".auth-wrapper .btn.authorize").click()
            page.locator(".auth-container input").first.fill(key)
            page.locator(".auth-container .auth-btn-wrapper .authorize").first.click()
            page.locator(".auth-container .btn-done").first.click()
            request.locator(".execute").click()
            expect(status).to_contain_text("200")
