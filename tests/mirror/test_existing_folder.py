"""A memory folder of another program can be opened, and stays readable for that program."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from recollect.model.memory import Status
from recollect.model.scope import Scope
from tests.support.mirror_samples import BY, HOME, body, front_matter, mirrored_service

FOLDER = Path(__file__).parent / "data" / "existing_folder"
AT = datetime(2025, 11, 22, 17, 25, 0, 123456, tzinfo=UTC)
QUESTION, ANSWER, WHITE, HARBOUR, BLUE, KARI = (f"{n * 8}-{n * 4}-4{n * 3}-8{n * 3}-{n * 12}" for n in "f13456")


def read_as_they_do(path: Path) -> dict[str, Any]:
    """Parse a file as the other program does."""
    text = path.read_text()
    assert text.startswith("---")
    end = text.index("\n---", 3)
    content = yaml.safe_load(text[3:end])
    for name in ("id", "conversation_id", "role", "created_at", "summary_kind", "replaced_by", "source_id"):
        assert isinstance(content.get(name, ""), str), (name, content)
    assert content["id"]
    assert content["conversation_id"]
    assert content["role"] in ("user", "assistant", "memory", "summary")
    return {**content, "content": text[end + 4 :].strip()}


async def test_a_folder_of_another_program_opens_with_its_ids(tmp_path: Path) -> None:
    home = shutil.copytree(FOLDER, tmp_path / "home")
    before = {path: path.read_text() for path in home.glob("entries/*/facts/*.md")}
    async with mirrored_service(home) as mirror:
        done = await mirror.sync()
        assert (done.added, mirror.rejected()) == (7, {})
        results = {record.id: record for record in await mirror.all("default", *Status)}
        assert {QUESTION, ANSWER, WHITE, HARBOUR, BLUE, KARI} < results.keys()
        assert (results[WHITE].content, results[WHITE].evidence, results[WHITE].created_at) == (
            "User's boat is white",
            (QUESTION,),
            AT,
        )
        assert (results[HARBOUR].scope.project, results[KARI].level, results[WHITE].level) == (
            "team/a",
            "user",
            "project",
        )
        assert (results[BLUE].status, results[BLUE].superseded_by) == (Status.SUPERSEDED, WHITE)
        assert [(turn.id, turn.position) for turn in await mirror.service.turns(HOME)] == [(QUESTION, 1), (ANSWER, 2)]
        assert (await mirror.service.conversation(HOME)).summary == "The user has a white boat in Bergen."
        # Unchanged memories leave their files unchanged.
        assert {path: path.read_text() for path in before} == before


async def test_another_program_can_read_the_files_we_write(tmp_path: Path) -> None:
    home = shutil.copytree(FOLDER, tmp_path / "home")
    async with mirrored_service(home) as mirror:
        await mirror.sync()
        await mirror.add("name: no", tags=["x"], metadata={"a": {"b": [1, None]}}, importance=0.9)
        await mirror.add("A line\n---\nand another", Scope("default", "deleted", "deleted"))
        await mirror.add("2025-11-22", Scope("default", "true", "null"), key="1", value="2", level="session")
        await mirror.service.update(HOME, WHITE, {"content": "User's boat is white and blue"}, by=BY)
        await mirror.sync()
        read = [read_as_they_do(path) for path in mirror.files()]
        assert {each["content"] for each in read} == {
            *("User's boat is white and blue", "The harbour costs 900 crowns a year", "User is called Kari"),
            *("The user has a white boat in Bergen.", "A fine name.", "name: no", "2025-11-22"),
            *('My boat is "Gull", and she is white.\n\nShe lies in Bergen.', "A line\n---\nand another"),
        }
        assert not any("deleted" in path.parts for path in mirror.files())
        snapshot = json.loads((home / "memory_index.json").read_text())
        assert {each["id"] for each in snapshot} == {each["id"] for each in read}
        assert {each["path"] for each in snapshot} == {str(path) for path in mirror.files()}


async def test_an_edited_summary_becomes_the_summary_of_the_conversation(tmp_path: Path) -> None:
    home = shutil.copytree(FOLDER, tmp_path / "home")
    async with mirrored_service(home) as mirror:
        await mirror.sync()
        path = home / "entries/default/summaries/summary.md"
        path.write_text(path.read_text().replace("white", "green"))
        await mirror.sync()
        assert (
            (await mirror.service.conversation(HOME)).summary == body(path) == "The user has a green boat in Bergen."
        )
        assert front_matter(path)["summary_kind"] == "summary"
