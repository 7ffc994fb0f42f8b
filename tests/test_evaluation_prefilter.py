"""Whether a message needs a search: shares by source, and every mistake by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.errors import InvalidInput
from recollect.evaluation.prefilter import Decided, LabeledMessage, prefilter_document, read_messages


def test_the_shares_are_told_by_source_and_every_mistake_is_named() -> None:
    needed, idle = LabeledMessage("mine?", True, "a"), LabeledMessage("hello", False, "b")
    report = prefilter_document(
        [Decided(needed, True, ""), Decided(needed, False, "why"), Decided(idle, False, "")], file="f"
    )
    assert (report["memory"]["share"], report["other"]["share"]) == (0.5, 1)
    assert report["sources"] == [
        {"source": "a", "search": True, "n": 2, "right": 1, "share": 0.5},
        {"source": "b", "search": False, "n": 1, "right": 1, "share": 1},
    ]
    [mistake] = report["mistakes"]
    assert (mistake["text"], mistake["should"], mistake["did"], mistake["reason"]) == (
        "mine?",
        "search",
        "skip",
        "why",
    )
    assert prefilter_document([Decided(idle, True, "")], file="f")["memory"]["share"] is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nope", "line 2 is not JSON"),
        ("[]", "line 2 has no text"),
        ('{"text": " ", "search": 1}', "line 2 has no text"),
        ('{"text": "x"}', "line 2: search is 0 or 1"),
        ('{"text": "x", "search": "yes"}', "line 2: search is 0 or 1"),
    ],
)
def test_a_wrong_message_is_named_by_its_line(line: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text('{"text": "x", "search": true}\n' + line + "\n")
    with pytest.raises(InvalidInput, match=complaint):
        read_messages(file)


def test_a_text_may_hold_any_separator_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text('{"text": "one\u2028two\x85three", "search": 1}\r\n\n', encoding="utf-8")
    assert [each.text for each in read_messages(file)] == ["one\u2028two\x85three"]
