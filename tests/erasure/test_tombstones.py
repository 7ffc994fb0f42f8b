"""Forgotten stays forgotten: a client that resends its history does not teach it again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.model.change import Author, Forget
from recollect.model.erasure import ErasureRequest, Target
from recollect.model.query import Listing
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.service.service import Service
from recollect.sessions.resolve import SessionMatch, SessionResolver
from recollect.testing.scripted_llm import ScriptedLLM
from recollect.wiring import spill_folder
from recollect.write.spill_file import SpilledTurn
from tests.support.proxy_server import served

ANN = Scope("ann")
NAMED = Scope("ann", "", "monday")
BY = Author("test")
JOB, ILL, SLEEP = "I work nights at a bakery", "I was diagnosed with epilepsy", "Any tips for falling asleep?"
PHONE = "My key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH, keep it"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def history(*texts: str) -> list[dict[str, Any]]:
    """Return an exchange for each text."""
    return [message for text in texts for message in (user(text), assistant(f"Answer to: {text}"))]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=Settings(home=tmp_path, learn="off")) as memory:
        yield memory


@pytest.fixture
async def service(memory: AsyncMemory) -> Service:
    return await memory.service()


@pytest.fixture(params=["the same process", "another process"])
def threads_of(request: pytest.FixtureRequest, service: Service) -> Any:
    """Return what places a request: the process that forgot something, or one that reads the ledger."""
    return lambda: (
        service.sessions.resolver if request.param == "the same process" else SessionResolver(service.deps.ledger)
    )


async def chat(
    service: Service, messages: Sequence[dict[str, Any]], answer: str, scope: Scope = ANN, threads: Any = None
) -> SessionMatch:
    """Send a request, store its new messages and its answer."""
    threads = threads or service.sessions.resolver
    placed: SessionMatch = await threads.resolve(scope, messages)
    if placed.new:
        stored = await service.remember(placed.scope, [each.message for each in placed.new], by=BY)
        threads.record(placed, [each.mark for each in placed.new], stored.turns)
    target = placed.with_answer(answer)
    if target is not None:
        stored = await service.remember(target.scope, [assistant(answer)], by=BY)
        threads.record(target, [target.last], stored.turns)
    return placed


async def talk(service: Service, *texts: str, scope: Scope = ANN) -> Scope:
    """Hold a conversation in which all of the history is sent each time; return its session."""
    for at, text in enumerate(texts):
        placed = await chat(service, [*history(*texts[:at]), user(text)], f"Answer to: {text}", scope)
    return placed.scope


async def logged_contents(service: Service) -> list[str]:
    """Return all that is in the log of any session, in order of sessions and turns."""
    sessions = await service.sessions.list("ann")
    return [turn.content for each in reversed(sessions) for turn in await service.turns(each.scope)]


async def forget(service: Service, session: Scope, *texts: str) -> None:
    """Forget the turns with these texts, and nothing else."""
    for turn in await service.turns(session):
        if turn.content in texts:
            await service.forget(session, turn.id, by=BY, sources=False)


@pytest.mark.parametrize("scope", [ANN, NAMED], ids=["unnamed", "named"])
@pytest.mark.parametrize("gone", [JOB, ILL, SLEEP])
async def test_a_forgotten_turn_does_not_come_back_and_the_session_continues(
    service: Service, threads_of: Any, scope: Scope, gone: str
) -> None:
    texts = [JOB, ILL, SLEEP]
    session = await talk(service, *texts, scope=scope)
    await forget(service, session, gone)
    before = await logged_contents(service)
    for more in ("I will try curtains", "And ear plugs"):
        placed = await chat(
            service, [*history(*texts), user(more)], f"Answer to: {more}", scope, threads=threads_of()
        )
        assert placed.scope == session
        assert [each.text for each in placed.new] == [more]
        texts.append(more)
    added = ["I will try curtains", "Answer to: I will try curtains", "And ear plugs", "Answer to: And ear plugs"]
    assert await logged_contents(service) == [*before, *added]
    assert gone not in before


@pytest.mark.parametrize("scope", [ANN, NAMED], ids=["unnamed", "named"])
@pytest.mark.parametrize("target", [Target.SESSION, Target.USER])
async def test_an_erased_session_that_is_sent_again_stores_only_the_new_message(
    service: Service, threads_of: Any, scope: Scope, target: Target
) -> None:
    session = await talk(service, JOB, ILL, scope=scope)
    await service.erasure.erase(session if target is Target.SESSION else ANN, ErasureRequest(target), by=BY)
    texts = [JOB, ILL]
    for more in (SLEEP, "And ear plugs"):
        await chat(service, [*history(*texts), user(more)], f"Answer to: {more}", scope, threads=threads_of())
        texts.append(more)
    assert await logged_contents(service) == [
        SLEEP,
        f"Answer to: {SLEEP}",
        "And ear plugs",
        "Answer to: And ear plugs",
    ]
    assert len(await service.sessions.list("ann")) == 1


@pytest.mark.parametrize("scope", [ANN, NAMED], ids=["unnamed", "named"])
async def test_forgetting_everything_keeps_it_away_and_undo_brings_it_back(service: Service, scope: Scope) -> None:
    session = await talk(service, JOB, ILL, scope=scope)
    before = await logged_contents(service)
    await service.forget_all(ANN, Listing(), by=BY)
    await service.undo(ANN, by=BY)
    assert await logged_contents(service) == before
    await service.forget_all(ANN, Listing(), by=BY)
    placed = await chat(service, [*history(JOB, ILL), user(SLEEP)], "Yes", scope)
    assert placed.scope == session
    assert await logged_contents(service) == [SLEEP, "Yes"]


async def test_an_erased_turn_does_not_come_back(service: Service, threads_of: Any) -> None:
    session = await talk(service, JOB, ILL)
    [turn] = [each for each in await service.turns(session) if each.content == ILL]
    await service.erasure.erase(session, ErasureRequest(Target.TURN, turn.id), by=BY)
    placed = await chat(service, [*history(JOB, ILL), user(SLEEP)], "Yes", threads=threads_of())
    assert placed.scope == session
    assert [each.text for each in placed.new] == [SLEEP]
    assert ILL not in await logged_contents(service)


async def test_a_branch_is_found_though_its_first_message_was_forgotten(service: Service, threads_of: Any) -> None:
    await talk(service, JOB, SLEEP)
    branch = await talk(service, JOB, ILL, "And now?")
    assert (await service.turns(branch))[0].content == ILL
    await forget(service, branch, ILL)
    placed = await chat(service, [*history(JOB, ILL, "And now?"), user("I see")], "Good", threads=threads_of())
    assert placed.scope == branch
    assert [each.text for each in placed.new] == ["I see"]


@pytest.mark.parametrize("scope", [ANN, NAMED], ids=["unnamed", "named"])
async def test_a_forgotten_text_that_is_said_again_is_stored(service: Service, scope: Scope) -> None:
    session = await talk(service, JOB, ILL, scope=scope)
    await forget(service, session, ILL)
    placed = await chat(service, [*history(JOB, ILL), user(ILL)], "I see", scope)
    assert [each.text for each in placed.new] == [ILL]
    assert ILL in await logged_contents(service)
    messages = [*history(JOB, ILL), user(ILL), assistant("I see"), user(SLEEP)]
    placed = await chat(service, messages, "Yes", scope, threads=SessionResolver(service.deps.ledger))
    assert [each.text for each in placed.new][-1] == SLEEP
    assert placed.scope == session
    assert (await logged_contents(service)).count(ILL) == 1


async def test_a_new_conversation_that_begins_with_a_forgotten_text_stores_it(service: Service) -> None:
    session = await talk(service, ILL, JOB)
    await forget(service, session, ILL)
    placed = await chat(service, [user(ILL)], "I see")
    assert [each.text for each in placed.new] == [ILL]


async def test_forgotten_turns_with_redacted_secrets_are_recognised(service: Service, threads_of: Any) -> None:
    session = await talk(service, JOB, PHONE)
    [stored] = [each for each in await service.turns(session) if "[redacted" in each.content and each.role == "user"]
    await service.forget(session, stored.id, by=BY, sources=False)
    placed = await chat(service, [*history(JOB, PHONE), user(SLEEP)], "Yes", threads=threads_of())
    assert [each.text for each in placed.new] == [SLEEP]


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("for_good", [True, False])
@pytest.mark.parametrize("session", ["monday", None])
async def test_remember_leaves_forgotten_history_out(
    memory: AsyncMemory, with_ids: bool, for_good: bool, session: str | None
) -> None:
    def sent(*messages: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**each, "turn_id": f"t{n}"} if with_ids else each for n, each in enumerate(messages)]

    first = await memory.remember(sent(user(JOB), assistant("Ok"), user(ILL)), user_id="ann", session_id=session)
    if for_good:
        await memory.erasure.erase(user_id="ann", turn_id=first[2].id)
    else:
        await memory.delete(first[2].id, user_id="ann")
    resent = sent(user(JOB), assistant("Ok"), user(ILL), assistant("So you have epilepsy"), user(SLEEP))
    await memory.remember(resent, user_id="ann", session_id=session)
    turns = await (await memory.service()).turns(Scope("ann", "", session or ""))
    contents = [turn.content for turn in turns]
    assert not any("epilepsy" in each for each in contents)
    assert contents[-1] == SLEEP
    assert contents.count(JOB) == (1 if with_ids else 2)


async def test_remember_takes_the_last_exchange_for_new(memory: AsyncMemory) -> None:
    for _ in range(2):
        await memory.remember([user(ILL), assistant("Noted")], user_id="ann", session_id="s")
        [turn] = [each for each in await memory.sessions.turns(user_id="ann", session_id="s") if each.content == ILL]
        await memory.delete(turn.id, user_id="ann")
    assert ILL not in [each.content for each in await memory.sessions.turns(user_id="ann", session_id="s")]


async def test_the_last_message_of_a_history_without_answers_is_new(memory: AsyncMemory) -> None:
    [first] = await memory.remember(ILL, user_id="ann", session_id="s")
    await memory.delete(first.id, user_id="ann")
    stored = await memory.remember([user(ILL), user(JOB)], user_id="ann", session_id="s")
    assert [turn.content for turn in stored] == [JOB]
    assert [turn.content for turn in await memory.remember(ILL, user_id="ann", session_id="s")] == [ILL]


async def test_forgetting_everything_reaches_turns_that_wait_on_disk(memory: AsyncMemory, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, learn="off")
    folder = spill_folder(settings)
    folder.mkdir(parents=True)
    waiting = SpilledTurn(NAMED, {**user(ILL), "turn_id": "t1"}, now() - timedelta(hours=1))
    (folder / "1.jsonl").write_bytes(waiting.to_line())
    async with AsyncMemory(settings=settings) as server:
        await server.delete_all(user_id="ann")
        for id in ("t1", "t2"):
            late = [{**waiting.message, "turn_id": id}]
            await (await server.service()).remember(NAMED, late, by=BY, received_at=waiting.received_at)
        assert await server.sessions.turns(user_id="ann", session_id="monday") == []


async def test_backups_and_exports_include_tombstones(memory: AsyncMemory, tmp_path: Path) -> None:
    from recollect.service.restore import restore
    from recollect.wiring import open_service

    [ill, job] = await memory.remember([user(ILL), user(JOB)], user_id="ann", session_id="s")
    await memory.erasure.erase(user_id="ann", turn_id=ill.id)
    await memory.delete(job.id, user_id="ann")
    lines = [line async for line in memory.export()]
    made = await memory.admin.backup(tmp_path / "a.backup")
    await restore(made.path, Settings(home=tmp_path / "restored", learn="off"), open_service)
    for home in ("restored", "imported"):
        async with AsyncMemory(settings=Settings(home=tmp_path / home, learn="off")) as other:
            if home == "imported":
                await other.import_(lines, user_id="bob")
            who = "bob" if home == "imported" else "ann"
            resent = [user(ILL), assistant("Ok"), user(JOB), assistant("Ok"), user(SLEEP)]
            stored = await other.remember(resent, user_id=who, session_id="s")
            assert [turn.content for turn in stored] == [SLEEP]


@pytest.mark.parametrize("door", ["chat", "responses", "conversations"])
def test_no_http_api_learns_a_forgotten_turn_again(tmp_path: Path, llm: ScriptedLLM, door: str) -> None:
    llm.reply("So you have epilepsy.")
    with served(tmp_path, llm.base_url) as server:
        named = {"X_Memory_User": "ann"}

        def send(messages: list[dict[str, Any]]) -> None:
            if door == "chat":
                answer = server.post({"model": "m", "messages": messages}, **named)
            elif door == "responses":
                answer = server.post({"model": "m", "input": messages}, path="/responses", **named)
            else:
                made = server.post({"items": messages[:-1]}, path="/conversations", **named)
                body = {"model": "m", "input": messages[-1:], "conversation": made.json["id"]}
                answer = server.post(body, path="/responses", **named)
            assert answer.status == 200

        def all_said(count: int) -> list[str]:
            deadline = time.monotonic() + 60
            while len(matches := server.run(logged_contents(server.service))) < count and time.monotonic() < deadline:
                time.sleep(0.01)
            return matches

        send([user(ILL)])
        assert all_said(2) == [ILL, "So you have epilepsy."]
        server.run(server.service.forget_all(ANN, Listing(), by=BY))
        send([user(ILL), assistant("So you have epilepsy."), user(SLEEP)])
        results = all_said(2)
        assert ILL not in results
        assert SLEEP in results


async def test_turns_evicted_by_a_quota_may_come_back_with_old_history(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, learn="off", quota_user=2, quota_turns=True, quota_order="oldest")
    async with AsyncMemory(settings=settings) as memory:
        for text in ("yes", "My sister lives in Porto", "I play the cello", "I work nights"):
            await memory.remember(text, user_id="ann", session_id="monday")
        assert [turn.content for turn in await memory.sessions.turns(user_id="ann", session_id="monday")] == [
            "I play the cello",
            "I work nights",
        ]
        received_at = now() - timedelta(days=1)
        service = await memory.service()
        stored = await service.remember(Scope("ann", "", "old"), [user("yes")], by=BY, received_at=received_at)
        assert [turn.content for turn in stored.turns] == ["yes"]


async def test_an_evicted_turn_that_is_forgotten_later_does_not_come_back(memory: AsyncMemory) -> None:
    service = await memory.service()

    async def tell_and_evict(text: str) -> str:
        [turn] = (await memory.remember(text, user_id="ann", session_id="monday")).turns
        await service.responses.apply(NAMED, [Forget(turn.id, evicted=True)], by=BY)
        return turn.id

    async def comes_back(text: str) -> bool:
        received_at = now() - timedelta(days=1)
        stored = await service.remember(NAMED, [user(text)], by=BY, received_at=received_at)
        return bool(stored.turns)

    source = await tell_and_evict(ILL)
    fact = (await memory.add("Has epilepsy", user_id="ann", evidence=[source])).id
    await memory.delete(fact, user_id="ann")
    assert not await comes_back(ILL)
    await tell_and_evict(JOB)
    await memory.delete_all(user_id="ann")
    assert not await comes_back(JOB)
    assert await comes_back(SLEEP)
