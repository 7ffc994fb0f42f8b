"""A run scores what is found, gives the same marks again, and tells how it was set up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import evaluation_samples as samples
import pytest

from recollect.errors import ModelUnavailable
from recollect.evaluation.benchmarks import load
from recollect.evaluation.conversation import DatasetConversation, DatasetQuestion, DatasetTurn
from recollect.evaluation.report import document, settings_in_force
from recollect.evaluation.run import evaluate, probes_of, steps_of
from recollect.settings import Settings
from recollect.settings import load as load_settings
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
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
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
