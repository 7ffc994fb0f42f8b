"""Requests are matched to sessions by their history; edits and new answers start branches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.ledger.ledger import Ledger
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.service.service import Service
from recollect.sessions.resolve import SessionMatch, SessionResolver, parse_session_messages
from tests.support.maintenance_samples import ledger_in

ANN = Scope("ann")
SECRET = "My key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH, keep it"


def user(text: object) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: object) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with AsyncMemory(settings=Settings(home=tmp_path, learn="off")) as memory:
        yield await memory.service()


@pytest.fixture
async def ledger(tmp_path: Path, service: Service) -> AsyncIterator[Ledger]:
    """Open the ledger of the service a second time, as another process does."""
    async with ledger_in(tmp_path, service.model) as ledger:
        yield ledger


async def chat(
    service: Service, messages: Sequence[dict[str, Any]], answer: str = "", scope: Scope = ANN, resolver: Any = None
) -> SessionMatch:
    """Resolve a request, and store its new messages and its answer."""
    resolver = resolver or service.sessions.resolver
    placed: SessionMatch = await resolver.resolve(scope, messages)
    if placed.new:
        stored = await service.remember(placed.scope, [each.message for each in placed.new], by=Author("test"))
        resolver.record(placed, [each.mark for each in placed.new], stored.turns)
    target = placed.with_answer(answer) if answer else None
    if target is not None:
        stored = await service.remember(target.scope, [assistant(answer)], by=Author("test"))
        resolver.record(target, [target.last], stored.turns)
    return placed


async def log(service: Service, scope: Scope) -> list[str]:
    return [turn.content for turn in await service.turns(scope)]


async def everything(service: Service) -> list[str]:
    sessions = await service.sessions.list("ann")
    return sorted([text for each in sessions for text in await log(service, each.scope)])


@pytest.fixture(params=["remembered", "read again"])
def fresh(request: pytest.FixtureRequest, service: Service, ledger: Ledger) -> Any:
    """Return the resolver of the service, or each time a new one with an empty cache."""
    return lambda: service.sessions.resolver if request.param == "remembered" else SessionResolver(ledger)


async def test_a_client_that_resends_its_history_stays_in_one_session(service: Service, fresh: Any) -> None:
    messages = [user("Hi, I am Ann")]
    first = await chat(service, messages, "Hello Ann", resolver=fresh())
    messages += [assistant("Hello Ann"), user("I like tea")]
    second = await chat(service, messages, "Noted", resolver=fresh())
    messages += [assistant("Noted"), user("What do I like?")]
    third = await chat(service, messages, "Tea", resolver=fresh())
    assert first.scope == second.scope == third.scope
    assert await log(service, first.scope) == [
        "Hi, I am Ann",
        "Hello Ann",
        "I like tea",
        "Noted",
        "What do I like?",
        "Tea",
    ]


async def test_prompts_tools_and_recalled_blocks_are_ignored(service: Service, fresh: Any) -> None:
    first = await chat(service, [{"role": "system", "content": "It is noon"}, user("Hi")], "Hello", resolver=fresh())
    later = [
        {"role": "system", "content": "It is one o'clock"},
        user("Hi"),
        assistant("Hello"),
        user([{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {"url": "x"}}]),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    second = await chat(service, later, "It rains", resolver=fresh())
    assert second.scope == first.scope
    assert await log(service, first.scope) == ["Hi", "Hello", "Weather?", "It rains"]


async def test_a_repeated_request_stores_nothing_twice(service: Service, fresh: Any) -> None:
    await chat(service, [user("Hi")], "Hello", resolver=fresh())
    repeated = await chat(service, [user("Hi")], "Hello", resolver=fresh())
    assert repeated.new == ()
    assert repeated.turn_id == (await service.turns(repeated.scope))[0].id
    assert await everything(service) == ["Hello", "Hi"]


async def test_a_regenerated_answer_starts_a_branch(service: Service, fresh: Any) -> None:
    first = await chat(service, [user("Hi")], "Hello", resolver=fresh())
    await chat(service, [user("Hi")], "Good day", resolver=fresh())
    branch = await chat(service, [user("Hi"), assistant("Good day"), user("Bye")], "Adieu", resolver=fresh())
    assert branch.scope != first.scope
    assert await log(service, first.scope) == ["Hi", "Hello"]
    assert await log(service, branch.scope) == ["Good day", "Bye", "Adieu"]
    trunk = await chat(service, [user("Hi"), assistant("Hello"), user("Tea?")], resolver=fresh())
    assert trunk.scope == first.scope


async def test_an_edited_message_starts_a_branch_with_the_new_messages(service: Service, fresh: Any) -> None:
    messages = [user("Hi"), assistant("Hello"), user("I like tea")]
    first = await chat(service, messages[:1], "Hello", resolver=fresh())
    await chat(service, messages, "Noted", resolver=fresh())
    edited = await chat(service, [*messages[:2], user("I like rum")], "Aye", resolver=fresh())
    assert await log(service, first.scope) == ["Hi", "Hello", "I like tea", "Noted"]
    assert await log(service, edited.scope) == ["I like rum", "Aye"]


async def test_a_conversation_begun_elsewhere_is_stored_once(service: Service, fresh: Any) -> None:
    messages = [user("One"), assistant("Two"), user("Three")]
    await chat(service, messages, "Four", resolver=fresh())
    await chat(service, [*messages, assistant("Four"), user("Five")], "Six", resolver=fresh())
    assert await everything(service) == sorted(["One", "Two", "Three", "Four", "Five", "Six"])


async def test_a_client_that_sends_only_the_end_continues_its_session(service: Service, fresh: Any) -> None:
    messages = [user("First words"), assistant("Answer 0")]
    first = await chat(service, messages[:1], "Answer 0", resolver=fresh())
    for number in range(1, 6):
        messages += [user(f"Question {number}")]
        placed = await chat(service, messages[-4:], f"Answer {number}", resolver=fresh())
        assert placed.scope == first.scope
        messages += [assistant(f"Answer {number}")]
    assert await log(service, first.scope) == [each["content"] for each in messages]


async def test_an_unanswered_message_sent_again_is_the_stored_turn(service: Service, fresh: Any) -> None:
    messages = [user("One"), assistant("Two"), user("Three")]
    first = await chat(service, messages, resolver=fresh())
    [*_, stored] = await service.turns(first.scope)
    repeated = await chat(service, messages[1:], resolver=fresh())
    assert (repeated.scope, repeated.new, repeated.turn_id) == (first.scope, (), stored.id)


async def test_a_named_session_takes_the_new_messages(service: Service, fresh: Any) -> None:
    named = Scope("ann", session="monday")
    messages = [user("One"), assistant("Two"), user("Three")]
    await chat(service, messages[:1], "Two", scope=named, resolver=fresh())
    await chat(service, messages, "Four", scope=named, resolver=fresh())
    # One client keeps the history, another sends each message alone; a third asks again.
    await chat(service, [user("Five")], "Six", scope=named, resolver=fresh())
    await chat(service, [user("Five")], "Six", scope=named, resolver=fresh())
    assert await log(service, named) == ["One", "Two", "Three", "Four", "Five", "Six"]


async def test_a_turn_stored_without_its_secret_is_recognised(service: Service, fresh: Any) -> None:
    first = await chat(service, [user(SECRET)], "I will", resolver=fresh())
    second = await chat(service, [user(SECRET), assistant("I will"), user("Thanks")], resolver=fresh())
    assert second.scope == first.scope
    assert len(await log(service, first.scope)) == 3


async def test_equal_messages_of_other_users_and_projects_are_other_sessions(service: Service) -> None:
    placed = {
        (await service.sessions.resolver.resolve(scope, [user("Hi")])).scope.session
        for scope in (Scope("ann"), Scope("ben"), Scope("ann", "work"), Scope("annwork"))
    }
    assert len(placed) == 4


async def test_turns_written_by_another_process_are_seen(service: Service, ledger: Ledger) -> None:
    first = await chat(service, [user("Hi")], "Hello")
    other = SessionResolver(ledger)
    await chat(service, [user("Hi"), assistant("Hello"), user("Tea")], "Yes", resolver=other)
    messages = [user("Hi"), assistant("Hello"), user("Tea"), assistant("Yes"), user("More")]
    placed = await chat(service, messages)
    assert placed.scope == first.scope
    assert [each.text for each in placed.new] == ["More"]


async def test_messages_of_different_emoji_differ(service: Service, fresh: Any) -> None:
    await chat(service, [user("👍")], "🎉", resolver=fresh())
    await chat(service, [user("👎")], "🎉", resolver=fresh())
    assert await everything(service) == ["🎉", "🎉", "👍", "👎"]


def test_only_messages_of_user_and_assistant_count() -> None:
    messages = [
        user("a"),
        {"role": "tool", "content": "b"},
        assistant(None),
        user("  "),
        user(7),
        {"role": 3},
        assistant("c"),
    ]
    assert [each.text for each in asyncio.run(parse_session_messages(messages))] == ["a", "c"]
