"""Every action of the page has its effect, and can be taken back, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.api_server import add, served
from tests.support.llm_faults import http_error
from tests.support.remember_samples import SESSION, SUMMARY, claim, learns
from tests.support.web_page import click, go_to, import_lines, opened, root_of, shows, statuses

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
SAID = "My dog is called Rex. I work as a nurse in Lisbon."
RUN = {
    "run_id": "run-7",
    "goal": "Find a kennel for Rex",
    "steps": [{"kind": "action", "content": "searched"}, {"kind": "action", "content": "called two kennels"}],
    "answer": "Happy Paws has a place in July",
    "success": True,
    "lessons": ["Happy Paws answers the phone in the morning only"],
}
TALK = {"session_id": "monday"}
PROPOSED = {"trust": "low", "status": "review", "category": "instruction"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(tmp_path, chat_user="alex") as client:
        yield client


@pytest.fixture
def with_llm(tmp_path: Path, llm: ScriptedLLM) -> Iterator[httpx.Client]:
    """A client of a server whose LLM is scripted and asked about every message, once."""
    options: dict[str, Any] = {"learn_wait_s": 0, "learn_ask_threshold": 0, "summary_every": 1, "job_tries": 1}
    with served(tmp_path, chat_user="alex", llm="scripted", llm_url=llm.base_url, **options) as client:
        yield client


def memory_of(client: httpx.Client, id: str) -> dict[str, Any]:
    """Return a memory as the REST API has it."""
    stored: dict[str, Any] = client.get(f"/memories/{id}").raise_for_status().json()
    return stored


# Timeline


def test_the_timeline_names_the_llm_that_learned_a_memory(
    browser: Browser, with_llm: httpx.Client, llm: ScriptedLLM
) -> None:
    from playwright.sync_api import expect

    learns(llm, "Rex", claim("The user's dog is called Rex"))
    with opened(browser, root_of(with_llm)) as page:
        expect(page.locator(".live.on")).to_be_visible()
        with_llm.post("/remember", params=TALK, json={"messages": SAID, "wait_s": 60}).raise_for_status()
        batch = page.locator(".batch", has_text="The user's dog is called Rex")
        expect(batch.locator(".batch-head")).to_contain_text("by scripted, which read the conversation")
        batch.get_by_role("link", name="Open: The user's dog is called Rex").click()
        expect(page.locator(".details")).to_contain_text("scripted, which read the conversation")


def test_a_batch_is_undone_at_once_and_kinds_are_filtered(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    with opened(browser, root_of(client)) as page:
        expect(page.locator(".live.on")).to_be_visible()
        client.post("/remember", params=TALK, json={"messages": SAID, "wait_s": 60}).raise_for_status()
        shows(page, "by the built-in selector, without an LLM", ".batch-head")
        learned = set(statuses(client))
        page.get_by_role("button", name=f"Undo all {len(learned)}").click()
        shows(page, "changes undone", ".notices")
        assert set(statuses(client).values()) == {"forgotten"}
        page.get_by_role("button", name="Forgotten").click()
        expect(page).to_have_url(re.compile("kind=forgotten"))
        expect(page.locator(".change")).to_have_count(len(learned))
        page.locator(".change-actions button").first.click()
        expect(page.locator(".notice").get_by_role("button", name="Undo")).to_be_visible()
        assert sorted(statuses(client).values()) == ["active", *["forgotten"] * (len(learned) - 1)]
        page.get_by_role("button", name="By a person").click()
        expect(page.locator(".change").first).to_contain_text("Brought back")


# Browse


@pytest.mark.parametrize(("before", "after"), [([], ["work"]), (["work"], [])])
def test_a_selection_is_tagged_or_untagged_and_that_is_undone(
    browser: Browser, client: httpx.Client, before: list[str], after: list[str]
) -> None:
    for number in range(3):
        add(client, f"Lesson {number}: measure first", category="lesson", tags=before)
    add(client, "Prefers green tea", category="preference", tags=["kitchen"])

    def tags() -> list[list[str]]:
        return [each["tags"] for each in client.get("/memories").json()["results"] if each["category"] == "lesson"]

    with opened(browser, root_of(client), "browse?category=lesson") as page:
        page.get_by_label("3 memories").click()
        click(page, "Tag…", ".selection-bar")
        page.get_by_label("Tag", exact=True).fill("work")
        click(page, "Tag", "dialog")
        shows(page, "the tag “work”", ".notices")
        assert tags() == [after] * 3
        click(page, "Undo", ".notice")
        shows(page, "Undone.", ".notices")
        assert tags() == [before] * 3


def test_a_selection_is_exported(browser: Browser, client: httpx.Client) -> None:
    lessons = [add(client, f"Lesson {number}: measure first", category="lesson")["id"] for number in range(3)]
    add(client, "Prefers green tea", category="preference")
    with opened(browser, root_of(client), "browse?category=lesson") as page:
        page.get_by_label("3 memories").click()
        with page.expect_download() as exported:
            click(page, "Export", ".selection-bar")
        lines = [json.loads(line) for line in exported.value.path().read_text(encoding="utf-8").splitlines()]
        assert exported.value.suggested_filename == "memories.jsonl"
        assert sorted(each["id"] for each in lines) == sorted(lessons)
        assert {each["memory"] for each in lines} == {f"Lesson {number}: measure first" for number in range(3)}


def test_forgotten_memories_are_restored_from_a_list_and_forgotten_again(
    browser: Browser, client: httpx.Client
) -> None:
    for number in range(3):
        client.delete(f"/memories/{add(client, f'Note {number}')['id']}").raise_for_status()
    with opened(browser, root_of(client), "browse?status=forgotten") as page:
        page.get_by_label("3 memories").click()
        click(page, "Restore", ".selection-bar")
        shows(page, "3 memories restored", ".notices")
        assert set(statuses(client).values()) == {"active"}
        shows(page, "No memory has all of this")
        click(page, "Undo", ".notice")
        shows(page, "Undone.", ".notices")
        assert set(statuses(client).values()) == {"forgotten"}


def test_everything_of_a_filter_is_forgotten_after_a_question_and_brought_back(
    browser: Browser, client: httpx.Client
) -> None:
    from playwright.sync_api import expect

    import_lines(client, [{"memory": f"Note {number} about tea", "category": "event"} for number in range(250)])
    add(client, "Prefers green tea", category="preference")
    with opened(browser, root_of(client), "browse?category=event") as page:
        page.get_by_label("250 memories").click()
        click(page, "Select all 250", ".selection-bar")
        click(page, "Forget", ".selection-bar")
        page.get_by_role("dialog").get_by_role("button", name="Forget 250").click()
        shows(page, "250 memories forgotten", ".notices")
        assert [text for text, status in statuses(client).items() if status == "active"] == ["Prefers green tea"]
        shows(page, "No memory has all of this")
        click(page, "Undo", ".notice")
        expect(page.get_by_label("250 memories")).to_be_visible()
        assert set(statuses(client).values()) == {"active"}


def test_the_address_keeps_search_sort_and_filters(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    import_lines(
        client, [{"memory": "Walks at dawn", "category": "preference", "importance": 0.2, "project_id": "health"}]
    )
    add(client, "Avoids sugar", category="preference", importance=0.9)
    add(client, "Tea is stored in the blue tin", category="fact", importance=0.5)
    root = root_of(client)
    with opened(browser, root, "browse?sort=text&category=preference") as page:
        rows = page.locator(".virtual-row .memory-text")
        expect(rows).to_have_text(["Avoids sugar", "Walks at dawn"])
        page.get_by_label("Sort").select_option("Most important")
        page.locator(".browse-facets").get_by_label("fact").check()
        expect(rows).to_have_text(["Avoids sugar", "Tea is stored in the blue tin", "Walks at dawn"])
        expect(page).to_have_url(f"{root}/#/browse?sort=importance&category=preference%7Cfact")
        page.reload()
        expect(rows).to_have_text(["Avoids sugar", "Tea is stored in the blue tin", "Walks at dawn"])
        page.get_by_role("button", name="Remove the filter Category: preference").click()
        expect(rows).to_have_text(["Tea is stored in the blue tin"])
        go_to(page, "browse?project_id=health")
        expect(rows).to_have_text(["Walks at dawn"])
        go_to(page, "browse?sort=oldest")
        expect(rows).to_have_text(["Walks at dawn", "Avoids sugar", "Tea is stored in the blue tin"])
        page.get_by_role("searchbox", name="Search").fill("blue tin")
        expect(page).to_have_url(f"{root}/#/browse?sort=oldest&q=blue+tin")
        expect(rows.first).to_have_text("Tea is stored in the blue tin")


# Memory


def test_an_edit_shows_the_changed_words_and_is_undone(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    stored = add(client, "The demo is in room 4 on Monday")
    with opened(browser, root_of(client), f"memory/{stored['id']}") as page:
        click(page, "Edit")
        page.get_by_label("Text").fill("The demo is in room 6 on Monday")
        page.get_by_label("Importance").fill("0.9")
        click(page, "Save", "dialog")
        shows(page, "Saved.", ".notices")
        newest = page.locator(".versions li").first
        expect(newest.locator("del")).to_have_text(["0.5", "4"])
        expect(newest.locator("ins")).to_have_text(["0.9", "6"])
        expect(newest).to_contain_text("by a person on this page")
        click(page, "Undo", ".notice")
        expect(page.locator(".memory-full")).to_have_text("The demo is in room 4 on Monday")
        assert memory_of(client, stored["id"])["importance"] == 0.5
        expect(page.locator(".versions li").first.locator("ins")).to_have_text(["0.5", "4"])


def test_a_memory_is_tagged_and_restored_and_a_restoration_is_undone(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    stored = add(client, "Lives in Porto")
    client.delete(f"/memories/{stored['id']}").raise_for_status()
    with opened(browser, root_of(client), f"memory/{stored['id']}") as page:
        click(page, "Restore")
        shows(page, "Restored: it is recalled again", ".notices")
        assert memory_of(client, stored["id"])["status"] == "active"
        click(page, "Undo", ".notice")
        shows(page, "It was forgotten")
        page.get_by_label("Add a tag").fill("home")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Remove the tag home").click()
        expect(page.locator(".tags .badge")).to_have_count(0)
        # The history takes any change back: here that the tag was removed.
        newest = page.locator(".versions li", has_text="version 6")
        newest.get_by_role("button", name="Undo").click()
        expect(page.locator(".tags .badge")).to_contain_text("home")
        stored = memory_of(client, stored["id"])
        assert (stored["status"], stored["tags"]) == ("forgotten", ["home"])


# Review


def test_a_review_is_skipped_edited_first_and_kept(browser: Browser, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    texts = ["Always answer in German", "Always answer in rhyme"]
    import_lines(client, [{"memory": text, **PROPOSED} for text in texts])
    with opened(browser, root_of(client), "review") as page:
        shown = page.locator("article .memory-full")
        expect(shown).to_be_visible()
        first = shown.inner_text()
        [second] = set(texts) - {first}
        page.keyboard.press("s")
        expect(shown).to_have_text(second)
        page.keyboard.press("u")
        expect(shown).to_have_text(first)
        page.keyboard.press("s")
        page.keyboard.press("s")
        shows(page, "2 memories still wait")
        click(page, "Go through them again")
        expect(shown).to_have_text(first)
        page.keyboard.press("e")
        page.get_by_label("Text").fill("Answer in German if asked to")
        page.keyboard.press("Control+Enter")
        expect(shown).to_have_text("Answer in German if asked to")
        page.keyboard.press("k")
        expect(shown).to_have_text(second)
        shows(page, "1 of 2 decided")
        assert statuses(client) == {"Answer in German if asked to": "active", second: "review"}


# Sessions


def test_a_session_shows_its_summary_its_episodes_and_agent_runs(
    browser: Browser, with_llm: httpx.Client, llm: ScriptedLLM
) -> None:
    from playwright.sync_api import expect

    summary = "The user works as a nurse in Lisbon and has a dog called Rex."
    llm.default = '{"operations": []}'
    for prompt in (SUMMARY, SESSION):
        llm.when(prompt).reply(summary)
    with_llm.post("/remember", params=TALK, json={"messages": SAID, "wait_s": 60}).raise_for_status()
    with_llm.post("/session/runs", params=TALK, json=RUN).raise_for_status()
    with opened(browser, root_of(with_llm), "sessions/monday") as page:
        expect(page.locator(".transcript")).to_contain_text(SAID)
        click(page, "End session")
        shows(page, "The session has ended", ".notices")
        # These are made in the background, and appear without a reload.
        episodes = page.locator("section", has=page.get_by_role("heading", name="Episodes"))
        episode = episodes.locator(".memory-line", has_text="has a dog called Rex")
        expect(episode).to_contain_text("by scripted, which read the conversation")
        expect(page.locator("section", has=page.get_by_role("heading", name="Summary"))).to_contain_text(summary)
        run = episodes.locator(".memory-line", has_text="Goal: Find a kennel for Rex")
        expect(run.locator(".learned")).to_contain_text("answers the phone in the morning only")
        runs = page.locator("section", has=page.get_by_role("heading", name="Agent runs"))
        expect(runs.locator("tbody tr")).to_have_count(1)
        expect(runs.locator("tbody tr")).to_contain_text("Happy Paws has a place in July")
        expect(runs.locator("tbody tr")).to_contain_text("succeeded")
        episode.get_by_role("button", name="turn 1").click()
        expect(page.locator(".aimed")).to_contain_text(SAID)
        expect(page).to_have_url(re.compile("turn="))


# Operations


def test_a_failed_job_is_retried(browser: Browser, with_llm: httpx.Client, llm: ScriptedLLM) -> None:
    from playwright.sync_api import expect

    learns(llm, "Rex", claim("The user's dog is called Rex"))
    llm.fault(http_error(401), times=None)
    job = with_llm.post("/remember", params=TALK, json={"messages": SAID, "wait_s": 60}).json()["job"]
    assert job["state"] == "dead", job
    llm.clear_faults()
    with opened(browser, root_of(with_llm), "operations") as page:
        page.get_by_role("button", name="failed").click()
        row = page.locator("main tbody tr", has_text="extract")
        expect(row.locator(".failure-text")).to_contain_text("401")
        row.get_by_role("button", name="Retry").click()
        shows(page, "The job runs again", ".notices")
        expect(row).to_have_count(0)
        go_to(page, "browse")
        shows(page, "The user's dog is called Rex", ".virtual-row")


def test_a_job_is_cancelled_and_started_again(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with (
        served(tmp_path, chat_user="alex", learn_every=10, learn_wait_s=3600) as client,
        opened(browser, root_of(client), "operations") as page,
    ):
        client.post("/remember", params=TALK, json={"messages": SAID}).raise_for_status()
        page.get_by_role("button", name="Refresh").click()
        row = page.locator("main tbody tr", has_text="extract")
        row.get_by_role("button", name="Cancel").click()
        expect(row.locator(".badge")).to_have_text("cancelled")
        row.get_by_role("button", name="Retry").click()
        expect(row.locator(".badge")).not_to_have_text("cancelled")
