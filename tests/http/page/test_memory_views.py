"""The views of the page for the timeline, lists, single memories and reviews work in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.api_server import add, contents, served
from tests.support.web_page import click, go_to, import_lines, opened, root_of, shows, statuses

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
SAID = "I work as a nurse in Lisbon. My dog is called Rex."


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path, chat_user="alex") as client:
        yield client


def test_the_timeline_explains_itself_and_shows_what_is_learned_with_its_source(
    browser: Browser, client: httpx.Client
) -> None:
    with opened(browser, root_of(client)) as page:
        shows(page, "Nothing has been remembered yet")
        shows(page, "Live", ".live.on")
        client.post("/remember", params={"session_id": "monday"}, json={"messages": SAID, "wait_s": 30})
        shows(page, "My dog is called Rex", ".change-what")
        shows(page, "My dog is called Rex.", ".change-source mark")
        shows(page, "monday", ".change-source")
        click(page, "Undo", ".change-actions")
        shows(page, "undone")
        assert statuses(client)["My dog is called Rex"] == "forgotten"
        click(page, "Undo", ".notice")
        shows(page, "Brought back", "body")
        assert statuses(client)["My dog is called Rex"] == "active"


def test_texts_of_memories_are_never_markup(browser: Browser, client: httpx.Client) -> None:
    stored = add(client, "<img src=x onerror=\"document.title='run'\"> in a text", tags=["<b>tag</b>"])
    with opened(browser, root_of(client)) as page:
        for view in ("timeline", "browse", f"memory/{stored['id']}"):
            go_to(page, view)
            shows(page, "<img src=x onerror")
            assert page.locator("main img, main b").count() == 0
        assert page.title() != "run"


def test_a_long_list_renders_what_is_seen_and_moves_by_keyboard(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with opened(browser, root_of(client), "browse") as page:
        shows(page, "Nothing is remembered yet")
        import_lines(client, [{"memory": f"Note {number} about tea"} for number in range(700)])
        shows(page, "700 memories")
        assert page.locator(".virtual-row").count() < 60
        page.locator(".virtual-row").first.focus()
        focused = page.locator(":focus")
        for loaded in ("200", "400", "600"):
            expect(focused).to_have_attribute("aria-setsize", loaded)
            page.keyboard.press("End")
            expect(focused).to_have_attribute("aria-posinset", loaded)


def test_many_are_forgotten_and_restored_at_once(browser: Browser, client: httpx.Client) -> None:
    for number in range(4):
        add(client, f"Lesson {number}: measure first", category="lesson")
    add(client, "Prefers green tea", category="preference")
    with opened(browser, root_of(client), "browse?category=lesson") as page:
        shows(page, "4 memories")
        page.locator(".list-bar input").first.click()
        click(page, "Forget", ".selection-bar")
        shows(page, "4 memories forgotten", ".notices")
        assert contents(client.get("/memories")) == ["Prefers green tea"]
        click(page, "Undo", ".notice")
        shows(page, "4 memories restored", ".notices")
        assert len(contents(client.get("/memories"))) == 5


def test_a_memory_shows_what_it_replaced_and_is_erased_with_a_receipt(browser: Browser, client: httpx.Client) -> None:
    add(client, "Lives in Lisbon", key="city", value="Lisbon")
    stored = add(client, "Lives in Porto", key="city", value="Porto")
    with opened(browser, root_of(client), f"memory/{stored['id']}") as page:
        shows(page, "Lives in Lisbon", ".chain")
        shows(page, "Lives in Porto", ".as-of-held")
        page.locator("#as-of").press("Home")
        shows(page, "Nothing of this was remembered then", ".as-of-held")
        click(page, "Erase…")
        page.locator("dialog .check input").click()
        click(page, "Erase for good", "dialog")
        shows(page, "Every store of this server was reached")
        assert client.get(f"/memories/{stored['id']}").status_code == 404


def test_an_edit_of_an_old_version_is_refused_with_an_explanation(browser: Browser, client: httpx.Client) -> None:
    stored = add(client, "The demo is in room 4")
    with opened(browser, root_of(client), f"memory/{stored['id']}", refusals=(412,)) as page:
        click(page, "Edit")
        page.locator("dialog textarea").fill("The demo is in room 6")
        client.patch(f"/memories/{stored['id']}", json={"content": "The demo is in room 5"}).raise_for_status()
        click(page, "Save", "dialog")
        shows(page, "Somebody else", "dialog .failure")
        assert contents(client.get("/memories")) == ["The demo is in room 5"]


def test_reviews_are_decided_by_keyboard_and_undone(browser: Browser, client: httpx.Client) -> None:
    with opened(browser, root_of(client), "review") as page:
        shows(page, "Nothing waits for review")
        add(client, "Lives in Lisbon", category="identity", key="city", value="Lisbon")
        proposed = {"trust": "low", "status": "review", "detail": {"review": "an agent says it, not the user"}}
        import_lines(
            client,
            [
                {"memory": "Lives in Porto", "category": "identity", "key": "city", "value": "Porto", **proposed},
                {"memory": "Always answer in German", "category": "instruction", **proposed},
            ],
        )
        shows(page, "Lives in Porto", "article")
        shows(page, "An agent says it, not the user", ".why-waits")
        shows(page, "Lives in Lisbon", ".conflict")
        page.keyboard.press("k")
        shows(page, "Always answer in German", "article")
        shows(page, "1 of 2 decided")
        assert statuses(client, key="city") == {"Lives in Lisbon": "superseded", "Lives in Porto": "active"}
        page.keyboard.press("r")
        shows(page, "All decided")
        page.keyboard.press("u")
        shows(page, "Always answer in German", "article")
        page.keyboard.press("u")
        shows(page, "Back in the inbox: Lives in Porto", ".notices")
        assert statuses(client, key="city") == {"Lives in Lisbon": "active", "Lives in Porto": "review"}


def test_sample_data_is_added_and_removed_with_one_click(browser: Browser, client: httpx.Client) -> None:
    with opened(browser, root_of(client)) as page:
        click(page, "Look around with sample data")
        shows(page, "You are looking at sample data", ".sample-banner")
        page.locator(".change").nth(5).wait_for()
        click(page, "Remove it", ".sample-banner")
        shows(page, "Nothing has been remembered yet")
        assert statuses(client) == {}
