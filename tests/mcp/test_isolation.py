"""No tool, resource or prompt shows or changes anything of another user or of another project."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from recollect.mcp.tools import BASIC_TOOLS, TOOL_GROUPS
from tests.mcp.conftest import McpServerForTests
from tests.support.mcp_client import call, http_client, prompt, read, recalled, text_of, values_of

CANARY = "canaryWKZX"
QUESTION = f"Where is the office of {CANARY}?"
# The arguments of every tool, with the id of another's memory.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "recall": {"query": QUESTION},
    "show": {"ids": ["{id}"]},
    "remember": {"text": "Bob owns a boat"},
    "forget": {"id": "{id}"},
    "undo": {},
    "history": {"limit": 100},
    "sessions": {},
    "stats": {},
    "review_list": {},
    "search": {"query": QUESTION},
    "fetch": {"id": "{id}"},
}
BY_ID = ("show", "forget", "fetch")


async def everything(client: Client, id: str) -> dict[str, str]:
    """Return the answers of all tools, resources and prompts."""
    answers = {}
    for tool, arguments in ARGUMENTS.items():
        filled = json.loads(json.dumps(arguments).replace("{id}", id))
        result = await client.call_tool(tool, filled)
        answers[tool] = text_of(result) + str(result.structured_content)
        assert result.is_error is (tool in BY_ID)
    for uri in ("memory://profile", "memory://recent"):
        answers[uri] = await read(client, uri)
    with pytest.raises(MCPError) as error:
        await read(client, f"memory://{id}")
    answers["memory://{id}"] = str(error.value)
    answers["brief"] = await prompt(client, "brief", topic=QUESTION)
    answers["what_do_you_know_about_me"] = await prompt(client, "what_do_you_know_about_me")
    return answers


def without_question(text: str) -> str:
    return text.replace(QUESTION, "").replace("?", "")


def test_every_tool_has_a_case() -> None:
    tools = [*BASIC_TOOLS, *(tool for group in TOOL_GROUPS.values() for tool in group)]
    assert [tool.name for tool in tools] == list(ARGUMENTS)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("bob", "secret"),
        ("bob", ""),
        ("ann", "other"),
        ("ann", ""),
        ("ann_atlas", "atlas"),
        ("ann_atlas", ""),
    ],
)
async def test_another_user_and_another_project_see_and_change_nothing(
    server: McpServerForTests, era: str, key: str, path: str
) -> None:
    secret = f"secret-{era}-{key}-{path}"
    async with (
        http_client(f"{server.url}/{secret}", era, server.keys["ann"]) as owner,
        http_client(f"{server.url}/{secret if path == 'secret' else path}", era, server.keys[key]) as other,
    ):
        text = f"The office of {CANARY} is in Malmö"
        id = values_of(await call(owner, "remember", text=text, kind="preference", key="office"))["id"]
        await call(owner, "remember", text=f"Always tell {CANARY}")
        answers = await everything(other, id)
        unknown = await everything(other, "01a1eb5c-c449-7000-9113-1846f37b08ba")
        assert not [name for name, answer in answers.items() if CANARY in without_question(answer)]
        for name in (*BY_ID, "memory://{id}"):
            assert "no such memory" in answers[name]
            assert answers[name].replace(id, "") == unknown[name].replace("01a1eb5c-c449-7000-9113-1846f37b08ba", "")
        # Their undo took back their own memory, and nothing of the owner's.
        assert await recalled(owner, QUESTION) == [text]
        assert id in await read(owner, "memory://profile")


async def test_a_key_of_one_project_cannot_name_another(server: McpServerForTests) -> None:
    with pytest.raises(ExceptionGroup) as error:
        async with http_client(f"{server.url}/other", "legacy", server.keys["ann_atlas"]):
            pass
    assert "another project than its credentials" in repr(error.value) or "403" in repr(error.value)


async def test_a_key_of_one_project_does_not_forget_what_is_for_all(server: McpServerForTests, era: str) -> None:
    async with (
        http_client(server.url, era, server.keys["ann"]) as owner,
        http_client(server.url, era, server.keys["ann_atlas"]) as limited,
    ):
        id = values_of(await call(owner, "remember", text=f"Ann's keyboard is a Planck {era}"))["id"]
        assert any("Planck" in each for each in await recalled(limited, "Which keyboard?"))
        result = await limited.call_tool("forget", {"id": id})
        assert "belongs to all projects" in text_of(result)
        assert any("Planck" in each for each in await recalled(owner, "Which keyboard?"))


async def test_undo_leaves_the_changes_of_another_key_alone(server: McpServerForTests, era: str) -> None:
    url = f"{server.url}/atlas"
    async with (
        http_client(url, era, server.keys["ann"]) as first,
        http_client(url, era, server.keys["ann_atlas"]) as second,
    ):
        await call(second, "remember", text=f"The second key says Malmö {era}")
        await call(first, "remember", text=f"The first key says Lund {era}")
        await call(second, "undo")
        texts = await recalled(first, "What do the keys say?")
        assert f"The first key says Lund {era}" in texts
        assert f"The second key says Malmö {era}" not in texts
