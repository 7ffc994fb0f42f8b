"""Small conversations in the published shapes, and other files that evaluations read."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

_TALK = {
    1: [
        ("Ann", "I adopted a grey kitten called Pixel yesterday"),
        ("Ben", "Congratulations! My sister plays the cello in an orchestra"),
        ("Ann", "Lovely weather today"),
    ],
    2: [
        ("Ben", "I broke my ankle while skiing in Norway"),
        ("Ann", "Oh no, get well soon"),
        ("Ann", "Pixel the kitten scratched my sofa"),
    ],
}
_QUESTIONS = [
    {"question": "What is Ann's kitten called?", "category": 1, "evidence": ["D1:1"]},
    {"question": "Which instrument does Ben's sister play?", "category": 4, "evidence": ["D1:2"]},
    {"question": "How did Ben break his ankle?", "category": 2, "evidence": ["D2:1"]},
    {"question": "What did Ben's kitten scratch?", "category": 5, "evidence": ["D2:3"]},
    {"question": "What do they all think?", "category": 3, "evidence": []},
    {"question": "What did the kitten do to the sofa?", "category": 1, "evidence": ["D1:1; D2:3"]},
]


def _chat(first: str, second: str, *, text: str) -> dict[str, Any]:
    names = {"Ann": first, "Ben": second}
    chat: dict[str, Any] = {"speaker_a": first, "speaker_b": second}
    for session, turns in _TALK.items():
        chat[f"session_{session}_date_time"] = f"1:5{session} pm on {session} May, 2023"
        chat[f"session_{session}"] = [
            {"speaker": names[speaker], "dia_id": f"D{session}:{number}", text: content}
            for number, (speaker, content) in enumerate(turns, 1)
        ]
    return chat


def locomo(count: int = 2) -> list[dict[str, Any]]:
    people = [("Ann", "Ben"), ("Cleo", "Dan"), ("Eve", "Finn")]
    return [
        {"sample_id": f"conv-{number}", "conversation": _chat(*people[number], text="text"), "qa": list(_QUESTIONS)}
        for number in range(count)
    ]


def realtalk() -> dict[str, Any]:
    return {"Chat_1": {**_chat("Ann", "Ben", text="clean_text"), "qa": list(_QUESTIONS)}}


def longmemeval() -> list[dict[str, Any]]:
    spoken = {"role": "user", "content": "My new bike is a red Bianchi"}
    older = {"role": "user", "content": "My bike is a blue Trek", "has_answer": True}
    return [
        {
            "question_id": name,
            "question_type": "knowledge-update",
            "question": "Which bike do I have?",
            "haystack_dates": ["2023/06/20 (Tue) 10:00", "2023/05/20 (Sat) 01:18"],
            "haystack_session_ids": ["answer_2", "answer_1"],
            "haystack_sessions": [
                [{**spoken, "has_answer": True}, {"role": "assistant", "content": "Nice!"}],
                [older],
            ],
        }
        for name in ("q1", "q2_abs")
    ]


def beam() -> dict[str, Any]:
    messages = [
        (0, "user", "I prefer tabs over spaces ->-> 1,1"),
        (1, "assistant", "Understood"),
        (2, "user", "My sprint ends on Friday"),
    ]
    turns = [
        [{"id": id, "role": role, "content": text, "time_anchor": "March-15-2024"} for id, role, text in messages]
    ]
    return {
        "1": {
            "chat": [{"batch_number": 1, "turns": turns}],
            "questions": {
                "abstention": [{"question": "What is my cat called?"}],
                "information_extraction": [{"question": "When does my sprint end?", "source_chat_ids": [2]}],
                "preference_following": [
                    {"question": "Tabs or spaces?", "source_chat_ids": {"first": [0], "gone": [99]}}
                ],
            },
        }
    }


def write(path: Path, document: Any) -> Path:
    """Write a document as JSON, packed if the name says so."""
    text = json.dumps(document)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)
    return path


MESSAGES = (
    '{"text": "Where did I park my car yesterday?", "search": 1, "source": "mine"}\n'
    '{"text": "hello", "search": 0, "source": "chat"}\n'
    '{"text": "What did I tell you about my allergies?", "search": 1, "source": "mine"}\n'
    '{"text": "hello there", "search": 1, "source": "chat"}\n'
)

PAIRS = (
    "Alice likes tea.,Alice is fond of tea.,4.8\n"
    "Alice likes tea.,Alice does not like tea.,1.5\n"
    "Alice likes tea.,Bob likes tea.,2.0\n"
    '"Alice, my sister, has 2 cats.","Alice, my sister, has three cats.",2.5\n'
    "The train leaves at nine.,The train leaves at 9.,5.0\n"
    "The sky is blue.,He bakes bread.,0.0\n"
)
