"""The views of the page for the timeline, lists, single memories and reviews work in a real browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api_server import add, contents, served
from tests.support.browser import Browser, browsing

pytestmark = pytest.mark.browser
SAID = "I work as a nurse in Lisbon. My dog is called Rex."


@asynccontextmanager
async def opened(tmp_path: Path, view: str = "timeline") -> AsyncIterator[tuple[Browser, httpx.Client]]:
    """Serve an empty database, open a view in a browser, and check at the end that the page stayed sound."""
    with served(tmp_path / "home", chat_user="alex") as client:
        root = f"http://{client.base_url.netloc.decode()}"
        async with browsing(tmp_path / "profile") as browser:
            await browser.open(f"{root}/#/{view}")
            yield browser, client
            assert browser.complaints == []
            assert not [address for address in browser.requests if not address.startswith((root, "blob:"))]


async def shows(browser: Browser, text: str, selector: str = "main") -> None:
    """Wait until an element contains a text."""
    await browser.until(f"document.querySelector({selector!r})?.textContent.includes({json.dumps(text)})")


async def click(browser: Browser, name: str, selector: str = "button") -> None:
    """Click the first button with a name, when it is there and enabled."""
    found = f"[...document.querySelectorAll({selector!r})].find(each => each.textContent.trim().startsWith({name!r}))"
    await browser.until(f"{found} && !{found}.disabled")
    await browser.run(f"{found}.click()")


async def press(browser: Browser, key: str, target: str = "document.activeElement") -> None:
    """Send a key to the page."""
    await browser.run(f"{target}.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}))")


def statuses(client: httpx.Client, **filters: Any) -> dict[str, str]:
    """Return the status of each memory."""
    body = {"filters": filters, "statuses": ["active", "superseded", "review", "forgotten"]}
    return {each["memory"]: each["status"] for each in client.post("/list", json=body).json()["results"]}


async def test_the_timeline_explains_itself_and_shows_what_is_learned_with_its_source(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, client):
        await shows(browser, "Nothing has been remembered yet")
        await browser.until("document.querySelector('.live.on')")
        client.post("/remember", params={"session_id": "monday"}, json={"messages": SAID, "wait_s": 30})
        await shows(browser, "My dog is called Rex", ".change-what")
        await shows(browser, "My dog is called Rex.", ".change-source mark")
        await shows(browser, "monday", ".change-source")
        await click(browser, "Undo", ".change-actions button")
        await shows(browser, "undone")
        assert statuses(client)["My dog is called Rex"] == "forgotten"
        await click(browser, "Undo", ".notice button")
        await shows(browser, "Brought back")
        assert statuses(client)["My dog is called Rex"] == "active"


async def test_texts_of_memories_are_never_markup(tmp_path: Path) -> None:
    text = "<img src=x onerror=\"document.title='run'\"> in a text"
    async with opened(tmp_path) as (browser, client):
        stored = add(client, text, tags=["<b>tag</b>"])
        for view in ("timeline", "browse", f"memory/{stored['id']}"):
            await browser.run(f"location.hash = '#/{view}'")
            await shows(browser, "<img src=x onerror")
            assert await browser.run("document.querySelectorAll('main img, main b').length") == 0
        assert await browser.run("document.title") != "run"


async def test_a_long_list_renders_what_is_seen_and_moves_by_keyboard(tmp_path: Path) -> None:
    async with opened(tmp_path, "browse") as (browser, client):
        await shows(browser, "Nothing is remembered yet")
        lines = "\n".join(json.dumps({"memory": f"Note {number} about tea"}) for number in range(700))
        client.post("/import", content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        await shows(browser, "700 memories")
        assert await browser.run("document.querySelectorAll('.virtual-row').length") < 60
        await browser.run("document.querySelector('.virtual-row').focus()")
        for _ in range(3):
            await press(browser, "End")
            position = "Number(document.activeElement.getAttribute('aria-posinset'))"
            await browser.until(f"{position} % 200 === 0 || {position} === 700")
            size = await browser.run(position)
            await browser.until(f"document.activeElement.getAttribute('aria-setsize') !== '{size}' || {size} === 700")
        assert await browser.run(position) >= 600


async def test_many_are_forgotten_and_restored_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, "browse?category=lesson") as (browser, client):
        for number in range(4):
            add(client, f"Lesson {number}: measure first", category="lesson")
        add(client, "Prefers green tea", category="preference")
        await shows(browser, "4 memories")
        await browser.run("document.querySelector('.list-bar input').click()")
        await click(browser, "Forget", ".selection-bar button")
        await shows(browser, "4 memories forgotten", ".notices")
        assert contents(client.get("/memories")) == ["Prefers green tea"]
        await click(browser, "Undo", ".notice button")
        await shows(browser, "4 memories restored", ".notices")
        assert len(contents(client.get("/memories"))) == 5


async def test_a_memory_shows_what_it_replaced_and_is_erased_with_a_receipt(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, client):
        add(client, "Lives in Lisbon", key="city", value="Lisbon")
        stored = add(client, "Lives in Porto", key="city", value="Porto")
        await browser.run(f"location.hash = '#/memory/{stored['id']}'")
        await shows(browser, "Lives in Lisbon", ".chain")
        await shows(browser, "Lives in Porto", ".as-of-held")
        await browser.run(
            "{ const slider = document.querySelector('#as-of'); slider.value = slider.min;"
            "slider.dispatchEvent(new Event('input', {bubbles: true})); }"
        )
        await shows(browser, "Nothing of this was remembered then", ".as-of-held")
        await click(browser, "Erase…")
        await browser.run("document.querySelector('dialog .check input').click()")
        await click(browser, "Erase for good", "dialog button")
        await shows(browser, "Every store of this server was reached")
        assert client.get(f"/memories/{stored['id']}").status_code == 404


async def test_an_edit_of_an_old_version_is_refused_with_an_explanation(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, client):
        stored = add(client, "The demo is in room 4")
        await browser.run(f"location.hash = '#/memory/{stored['id']}'")
        await click(browser, "Edit")
        await browser.run(
            "{ const field = document.querySelector('dialog textarea'); field.value = 'The demo is in room 6';"
            "field.dispatchEvent(new Event('input', {bubbles: true})); }"
        )
        client.patch(f"/memories/{stored['id']}", json={"content": "The demo is in room 5"}).raise_for_status()
        await click(browser, "Save", "dialog button")
        await shows(browser, "Somebody else", "dialog .failure")
        assert contents(client.get("/memories")) == ["The demo is in room 5"]


async def test_reviews_are_decided_by_keyboard_and_undone(tmp_path: Path) -> None:
    async with opened(tmp_path, "review") as (browser, client):
        await shows(browser, "Nothing waits for review")
        add(client, "Lives in Lisbon", category="identity", key="city", value="Lisbon")
        proposed = {"trust": "low", "status": "review", "detail": {"review": "an agent says it, not the user"}}
        lines = [
            {"memory": "Lives in Porto", "category": "identity", "key": "city", "value": "Porto", **proposed},
            {"memory": "Always answer in German", "category": "instruction", **proposed},
        ]
        body = "\n".join(map(json.dumps, lines))
        client.post("/import", content=body, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
        await shows(browser, "Lives in Porto", "article")
        await shows(browser, "An agent says it, not the user", ".why-waits")
        await shows(browser, "Lives in Lisbon", ".conflict")
        await press(browser, "k", "document.body")
        await shows(browser, "Always answer in German", "article")
        await shows(browser, "1 of 2 decided")
        assert statuses(client, key="city") == {"Lives in Lisbon": "superseded", "Lives in Porto": "active"}
        await press(browser, "r", "document.body")
        await shows(browser, "All decided")
        await press(browser, "u", "document.body")
        await shows(browser, "Always answer in German", "article")
        await press(browser, "u", "document.body")
        await shows(browser, "Back in the inbox: Lives in Porto", ".notices")
        assert statuses(client, key="city") == {"Lives in Lisbon": "active", "Lives in Porto": "review"}


async def test_sample_data_is_added_and_removed_with_one_click(tmp_path: Path) -> None:
    async with opened(tmp_path) as (browser, client):
        await click(browser, "Look around with sample data")
        await shows(browser, "You are looking at sample data", ".sample-banner")
        await browser.until("document.querySelectorAll('.change').length > 5")
        await click(browser, "Remove it", ".sample-banner button")
        await shows(browser, "Nothing has been remembered yet")
        assert statuses(client) == {}
