"""Recalls, sessions, the graph, chats, operations and connections work in a real browser."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.api_server import add, contents, served
from tests.support.web_page import fill_with_samples, go_to, opened, root_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
MAX_TABS = 60
SNIPPETS = (
    "place => import('./page/views/connect_snippets.js')"
    ".then(({SNIPPETS}) => SNIPPETS.map(each => [each.name, each.code(place)]))"
)
# A person who looks for a button by keyboard is slower than a test, and a busy machine slower than both.
KEEP_NOTICES = (
    "() => { const set = setTimeout; window.setTimeout = (run, ms) => set(run, ms >= 6000 ? 2 ** 30 : ms); }"
)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path, chat_user="alex") as client:
        yield client


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with something to show in every view."""
    with served(tmp_path_factory.mktemp("home"), chat_user="alex") as client:
        fill_with_samples(client)
        yield root_of(client)


def test_a_recall_is_explained_down_to_one_candidate(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    add(client, "Lives in Porto", key="city", value="Porto")
    other = add(client, "The printer is out of toner")
    with opened(browser, root_of(client), "why") as page:
        page.get_by_label("Question").fill("Where do I live?")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".why pre")).to_contain_text("Lives in Porto")
        page.locator(".candidate-head", has_text="Lives in Porto").click()
        expect(page.locator(".contributions details").first).to_be_visible()
        go_to(page, f"memory/{other['id']}")
        page.get_by_role("link", name="Why was it (not) recalled?").click()
        page.get_by_label("Question").fill("Where do I live?")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator(".why-not")).to_contain_text("Why not this one?")
        go_to(page, "why")
        page.locator("section", has_text="Recent recalls").get_by_role("link", name="Where do I live?").first.click()
        expect(page).to_have_url(re.compile(r"why\?recall="))
        expect(page.locator(".why pre")).to_contain_text("Lives in Porto")


def test_what_is_typed_stays_when_the_page_is_rendered_again(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with opened(browser, root_of(client), "why") as page:
        for view, label in (("why", "Question"), ("graph", "Name, key or id"), ("browse", "Search")):
            go_to(page, view)
            field = page.get_by_label(label)
            field.press_sequentially("Ber")
            with page.expect_response("**/changes*"):
                page.evaluate("window.dispatchEvent(new Event('recollect:login'))")
            expect(page.locator(".live.on")).to_be_visible()
            expect(field).to_have_value("Ber")


def test_a_session_shows_what_was_learned_beside_what_was_said(browser: Browser, filled: str) -> None:
    from playwright.sync_api import expect

    with opened(browser, filled, "sessions") as page:
        page.get_by_role("link", name="monday").click()
        turn = page.locator(".said-and-learned", has_text="I work as a nurse in Lisbon.")
        expect(turn.locator(".learned")).to_contain_text("My dog is called Rex")
        turn.get_by_role("link", name="My dog is called Rex").click()
        expect(page.locator(".conversation .evidence mark")).to_contain_text("My dog is called Rex")
        page.go_back()
        page.get_by_role("button", name="Erase…").click()
        page.get_by_role("button", name="Erase for good").click()
        expect(page.get_by_role("dialog", name="Erased")).to_contain_text("Every store of this server was reached")
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name="sample-4").first).to_be_visible()
        expect(page.get_by_role("link", name="monday")).to_have_count(0)


def test_the_graph_is_looked_at_from_another_node(browser: Browser, filled: str) -> None:
    from playwright.sync_api import expect

    with opened(browser, filled, "graph") as page:
        page.get_by_label("Name, key or id of a memory").fill("Porto")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".node.centre")).to_contain_text("Porto")
        page.locator(".node-memory:not(.centre)", has_text="Lives in Porto").click()
        expect(page.locator(".node.centre")).to_contain_text("Lives in Porto")
        expect(page.locator(".node", has_text="Lives in Lisbon")).to_have_count(0)
        page.get_by_role("button", name="With the past").click()
        expect(page.locator(".node.past")).to_contain_text("Lives in Lisbon")
        page.locator(".node.centre").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Memory")


def test_a_chat_shows_what_was_recalled_and_learned(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with opened(browser, root_of(client), "playground") as page:
        expect(page.locator(".live.on")).to_be_visible()
        page.get_by_label("Message").fill("My dog is called Rex and I work as a nurse.")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".exchange .learned .fresh").first).to_contain_text("Rex")
        page.get_by_role("button", name="New session").click()
        page.get_by_label("Message").fill("What is my dog called?")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".exchange .turn-box.assistant")).to_contain_text("Rex")
        expect(page.locator(".exchange .learned").first).to_contain_text("Rex")
        # The answers of the built-in model are stored, but never found.
        [recall, *_] = client.get("/recalls").json()["results"]
        found = client.get(f"/recalls/{recall['id']}").json()["results"]
        assert found
        assert not any(each["detail"].get("role") == "assistant" for each in found)
        expect(page.locator(".exchange ul.learned").first).not_to_contain_text("I will remember that")


def test_operations_show_every_part_and_manage_keys(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    client.post("/remember", json={"messages": "My dog is called Rex.", "wait_s": 60}).raise_for_status()
    with opened(browser, root_of(client), "operations") as page:
        expect(page.locator("main table")).to_contain_text("extract")
        for tab, text in (
            ("Usage", "Today: "),
            ("Health", "Embedding models"),
            ("Audit", "Who looked"),
            ("Settings", "home"),
        ):
            page.locator(".tabs").get_by_role("link", name=tab).click()
            expect(page.locator("main")).to_contain_text(text)
        page.locator(".tabs").get_by_role("link", name="Backups").click()
        page.get_by_role("button", name="Back up now").click()
        expect(page.locator("main tbody tr")).to_contain_text(".backup")
        page.locator(".tabs").get_by_role("link", name="Keys").click()
        admin = create_key(page, "boss")
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        laptop = create_key(page, "laptop")
        page.keyboard.press("Escape")
        assert laptop != admin
        headers = {"Authorization": f"Bearer {laptop}"}
        assert client.get("/memories", headers=headers).status_code == 200
        page.get_by_role("row", name="laptop").get_by_role("button", name="Revoke").click()
        page.locator("dialog").get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("row", name="laptop")).to_contain_text("revoked")
    assert client.get("/memories").status_code == 401
    keys = client.get("/admin/keys", headers={"Authorization": f"Bearer {admin}"}).json()["results"]
    assert {key["name"]: bool(key["revoked_at"]) for key in keys} == {"boss": False, "laptop": True}


def create_key(page: Page, name: str) -> str:
    """Create a key with the access that the dialog proposes, and return its text."""
    page.get_by_role("button", name="New key").click()
    page.locator("dialog").get_by_label("Name").fill(name)
    page.locator("dialog").get_by_role("button", name="Create").click()
    return page.locator("dialog .copy pre").inner_text()


def test_a_client_is_connected_and_the_connection_tested(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    root = root_of(client)
    with opened(browser, root, "connect") as page:
        expect(page.locator("[id='copy snippet']")).to_contain_text(f"{root}/v1")
        for title, text in (("Coding agents", f"recollect install claude-code --url {root}"), ("MCP", f"{root}/mcp")):
            page.get_by_role("button", name=title, exact=True).click()
            expect(page.locator("[id='copy snippet']")).to_contain_text(text)
        page.get_by_role("button", name="Test", exact=True).click()
        expect(page.locator("main")).to_contain_text("It works: one message stored")
    assert contents(client.get("/memories")) == []


def test_every_snippet_is_valid_and_names_this_server(browser: Browser, client: httpx.Client) -> None:
    place = {"base": f"{root_of(client)}/memory", "key": "rk_test", "user": 'o\'neil "x"'}
    with opened(browser, root_of(client), "connect") as page:
        snippets: list[list[str]] = page.evaluate(SNIPPETS, place)
    assert len({name for name, _ in snippets}) == len(snippets) > 15
    for name, code in snippets:
        assert place["base"] in code or "Memory()" in code, name
        if code.startswith(("from ", "import ")) and not code.split("\n")[0].endswith(";"):
            check_python(code)
        elif code.startswith("curl "):
            words = shlex.split(code)
            bodies = [json.loads(each) for each in words if each.startswith("{")]
            named = [parse_qs(urlsplit(each).query).get("user_id", []) for each in words if each.startswith("http")]
            users = [*(each["user"] for each in bodies if "user" in each), *(user for each in named for user in each)]
            assert set(users) == {place["user"]}, name
        elif code.startswith("{"):
            json.loads(code)


def check_python(code: str) -> None:
    """Check that a program can be compiled, and that what it imports of this package exists."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("recollect"):
            spec = importlib.util.find_spec(str(node.module))
            assert spec is not None
            assert spec.origin is not None
            source = Path(spec.origin).read_text(encoding="utf-8")
            assert not [alias.name for alias in node.names if alias.name not in source]


def test_a_memory_is_forgotten_and_brought_back_by_keyboard_alone(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    stored = add(client, "Lives in Porto")
    with opened(browser, root_of(client)) as page:
        page.evaluate(KEEP_NOTICES)
        expect(page.locator("main")).to_contain_text("Lives in Porto")
        page.keyboard.press("g")
        page.keyboard.press("b")
        expect(page.locator(".virtual-row")).to_contain_text("Lives in Porto")
        tab_to(page, "[data-key]")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Memory")
        tab_to(page, "button", "Forget")
        page.keyboard.press("Enter")
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.locator(".notice")).to_contain_text("Forgotten")
        expect(page.locator("main")).to_contain_text("It was forgotten")
        tab_to(page, ".notice button", "Undo")
        page.keyboard.press("Enter")
        expect(page.locator("main")).not_to_contain_text("It was forgotten")
    assert client.get(f"/memories/{stored['id']}").json()["status"] == "active"


def tab_to(page: Page, selector: str, text: str = "") -> None:
    """Press Tab until an element has the focus."""
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        focused = (
            "([selector, text]) => document.activeElement.matches(selector) && document.activeElement.textContent"
        )
        if (content := page.evaluate(focused, [selector, text])) is not False and content.startswith(text):
            return
    raise AssertionError(f"{selector} {text} cannot be reached with Tab")
