"""recollect agent: a live trace on the terminal, one document as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.cli.commands.chat import agent
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.agent_samples import agent_requests, call, calls, messages, script
from tests.support.cli_runner import Cli

QUESTION = "Which port does the payment service use?"
HANDS = ["RetrieveFacts", "RecallEpisodes", "StoreFact", "CorrectFact", "ForgetFact"]
PORT = "The payment service listens on port 8443"


@pytest.fixture
def cli(tmp_path: Path, llm: ScriptedLLM) -> Cli:
    llm.default = '{"memories": []}'
    settings = f'llm = "scripted"\nllm_url = "{llm.base_url}"\npreset = "react-mem"\nrecall_timeout_s = 60\n'
    (tmp_path / "config.toml").write_text(settings)
    return Cli(tmp_path)


def test_the_trace_shows_what_is_thought_done_and_observed(cli: Cli, llm: ScriptedLLM) -> None:
    cli.add(PORT, "--user", "alex")
    script(llm, calls(call("RetrieveFacts", query="port"), thought="I look."), calls(call("fly")), "It is 8443.")
    output = cli("agent", QUESTION, "--memory", "--user", "alex").stdout
    assert output.splitlines() == [
        "    Thought: I look.",
        '     Action: RetrieveFacts(query="port")',
        f"Observation: f1: {PORT}",
        "     Action: fly()",
        f"Observation: there is no tool 'fly'; there are {', '.join(HANDS)}",
        "It is 8443.",
        "(began with 1 facts and 0 episodes)",
    ]


def test_without_memory_nothing_is_kept(cli: Cli, llm: ScriptedLLM) -> None:
    script(llm, "Hello.")
    assert cli("agent", "Hi there", "--user", "alex").stdout == "Hello.\n"
    assert not list(cli.home.glob("*.db"))


def test_a_conversation_goes_on_from_one_command_to_the_next(cli: Cli, llm: ScriptedLLM) -> None:
    script(llm, "8443.", "You asked for the port.")
    for question in (QUESTION, "What did I ask?"):
        cli("agent", question, "--memory", "--session", "monday", "--user", "alex")
    assert f"The user asked “{QUESTION}”" in str(messages(agent_requests(llm)[1]))


def test_as_json_it_is_one_document(cli: Cli, llm: ScriptedLLM) -> None:
    script(llm, calls(call("fly"), thought="Off."), "I cannot.")
    report = cli.json("agent", "Fly to Rome")
    assert (report["answer"], report["thought"], report["ended"]) == ("I cannot.", "Off.", "answered")


def test_quietly_it_shows_the_answer_only(cli: Cli, llm: ScriptedLLM) -> None:
    script(llm, calls(call("fly"), thought="Off."), "I cannot.")
    assert cli("agent", "Fly to Rome", "-q").stdout == "I cannot.\n"


def test_its_examples_run(cli: Cli, llm: ScriptedLLM) -> None:
    for example in agent.examples:  # type: ignore[attr-defined]
        assert "scripted" not in example
        script(llm, "I do not know.")
        assert "I do not know." in cli.typed(example, id="")


def test_without_a_model_it_says_what_to_set(tmp_path: Path) -> None:
    assert "set agent_llm or llm" in Cli(tmp_path).error("agent", "Hi there", code=2)
