"""Reading LoCoMo and REALTALK: two people, numbered sessions, evidence such as D3:12."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evals.conversation import DatasetConversation, DatasetQuestion, DatasetTurn

_SESSION = re.compile(r"session_(\d{1,6})")
# D3:12, D:3:12, D03:012, D3:12-15 and D3:12-D3:15; digits are bounded so that no text can make it slow.
_EVIDENCE = re.compile(r"D:?(\d{1,6}):(\d{1,6})(?:\s{0,4}-\s{0,4}(?:D(\d{1,6}):)?(\d{1,6}))?")
_LONGEST_RANGE = 40
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
# The evidence of an adversarial question is the trap: the right fact, of the wrong person.
_TRAP = 5


def read_locomo(document: list[Mapping[str, Any]]) -> Iterator[DatasetConversation]:
    """The conversations of locomo10.json, or of a part of it."""
    for sample in document:
        chat = sample["conversation"]
        speakers = (chat["speaker_a"], chat["speaker_b"])
        yield _conversation(sample["sample_id"], chat, sample["qa"], speakers=speakers, text="text")


def read_realtalk(document: Mapping[str, Mapping[str, Any]]) -> Iterator[DatasetConversation]:
    """The conversations of chats by their names."""
    for name, chat in sorted(document.items()):
        speakers = {turn["speaker"] for number in _sessions(chat) for turn in chat[f"session_{number}"]}
        yield _conversation(name, chat, chat.get("qa", []), speakers=speakers, text="clean_text")


def _conversation(
    name: str, chat: Mapping[str, Any], questions: Iterable[Mapping[str, Any]], *, speakers: Iterable[str], text: str
) -> DatasetConversation:
    turns = tuple(_turns(chat, text))
    turn_ids = {turn.id for turn in turns}
    dataset_questions = (
        DatasetQuestion(
            id=f"{name}#{number}",
            text=str(each["question"]),
            category=_CATEGORIES.get(each["category"], str(each["category"])),
            gold=_evidence(each.get("evidence") or [], turn_ids),
            headline=each["category"] != _TRAP,
        )
        for number, each in enumerate(questions)
    )
    return DatasetConversation(
        name=str(name), speakers=frozenset(speakers), turns=turns, questions=tuple(dataset_questions)
    )


def _sessions(chat: Mapping[str, Any]) -> list[int]:
    return sorted(int(match[1]) for name in chat if (match := _SESSION.fullmatch(name)))


def _turns(chat: Mapping[str, Any], text: str) -> Iterator[DatasetTurn]:
    for number in _sessions(chat):
        began = chat.get(f"session_{number}_date_time", "")
        for turn in chat[f"session_{number}"]:
            content = turn.get(text) or ""
            if turn.get("blip_caption"):
                content += f" [shares image: {turn['blip_caption']}]"
            at = turn.get("date_time") or began
            yield DatasetTurn(
                id=turn["dia_id"], text=content, speaker=turn["speaker"], session=str(number), at=str(at)
            )


def _evidence(entries: Iterable[Any], turn_ids: set[str]) -> tuple[str, ...]:
    """The turns that evidence means, however it is written; what no turn is called is left out."""
    named: set[str] = set()
    for entry in entries:
        for session, first, session_of_last, last in _EVIDENCE.findall(str(entry)):
            start, end = int(first), int(last or first)
            if (session_of_last and int(session_of_last) != int(session)) or end < start:
                end = start
            stop = min(end, start + _LONGEST_RANGE) + 1
            named |= {f"D{int(session)}:{number}" for number in range(start, stop)}
    return tuple(sorted(named & turn_ids))
