"""The LangGraph store, with real graphs and compared to LangGraph's store in memory."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import openai
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from recollect import AsyncMemory, Memory, Status
from recollect.errors import InvalidFilter, InvalidInput
from recollect.integrations.langgraph import RecollectStore, namespace_filter, search_text
from recollect.maintenance.forgetting import MIN_SCORE, retention_score
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.framework_samples import BUDGET, QUESTION, RECALLED_ANSWER, UNKNOWN, model

ODD_VALUES: list[dict[str, Any]] = [
    {},
    {"text": ""},
    {"n": 1, "x": 1.5, "yes": True, "none": None, "list": [1, ["a", {"b": "c"}]], "deep": {"er": {"est": "🍍"}}},
    {"password": False, "text": "zero\u200bwidth and\nlines"},
    {"image": "data:image/png;base64,iVBORw0KGgo="},
    {"text": "word " * 2_000},
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(home=tmp_path) as memory:
        yield memory


@pytest.fixture
def store(memory: Memory) -> RecollectStore:
    return RecollectStore(memory)


class State(TypedDict, total=False):
    question: str
    answer: str


class Who(TypedDict):
    user: str


def graph(sdk: openai.OpenAI, store: RecollectStore) -> Any:
    """Build a graph whose model calls tools on the store until it answers."""

    def think(state: State, runtime: Runtime[Who]) -> State:
        assert runtime.store is not None
        space = (runtime.context["user"], "memories")
        messages: list[Any] = [{"role": "user", "content": state["question"]}]
        names = ("store_memory", "recall_memories")
        tools: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
        while True:
            dialogue = (
                sdk.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message
            )
            if not dialogue.tool_calls:
                return {"answer": dialogue.content or ""}
            messages.append(dialogue.model_dump(exclude_none=True))
            for call in dialogue.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": act(runtime.store, space, call)})

    def act(stored: Any, space: tuple[str, ...], call: Any) -> str:
        inputs = json.loads(call.function.arguments)
        if call.function.name == "store_memory":
            stored.put(space, "budget", {"text": inputs["content"]})
            return "stored"
        return json.dumps([item.value["text"] for item in stored.search(space, query=inputs["query"], limit=3)])

    made = StateGraph(State, context_schema=Who)
    made.add_node("think", think)
    made.add_edge(START, "think")
    made.add_edge("think", END)
    return made.compile(store=store)


def test_a_graph_recalls_after_a_restart_what_a_tool_stored_for_its_user_only(
    llm: ScriptedLLM, client: openai.OpenAI, tmp_path: Path
) -> None:
    llm.default = model
    with Memory(home=tmp_path) as memory:
        report = graph(client, RecollectStore(memory)).invoke(
            {"question": f"Remember: {BUDGET}"}, context={"user": "alex"}
        )
        assert report["answer"] == "Done. stored"
    with Memory(home=tmp_path) as memory:
        app = graph(client, RecollectStore(memory))
        assert app.invoke({"question": QUESTION}, context={"user": "alex"})["answer"] == RECALLED_ANSWER
        assert app.invoke({"question": QUESTION}, context={"user": "kim"})["answer"] == UNKNOWN
        assert asyncio.run(app.ainvoke({"question": QUESTION}, context={"user": "alex"}))["answer"] == RECALLED_ANSWER


class Chat(TypedDict, total=False):
    messages: Annotated[list[str], operator.add]


@contextmanager
def chat_graph(home: Path, llm: openai.OpenAI) -> Iterator[tuple[Any, Memory]]:
    """Build a graph with a checkpointer and a store on disk: it stores after a person agrees, then answers."""

    def keep(state: Chat, runtime: Runtime[Who]) -> None:
        assert runtime.store is not None
        text = state["messages"][-1]
        if text.startswith("Remember: "):
            item = {"text": text.removeprefix("Remember: ")}
            # The node runs again from here when the graph is resumed.
            runtime.store.put((runtime.context["user"], "drafts"), "last", item)
            if interrupt("May I keep this?"):
                runtime.store.put((runtime.context["user"], "memories"), "budget", item)

    def answer(state: Chat, runtime: Runtime[Who]) -> Chat:
        assert runtime.store is not None
        items = runtime.store.search((runtime.context["user"], "memories"), query=state["messages"][-1])
        recalled = [item.value["text"] for item in items]
        messages: list[Any] = [{"role": "user", "content": text} for text in [*recalled, *state["messages"]]]
        reply = llm.chat.completions.create(model="scripted", messages=messages).choices[0].message.content
        return {"messages": [reply or ""]}

    made = StateGraph(Chat, context_schema=Who)
    made.add_sequence([keep, answer])
    made.add_edge(START, "keep")
    threads = home / "threads.sqlite"
    with Memory(home=home) as memory, SqliteSaver.from_conn_string(str(threads)) as checkpointer:
        yield made.compile(checkpointer=checkpointer, store=RecollectStore(memory)), memory


def test_a_checkpointer_resumes_a_thread_and_another_thread_of_the_user_recalls_from_the_store(
    llm: ScriptedLLM, client: openai.OpenAI, tmp_path: Path
) -> None:
    llm.default = model
    first: Any = {"configurable": {"thread_id": "alex-1"}}

    def ask(app: Any, user: str, thread: str, text: str) -> str:
        config = {"configurable": {"thread_id": thread}}
        return str(app.invoke({"messages": [text]}, config, context={"user": user})["messages"][-1])

    with chat_graph(tmp_path, client) as (app, _):
        waiting = app.invoke({"messages": [f"Remember: {BUDGET}"]}, first, context={"user": "alex"})
        assert [each.value for each in waiting["__interrupt__"]] == ["May I keep this?"]
        assert ask(app, "alex", "alex-2", QUESTION) == UNKNOWN
    with chat_graph(tmp_path, client) as (app, memory):
        app.invoke(Command(resume=True), first, context={"user": "alex"})
        # The draft that was put twice is one item in its first version.
        [draft] = memory.get_all(user_id="alex", filters=namespace_filter(("alex", "drafts")))
        assert (draft.detail["value"], draft.version) == ({"text": BUDGET}, 1)
        assert ask(app, "alex", "alex-3", QUESTION) == RECALLED_ANSWER
        assert ask(app, "kim", "kim-1", QUESTION) == UNKNOWN
    with chat_graph(tmp_path, client) as (app, memory):
        thread = [QUESTION, UNKNOWN]
        assert app.get_state({"configurable": {"thread_id": "alex-2"}}).values["messages"] == thread
        assert ask(app, "alex", "alex-2", QUESTION) == RECALLED_ANSWER
        # An erasure reaches the store, but not what a checkpoint holds.
        memory.erasure.erase(user_id="alex", everything=True)
        assert ask(app, "alex", "alex-4", QUESTION) == UNKNOWN
        assert app.get_state(first).values["messages"][0] == f"Remember: {BUDGET}"


def test_a_value_is_returned_as_it_was_put(store: RecollectStore) -> None:
    for number, value in enumerate(ODD_VALUES):
        started = datetime.now(UTC)
        namespace = ("alex", str(number))
        store.put(namespace, "it", value)
        stored = store.get(namespace, "it")
        assert stored is not None
        assert (stored.value, stored.key, stored.namespace) == (value, "it", namespace)
        assert started <= stored.created_at <= stored.updated_at <= datetime.now(UTC)
        assert [each.value for each in store.search(namespace)] == [value]


def test_values_that_are_not_plain_json_are_refused(store: RecollectStore) -> None:
    for value in ({"f": object()}, {"x": float("nan")}, {"t": "a\0b"}):
        with pytest.raises(InvalidInput):
            store.put(("alex", "odd"), "it", value)
    assert store.search(("alex",)) == []


def test_secrets_are_removed_from_values(store: RecollectStore) -> None:
    store.put(("alex",), "wifi", {"name": "home", "password": "x7Kq2pL9vW3nR8tZ"})
    stored = store.get(("alex",), "wifi")
    assert stored is not None
    assert stored.value["name"] == "home"
    assert "x7Kq2pL9vW3nR8tZ" not in str(stored.value)


def test_items_with_equal_text_are_separate_by_namespace_key_and_user(store: RecollectStore) -> None:
    places = [("alex", "a"), ("alex", "b"), ("alex", "a", "b"), ("kim", "a")]
    for number, place in enumerate(places):
        for key in ("one", "two"):
            store.put(place, key, {"text": "Green is nice", "number": number, "key": key})
    for number, place in enumerate(places):
        for key in ("one", "two"):
            stored = store.get(place, key)
            assert stored is not None
            assert stored.value == {"text": "Green is nice", "number": number, "key": key}
    assert len(store.search(("alex",))) == 6
    assert len(store.search(("alex", "a"))) == 4
    assert len(store.search(("alex", "a"), query="Which colour is nice?")) == 4
    assert len(store.search(("kim",), query="Which colour is nice?")) == 2


def test_a_second_put_updates_the_item_and_can_be_undone(memory: Memory, store: RecollectStore) -> None:
    store.put(("alex",), "city", {"text": "Oslo"})
    first = store.get(("alex",), "city")
    store.put(("alex",), "city", {"text": "Lisbon"})
    second = store.get(("alex",), "city")
    assert first is not None
    assert second is not None
    assert second.value == {"text": "Lisbon"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert [item.value["text"] for item in store.search(("alex",), query="Lisbon")] == ["Lisbon"]
    memory.undo(user_id="alex")
    repeated = store.get(("alex",), "city")
    assert repeated is not None
    assert repeated.value == {"text": "Oslo"}


def test_a_deleted_item_is_restored_by_undo(memory: Memory, store: RecollectStore) -> None:
    store.put(("alex",), "city", {"text": "Oslo"})
    store.delete(("alex",), "city")
    store.delete(("alex",), "never there")
    assert store.get(("alex",), "city") is None
    assert store.search(("alex",), query="Oslo") == []
    memory.undo(user_id="alex")
    assert store.get(("alex",), "city") is not None


def test_a_search_finds_by_meaning_with_scores_that_fall(store: RecollectStore) -> None:
    for key, text in enumerate(["I love pizza", "My car is red", "The demo is on 3 June", "Our cat is called Tom"]):
        store.put(("alex", "memories"), str(key), {"text": text})
    hits = store.search(("alex", "memories"), query="What does the user like to eat?", limit=3)
    assert hits[0].value == {"text": "I love pizza"}
    scores = [item.score for item in hits]
    assert len(scores) == 3
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    page = store.search(("alex", "memories"), query="What does the user like to eat?", limit=2, offset=1)
    assert [item.key for item in page] == [item.key for item in hits[1:]]


def test_only_the_configured_fields_are_searched(memory: Memory) -> None:
    store = RecollectStore(memory, fields=["title"])
    store.put(("alex",), "a", {"title": "Bread", "body": "Volcano"})
    store.put(("alex",), "b", {"title": "Volcano", "body": "Bread"})
    store.put(("alex",), "c", {"title": "Volcano"}, index=False)
    store.put(
        ("alex",), "d", {"title": "Stone", "parts": [{"name": "Volcanoes of Iceland"}]}, index=["parts[*].name"]
    )
    hits = store.search(("alex",), query="Volcano")
    assert {item.key for item in hits[:2]} == {"b", "d"}
    assert (hits[-1].key, hits[-1].score) == ("c", None)


FILTERS: list[dict[str, Any]] = [
    {},
    {"kind": "note"},
    {"kind": {"$ne": "note"}},
    {"stars": {"$gte": 3}},
    {"stars": {"$gt": 1, "$lt": 4}},
    {"kind": "note", "stars": {"$lte": 2}},
    {"about": {"city": "Oslo"}},
    {"tags": ["a", "b"]},
    {"missing": None},
]


def test_filters_match_the_in_memory_store_of_langgraph(store: RecollectStore) -> None:
    reference = InMemoryStore()
    for number in range(6):
        value = {
            "kind": "note" if number % 2 else "list",
            "stars": number,
            "about": {"city": "Oslo" if number < 2 else "Rome", "n": number},
            "tags": ["a", "b"] if number == 3 else ["a"],
        }
        for each in (store, reference):
            each.put(("alex", "f"), str(number), value)
    for condition in FILTERS:
        expected = {item.key for item in reference.search(("alex",), filter=condition)}
        for query in (None, "note"):
            hits = store.search(("alex",), filter=condition, query=query)
            assert {item.key for item in hits} == expected, (condition, query)


def test_an_unknown_filter_operator_is_an_error(store: RecollectStore) -> None:
    store.put(("alex",), "a", {"stars": 1})
    with pytest.raises(InvalidFilter, match=r"\$like"):
        store.search(("alex",), filter={"stars": {"$like": 2}})
    assert store.search(("alex",), filter={"stars": {"$gt": "many"}}) == []


NAMESPACE_OPTIONS: list[dict[str, Any]] = [
    {},
    {"prefix": ("alex", "docs")},
    {"suffix": ("draft",)},
    {"prefix": ("alex", "*", "draft")},
    {"prefix": ("alex", "docs"), "suffix": ("final",)},
    {"max_depth": 2},
    {"max_depth": 2, "limit": 1, "offset": 1},
]


def test_namespaces_match_the_in_memory_store_of_langgraph(store: RecollectStore) -> None:
    reference = InMemoryStore()
    for space in [("alex",), ("alex", "docs", "draft"), ("alex", "docs", "final"), ("alex", "notes", "draft")]:
        for each in (store, reference):
            each.put(space, "k", {"text": "x"})
    for more in NAMESPACE_OPTIONS:
        options = {"prefix": ("alex",), **more}
        assert store.list_namespaces(**options) == reference.list_namespaces(**options), more


def test_a_namespace_without_a_user_is_refused(memory: Memory) -> None:
    second = RecollectStore(memory, user_at=1)
    second.put(("memories", "alex"), "k", {"text": "x"})
    for wrong in (lambda: second.search(()), lambda: second.search(("memories",)), lambda: second.list_namespaces()):
        with pytest.raises(InvalidInput, match="names no user"):
            wrong()
    with pytest.raises(InvalidInput, match="names no user"):
        second.put(("memories",), "k", {"text": "x"})
    own = RecollectStore(memory, user_id="kim")
    own.put(("memories",), "k", {"text": "y"})
    assert [item.value["text"] for item in own.search(())] == ["y"]
    assert own.list_namespaces() == [("memories",)]
    assert [each.key for each in second.search(("memories", "alex"))] == ["k"]


def test_reading_an_item_renews_its_time_to_live(store: RecollectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.integrations import langgraph

    start = datetime.now(UTC)
    store.put(("alex",), "k", {"text": "soon gone"}, ttl=10)

    def later(minutes: float) -> None:
        monkeypatch.setattr(langgraph, "now", lambda: start + timedelta(minutes=minutes))

    later(9)
    assert store.get(("alex",), "k") is not None
    later(18)
    assert store.search(("alex",), refresh_ttl=False) != []
    later(20)
    assert store.get(("alex",), "k") is None
    assert store.search(("alex",)) == []
    assert store.list_namespaces(prefix=("alex",)) == []
    store.put(("alex",), "k", {"text": "back for good"})
    later(2000)
    assert store.get(("alex",), "k") is not None


def test_the_default_time_to_live_applies_to_all_items(memory: Memory) -> None:
    store = RecollectStore(memory, ttl={"default_ttl": 5, "refresh_on_read": False})
    store.put(("alex",), "k", {"text": "x"})
    [record] = memory.get_all(user_id="alex")
    assert record.expires_at is not None
    assert timedelta(minutes=4) < record.expires_at - datetime.now(UTC) <= timedelta(minutes=5)
    assert store.get(("alex",), "k") is not None
    assert memory.get_all(user_id="alex")[0].version == 1


def test_a_batch_reads_the_state_before_its_puts_and_the_last_put_wins(store: RecollectStore) -> None:
    store.put(("alex",), "k", {"text": "old"})
    got, *_, listed = store.batch(
        [
            GetOp(("alex",), "k"),
            PutOp(("alex",), "k", {"text": "newer"}),
            PutOp(("alex",), "k", {"text": "newest"}),
            PutOp(("alex",), "other", None),
            SearchOp(("alex",)),
        ]
    )
    assert getattr(got, "value", None) == {"text": "old"}
    assert [item.value for item in listed] == [{"text": "old"}]  # type: ignore[union-attr]
    assert [item.value for item in store.search(("alex",))] == [{"text": "newest"}]


def test_concurrent_puts_of_a_key_leave_one_item(memory: Memory, store: RecollectStore) -> None:
    def put(number: int) -> None:
        store.put(("alex", "race"), f"k{number % 3}", {"text": f"value {number}"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(24)))
    assert sorted(item.key for item in store.search(("alex",))) == ["k0", "k1", "k2"]
    assert len(memory.get_all(user_id="alex", statuses=[Status.ACTIVE])) == 3


async def test_a_put_succeeds_if_the_item_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deleted = AsyncMemory.get_all, list[str]()

    async def then_delete(memory: AsyncMemory, **options: Any) -> Any:
        page = await real(memory, **options)
        for record in page:
            if not deleted:
                deleted.append(record.id)
                await memory.delete(record.id, user_id="alex")
        return page

    async with AsyncMemory(home=tmp_path) as memory:
        store = RecollectStore(memory)
        await store.aput(("alex",), "k", {"text": "first"})
        monkeypatch.setattr(AsyncMemory, "get_all", then_delete)
        await store.aput(("alex",), "k", {"text": "second"})
        assert deleted
        assert [item.value for item in await store.asearch(("alex",))] == [{"text": "second"}]


async def test_an_async_memory_refuses_blocking_calls(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        store = RecollectStore(memory)
        await asyncio.gather(*(store.aput((f"user {n}", "x"), "k", {"text": f"v{n}"}) for n in range(10)))
        for number in range(10):
            assert [each.value["text"] for each in await store.asearch((f"user {number}",))] == [f"v{number}"]
        with pytest.raises(InvalidInput, match="pass a Memory"):
            store.get(("user 1", "x"), "k")


async def test_learning_does_not_change_items_and_a_project_search_finds_them(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        store = RecollectStore(memory)
        await store.aput(("alex", "profile"), "city", {"text": "The user lives in Oslo"})
        await memory.remember("I moved from Oslo to Lisbon last week", user_id="alex", wait=True)
        stored = await store.aget(("alex", "profile"), "city")
        assert stored is not None
        assert stored.value == {"text": "The user lives in Oslo"}
        concurrent = await memory.search("Where does the user live?", user_id="alex", project_id="langgraph")
        assert any(hit.memory == "The user lives in Oslo" for hit in concurrent)
        alone = await memory.search("Where does the user live?", user_id="alex")
        assert not any(hit.memory == "The user lives in Oslo" for hit in alone)


async def test_maintenance_does_not_remove_old_or_similar_items(tmp_path: Path) -> None:
    async with AsyncMemory(home=tmp_path) as memory:
        store = RecollectStore(memory)
        for number in range(6):
            await store.aput(("alex", str(number)), "k", {"text": "The user likes green tea", "number": number})
        [record, *_] = await memory.get_all(user_id="alex")
        assert retention_score(record, record.created_at + timedelta(days=3650)) >= MIN_SCORE
        assert record.importance < memory.settings.recall_facts_min_importance
        await memory.admin.maintain(user_id="alex")
        assert len(await store.asearch(("alex",))) == 6


def test_a_single_value_is_searched_without_its_name() -> None:
    assert search_text({"text": "I love pizza"}, None) == "I love pizza"
    assert search_text({"food": {"likes": ["pizza", "rice"]}}, None) == ("food likes: pizza\nfood likes: rice")


async def test_items_are_stored_in_postgresql(dsn: str) -> None:
    async with AsyncMemory(dsn) as memory:
        store = RecollectStore(memory)
        for number, value in enumerate(ODD_VALUES):
            await store.aput(("alex", "odd", str(number)), "k", value)
        await store.aput(("kim", "odd", "0"), "k", {"text": "Kim's own"}, ttl=5)
    async with AsyncMemory(dsn) as memory:
        store = RecollectStore(memory)
        hits = await store.asearch(("alex", "odd"), limit=10)
        assert [item.value for item in hits] == ODD_VALUES[::-1]
        assert len(await store.alist_namespaces(prefix=("alex",), max_depth=2)) == 1
        [hers] = await store.asearch(("kim",), query="What is Kim's own?")
        assert hers.value == {"text": "Kim's own"}
        await store.adelete(("alex", "odd", "1"), "k")
        assert await store.aget(("alex", "odd", "1"), "k") is None
