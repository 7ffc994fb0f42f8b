"""Sets that may be used to train shipped weights: FriendsQA (Apache-2.0), QMSum (MIT) and the project's own talks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from evals.conversation import DatasetConversation, DatasetQuestion, DatasetTurn

_DATA = Path(__file__).parent / "data"
_SCENES = 12
# Dialogues of different people that are remembered together, so that there is much to choose from.
_DIALOGUES = 4
# Of this many questions one names the month: people remember when, and few of those in the data say it.
_DATED = 4
# A span of many turns says little about which of them answers.
_MAX_SPAN = 12


def read_friendsqa(scenes: Iterable[Any]) -> Iterable[DatasetConversation]:
    """Read scenes as sessions, a dozen to a conversation."""
    scenes = [scene for scene in scenes if scene["paragraphs"]]
    for start in range(0, len(scenes), _SCENES):
        turns: list[DatasetTurn] = []
        questions: list[DatasetQuestion] = []
        for scene in scenes[start : start + _SCENES]:
            [paragraph] = scene["paragraphs"]
            ids = {}
            for each in paragraph["utterances:"]:
                ids[each["uid"]] = f"{scene['title']}:{each['uid']}"
                speaker = " and ".join(each["speakers"])
                turns.append(
                    DatasetTurn(id=ids[each["uid"]], text=each["utterance"], speaker=speaker, session=scene["title"])
                )
            for question in paragraph["qas"]:
                gold = sorted({ids[a["utterance_id"]] for a in question["answers"] if a["utterance_id"] in ids})
                text = question["question"]
                questions.append(
                    DatasetQuestion(
                        id=f"{scene['title']}:{len(questions)}", text=text, category="qa", gold=tuple(gold)
                    )
                )
        yield _conversation(f"friendsqa {start}", turns, questions)


def read_qmsum(meetings: dict[str, Any]) -> Iterable[DatasetConversation]:
    """Read each meeting as one session; of the questions, those that a few turns answer."""
    for name, meeting in meetings.items():
        turns = [
            DatasetTurn(id=f"{name}:{at}", text=each["content"], speaker=each["speaker"], session=name)
            for at, each in enumerate(meeting["meeting_transcripts"])
        ]
        questions = []
        for at, query in enumerate(meeting["specific_query_list"]):
            spans = [range(int(first), int(last) + 1) for first, last in query["relevant_text_span"]]
            gold = [turns[place].id for span in spans for place in span if place < len(turns)]
            if 0 < len(gold) <= _MAX_SPAN:
                questions.append(
                    DatasetQuestion(id=f"{name}:q{at}", text=query["query"], category="qa", gold=tuple(gold))
                )
        if questions:
            yield _conversation(f"qmsum {name}", turns, questions)


def read_own() -> Iterable[DatasetConversation]:
    """Read the project's own talks: forty messages of one user on one subject."""
    for line in (_DATA / "conversations.jsonl").read_text(encoding="utf-8").splitlines():
        talk = json.loads(line)
        turns = [
            DatasetTurn(id=f"{talk['id']}:{at}", text=text, speaker="user", session=f"{talk['id']}:{at // 4}")
            for at, text in enumerate(talk["messages"])
        ]
        questions = [
            DatasetQuestion(
                id=f"{talk['id']}:q{at}",
                text=each["question"],
                category="qa",
                gold=tuple(turns[place].id for place in sorted({*each["now"], *each["old"]})),
            )
            for at, each in enumerate(talk["questions"])
        ]
        yield DatasetConversation(
            name=f"own {talk['id']}", speakers=frozenset({talk["id"]}), turns=tuple(turns), questions=tuple(questions)
        )


def read_dialogues(name: str) -> Iterable[DatasetConversation]:
    """Read a file of the project's own dialogues over months, four of different people to a conversation."""
    dialogues = [json.loads(line) for line in (_DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    for start in range(0, len(dialogues), _DIALOGUES):
        turns: list[DatasetTurn] = []
        questions: list[DatasetQuestion] = []
        for dialogue in dialogues[start : start + _DIALOGUES]:
            for number, session in enumerate(dialogue["sessions"]):
                id = f"{dialogue['id']}:{number}"
                at = session["date"].replace(" ", "T") + ":00+00:00"
                turns += [
                    DatasetTurn(id=f"{id}:{place}", text=text, speaker=speaker, session=id, at=at)
                    for place, (speaker, text) in enumerate(session["turns"])
                ]
            questions += [
                DatasetQuestion(
                    id=f"{dialogue['id']}:q{at}",
                    text=_dated(each, dialogue["sessions"]) if at % _DATED == 0 else each["q"],
                    category=each["kind"],
                    gold=tuple(f"{dialogue['id']}:{session}:{turn}" for session, turn in each["evidence"]),
                )
                for at, each in enumerate(dialogue["questions"])
            ]
        yield DatasetConversation(
            name=f"{name} {start}",
            speakers=frozenset({str(start)}),
            turns=tuple(turns),
            questions=tuple(questions),
        )


def _dated(question: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]) -> str:
    """Return the question with the month of the session that answers it, if one does."""
    answering = {session for session, _ in question["evidence"]}
    if len(answering) != 1:
        return str(question["q"])
    month = datetime.fromisoformat(sessions[answering.pop()]["date"])
    return f"{question['q'].rstrip('?. ')} in {month:%B %Y}?"


def _conversation(name: str, turns: list[DatasetTurn], questions: list[DatasetQuestion]) -> DatasetConversation:
    # Others' questions have no answer here only if the people are others; in a series they are the same.
    return DatasetConversation(
        name=name, speakers=frozenset({name.split()[0]}), turns=tuple(turns), questions=tuple(questions)
    )
