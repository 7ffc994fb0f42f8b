"""Moving in keeps to the room there is, and a dry run counts what says the same as the real one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import movein_samples as samples
import pytest
from cli_runner import Cli

from recollect import Memory
from recollect.errors import QuotaReached
from recollect.movein import conduct
from recollect.movein.terms import ImportReport
from recollect.settings import Settings
from recollect.testing.fake_embedder import FakeEmbedder


def opened(home: Path, most: int = 0) -> Memory:
    settings = Settings(home=home, worker=False, learn="off", user_memories_most=most)
    return Memory(settings=settings, embedder=FakeEmbedder(16))


def figures(moved: ImportReport) -> tuple[Any, ...]:
    return moved.added, moved.present, moved.kept, moved.redacted, dict(moved.left), moved.named, moved.refused


def items(path: Path, *report: tuple[str, str]) -> Path:
    """Items of LangGraph: whose, and what."""
    lines = [
        {"namespace": ["memories", user], "key": f"k{number}", "value": {"text": text}}
        for number, (user, text) in enumerate(report)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("batch", [2, 2000])
def test_a_dry_run_counts_what_is_said_twice_as_the_real_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(conduct, "_BATCH", batch)
    report = [("alex", "Likes tea"), ("alex", "Has a cat"), ("alex", "Likes tea"), ("bea", "Likes tea")]
    source = items(tmp_path / "items.jsonl", *report, ("alex", "Lives in Oslo"), ("alex", "Likes tea"))
    with opened(tmp_path / "home") as memory:
        memory.add("Lives in Oslo", user_id="alex")
        would = memory.import_from(source, everyone=True, dry_run=True)
        assert (would.added, would.present) == (3, 3)
        assert figures(memory.import_from(source, everyone=True)) == figures(would)
        assert memory.stats(user_id="alex")["memories"] == 3


def test_a_dry_run_knows_which_value_of_a_key_stays(tmp_path: Path) -> None:
    with opened(tmp_path / "theirs") as theirs:
        for confidence, city in ((0.6, "Oslo"), (0.9, "Rome"), (0.9, "Bern")):
            theirs.add(f"Lives in {city}", user_id="alex", key="city", value=city, confidence=confidence)
        lines = list(theirs.export())
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with opened(tmp_path / "home") as memory:
        memory.add("Lives in Paris", user_id="alex", key="city", value="Paris", confidence=1.0)
        would = memory.import_from(tmp_path / "all.jsonl", everyone=True, dry_run=True)
        assert (would.added, would.kept) == (2, 1)
        assert figures(memory.import_from(tmp_path / "all.jsonl", everyone=True)) == figures(would)


@pytest.mark.parametrize("batch", [3, 2000])
def test_what_there_is_no_room_for_is_left_out_and_told_and_others_are_brought_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(conduct, "_BATCH", batch)
    report = [("alex", f"Boat {number % 6}") for number in range(12)]
    source = items(tmp_path / "items.jsonl", *report, ("bea", "Rides a bike"))
    with opened(tmp_path / "home", most=5) as memory:
        memory.add("Likes tea", user_id="alex")
        would = memory.import_from(source, everyone=True, dry_run=True)
        moved = memory.import_from(source, everyone=True)
        assert figures(moved) == figures(would)
        [(why, count)] = moved.left.items()
        assert "no more than 5 memories" in why
        # Four boats and a bike; the fifth and the sixth boat come twice each.
        assert (moved.added, moved.present, count, moved.refused) == (5, 4, 4, 4)
        assert moved.named[0].where == "items.jsonl, line 5"
        assert memory.stats(user_id="alex")["memories"] == 5
        assert [hit.memory for hit in memory.get_all(user_id="bea")] == ["Rides a bike"]
    with opened(tmp_path / "home", most=50) as memory:
        assert memory.import_from(source, everyone=True).added == 2


def test_a_session_whose_turns_have_no_room_is_not_left_behind_empty(tmp_path: Path) -> None:
    source = samples.chatgpt_zip(tmp_path / "export.zip", [samples.chatgpt_talk("one"), samples.chatgpt_talk("two")])
    with opened(tmp_path / "home", most=2) as memory:
        moved = memory.import_from(source, user_id="alex")
        assert (moved.added, moved.refused) == (2, 2)
        assert [session.scope.session for session in memory.sessions(user_id="alex")] == ["one"]


def test_lines_of_an_export_for_which_there_is_no_room_are_told(tmp_path: Path) -> None:
    with opened(tmp_path / "theirs") as theirs:
        for number in range(4):
            theirs.add(f"Boat {number}", user_id="alex")
        lines = list(theirs.export())
    with opened(tmp_path / "home", most=3) as memory, pytest.raises(QuotaReached, match="the 0 lines before are"):
        memory.import_(lines)


def test_the_command_line_says_what_had_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_USER_MEMORIES_MOST", "1")
    source = items(tmp_path / "items.jsonl", ("alex", "Likes tea"), ("alex", "Has a cat"))
    output = Cli(tmp_path / "home")("import", str(source), "--everyone", code=2).stdout
    assert "Added 1; 0 were there already." in output
    assert "Left out 1: no more than 1 memories are kept for one user" in output
