"""A run scores what is found, gives the same marks again, and tells how it was set up."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tests.support.evaluation_samples as samples
from evals.conversation import DatasetConversation, DatasetQuestion, DatasetTurn
from evals.datasets import BENCHMARKS, load
from evals.files import check_writable, read_result, write_result
from evals.metrics import auroc, bootstrap, compare, percentile, rank_marks, spearman
from evals.prefilter import Decided, LabeledMessage, prefilter_document, read_messages
from evals.report import document, settings_in_force
from evals.run import evaluate, probes_of, steps_of
from recollect.config.settings import Settings
from recollect.config.settings import load as load_settings
from recollect.errors import InvalidInput, ModelUnavailable
from recollect.testing.fake_embedder import FakeEmbedder


def measured(conversations: list[DatasetConversation], **options: Any) -> dict[str, Any]:
    run = asyncio.run(evaluate(conversations, Settings(), **options))
    return document(run, benchmark="locomo", file="sample.json", settings={})


@pytest.fixture(scope="module")
def run_document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = samples.write(tmp_path_factory.mktemp("data") / "file.json", samples.locomo())
    return measured(load("locomo", file))


def test_a_run_scores_every_question_with_evidence(run_document: dict[str, Any]) -> None:
    assert (run_document["conversations"], run_document["turns"], run_document["scored"]) == (2, 12, 10)
    assert run_document["without_evidence"] == 2
    by_id = {each["id"]: each for each in run_document["questions"]}
    assert by_id["conv-0#1"]["found"][0][0] == "D1:2"
    assert by_id["conv-0#1"]["marks"]["R@1"] == 1
    assert all(len(set(map(str, each["found"]))) == len(each["found"]) for each in run_document["questions"])


def test_the_trap_is_told_apart_and_not_averaged_in(run_document: dict[str, Any]) -> None:
    rows = {row["category"]: row for row in run_document["categories"]}
    assert rows["adversarial"]["headline"] is False
    assert run_document["headline"]["n"] == 8 == sum(row["n"] for row in rows.values() if row["headline"])


def test_probes_are_of_others_and_the_same_on_every_run(tmp_path: Path) -> None:
    first, second, third = load("locomo", samples.write(tmp_path / "file.json", samples.locomo(3)))
    probes = probes_of(first, [first, second, third])
    assert probes == probes_of(first, [first, second, third])
    assert [kind for kind, _ in probes].count("foreign") == 10
    alone = probes_of(first, [first])
    assert {kind for kind, _ in alone} == {"everyday"}
    assert steps_of([first]) == len(first.turns) + len(first.questions) + len(alone)


def test_a_run_gives_the_same_marks_again_and_tells_its_progress(
    run_document: dict[str, Any], tmp_path: Path
) -> None:
    conversations = load("locomo", samples.write(tmp_path / "file.json", samples.locomo()))
    reports: list[int] = []
    repeated = measured(conversations, progress=reports.append)
    for each in (run_document["questions"], run_document["probes"], repeated["questions"], repeated["probes"]):
        for row in each:
            row.pop("ms", None)
    assert repeated["questions"] == run_document["questions"]
    assert repeated["abstention"] == run_document["abstention"]
    assert reports == sorted(reports)
    assert reports[-1] == steps_of(conversations)


def test_freshness_asks_whether_the_newest_stands_above_the_older(tmp_path: Path) -> None:
    [conversation, _] = load("longmemeval", samples.write(tmp_path / "file.json", samples.longmemeval()))
    report = measured([conversation])
    [question] = report["questions"]
    ids = [id for id, _ in question["found"]]
    assert question["newest_first"] == (ids.index("s1:0") < ids.index("s0:0"))
    assert report["freshness"] == {"n": 1, "newest_first": float(question["newest_first"])}


def test_a_question_made_to_have_no_answer_counts_for_what_it_returns_only(tmp_path: Path) -> None:
    report = measured(load("beam", samples.write(tmp_path / "file.json", samples.beam())))
    kinds = [each["kind"] for each in report["probes"]]
    assert kinds.count("unanswerable") == 1
    assert report["abstention"]["probes"] == len(kinds)
    assert report["scored"] == 2


def test_silence_is_kept_out_and_a_set_without_probes_still_has_a_report() -> None:
    turns = (
        DatasetTurn(id="1", text="I like tea", speaker="user", session="a"),
        DatasetTurn(id="2", text="  ", speaker="user", session="b"),
    )
    question = DatasetQuestion(id="q", text="tea?", category="c", gold=("1",))
    conversation = DatasetConversation(name="n", speakers=frozenset({"n"}), turns=turns, questions=(question,))
    report = measured([conversation], everyday=())
    assert (report["headline"]["R@1"], report["abstention"]) == (1, None)


def test_the_system_under_test_finds_what_the_command_finds(
    run_document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evals.system import factory

    system = factory()
    conversation = load("locomo", samples.write(tmp_path / "file.json", samples.locomo()))[0]
    system.index(
        [
            {"id": each.id, "text": each.text, "speaker": each.speaker, "session": each.session, "timestamp": each.at}
            for each in conversation.turns
        ]
    )
    for request in run_document["questions"][:5]:
        assert [id for id, _ in system.search(request["question"], 20)] == [id for id, _ in request["found"]]


def test_searches_that_had_to_do_without_vectors_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(settings: Settings) -> FakeEmbedder:
        return FakeEmbedder(16, fail_with=ModelUnavailable("it is away"))

    monkeypatch.setattr("recollect.wiring.open_embedder", broken)
    report = measured(load("beam", samples.write(tmp_path / "file.json", samples.beam())))
    assert report["notes"] == {"found by words alone: it is away": len(report["questions"]) + len(report["probes"])}


def test_the_report_names_the_setup_and_no_secret() -> None:
    loaded = load_settings(environ={"RECOLLECT_EMBEDDER": "openai:x", "OPENAI_API_KEY": "sk-secret"})
    report = settings_in_force(loaded)
    assert report["embedder"] == "openai:x"
    assert not any("key" in name or "url" in name or "secret" in value for name, value in report.items())


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
    assert time.process_time() - began < 20


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
def test_a_file_of_another_shape_is_told_what_it_should_be(name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    for content in (
        b"", b"not json", b"[]", b"{}", b"null", b"[1]", b'{"a": 1}', b'[{"sample_id": "x"}]', b"[" * 100_000,
        b"\xff",
    ):  # fmt: skip
        file.write_bytes(content)
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
    with pytest.raises(InvalidInput, match="cannot be decompressed"):
        load("locomo", tmp_path / "file.json.xz")


def _result(path: Path, marks: list[float], *, benchmark: str = "locomo") -> Path:
    questions = [
        {"id": f"q{number}", "headline": True, "category": "c", "marks": {"R@10": mark, "MRR": mark}}
        for number, mark in enumerate(marks)
    ]
    report = {"format": "recollect evaluation 1", "benchmark": benchmark, "k": 10, "settings": {}}
    write_result(path, {**report, "questions": questions})
    return path


def test_a_difference_is_paired_question_by_question(tmp_path: Path) -> None:
    a = _result(tmp_path / "a.json", [0.1 * number for number in range(10)])
    b = _result(tmp_path / "b.json", [0.1 * number + 0.05 for number in range(11)])
    report = compare(a, b)
    assert (report["n"], report["only_in_a"], report["only_in_b"]) == (10, 0, 1)
    for row in report["marks"]:
        # Every question gained the same, so there is no doubt, however far the questions lie apart.
        assert (row["difference"], row["low"], row["high"]) == pytest.approx((0.05, 0.05, 0.05))


def test_results_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    a = _result(tmp_path / "a.json", [1, 0])
    with pytest.raises(InvalidInput, match="no question in common"):
        compare(a, _result(tmp_path / "b.json", [1, 0], benchmark="beam"))
    with pytest.raises(InvalidInput, match="--json FILE"):
        compare(a, samples.write(tmp_path / "c.json", {"questions": []}))
    broken = json.loads(a.read_text())
    broken["questions"][0].pop("marks")
    with pytest.raises(InvalidInput, match="not whole"):
        compare(a, samples.write(tmp_path / "d.json", broken))


def test_only_a_result_is_written_over(tmp_path: Path) -> None:
    precious = tmp_path / "precious.json"
    precious.write_text("[1]")
    with pytest.raises(InvalidInput, match="exists and is not a result"):
        write_result(precious, {})
    assert precious.read_text() == "[1]"
    a = _result(tmp_path / "a.json", [1])
    assert len(read_result(_result(a, [1, 0]))["questions"]) == 2
    with pytest.raises(InvalidInput, match="no folder"):
        check_writable(tmp_path / "nowhere" / "a.json")
    assert not list(tmp_path.glob("*.part"))


def test_the_marks_of_a_ranking_are_those_of_the_books() -> None:
    marks = rank_marks(["a", "x", "b", "y"], ["a", "b", "c", "d"], k=10)
    assert marks["R@1"] == 0.25
    assert marks["R@5"] == marks["R@10"] == marks["R@20"] == 0.5
    assert (marks["hit@10"], marks["all@10"], marks["MRR"], marks["P@10"]) == (1, 0, 1, 0.5)
    ideal = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3, 4))
    assert marks["NDCG@10"] == pytest.approx((1 + 1 / math.log2(4)) / ideal)


def test_what_stands_below_the_cut_does_not_count() -> None:
    marks = rank_marks(["x", "y", "z", "a"], ["a"], k=3)
    assert (marks["hit@3"], marks["all@3"], marks["NDCG@3"], marks["P@3"]) == (0, 0, 0, 0)
    assert (marks["R@5"], marks["MRR"]) == (1, 0.25)


def test_an_empty_answer_has_no_mark_at_all() -> None:
    assert set(rank_marks([], ["a"], k=10).values()) == {0.0}


def test_the_area_under_the_curve_counts_ties_half_and_nothing_found_as_lowest() -> None:
    assert auroc([0.9, 0.5], [0.5, 0.1]) == 7 / 8
    assert auroc([0.2], [float("-inf")]) == 1
    assert auroc([0.2], []) is None


def test_correlation_by_rank_shares_the_ranks_of_equals() -> None:
    left, right = np.array([1.0, 2, 2, 4]), np.array([10.0, 30, 20, 40])
    assert spearman(left, right) == pytest.approx(0.9486833)
    assert spearman(np.ones(4), right) == 0


def test_the_bootstrap_interval_covers_the_mean_as_often_as_it_says() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(60):
        low, high = bootstrap([draw.gauss(0.3, 1) for _ in range(100)])
        covered += low <= 0.3 <= high
    assert 50 <= covered <= 60
    assert bootstrap([0.5] * 10) == (0.5, 0.5)
    assert bootstrap([1, 2, 3]) == bootstrap([1, 2, 3])


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1.0], 0.95) == 1


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
