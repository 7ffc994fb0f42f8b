"""Collect the text and the questions that the late-interaction encoder is trained on.

    python -m scripts.encoder.prepare OUT.npz longmemeval=FILE.json[.xz] qmsum=FOLDER friendsqa=FOLDER

Sources and licences: LongMemEval (MIT, text only), QMSum (MIT), FriendsQA (Apache-2.0) and the project's own
`evals/data`. LoCoMo, BEAM and REALTALK are never used for training.

The file holds word-piece ids of the bundled table's vocabulary: `chunks` to learn the teacher's token vectors from,
and groups of documents with questions and the documents that answer them.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recollect.models.static_embedder import load_tokenizer

MAX_PIECES = 62
_SENTENCE_END = re.compile(r"(?<=[.!?:;\n])\s+")
_NAMES = (
    "Anna Ben Carla David Emma Farid Grace Hugo Ines Jonas Kira Liam Mia Noah Olga Paul Quinn Rosa Sam Tara Umar "
    "Vera Will Xenia Yusuf Zoe Melissa Andrew Joanna Nate Maria Ethan user assistant"
).split()
_OWN = Path(__file__).parents[2] / "evals" / "data"


@dataclass
class Group:
    """Documents among which questions are asked; `answers` index the documents."""

    documents: list[str]
    questions: list[tuple[str, list[int]]] = field(default_factory=list)


def read_json(path: Path) -> Any:
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8") as file:
            return json.load(file)
    return json.loads(path.read_text(encoding="utf-8"))


def read_jsonl(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_OWN / name).read_text(encoding="utf-8").splitlines()]


def longmemeval_texts(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for entry in read_json(path):
        for session_id, session in zip(entry["haystack_session_ids"], entry["haystack_sessions"], strict=True):
            if session_id not in seen:
                seen.add(session_id)
                yield from (turn["content"] for turn in session)


def qmsum_groups(folder: Path) -> Iterator[Group]:
    for path in sorted(folder.glob("**/ALL/*/*.json")):
        try:
            meeting = read_json(path)
        except ValueError:
            continue
        group = Group([f"{turn['speaker']}: {turn['content']}" for turn in meeting["meeting_transcripts"]])
        for query in meeting["specific_query_list"]:
            answers = [
                at
                for first, last in query["relevant_text_span"]
                for at in range(int(first), int(last) + 1)
                if at < len(group.documents)
            ]
            # A span of many turns says little about which of them answers.
            if 0 < len(answers) <= 12:
                group.questions.append((query["query"], answers))
        yield group


def friendsqa_groups(folder: Path) -> Iterator[Group]:
    for path in sorted(folder.glob("friendsqa_*.json")):
        for scene in read_json(path)["data"]:
            for paragraph in scene["paragraphs"]:
                utterances = paragraph["utterances:"]
                place = {each["uid"]: at for at, each in enumerate(utterances)}
                group = Group([f"{' and '.join(each['speakers'])}: {each['utterance']}" for each in utterances])
                for question in paragraph["qas"]:
                    answers = {place[a["utterance_id"]] for a in question["answers"] if a["utterance_id"] in place}
                    if answers:
                        group.questions.append((question["question"], sorted(answers)))
                yield group


def own_groups() -> Iterator[Group]:
    for case in read_jsonl("changes.jsonl"):
        for kind in ("message", "fact"):
            answers = [at for at, each in enumerate(case["said"]) if each["role"] != "other"]
            yield Group([each[kind] for each in case["said"]], [(case["question"], answers)])
    for talk in read_jsonl("conversations.jsonl"):
        questions = [(each["question"], sorted({*each["now"], *each["old"]})) for each in talk["questions"]]
        yield Group(list(talk["messages"]), questions)
    for case in read_jsonl("update_messages.jsonl"):
        yield Group([case["older"], case["newer"], *case["others"]], [(case["question"], [0, 1])])


def own_texts() -> Iterator[str]:
    for name in ("memorable.jsonl", "search_decision.jsonl"):
        yield from (row["text"] for row in read_jsonl(name))


def chunk_texts(text: str, rng: random.Random) -> Iterator[str]:
    """Cut a text into runs of whole sentences of varying length, a third of them led by a name."""
    limit = rng.choice((60, 120, 260))
    chunk = ""
    for sentence in [*_SENTENCE_END.split(text), ""]:
        if chunk and (not sentence or len(chunk) + len(sentence) > limit):
            yield f"{rng.choice(_NAMES)}: {chunk}" if rng.random() < 0.33 else chunk
            chunk, limit = "", rng.choice((60, 120, 260))
        chunk = f"{chunk} {sentence}".strip()


def main() -> None:
    target, *sources = sys.argv[1:]
    paths = {name: Path(path) for name, _, path in (source.partition("=") for source in sources)}
    rng = random.Random(7)
    tokenizer = load_tokenizer()
    groups = [*qmsum_groups(paths["qmsum"]), *friendsqa_groups(paths["friendsqa"]), *own_groups()]
    texts = [chunk for text in longmemeval_texts(paths["longmemeval"]) for chunk in chunk_texts(text, rng)]
    rng.shuffle(texts)
    texts = texts[:260_000]
    texts += [chunk for text in own_texts() for chunk in chunk_texts(text, rng)]
    texts += [chunk for group in groups for text in group.documents for chunk in chunk_texts(text, rng)]
    texts += [question for group in groups for question, _ in group.questions]
    groups = [group for group in groups if group.questions]
    documents = [text for group in groups for text in group.documents]
    questions = [question for group in groups for question, _ in group.questions]
    arrays = {}
    for name, part in (("chunks", texts), ("documents", documents), ("questions", questions)):
        ids = [each.ids[:MAX_PIECES] for each in tokenizer.encode_batch_fast(part, add_special_tokens=False)]
        arrays[f"{name}_ids"] = np.concatenate([np.array(each, np.uint16) for each in ids])
        arrays[f"{name}_lengths"] = np.array([len(each) for each in ids], np.uint8)
    offsets = np.cumsum([0, *(len(group.documents) for group in groups)])
    arrays["question_group"] = np.array([at for at, group in enumerate(groups) for _ in group.questions], np.int32)
    arrays["group_offsets"] = offsets.astype(np.int32)
    answers = [[offsets[at] + each for each in found] for at, g in enumerate(groups) for _, found in g.questions]
    arrays["answers"] = np.concatenate([np.array(each, np.int32) for each in answers])
    arrays["answer_counts"] = np.array([len(each) for each in answers], np.int32)
    np.savez_compressed(target, **arrays)
    print(f"{len(texts):,} chunks, {len(documents):,} documents, {len(questions):,} questions -> {target}")


if __name__ == "__main__":
    main()
