"""Anthropic's memory tool, with the SDK's real runner and compared to the SDK's own tool for files."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from recollect import AsyncMemory, Memory
from recollect.deps import Deps
from recollect.errors import NotFound, ToolFailed
from recollect.files import MemoryFiles, run_command
from recollect.index.exact import ExactIndex
from recollect.integrations.anthropic import AsyncMemoryTool, MemoryTool, memory_tool
from recollect.ledger.sqlite import open_in_memory
from recollect.model.change import Author
from recollect.model.scope import Scope
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.write.redact import Redactor
from tests.support.anthropic_server import NOTES, NOTHING, QUESTION, REMEMBER_PREFIX, endpoint

BUDGET = "The budget for the Hawaii trip is $10,000"
VIEW_OUTPUT = f"Here's the content of {NOTES} with line numbers:\n     1\t{BUDGET}"
_users = itertools.count()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(home=tmp_path_factory.mktemp("home")) as memory:
        yield memory


@pytest.fixture
def user() -> str:
    return f"user-{next(_users)}"


@pytest.fixture
def tool(memory: Memory, user: str) -> MemoryTool:
    return memory_tool(memory, user_id=user)


def call_tool(tool: BetaAbstractMemoryTool, **command: Any) -> str:
    """Return the reply of a tool, or its error message."""
    try:
        return str(tool.call(command))
    except ToolError as error:
        return f"Error: {error.content}"


# Equal replies

NAMES = ["a", "b.md", "A", "c d", ".hidden", "é", "%2e%2e", "..", ".", "", "CON"]
STARTS = ["/memories", "/memories/", "/memories/../memories", "/memories/../..", "/memory", "memories", "/etc"]
USUAL = ["", "/a", "/b.md", "/a/b.md", "/a/c d", "/a/c d/e", "/.hidden/x", "/z"]
THERE = {
    "/b.md": "one\ntwo\nthree\nfour\nfive\nsix",
    "/a/b.md": "a\nb\nb\n",
    "/.hidden/x": "",
    "/a/c d/e": "b" * 1500,
}
ODD = st.builds(
    lambda start, parts, end: "/".join([start, *parts]) + end,
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(NAMES), max_size=4),
    st.sampled_from(["", "/"]),
)
PATHS = st.one_of(
    *[st.sampled_from([f"/memories{each}" for each in THERE])] * 3,
    *[st.sampled_from([f"/memories{each}" for each in USUAL])] * 2,
    ODD,
)
TEXTS = st.text(alphabet="ab \n\té🍍", max_size=24) | st.sampled_from(["", "\n", "a\na\na\n", "word " * 300])
PLACES = [(f"/memories{path}", old) for path in THERE for old in ("one", "three", "six", "a", "b", "a\nb", "")]
COMMANDS = st.one_of(
    st.fixed_dictionaries(
        {"command": st.just("view"), "path": PATHS},
        optional={"view_range": st.lists(st.integers(-3, 6), max_size=3)},
    ),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries({"command": st.just("str_replace"), "path": PATHS, "old_str": TEXTS, "new_str": TEXTS}),
    st.builds(
        lambda place, new: {"command": "str_replace", "path": place[0], "old_str": place[1], "new_str": new},
        st.sampled_from(PLACES),
        TEXTS,
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": PATHS, "insert_line": st.integers(-2, 5), "insert_text": TEXTS}
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)


def theirs(tool: BetaLocalFilesystemMemoryTool, command: dict[str, Any]) -> str:
    """Return the reply of the SDK, without a message if it raises; remove empty folders, which we do not store."""
    try:
        answer = call_tool(tool, **command)
    except (OSError, ValueError):
        answer = "Error: "
    for folder, _, _ in os.walk(tool.memory_root, topdown=False):
        if Path(folder) != tool.memory_root and not os.listdir(folder):
            os.rmdir(folder)
    before, reported_lines, places = answer.partition("` in lines: ")
    if reported_lines:
        # We list at most a thousand lines.
        numbers, end, rest = places.partition(". Please")
        answer = before + reported_lines + ", ".join(numbers.split(", ")[:1000]) + end + rest
    head, *lines = answer.split("\n")
    if head.startswith("Here're the files"):
        # The size of a folder depends on the file system.
        is_folder = [not at or line.endswith("/") for at, line in enumerate(lines)]
        sized = zip(lines, is_folder, strict=True)
        lines = ["4K" + line[line.index("\t") :] if folder else line for line, folder in sized]
    return "\n".join([head, *lines])


@settings(
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(
    commands=[
        {"command": "view", "path": "/memories/a/"},
        {"command": "view", "path": "/memories/b.md", "view_range": [2, -1]},
        {"command": "insert", "path": "/memories/b.md", "insert_line": 6, "insert_text": "end\n\n"},
        {"command": "insert", "path": "/memories/.hidden/x", "insert_line": 0, "insert_text": ""},
        {"command": "str_replace", "path": "/memories/b.md", "old_str": "four", "new_str": "4\n4"},
        {"command": "create", "path": "/memories/b.md/x", "file_text": "below a file"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/a/inside"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/z/y"},
        {"command": "rename", "old_path": "/memories/b.md", "new_path": "/memories/a"},
        {"command": "view", "path": "/memories"},
        {"command": "delete", "path": "/memories/z"},
    ]
)
@given(commands=st.lists(COMMANDS, min_size=3, max_size=12))
def test_replies_equal_those_of_the_sdk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, commands: list[dict[str, Any]]
) -> None:
    # Files of the SDK need not be durable here.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    folder = tmp_path / str(next(_users))
    sdks = BetaLocalFilesystemMemoryTool(str(folder))
    there = [{"command": "create", "path": f"/memories{path}", "file_text": text} for path, text in THERE.items()]
    views = [{"command": "view", "path": f"/memories{path}"} for path in ("", *THERE)]
    commands = [*there, *commands, *views]
    expected = [theirs(sdks, command) for command in commands]
    for command, answer, got in zip(commands, expected, asyncio.run(ours(commands)), strict=True):
        event(f"{command['command']} {'fails' if got.startswith('Error') else 'works'}")
        assert got.startswith("Error: ") if answer == "Error: " else got == answer, command
    shutil.rmtree(folder)


async def ours(commands: list[dict[str, Any]]) -> list[str]:
    """Return our replies to the commands, in order."""
    embedder = FakeEmbedder()
    ledger = await open_in_memory(embedder.model)
    index = ExactIndex(ledger, embedder.model, budget_bytes=1 << 20)
    files = MemoryFiles(Deps(ledger, index, embedder), Redactor())
    answers = []
    for command in commands:
        try:
            answers.append(await run_command(files, Scope("ann"), command, by=Author("test")))
        except ToolFailed as error:
            answers.append(f"Error: {error}")
    await ledger.close()
    return answers


# With the SDK's runner


def ask(address: str, tool: MemoryTool, words: str) -> str:
    with Anthropic(base_url=address, api_key="-", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=100, tools=[tool], messages=[{"role": "user", "content": words}]
        )
        [block] = runner.until_done().content
        return str(getattr(block, "text", ""))


def test_a_file_is_read_in_the_next_conversation_after_a_restart(tmp_path: Path) -> None:
    with endpoint() as address:
        with Memory(home=tmp_path) as memory:
            output = ask(address, memory_tool(memory, user_id="alex"), REMEMBER_PREFIX + BUDGET)
            repeated = ask(address, memory_tool(memory, user_id="alex"), REMEMBER_PREFIX + "something else")
        with Memory(home=tmp_path) as memory:
            existing = ask(address, memory_tool(memory, user_id="alex"), QUESTION)
            rest = ask(address, memory_tool(memory, user_id="sam"), QUESTION)
            projects = ask(address, memory_tool(memory, user_id="alex", project_id="trips"), QUESTION)
    assert output == f"File created successfully at: {NOTES}"
    assert repeated == f"Error: File {NOTES} already exists"
    assert existing == VIEW_OUTPUT
    assert rest == projects == NOTHING


async def test_the_async_client_reads_and_writes_files(tmp_path: Path) -> None:
    async def ask(tool: AsyncMemoryTool, words: str) -> str:
        runner = client.beta.messages.tool_runner(
            model="claude", max_tokens=100, tools=[tool], messages=[{"role": "user", "content": words}]
        )
        return str(getattr((await runner.until_done()).content[0], "text", ""))

    with endpoint() as address:
        async with AsyncAnthropic(base_url=address, api_key="-", max_retries=0) as client:
            async with AsyncMemory(home=tmp_path) as memory:
                tool = memory_tool(memory, user_id="alex")
                assert await ask(tool, REMEMBER_PREFIX + BUDGET) == f"File created successfully at: {NOTES}"
                assert await ask(tool, REMEMBER_PREFIX + BUDGET) == f"Error: File {NOTES} already exists"
            with Memory(home=tmp_path) as blocking:
                # A Memory serves the async client as well.
                assert await ask(AsyncMemoryTool(blocking, user_id="alex"), QUESTION) == VIEW_OUTPUT
                assert await AsyncMemoryTool(blocking, user_id="alex").clear_all_memory() == "All memory cleared"
                assert await ask(AsyncMemoryTool(blocking, user_id="alex"), QUESTION) == NOTHING


# As memories


def create(tool: MemoryTool, path: str, text: str) -> str:
    return call_tool(tool, command="create", path=path, file_text=text)


def view(tool: MemoryTool, path: str = "/memories") -> str:
    return call_tool(tool, command="view", path=path)


def test_each_change_of_a_file_is_in_history_and_can_be_undone(memory: Memory, user: str, tool: MemoryTool) -> None:
    create(tool, "/memories/a/x.md", "one\n")
    create(tool, "/memories/a/y.md", "")
    call_tool(tool, command="str_replace", path="/memories/a/x.md", old_str="one", new_str="two")
    call_tool(tool, command="rename", old_path="/memories/a", new_path="/memories/b")
    before = view(tool, "/memories/b/x.md")
    call_tool(tool, command="delete", path="/memories/b")
    assert "/memories/b" not in view(tool)
    memory.undo(user_id=user)
    assert view(tool, "/memories/b/x.md") == before
    assert view(tool, "/memories/b/y.md").endswith("\n     1\t")
    [record] = memory.get_all(user_id=user, filters={"key": "/memories/b/x.md"})
    assert [entry.verb for entry in memory.history(record.id, user_id=user)][::-1] == [
        "add", "update", "update", "forget", "undo",
    ]  # fmt: skip
    assert {entry.by.who for entry in memory.history(record.id, user_id=user)} == {"anthropic", "python"}
    memory.undo(user_id=user)
    assert "/memories/a/y.md" in view(tool)
    memory.undo(user_id=user)
    assert view(tool, "/memories/a/x.md").endswith("     1\tone\n     2\t")
    assert tool.clear_all_memory() == "All memory cleared"
    assert view(tool).endswith("hidden items:\n4K\t/memories")
    memory.undo(user_id=user)
    assert "/memories/a/x.md" in view(tool)


def test_an_erased_file_is_gone_for_good(memory: Memory, user: str, tool: MemoryTool) -> None:
    create(tool, NOTES, BUDGET)
    [record] = memory.get_all(user_id=user, filters={"category": "file"})
    memory.erasure.erase(user_id=user, memory_id=record.id)
    assert view(tool, NOTES) == f"Error: The path {NOTES} does not exist. Please provide a valid path."
    with pytest.raises(NotFound):
        memory.get(record.id, user_id=user)
    assert create(tool, NOTES, "new") == f"File created successfully at: {NOTES}"


def test_secrets_are_removed_and_reported_to_the_model(memory: Memory, user: str, tool: MemoryTool) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    answer = create(tool, NOTES, f"key: {secret}\n")
    assert answer == f"File created successfully at: {NOTES}\nSecrets are not kept, and were left out: api key"
    call_tool(tool, command="insert", path=NOTES, insert_line=0, insert_text="first")
    edited = call_tool(tool, command="str_replace", path=NOTES, old_str="first", new_str=f"again {secret}")
    assert edited.endswith("left out: api key")
    assert secret not in edited
    assert secret not in view(tool, NOTES)
    assert secret not in str([entry.to_dict() for entry in memory.history(user_id=user)])
    refused = create(tool, f"/memories/{secret}.md", "x")
    assert "holds a secret" in refused
    assert "holds a secret" in call_tool(tool, command="rename", old_path=NOTES, new_path=f"/memories/{secret}")
    assert secret not in view(tool)


def test_files_are_exported_and_imported_whole(memory: Memory, user: str, tool: MemoryTool) -> None:
    create(tool, "/memories/a/x.md", "one\n\n")
    create(tool, "/memories/empty", "")
    lines = list(memory.export(user_id=user))
    other = memory_tool(memory, user_id=f"{user}-copy")
    memory.import_([{**line, "id": f"{line['id']}-copy"} for line in lines], user_id=f"{user}-copy")
    assert view(other) == view(tool)
    assert view(other, "/memories/a/x.md") == view(tool, "/memories/a/x.md")


@pytest.mark.parametrize(
    "command",
    [
        {"command": "create", "path": NOTES},
        {"command": "create", "path": 5, "file_text": "x"},
        {"command": "insert", "path": NOTES, "insert_line": "1", "insert_text": "x"},
        {"command": "view", "path": NOTES, "view_range": ["1", "2"]},
        {"command": "view"},
        {"command": "rename", "old_path": NOTES},
    ],
)
def test_invalid_commands_are_reported(tool: MemoryTool, command: dict[str, Any]) -> None:
    assert call_tool(tool, **command).startswith("Error: ")
