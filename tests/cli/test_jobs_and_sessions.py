"""recollect jobs, worker, sessions, end-run, remember and stats --cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.cli_runner import Cli
from tests.support.llm_faults import http_error
from tests.support.remember_samples import EXTRACT, NOTHING, claim, learns, llm_requests

LISBON = "I live in Lisbon"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@pytest.fixture
def llm(cli: Cli) -> Iterator[ScriptedLLM]:
    """A model of the settings that extracts nothing by default."""
    with ScriptedLLM() as model:
        model.default = NOTHING
        configure(cli, model)
        yield model


def configure(cli: Cli, llm: ScriptedLLM, **more: object) -> None:
    settings = {"llm": "scripted", "llm_url": llm.base_url, "llm_api_key": "x", "learn_wait_s": 0, **more}
    cli.home.mkdir(exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (cli.home / "config.toml").write_text("\n".join(lines))


def only(cli: Cli, *options: str) -> dict[str, Any]:
    """Return the only extraction job."""
    [job] = [job for job in cli.json("jobs", *options)["results"] if job["kind"] == "extract"]
    return dict(job)


@pytest.mark.parametrize(
    ("words", "message", "answer"),
    [
        (["jobs"], "There are no such jobs.", {"results": []}),
        (["jobs", "--state", "dead"], "There are no such jobs.", {"results": []}),
        (["jobs", "--replay", "all"], "No job is dead or cancelled.", {"results": []}),
        (["sessions", "--user", "alex"], "User alex has no sessions yet.", {"results": []}),
        (["sessions", "--session", "monday"], "User default has no such session.", {"results": []}),
        (["stats", "--cost"], "The LLM was not used.", {"results": [], "limits": []}),
        (["worker", "--once"], "Did 0 jobs.", {"done": 0}),
    ],
)
def test_an_empty_list_is_a_message(cli: Cli, words: list[str], message: str, answer: Any) -> None:
    assert cli(*words).stdout == f"{message}\n"
    assert cli.json(*words) == answer


def test_jobs_are_listed_with_user_session_and_state(cli: Cli) -> None:
    cli("remember", LISBON, "--user", "alex", "--session", "monday")
    heading, row = cli("jobs", "--state", "done").stdout.splitlines()
    assert heading.split() == ["JOB", "DUE", "WHAT", "STATE", "TRIES", "USER", "SESSION"]
    assert row.split()[3:] == ["extract", "done", "1", "alex", "monday"]
    job = only(cli, "--user", "alex")
    assert (job["user_id"], job["session_id"], job["state"], job["tries"]) == ("alex", "monday", "done", 1)
    assert "Lisbon" in json.dumps(job["result"])
    assert "lease" not in job
    assert cli.json("jobs", "--user", "bob") == {"results": []}
    assert cli.json("jobs", "--state", "dead", "--state", "cancelled") == {"results": []}


def test_a_failed_job_is_listed_with_its_error(cli: Cli, llm: ScriptedLLM) -> None:
    llm.when(EXTRACT).reply(faults=[http_error(503)])
    cli("remember", LISBON, "--no-wait", "--user", "alex")
    cli("worker", "--once")
    output = cli("jobs").stdout
    assert "waiting" in output
    assert "503" in output
    assert cli("jobs").stderr == ""


def dead_job(cli: Cli, llm: ScriptedLLM) -> str:
    """Let a job fail until it is dead; return its id."""
    away = llm.when(EXTRACT).reply(faults=[http_error(503)])
    with pytest.MonkeyPatch.context() as patch:
        # As if the waits between the tries, and those of the LLM's circuit breaker, were over.
        patch.setattr("recollect.maintenance.worker.RetryPolicy.wait_s", lambda self, tries: 0.0)
        patch.setattr("recollect.aio.breaker.OPEN_S", 0.0)
        cli("remember", LISBON, "--no-wait", "--user", "alex", "--session", "monday")
        while only(cli)["state"] != "dead":
            cli("worker", "--once")
    away.remove()
    return str(only(cli)["id"])


def test_a_dead_job_is_listed_with_its_error_and_can_be_replayed(cli: Cli, llm: ScriptedLLM) -> None:
    id = dead_job(cli, llm)
    output = cli("jobs", "--state", "dead")
    assert id in output.stdout
    assert "503" in output.stdout
    assert "--replay" in output.stderr
    assert only(cli)["tries"] == 8
    assert cli.json("worker", "--once") == {"done": 0}

    learns(llm, LISBON, claim("The user lives in Lisbon"))
    assert cli.json("jobs", "--replay", "all", "--user", "bob") == {"results": []}
    assert cli("jobs", "--replay", "all").stdout == "Replayed 1 job.\n"
    cli("worker", "--once")
    job = only(cli)
    assert (job["id"], job["state"], job["error"]) == (id, "done", None)
    assert "The user lives in Lisbon" in cli("list", "--user", "alex").stdout
    assert cli("jobs", "--replay", id).stdout == f"{id} is done: it cannot be replayed.\n"


def test_remember_reports_that_the_selector_replaced_a_failing_llm(cli: Cli, llm: ScriptedLLM) -> None:
    llm.when(EXTRACT).reply("no JSON at all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recollect.maintenance.worker.RetryPolicy.wait_s", lambda self, tries: 0.0)
        patch.setattr("recollect.service.jobs.MAX_AWAITED_TRIES", 100)
        output = cli("remember", LISBON, "--user", "alex", "--session", "monday").stdout
    assert "the LLM learned nothing from it (dead): " in output
    assert "the built-in selector learned from it instead: 1 found" in output
    assert "not learned yet" not in output
    assert LISBON in cli("list", "--user", "alex").stdout


def test_remember_reports_that_the_selector_learned_over_the_limit(cli: Cli, llm: ScriptedLLM) -> None:
    learns(llm, "tea", claim("User likes tea"))
    first = cli("remember", "I like tea", "--user", "alex", "--session", "monday").stdout
    assert "learned by" not in first
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECOLLECT_LLM_USER_TOKENS_PER_DAY", "1")
        output = cli("remember", LISBON, "--user", "alex", "--session", "monday").stdout
    assert LISBON in output
    assert "learned by selector, since " in output


def test_jobs_count_unverified_statements_of_the_llm(cli: Cli, llm: ScriptedLLM) -> None:
    learns(llm, LISBON, claim("The user lives in Lisbon"), claim("The user has 3 cats in Lisbon"))
    cli("remember", LISBON, "--session", "monday")
    assert "1 statement of the LLM with a number or name that was not said" in cli("jobs").stdout
    assert only(cli)["result"]["unverified"] == ["number 3 was not said: The user has 3 cats in Lisbon"]


def test_a_cancelled_job_has_no_effect_until_it_is_replayed(cli: Cli, llm: ScriptedLLM) -> None:
    configure(cli, llm, learn_wait_s=3)
    learns(llm, LISBON, claim("The user lives in Lisbon"))
    assert "a worker will learn from it" in cli("remember", LISBON, "--no-wait").stdout
    id = only(cli)["id"]
    [cancelled] = cli.json("jobs", "--cancel", id)["results"]
    assert cancelled["state"] == "cancelled"
    assert cli("jobs", "--cancel", id).stdout == f"{id} is cancelled: it cannot be cancelled.\n"
    assert cli.json("worker", "--once") == {"done": 0}
    assert not llm_requests(llm, EXTRACT)
    assert cli("jobs", "--replay", id).stdout == f"Replayed {id}  extract of user default\n"
    cli("worker", "--once")
    assert "The user lives in Lisbon" in cli("list").stdout


@pytest.mark.parametrize("option", ["--replay", "--cancel"])
def test_an_unknown_job_and_a_foreign_one_answer_alike(cli: Cli, option: str) -> None:
    cli("remember", LISBON, "--user", "bob")
    foreign = only(cli)["id"]
    answers = [cli.error("jobs", option, id, "--user", "alex", code=3).replace(id, "ID") for id in (foreign, "nope")]
    assert answers == ["Error: no job ID for this user; the list of jobs shows their ids\n"] * 2
    assert "no job nope" in cli.error("jobs", option, "nope", code=3)
    assert json.loads(cli.error("jobs", option, "nope", "--json", code=3))["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["jobs", "--replay", "a", "--cancel", "b"], "Give either --replay or --cancel."),
        (["jobs", "--replay", "a", "--state", "dead"], "--state goes with the list only."),
        (["jobs", "--state", "asleep"], "'asleep' is not one of 'waiting', 'running', 'done'"),
        (["jobs", "--limit", "1001"], "--limit"),
        (["sessions", "--end"], "Name the session with --session."),
        (["stats", "--by", "user"], "--by goes with --cost."),
        (["stats", "--cost", "--by", "moon"], "'moon' is not one of 'user', 'day', 'model', 'step'"),
        (["erase"], "Give the ID of a memory, or one of --memory, --turn, --session, --project and --everything."),
        (["erase", "--memory", "a", "--turn", "b", "--yes"], "Give only one of --memory, --turn and --everything."),
        (["erase", "--everything"], "Add --yes: there is no terminal to ask for confirmation."),
        (["erase", "--everything", "--json"], "Add --yes: there is no terminal to ask for confirmation."),
    ],
)
def test_contradictory_options_are_rejected_before_any_effect(cli: Cli, words: list[str], complaint: str) -> None:
    assert complaint in cli.error(*words, code=2)
    assert not cli.home.exists()


def test_remember_prints_the_learned_memories(cli: Cli, llm: ScriptedLLM) -> None:
    learns(llm, LISBON, claim("The user lives in Lisbon"))
    output = cli("remember", LISBON, "--session", "monday").stdout.splitlines()
    assert output[0].startswith("Remembered turn 1 of session monday")
    assert "The user lives in Lisbon" in output[1]
    assert "nothing to learn from it" in cli("remember", "Hello!", "--session", "monday").stdout
    answer = cli.json("remember", LISBON, "--session", "tuesday")
    assert answer["job"]["state"] == "done"
    assert answer["turns"][0]["content"] == LISBON


def test_no_wait_leaves_learning_to_a_worker(cli: Cli, llm: ScriptedLLM) -> None:
    configure(cli, llm, learn_wait_s=0.2)
    learns(llm, LISBON, claim("The user lives in Lisbon"))
    answer = cli.json("remember", LISBON, "--no-wait")
    assert answer["job"]["state"] == "waiting"
    assert cli.json("jobs")["results"][0]["id"] == answer["job"]["id"]
    while cli.json("worker", "--once") != {"done": 1}:
        assert not llm_requests(llm, EXTRACT)
    assert "The user lives in Lisbon" in cli("list").stdout


def test_sessions_are_listed_the_latest_first_and_ended_by_name(cli: Cli) -> None:
    cli("remember", "My name is Alex", "--session", "monday")
    cli("remember", "I moved to Porto", "--session", "tuesday", "--project", "trip")
    heading, *rows = cli("sessions").stdout.splitlines()
    assert heading.split() == ["SESSION", "LAST", "TURNS", "LEARNED", "STATE", "PROJECT"]
    assert [row.split()[0] for row in rows] == ["tuesday", "monday"]
    assert rows[0].split()[3:] == ["1", "1", "open", "trip"]
    assert cli("sessions", "--end", "--session", "monday").stdout.startswith("Ended session monday\n")
    states = {each["session_id"]: each["closed_at"] is not None for each in cli.json("sessions")["results"]}
    assert states == {"monday": True, "tuesday": False}
    assert "episode" in cli("list").stdout
    assert [each["session_id"] for each in cli.json("sessions", "--project", "trip")["results"]] == ["tuesday"]
    job = cli.json("sessions", "--end", "--session", "tuesday", "--project", "trip")
    assert (job["kind"], job["state"], job["project_id"]) == ("close", "done", "trip")
    assert len(cli.json("sessions", "--limit", "1")["results"]) == 1
    assert cli.json("sessions", "--user", "bob") == {"results": []}


def test_an_unknown_session_cannot_be_ended(cli: Cli) -> None:
    cli("remember", "I moved to Porto", "--session", "tuesday", "--project", "trip")
    answer = cli.error("sessions", "--end", "--session", "nope", code=3)
    assert answer == "Error: user default has no session nope; the list of sessions shows them\n"
    assert "has no session tuesday" in cli.error("sessions", "--end", "--session", "tuesday", code=3)
    # A session without turns exists if a memory was added to it.
    cli.add("Likes tea", "--session", "wednesday", "--level", "session")
    assert cli("sessions", "--end", "--session", "wednesday").stdout.startswith("Ended session wednesday")


def test_an_end_that_has_to_wait_is_reported(cli: Cli, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("remember", "I moved to Porto", "--session", "tuesday")
    monkeypatch.setattr("recollect.model.arguments.DEFAULT_WAIT_S", 0.3)
    monkeypatch.setattr("recollect.sessions.lifecycle.end_session", _fails)
    ended = cli("sessions", "--end", "--session", "tuesday")
    assert ended.stdout == "Session tuesday has not ended yet (waiting): the model is away\n"
    assert "recollect jobs" in ended.stderr


async def _fails(*args: object) -> None:
    from recollect.errors import ModelUnavailable

    raise ModelUnavailable("the model is away")


def test_cost_is_listed_by_day_model_and_step(cli: Cli, llm: ScriptedLLM) -> None:
    learns(llm, LISBON, claim("The user lives in Lisbon"))
    cli("remember", LISBON, "--user", "alex")
    cli("remember", LISBON, "--user", "bob")
    [row] = cli.json("stats", "--cost")["results"]
    assert (row["model"], row["step"], row["calls"]) == ("scripted", "extract", 2)
    assert row["tokens_in"] == llm.stats.prompt_tokens
    assert row["tokens_out"] == llm.stats.completion_tokens
    heading, line = cli("stats", "--cost").stdout.splitlines()
    assert re.split(r"\s{2,}", heading) == ["DAY", "MODEL", "STEP", "CALLS", "TOKENS IN", "TOKENS OUT"]
    assert line.split()[1:4] == ["scripted", "extract", "2"]
    assert cli.json("stats", "--cost", "--user", "alex")["results"][0]["calls"] == 1
    heading, *lines = cli("stats", "--cost", "--by", "user").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["alex", "1"], ["bob", "1"], ["all", "2"]]
    assert cli.json("stats", "--cost", "--by", "user")["results"][0]["day"] is None


def test_cost_shows_the_daily_limits_and_their_use(
    cli: Cli, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    learns(llm, LISBON, claim("The user lives in Lisbon"))
    cli("remember", LISBON, "--user", "alex")
    used = llm.stats.prompt_tokens + llm.stats.completion_tokens
    assert "Today" not in cli("stats", "--cost").stdout
    monkeypatch.setenv("RECOLLECT_LLM_USER_TOKENS_PER_DAY", "1000000")
    monkeypatch.setenv("RECOLLECT_LLM_TOKENS_PER_DAY", "1")
    each, everyone = cli("stats", "--cost").stdout.splitlines()[-2:]
    assert each == "Today: 1,000,000 tokens for each user."
    over = "; the LLM is not used again before midnight, UTC."
    assert everyone == f"Today: {used:,} of 1 tokens for all users{over}"
    alex = cli("stats", "--cost", "--user", "alex").stdout.splitlines()[-2]
    assert alex == f"Today: {used:,} of 1,000,000 tokens for user alex."
    assert cli.json("stats", "--cost", "--user", "bob")["limits"] == [
        {"owner": "user bob", "tokens": 1_000_000, "spent": 0},
        {"owner": "all users", "tokens": 1, "spent": used},
    ]


def test_the_run_of_an_agent_is_stored_once(cli: Cli) -> None:
    steps = ("--step", "action: build it", "--step", "observation: it is built", "--step", "action: push it")
    words = ("end-run", "Deploy the shop", *steps, "--answer", "It is live", "--lesson", "The tests take long")
    output = cli(*words, "--succeeded", "--run-id", "r1", "--session", "monday").stdout
    assert output.startswith("Recorded the run in session monday\n  episode: ")
    assert "  lesson: " in output
    [episode] = cli.json("list", "--category", "episode")["results"]
    assert (episode["detail"]["steps"], episode["detail"]["outcome"]) == (["build it", "push it"], "It is live")
    assert cli.json(*words, "--run-id", "r1", "--session", "monday") == {"results": []}


@pytest.mark.parametrize("words", [(), ("--session", "s", "--step", "dream: x"), ("--session", "s", "--step", "x")])
def test_a_run_needs_a_session_and_valid_steps(cli: Cli, words: tuple[str, ...]) -> None:
    assert "Name the session" in (report := cli.error("end-run", "x", *words, code=2)) or "KIND:TEXT" in report


def test_undo_names_the_undone_change(cli: Cli) -> None:
    id = cli.add("Likes tea")
    cli("remember", LISBON, "--session", "monday")
    output = cli("undo", "--any").stdout
    assert re.search(r"^Undid change \d+: add by extraction at ", output)
    cli("forget", id)
    assert re.search(r"^Undid change \d+: forget by cli at ", cli("undo").stdout)
    assert "either a number or --any" in cli.error("undo", "3", "--any", code=2)
