"""The page asks for a key, shows nobody else's memories, and shows every text as text, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from tests.support.api_server import add, as_user, served
from tests.support.web_page import fill_with_samples, go_to, opened, root_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    '"><svg onload=alert(3)>',
    "javascript:alert(4)",
    "${alert(5)}",
    "</textarea></main><h1>Log in</h1>",
    "pay \u202eyob\u202c\u0007\u200b now",
    "long " + "x" * ((1 << 20) - 5),
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path, chat_user="alex") as client:
        yield client


def make_key(client: httpx.Client, **fields: object) -> str:
    """Create a key and return its text."""
    answer = client.post("/admin/keys", json=fields)
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["key"]
    return key


def log_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


def test_a_key_is_asked_for_and_logging_out_ends_it(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    add(client, "Lives in Porto")
    key = make_key(client, admin=True)
    with opened(browser, root_of(client), refusals=(401,)) as page:
        log_in(page, "rk_wrong")
        expect(page.locator(".login .failure")).to_be_visible()
        log_in(page, key)
        expect(page.locator("main")).to_contain_text("Lives in Porto")
        assert key not in page.evaluate(
            "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie"
        )
        page.reload()
        expect(page.locator("main")).to_contain_text("Lives in Porto")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        expect(page.locator("body")).not_to_contain_text("Lives in Porto")
        page.reload()
        expect(page.get_by_label("API key")).to_be_visible()
        assert page.context.cookies() == []


def test_a_key_of_one_user_never_shows_another(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    secret = "The safe opens with seven green turtles"
    hers = add(client, secret, key="safe", value="turtles")
    with as_user(client, "bea") as bea:
        views = fill_with_samples(bea)
    key = make_key(client, for_user="bea", person=True)
    with opened(browser, root_of(client), refusals=(401, 404)) as page:
        page.evaluate("localStorage.setItem('recollect.user', 'alex')")
        log_in(page, key)
        for view, text in {
            **views,
            "operations?tab=settings": "For administrators",
            "operations": "extract",
            "why?q=What opens the safe?": "Block in the prompt",
            "browse?q=turtles": "matches",
            "graph/turtles": "Nothing mentions this",
            f"why?q=safe&memory={hers['id']}": "no memory",
        }.items():
            go_to(page, view)
            expect(page.locator("main")).to_contain_text(text)
            assert "green turtles" not in page.content(), view
        expect(page.locator(".user-choice")).to_have_count(0)


def test_who_may_see_everyone_chooses_any_user(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    add(client, "Lives in Porto")
    with opened(browser, root_of(client)) as page:
        expect(page.locator("main")).to_contain_text("Lives in Porto")
        page.get_by_label("User").fill("carl")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("Nothing has been remembered for carl yet")
        with as_user(client, "carl") as carl:
            add(carl, "Plays the cello")
        expect(page.locator("main")).to_contain_text("Plays the cello")
        page.get_by_label("User").fill("alex")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("Lives in Porto")
        expect(page.locator("main")).not_to_contain_text("cello")


def test_hostile_texts_are_shown_as_texts(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    stored = [
        add(
            client,
            text,
            **({"tags": [text[:50]], "key": text[:50], "value": text[:50]} if text.isprintable() else {}),
        )
        for text in HOSTILE
    ]
    said = {"messages": [{"role": "user", "name": text[:40], "content": text} for text in HOSTILE]}
    client.post(
        "/remember", params={"session_id": HOSTILE[1], "project_id": HOSTILE[0]}, json=said
    ).raise_for_status()
    with opened(browser, root_of(client)) as page:
        page.evaluate("window.own = document.querySelectorAll('script').length")
        for view in ("timeline", "browse", "why?q=alert script", "review", "sessions", "graph", "graph/alert"):
            go_to(page, view)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect_no_markup(page)
        for view in ("timeline", "browse", "why?q=alert script"):
            go_to(page, view)
            expect(page.locator("main")).to_contain_text(HOSTILE[0])
            expect_no_markup(page)
        for each in stored:
            go_to(page, f"memory/{each['id']}")
            expect(page.locator(".memory-full")).to_contain_text(each["memory"][:2000])
            expect_no_markup(page)
        # Messages are kept as they were said; memories are without invisible characters.
        go_to(page, f"sessions/{quote(HOSTILE[1], safe='')}?project={quote(HOSTILE[0])}")
        expect(page.locator(".transcript")).to_contain_text("pay ⟨202E⟩yob⟨202C⟩⟨0007⟩⟨200B⟩ now")
        expect_no_markup(page)


def expect_no_markup(page: Page) -> None:
    """Check that no text of a memory became an element, and that none steers the direction of the page."""
    assert page.evaluate("document.querySelectorAll('script').length === window.own")
    assert page.evaluate("document.querySelectorAll('main img, main svg[onload], main h1').length") <= 1
    assert not page.evaluate("/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.textContent)")


def test_an_answer_that_comes_before_the_first_frame_is_shown(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    make_key(client, admin=True)
    with opened(browser, root_of(client), refusals=(401,)) as page:
        page.add_init_script("window.requestAnimationFrame = () => 0")
        page.reload()
        expect(page.get_by_label("API key")).to_be_visible()
