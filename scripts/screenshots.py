"""Write pictures of every view of the web page into build/screenshots, and small ones into docs/assets."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from tests.support.api_server import served
from tests.support.web_page import THEMES, go_to, opened, root_of, running_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "build" / "screenshots"
ASSETS = ROOT / "docs" / "assets"
IN_DOCUMENTS = ("timeline", "why", "memory", "playground")
LARGE = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}}
# 900 pixels wide.
SMALL = {"viewport": {"width": 1200, "height": 800}}
SMALL_CLIP = {"x": 0, "y": 0, **SMALL["viewport"], "scale": 0.75}
MAX_ASSET_BYTES = 60_000
CHATS = {
    "hello": ["I live in Lisbon.", "I live in Bergen now, since May."],
    "kitchen": ["My budget for the kitchen is 8,000 euros.", "I want the oak worktop, not the stone one."],
    "travel": ["I prefer a window seat on trains.", "My dog Rex always travels with me."],
}
RUN = {
    "goal": "Find a carpenter for the oak worktop",
    "steps": [
        {"kind": "action", "content": "searched for carpenters in Bergen"},
        {"kind": "action", "content": "compared three offers"},
    ],
    "answer": "Fjord Carpentry can fit it in June for 2,400 euros.",
    "success": True,
    "lessons": ["Offers for oak came faster by phone than by mail"],
}
# What is known already is not learned again.
SISTERS = iter(["Ida", "Nina", "Ruth", "Vera", "Wilma"])
TABS = {"usage": "Today", "health": "ok", "backups": "Back up now", "keys": "New key", "settings": "home"}
QUESTION = "How much can I spend on the kitchen?"


def main() -> None:
    """Serve an invented person's memories and take the pictures."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, served(Path(home), chat_user="alex") as client:
        views = fill(client)
        with running_browser() as browser:
            take(browser, root_of(client), views, "light", SMALL)
            client.post("/sample").raise_for_status()
            for theme in THEMES:
                take(browser, root_of(client), views, theme, LARGE)
                take(browser, root_of(client), views, theme, PHONE)
            with served(Path(home) / "empty", chat_user="alex") as empty:
                bare = {f"empty-{name}": (address.split("/")[0], "") for name, (address, _) in views.items()}
                del bare["empty-memory"]
                take(browser, root_of(empty), bare, "light", LARGE)


def fill(client: httpx.Client) -> dict[str, tuple[str, str]]:
    """Store what is shown; return the address of each view and a text that it shows when it is ready."""
    for session, sentences in CHATS.items():
        for sentence in sentences:
            body = {"messages": sentence, "wait_s": 60}
            client.post("/remember", params={"session_id": session}, json=body).raise_for_status()
        if session == "kitchen":
            client.post("/session/runs", params={"session_id": session}, json=RUN).raise_for_status()
            client.post("/session/end", params={"session_id": session, "wait_s": 60}).raise_for_status()
    memories = client.get("/memories").raise_for_status().json()["results"]
    [home] = [each["id"] for each in memories if "live in Bergen" in each["memory"]]
    return {
        "timeline": ("timeline", "oak worktop"),
        "browse": ("browse", "oak worktop"),
        "memory": (f"memory/{home}", "I live in Lisbon"),
        "why": (f"why?q={quote(QUESTION)}", "Block in the prompt"),
        "review": ("review", "Tidewater"),
        "sessions": ("sessions/kitchen", "oak worktop"),
        "graph": ("graph/Bergen", "I live in Bergen"),
        "playground": ("playground", "Tell it something"),
        "operations": ("operations", "extract"),
        "connect": ("connect", "/v1"),
        "browse-selection": ("browse?sort=text&category=preference", "window seat"),
        "why-recent": ("why", "Recent recalls"),
        "sessions-list": ("sessions", "travel"),
        **{f"operations-{tab}": (f"operations?tab={tab}", text) for tab, text in TABS.items()},
    }


def take(browser: Browser, root: str, views: dict[str, tuple[str, str]], theme: str, options: dict[str, Any]) -> None:
    """Take a picture of each view, or of those of the documentation with the small ones' options."""
    from playwright.sync_api import expect

    with opened(browser, root, color_scheme=theme, **options, reduced_motion="reduce") as page:
        expect(page.locator(".live.on")).to_be_visible()
        for name, (address, text) in views.items():
            if options is SMALL and name not in IN_DOCUMENTS:
                continue
            go_to(page, address)
            expect(page.locator("main")).to_contain_text(text)
            if name == "playground":
                chat(page)
            if name == "memory":
                expect(page.locator(".as-of-held p")).to_be_visible()
            if name == "browse-selection":
                page.locator(".list-bar input").click()
            if name == "why":
                page.locator(".candidate-head").first.click()
            page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
            if options is SMALL:
                save_small(page, ASSETS / f"page-{name}.webp")
            else:
                size = "-phone" if options is PHONE else ""
                page.screenshot(path=TARGET / f"{name}-{theme}{size}.png")


def chat(page: Page) -> None:
    """Tell the playground something and ask it something."""
    from playwright.sync_api import expect

    first, second = (page.locator(".exchange").nth(number) for number in (0, 1))
    send(page, f"My sister {next(SISTERS)} visits us in June.")
    expect(first.locator(".fresh")).to_be_visible()
    send(page, QUESTION)
    expect(second.get_by_role("link", name="why?")).to_be_visible()
    expect(second.locator(".learned").first).to_contain_text("8,000")


def send(page: Page, message: str) -> None:
    page.get_by_label("Message").fill(message)
    page.get_by_role("button", name="Send").click()


def save_small(page: Page, path: Path) -> None:
    """Save what is seen as WebP, which is smaller than PNG."""
    session = page.context.new_cdp_session(page)
    picture = session.send("Page.captureScreenshot", {"format": "webp", "quality": 80, "clip": SMALL_CLIP})
    path.write_bytes(base64.b64decode(picture["data"]))
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    if size > MAX_ASSET_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes; the limit is {MAX_ASSET_BYTES}")


if __name__ == "__main__":
    main()
