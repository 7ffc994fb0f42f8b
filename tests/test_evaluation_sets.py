"""Published sets of conversations are read as they are published, and what is wrong in one is named."""

from __future__ import annotations

import time
from pathlib import Path

import evaluation_samples as samples
import pytest

from recollect.errors import InvalidInput
from recollect.evaluation.benchmarks import BENCHMARKS, load

SAMPLES = {
    "locomo": samples.locomo(),
    "longmemeval": samples.longmemeval(),
    "beam": samples.beam(),
    "realtalk": samples.realtalk(),
}


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("ending", [".json", ".json.xz"])
def test_every_set_is_read_as_published(name: str, ending: str, tmp_path: Path) -> None:
    conversations = load(name, samples.write(tmp_path / f"file{ending}", SAMPLES[name]))
    existing = {turn.id for turn in conversations[0].turns}
    assert all(set(question.gold) <= existing for question in conversations[0].questions)
    assert load(name, tmp_path / f"file{ending}", limit=1) == conversations[:1]


def test_evidence_is_understood_however_it_is_written(tmp_path: Path) -> None:
    [sample] = samples.locomo(1)
    output = [["D1:1"], ["D1:1; D2:3"], ["D:2:01"], ["D1:1-3"], ["D1:2 - D1:3"], ["D1:1-D2:3"], ["D9:1", "D"], None]
    meant = ["D1:1", "D1:1 D2:3", "D2:1", "D1:1 D1:2 D1:3", "D1:2 D1:3", "D1:1", "", ""]
    sample["qa"] = [{"question": "?", "category": 1, "evidence": each} for each in output]
    [conversation] = load("locomo", samples.write(tmp_path / "file.json", [sample]))
    assert [" ".join(question.gold) for question in conversation.questions] == meant


@pytest.mark.parametrize("entry", ["D", "D1:", "D1:1-", "D1:1 - D", "D1:1    ", "1", "D:1:1-D1:"])
def test_evidence_of_any_length_is_read_in_no_time(entry: str, tmp_path: Path) -> None:
    [sample] = samples.locomo(1)
    text = entry * (100_000 // len(entry))
    sample["qa"].append({"question": "?", "category": 1, "evidence": [text]})
    file = samples.write(tmp_path / "file.json", [sample])
    began = time.process_time()
    load("locomo", file)
    assert time.process_time() - began < 5


def test_a_picture_is_part_of_what_was_said_and_the_trap_is_no_part_of_the_headline(tmp_path: Path) -> None:
    [sample] = samples.locomo(1)
    sample["conversation"]["session_1"][0]["blip_caption"] = "a kitten"
    [conversation] = load("locomo", samples.write(tmp_path / "file.json", [sample]))
    assert conversation.turns[0].text.endswith("[shares image: a kitten]")
    assert [question.headline for question in conversation.questions] == [True, True, True, False, True, True]


def test_sessions_go_by_their_dates_and_lose_the_ids_that_give_the_answer_away(tmp_path: Path) -> None:
    first, second = load("longmemeval", samples.write(tmp_path / "file.json", samples.longmemeval()))
    assert [(turn.id, turn.session) for turn in first.turns] == [("s0:0", "0"), ("s1:0", "1"), ("s1:1", "1")]
    assert first.turns[0].text == "My bike is a blue Trek"
    assert first.questions[0].gold == ("s0:0", "s1:0")
    assert (second.questions[0].category, second.questions[0].headline) == ("abstention", False)


def test_labels_behind_a_text_are_no_part_of_it(tmp_path: Path) -> None:
    [conversation] = load("beam", samples.write(tmp_path / "file.json", samples.beam()))
    assert conversation.turns[0].text == "I prefer tabs over spaces"
    assert [question.gold for question in conversation.questions] == [(), ("2",), ("0",)]


def test_a_folder_of_chats_and_a_single_chat_are_read_too(tmp_path: Path) -> None:
    chat = samples.realtalk()["Chat_1"]
    for number in (1, 2):
        samples.write(tmp_path / f"Chat_{number}.json", chat)
    assert [each.name for each in load("realtalk", tmp_path)] == ["Chat_1", "Chat_2"]
    assert [each.name for each in load("realtalk", tmp_path / "Chat_2.json")] == ["Chat_2"]


def test_a_folder_a_chat_is_read_too_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    chat = samples.beam()["1"]
    for number in ("10", "9"):
        (tmp_path / number / "probing_questions").mkdir(parents=True)
        samples.write(tmp_path / number / "chat.json", chat["chat"])
        samples.write(tmp_path / number / "probing_questions" / "probing_questions.json", chat["questions"])
    read = load("beam", tmp_path)
    assert [each.name for each in read] == ["9", "10"]
    assert read[0].turns == load("beam", samples.write(tmp_path / "file.json", samples.beam()))[0].turns
    (tmp_path / "9" / "probing_questions" / "probing_questions.json").unlink()
    with pytest.raises(InvalidInput, match=r"cannot read .*probing_questions.json: .*it should be a folder"):
        load("beam", tmp_path)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize(
    "content", ["", "not json", "[]", "{}", "null", "[1]", '{"a": 1}', '[{"sample_id": "x"}]', "[" * 100_000, "\xff"]
)
def test_a_file_of_another_shape_is_told_what_it_should_be(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(InvalidInput) as error:
        load(name, file)
    assert "it should be" in str(error.value)
    assert str(file) in str(error.value)


def test_what_is_missing_is_named_with_its_conversation(tmp_path: Path) -> None:
    first, second = samples.locomo(2)
    del second["conversation"]["session_1"][0]["dia_id"]
    with pytest.raises(InvalidInput, match=r"conversation 2: 'dia_id' is missing"):
        load("locomo", samples.write(tmp_path / "file.json", [first, second]))
    second["conversation"]["session_1"][0]["dia_id"] = "D1:2"
    with pytest.raises(InvalidInput, match="the same id"):
        load("locomo", samples.write(tmp_path / "file.json", [first, second]))


def test_a_file_that_is_not_there_or_packed_wrongly_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load("locomo", tmp_path / "nope.json")
    (tmp_path / "file.json.xz").write_bytes(b"this is not packed")
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        load("locomo", tmp_path / "file.json.xz")
