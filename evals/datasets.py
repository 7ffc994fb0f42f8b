"""The published sets of conversations that can be read, and what their files look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.conversation import DatasetConversation, scored
from evals.files import read_json
from evals.locomo import read_locomo, read_realtalk
from evals.longmemeval import read_beam, read_longmemeval
from recollect.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A set of conversations: how it is called, how its file is read, what that looks like.

    `gather` reads what is published as several files into one document.
    """

    title: str
    read: Callable[[Any], Iterable[DatasetConversation]]
    container: type
    shape: str
    gather: Callable[[Path, str], Any] | None = None


def _gather_chats(path: Path, shape: str) -> Any:
    """A folder of chats, a single chat, or all chats by their names."""
    if path.is_dir():
        return {each.stem: read_json(each, shape=shape) for each in sorted(path.glob("*.json"))}
    document = read_json(path, shape=shape)
    return {path.stem: document} if isinstance(document, dict) and "session_1" in document else document


def _gather_beam(path: Path, shape: str) -> Any:
    """A folder with a folder for each chat, or all chats by their numbers."""
    if not path.is_dir():
        return read_json(path, shape=shape)
    folders = sorted((each.parent for each in path.glob("*/chat.json")), key=lambda each: (len(each.name), each.name))
    return {
        each.name: {
            "chat": read_json(each / "chat.json", shape=shape),
            "questions": read_json(each / "probing_questions" / "probing_questions.json", shape=shape),
        }
        for each in folders
    }


BENCHMARKS: Mapping[str, Benchmark] = {
    "locomo": Benchmark(
        "LoCoMo",
        read_locomo,
        list,
        "locomo10.json or a part of it (.json or .json.xz): a list of samples, each with sample_id, conversation "
        "(speaker_a, speaker_b, session_1: [{speaker, dia_id, text}], ...) and qa: [{question, evidence, category}]",
    ),
    "longmemeval": Benchmark(
        "LongMemEval",
        read_longmemeval,
        list,
        "longmemeval_s.json or a part of it (.json or .json.xz): a list of questions, each with question_id, "
        "question_type, question, haystack_dates and haystack_sessions: [[{role, content, has_answer}]]",
    ),
    "beam": Benchmark(
        "BEAM",
        read_beam,
        dict,
        "a folder such as chats/100K with a folder a chat (chat.json, probing_questions/probing_questions.json), or "
        "a JSON object of chats by number (.json or .json.xz), each with chat: [{batch_number, turns: "
        "[[{id, role, content}]]}] and questions: {category: [{question, source_chat_ids}]}",
        _gather_beam,
    ),
    "realtalk": Benchmark(
        "REALTALK",
        read_realtalk,
        dict,
        "a chat as published, a folder of such files, or a JSON object of chats by name (.json or .json.xz), each "
        "with session_1: [{speaker, dia_id, clean_text, date_time}], ... and qa: [{question, evidence, category}]",
        _gather_chats,
    ),
}


def load(name: str, path: Path, *, limit: int | None = None) -> list[DatasetConversation]:
    """The first `limit` conversations of a file, or an InvalidInput that says what the file should look like."""
    benchmark = BENCHMARKS[name]
    gather = benchmark.gather or (lambda path, shape: read_json(path, shape=shape))
    document = gather(path, benchmark.shape)
    if not isinstance(document, benchmark.container):
        raise _unlike(path, benchmark, f"it holds a JSON {_kind(document)}")
    conversations: list[DatasetConversation] = []
    reading = iter(benchmark.read(document))
    try:
        while (each := next(reading, None)) is not None:
            _check(each)
            conversations.append(each)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        number = len(conversations) + 1
        missing = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise _unlike(path, benchmark, f"conversation {number}: {missing}") from error
    conversations = conversations[: limit or None]
    if not scored(conversations):
        raise _unlike(path, benchmark, "no question in it has evidence")
    return conversations


def _check(conversation: DatasetConversation) -> None:
    """Refuse what would make every number wrong without a word."""
    if not conversation.turns:
        raise ValueError("nothing is said in it")
    if len({turn.id for turn in conversation.turns}) < len(conversation.turns):
        raise ValueError("two of its turns have the same id")


def _unlike(path: Path, benchmark: Benchmark, problem: str) -> InvalidInput:
    return InvalidInput(f"{path} is not {benchmark.title} as published: {problem}; it should be {benchmark.shape}")


def _kind(document: Any) -> str:
    return "list" if isinstance(document, list) else "object" if isinstance(document, dict) else "value"
