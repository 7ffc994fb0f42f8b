"""A server with a user whose memories contain a canary, and keys of this user and of a stranger."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient, Response
from starlette.types import Receive, Send
from starlette.types import Scope as Asked

from recollect.config.settings import load
from recollect.errors import NotFound
from recollect.http.app import make_app
from recollect.model.change import Author
from recollect.model.erasure import ErasureRequest, Target, user_digest
from recollect.model.ids import new_id
from recollect.model.key import new_key
from recollect.model.query import Listing
from recollect.model.response import StoredResponse, Thread, ThreadItems
from recollect.model.scope import Scope
from recollect.model.times import now
from recollect.recall import RecallRequest
from recollect.remember import MemoryInput
from recollect.service.service import Service
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.auth_samples import HERE, bearer
from tests.support.isolation_cases import Call

CANARY = "canaryQXZJ"
BY = Author("test")
_NUMBERS = count(1)
# What reading records in the background.
_NOTED = ("access_count", "last_accessed_at")


class _FromAnywhere:
    """The application with another client address for each request, because wrong keys are counted by address."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self.state = app.state
        self._request_numbers = count()

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        number = next(self._request_numbers)
        address = f"203.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        await self._app({**scope, "client": (address, 1)}, receive, send)


@dataclass(slots=True)
class World:
    """Bea has something to hide in one of her projects; Ada is a stranger."""

    client: TestClient
    http: AsyncClient
    llm: ScriptedLLM
    bea: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    # All of Bea's at the start, and whether it is known to be unchanged.
    before: dict[str, Any] = field(default_factory=dict)
    is_unchanged: bool = False

    @property
    def service(self) -> Service:
        service: Service = self.client.app.state.service  # type: ignore[attr-defined]
        return service

    @property
    def secret(self) -> Scope:
        """The session that has the canary."""
        return Scope(self.bea["user"], "secret", "diary")

    def run(self, function: Any, *args: Any) -> Any:
        """Call a coroutine function in the server's loop and return its result."""
        self.is_unchanged = False
        return self.client.portal.call(function, *args)  # type: ignore[union-attr]

    def call(self, route: str, call: Call, key: str | None, ids: dict[str, str] | None = None) -> Response:
        """Return the answer to a call with a key; `ids` replace Bea's."""
        method, path = route.split(" ", 1)
        filled = filled_with(call, self.bea if ids is None else ids)
        path = re.sub(r"{(\w+)(?::\w+)?}", lambda found: filled.path[found[1]], path)
        headers = {**filled.headers, **({} if key is None else bearer(key))}
        body: dict[str, Any] = {"content": filled.content} if call.content is not None else {}
        if call.json is not None:
            body = {"json": filled.json}
        return self.ask(method, path, params=filled.query, headers=headers, **body)

    def ask(self, method: str, path: str, **more: Any) -> Response:
        """Send a request within the server's own loop, because there are thousands of them."""
        return self.run(lambda: self.http.request(method, path, **more))  # type: ignore[no-any-return]

    def ask_as(self, key: str, method: str, path: str, **more: Any) -> Response:
        """Send a request with one of the keys."""
        return self.ask(method, path, headers={**bearer(self.keys[key]), **more.pop("headers", {})}, **more)

    def add_stranger(self) -> None:
        """Replace Ada by a new user with a key, and clear the requests of the upstream."""
        self.llm.clear()
        name = f"ada-{next(_NUMBERS)}"

        async def add() -> str:
            await self.service.add(Scope(name), MemoryInput(content="Ada's budget is 5 dollars"), by=BY)
            return (await self.service.api_keys.add(new_key(user=name))).text

        self.keys["ada"] = self.run(add)

    def of_bea(self) -> dict[str, Any]:
        """Return everything of Bea's outside of the other project."""
        return self.run(_all_of, self.service, self.bea)  # type: ignore[no-any-return]

    def replace_bea(self) -> None:
        """Replace Bea by a new user with the same memories."""
        self.bea, self.keys = self.run(_add_bea, self.service)
        self.before, self.is_unchanged = self.of_bea(), True

    def restore(self) -> None:
        """Replace Bea if anything of hers was changed."""
        if not self.is_unchanged:
            try:
                self.check_unchanged()
            except (AssertionError, NotFound):
                self.replace_bea()

    def check_unchanged(self) -> None:
        """Check that everything of Bea's is as it was at the start."""
        assert self.of_bea() == self.before
        self.is_unchanged = True


async def _all_of(service: Service, bea: dict[str, str]) -> dict[str, Any]:
    user, responses = bea["user"], service.responses
    records = [line async for line in service.transfer.export(Scope(user, "secret"))]
    there = []
    for read, *ids in (
        (responses.response, bea["response"]),
        (responses.thread, bea["conversation"]),
        (responses.thread_items, bea["conversation"]),
    ):
        there.append(repr(await read(Scope(user), *ids)))
    inside = [job for job in await service.jobs.list(user) if job.scope.project == "secret"]
    entries = await service.history(Scope(user, "secret"), limit=1000)
    all_records = await service.find(Scope(user), Listing(limit=1000))
    sessions = [each for each in await service.sessions.list(user) if each.scope.project == "secret"]
    return {
        "records": [{name: line[name] for name in line if name not in _NOTED} for line in records],
        "everywhere": [record.id for record in all_records if not record.scope.project],
        "history": [entry.id for entry in entries],
        "jobs": [(job.id, job.state) for job in inside],
        "turns": [turn.id for turn in await service.turns(Scope(user, "secret", "diary"))],
        "sessions": [repr(each) for each in sessions],
        "keys": [(key.id, key.revoked_at) for key in await service.api_keys.list_keys(user)],
        "erasures": [each.id for each in await service.erasure.list() if each.user == user_digest(user)],
        "responses": there,
    }  # fmt: skip


def filled_with(call: Call, ids: dict[str, str]) -> Call:
    """Return the call with ids in place of their names in braces."""

    def fill(value: Any) -> Any:
        if value == "{entry}":
            return int(ids["entry"])
        if isinstance(value, str):
            return re.sub(r"{(\w+)}", lambda found: ids.get(found[1], found[0]), value)
        if isinstance(value, list):
            return [fill(each) for each in value]
        return {name: fill(each) for name, each in value.items()} if isinstance(value, dict) else value

    return replace(
        call,
        path=fill(call.path),
        query=fill(call.query),
        headers=fill(call.headers),
        json=fill(call.json),
        content=fill(call.content),
    )


def mem0_id(id: str, user: str) -> str:
    """Return the id that mem0's routes return to a key for everyone."""
    return f"{id}.{urlsafe_b64encode(user.encode()).decode().rstrip('=')}"


async def _add_bea(service: Service) -> tuple[dict[str, str], dict[str, str]]:
    """Add a user with memories that contain the canary; return their ids and the keys."""
    bea = f"bea-{next(_NUMBERS)}"
    ids = {"user": bea, "project": "secret", "session": "diary"}
    ids |= await _memories(service, Scope(bea, "secret"))
    ids |= await _turns(service, Scope(bea, "secret", "diary"))
    ids |= await _responses(service, Scope(bea, "secret", "diary"))
    ids["recall"] = await _recall(service, Scope(bea, "secret", "diary"))
    ids["mem0"] = mem0_id(ids["memory"], bea)
    ids["entry"] = str((await service.history(Scope(bea, "secret")))[0].id)
    options: dict[str, dict[str, Any]] = {
        "bea": {"user": bea},
        "reader": {"user": bea, "writes": False},
        "writer": {"user": bea, "reads": False},
        "elsewhere": {"user": bea, "project": "elsewhere"},
        "app": {"everyone": True, "project": "elsewhere"},
        "everyone": {"everyone": True},
        "admin": {"admin": True},
    }
    made = {name: await service.api_keys.add(new_key(**each)) for name, each in options.items()}
    ids["key"] = made["bea"].key.id
    return ids, {name: new.text for name, new in made.items()}


async def _memories(service: Service, project: Scope) -> dict[str, str]:
    by = Author("x", CANARY)
    fields = {"metadata": {"note": CANARY}, "tags": [CANARY.lower()], "importance": 0.9}
    memory = await service.add(project, MemoryInput(content=f"The budget of {CANARY} is 9,000", fields=fields), by=by)
    keyed = {"category": "fact", "key": "budget", "value": CANARY, "importance": 0.9}
    fact = await service.add(project, MemoryInput(content=None, fields=keyed), by=BY)
    story = {"category": "episode", "type": "episodic", "detail": {"goal": f"Hide {CANARY}", "kind": "run"}}
    episode = await service.add(
        project, MemoryInput(content=f"Goal: hide the budget of {CANARY}", fields=story), by=BY
    )
    diary = replace(project, session="diary")
    own = await service.add(diary, MemoryInput(content=f"{CANARY} is her budget", fields={"level": "session"}), by=BY)
    gone = await service.add(project, MemoryInput(content=f"The budget was {CANARY}"), by=BY)
    await service.forget(project, gone.id, by=BY)
    waiting = new_id()
    line = {"id": waiting, "memory": f"Always say {CANARY}", "project_id": "secret", "status": "review"}
    await service.transfer.import_lines([line], user=project.user, done=0, by=BY)
    await service.add(Scope(project.user), MemoryInput(content="Bea plays chess"), by=BY)
    report = {"memory": memory, "fact": fact, "episode": episode, "own": own, "gone": gone}
    return {**{name: outcome.id for name, outcome in report.items()}, "review": waiting}


async def _turns(service: Service, diary: Scope) -> dict[str, str]:
    past = replace(diary, session=f"{CANARY} talk")
    remembered = await service.remember(past, f"The budget of {CANARY} was 8,000 dollars", by=BY)
    erased = remembered.turns[0].id
    await service.erasure.erase(past, ErasureRequest(Target.SESSION), by=BY)
    remembered = await service.remember(replace(diary, session="dawn"), "It is early", by=BY)
    assert remembered.job is not None
    [cancelled] = await service.jobs.cancel(diary.user, [remembered.job.id])
    remembered = await service.remember(diary, f"My budget for {CANARY} is 9,000 dollars", by=BY)
    assert remembered.job is not None
    await service.sessions.record_invocation(diary, {"query": CANARY, "summary": CANARY, "result": CANARY})
    return {"turn": remembered.turns[0].id, "job": remembered.job.id, "cancelled": cancelled.id, "erased": erased}


async def _recall(service: Service, diary: Scope) -> str:
    messages = [{"role": "user", "content": f"What is my budget for {CANARY}?"}]
    result = await service.recall(diary, RecallRequest(messages=messages, at=now(), limit=5, min_score=0.0))
    assert CANARY in result.context.text
    [logged] = await service.recalls(diary)
    return logged.id


async def _responses(service: Service, diary: Scope) -> dict[str, str]:
    until = now() + timedelta(days=1)
    request = {"id": f"msg_{new_id()}", "type": "message", "role": "user", "status": "completed"}
    request["content"] = [{"type": "input_text", "text": f"Is {CANARY} the budget?"}]  # type: ignore[assignment]
    payload = {**request, "id": f"msg_{new_id()}", "role": "assistant"}
    payload["content"] = [{"type": "output_text", "text": f"{CANARY} it is.", "annotations": []}]  # type: ignore[assignment]
    response = f"resp_{new_id()}"
    body = {"id": response, "object": "response", "status": "completed", "model": "m", "output": [payload]}
    stored = StoredResponse(
        id=response, scope=diary, root_id=response, created_at=now(), expires_at=until, body=body,
        input_items=[request],
        epoch=await service.epoch(diary.user),
    )  # fmt: skip
    await service.responses.save_response(diary, stored, started_at=now())
    thread = Thread(
        id=f"conv_{new_id()}", scope=diary, created_at=now(), expires_at=until, metadata={"topic": CANARY}
    )
    await service.responses.save_thread(diary, thread)
    item = {**request, "id": f"msg_{new_id()}"}
    await service.responses.add_items(diary, ThreadItems(thread.id, [item], expires_at=until))
    return {"response": response, "conversation": thread.id, "item": str(item["id"])}


@contextmanager
def served(home: Path, **more: Any) -> Iterator[World]:
    """Run a server with Bea's memories."""
    with ScriptedLLM() as llm:
        settings = {
            "home": home,
            "database": "memory:",
            "auth": "keys",
            "worker": False,
            # Only requests of callers reach the upstream.
            "learn_with_upstream": False,
            "upstream_url": llm.base_url,
            "agent_llm": "scripted",
            "llm_url": llm.base_url,
            **more,
        }
        app = _FromAnywhere(make_app(load(settings, environ={}).settings))
        transport = ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        with TestClient(app) as client:  # type: ignore[arg-type]
            http = AsyncClient(transport=transport, base_url=HERE, trust_env=False)
            world = World(client, http, llm)
            world.replace_bea()
            yield world


def response_text(answer: Response) -> str:
    """Return status, headers and body of an answer."""
    return f"{answer.status_code} {dict(answer.headers)} {answer.content.decode(errors='replace')}"


def sent(llm: ScriptedLLM) -> str:
    """Return everything that was sent to the upstream."""
    return " ".join(f"{json.dumps(request.json)} {dict(request.headers)}" for request in llm.requests)
