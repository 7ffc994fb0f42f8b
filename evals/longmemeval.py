"""Reading LongMemEval and BEAM: one person and an assistant, over many sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evals.conversation import DatasetConversation, DatasetQuestion, DatasetTurn


def read_longmemeval(document: list[Mapping[str, Any]]) -> Iterator[DatasetConversation]:
    """One conversation a question; its sessions get ids of ours, as the file's own give the answer away."""
    for item in document:
        name, dates = str(item["question_id"]), item["haystack_dates"]
        turns: list[DatasetTurn] = []
        gold: list[str] = []
        for session, place in enumerate(sorted(range(len(dates)), key=lambda place: dates[place])):
            for number, line in enumerate(item["haystack_sessions"][place]):
                turn = DatasetTurn(
                    id=f"s{session}:{number}",
                    text=str(line["content"]),
                    speaker=str(line["role"]),
                    session=str(session),
                    at=str(dates[place]),
                )
                turns.append(turn)
                if line.get("has_answer"):
                    gold.append(turn.id)
        answerable = not name.endswith("_abs")
        category = str(item["question_type"]) if answerable else "abstention"
        question = DatasetQuestion(
            id=name, text=str(item["question"]), category=category, gold=tuple(gold), headline=answerable
        )
        yield DatasetConversation(name=name, speakers=frozenset({name}), turns=tuple(turns), questions=(question,))


def read_beam(document: Mapping[str, Mapping[str, Any]]) -> Iterator[DatasetConversation]:
    """One conversation a chat, with questions by category."""
    for name, chat in document.items():
        turns = tuple(_turns(chat["chat"]))
        turn_ids = {turn.id for turn in turns}
        questions = (
            DatasetQuestion(
                id=f"{name}/{category}{number}",
                text=str(each["question"]),
                category=str(category),
                gold=tuple(sorted(set(_numbers(each.get("source_chat_ids"))) & turn_ids)),
                headline=category != "abstention",
            )
            for category, questions in chat["questions"].items()
            for number, each in enumerate(questions)
        )
        yield DatasetConversation(name=str(name), speakers=frozenset({name}), turns=turns, questions=tuple(questions))


def _turns(batches: list[Mapping[str, Any]]) -> Iterator[DatasetTurn]:
    for batch in batches:
        at = ""
        for group in batch["turns"]:
            for message in group:
                at = message.get("time_anchor") or at
                yield DatasetTurn(
                    id=str(message["id"]),
                    text=_without_label(message["content"]),
                    speaker=str(message["role"]),
                    session=str(batch["batch_number"]),
                    at=str(at),
                )


def _without_label(text: str) -> str:
    """The text without the label behind it, which says where in the plan of the chat it stands."""
    content, arrow, _ = text.partition("->->")
    return content.rstrip() if arrow else text


def _numbers(value: Any) -> Iterator[str]:
    """The numbers of turns, in whatever lists and mappings they stand."""
    if isinstance(value, int):
        yield str(value)
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
