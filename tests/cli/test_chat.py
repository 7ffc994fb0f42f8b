"""`recollect chat`: messages to the server, streamed answers, commands on the memories, terminals."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from recollect.config.settings import Settings, load
from recollect.http.server import bind_sockets, run_embedded_server
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.cli_runner import Cli
from tests.support.llm_faults import hang, http_error, reset, stream_error
from tests.support.recollect_server import environment


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def sent_messages(llm: ScriptedLLM, call: int = -1) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in llm.calls("chat")[call].json["messages"]]


def test_lines_are_sent_in_one_session_and_answers_printed(cli: Cli, llm: ScriptedLLM) -> None:
    llm.reply("Two\nlines.").reply("And *more*.")
    output = cli(
        "chat", "--user", "alex", "--project", "Ütrecht", "--url", llm.base_url, input="Hello\n\nAnd then?\n"
    )
    assert output.stdout == "Two\nlines.\nAnd *more*.\n"
    assert sent_messages(llm) == [("user", "Hello"), ("assistant", "Two\nlines."), ("user", "And then?")]
    first, second = llm.calls("chat")
    assert first.json["stream"] is True
    assert first.json["model"] == "scripted"
    assert first.headers["x-memory-user"] == "alex"
    assert first.headers["x-memory-project"].encode("latin-1").decode() == "Ütrecht"
    assert first.headers["x-memory-session"] == second.headers["x-memory-session"]
    assert "authorization" not in first.headers


def test_new_and_user_begin_an_empty_session(cli: Cli, llm: ScriptedLLM) -> None:
    typed = "One\n/new\nTwo\n/user sam\nThree\n/user\n/quit\nFour\n"
    output = cli("chat", "--user", "alex", "--url", llm.base_url, input=typed).stdout
    calls = llm.calls("chat")
    assert [sent_messages(llm, at) for at in range(3)] == [[("user", "One")], [("user", "Two")], [("user", "Three")]]
    assert len({call.headers["x-memory-session"] for call in calls}) == 3
    assert [call.headers["x-memory-user"] for call in calls] == ["alex", "alex", "sam"]
    assert "You are sam." in output


def test_memories_can_be_listed_searched_forgotten_and_restored(cli: Cli, llm: ScriptedLLM) -> None:
    cli.add("Alex is allergic to peanuts", "--user", "alex")
    cli.add("Alex plays the cello", "--user", "alex")
    typed = (
        "/forget 1\n/memories\n/forget 2\n/memories\n/undo\n/memories what must Alex not eat\n/user sam\n/memories\n"
    )
    output = cli("chat", "--user", "alex", "--url", llm.base_url, input=typed).stdout
    asks, both, forgot, one, undone, match, _, none = re.split(
        r"\n(?=N |Forgot|Now|You are|There are no)", output.strip("\n")
    )
    assert asks == "Give a number of the list that /memories prints."
    assert [line.split()[0] for line in both.splitlines()] == ["N", "1", "2"]
    assert "cello" in both.splitlines()[1]
    assert forgot == "Forgot Alex is allergic to peanuts  /undo brings it back"
    assert "peanuts" not in one
    assert undone == "Now active: Alex is allergic to peanuts"
    assert "peanuts" in match.splitlines()[1]
    assert none == "There are no memories of sam yet."
    assert not llm.calls("chat")


def test_why_prints_the_memories_of_the_last_answer(cli: Cli, llm: ScriptedLLM) -> None:
    cli.add("The budget for the Hawaii trip is $10,000", "--user", "alex")
    typed = "/why\nHow much can I spend in Hawaii?\n/why\n/why all\n"
    output = cli("chat", "--user", "alex", "--url", llm.base_url, input=typed).stdout
    nothing, _, report = output.partition("\n")
    assert nothing == "There is no answer yet in this session."
    assert "used: 1 memory" in report
    short, _, whole = report.partition("RANK")
    assert re.search(r"0\.\d\d  The budget for the Hawaii trip is \$10,000\n +shares hawaii", short)
    assert re.search(r"1 +0\.\d\d.* selected +The budget for the Hawaii trip", whole)
    assert "1 hit in" in whole


def test_help_lists_every_command_and_typos_get_a_suggestion(cli: Cli, llm: ScriptedLLM) -> None:
    output = cli("chat", "--url", llm.base_url, input="/help\n/memory\n/xyzzy\n").stdout
    for command in ("/memories", "/forget", "/undo", "/why", "/new", "/user", "/help", "/quit"):
        assert command in output
    assert "There is no /memory; did you mean /memories?" in output
    assert "There is no /xyzzy; /help lists the commands." in output


def test_control_characters_of_an_answer_are_escaped(cli: Cli, llm: ScriptedLLM) -> None:
    llm.reply("red \x1b[31m and\x07 \u202eback")
    assert cli("chat", "--url", llm.base_url, input="x\n").stdout == "red \\x1b[31m and\\x07 \\u202eback\n"


def test_an_unreachable_or_refusing_server_is_an_error(cli: Cli, llm: ScriptedLLM) -> None:
    with bind_sockets("127.0.0.1", 0) as free:
        port = free.port
    report = cli.error("chat", "--url", f"http://127.0.0.1:{port}", "--model", "m", input="x\n", code=5)
    assert f"no server answers at http://127.0.0.1:{port}" in report
    assert "start one with `recollect serve`" in report
    llm.fault(http_error(401, {"error": {"message": "Incorrect API key"}}), on="chat")
    report = cli.error("chat", "--url", llm.base_url, input="x\n", code=5)
    assert report == "Error: the server refused with 401: Incorrect API key\n"


@pytest.mark.parametrize("fault", [reset(after_frames=3), stream_error(after_frames=3)], ids=lambda fault: fault.name)
def test_an_interrupted_answer_is_printed_with_an_error(cli: Cli, llm: ScriptedLLM, fault: object) -> None:
    llm.reply("one two three four", faults=[fault])  # type: ignore[list-item]
    output = cli("chat", "--url", llm.base_url, input="x\n", code=5)
    # A reset takes along what the client had not read yet.
    assert output.stdout == "one two\n" or fault.name.startswith("reset")  # type: ignore[attr-defined]
    assert "the answer broke off" in output.stderr


def test_an_invalid_address_is_rejected(cli: Cli) -> None:
    for address in ("127.0.0.1:8100", "ftp://a", "http://", "x"):
        assert "is not an address" in cli.error("chat", "--url", address, input="x\n", code=2)


def test_memories_of_a_remote_server_are_not_read_locally(cli: Cli) -> None:
    cli.add("Likes tea")
    report = cli.error("chat", "--url", "http://elsewhere.invalid", input="/memories\n", code=7)
    assert "the memories of the server on elsewhere.invalid are not on this machine" in report


def test_a_chat_has_no_json_output(cli: Cli) -> None:
    assert "leave --json out" in cli.error("chat", "--json", input="", code=2)


def test_a_server_is_started_if_none_runs(cli: Cli, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Settings] = []

    @contextmanager
    def beside(settings: Settings) -> Iterator[str]:
        started.append(settings)
        yield llm.base_url.removesuffix("/v1")

    with bind_sockets("127.0.0.1", 0) as free:
        port = free.port
    monkeypatch.setenv("RECOLLECT_PORT", str(port))
    monkeypatch.setattr("recollect.http.server.run_embedded_server", beside)
    assert cli("chat", input="x\n").stdout == "You said: x\n"
    assert [settings.port for settings in started] == [port]


def test_the_embedded_server_runs_during_its_block(tmp_path: Path) -> None:
    with run_embedded_server(load({"home": tmp_path}, environ={}).settings) as address:
        assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "ok"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health", timeout=60)


class Typist:
    """A chat in a pseudo-terminal."""

    def __init__(self, home: Path, *options: str) -> None:
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect.cli.main", "chat", *options],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=environment(home, TERM="xterm", NO_COLOR="1"),
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(inside)
        self.screen = ""

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def sees(self, text: str) -> None:
        """Wait until the text is printed, and drop the output up to it."""
        deadline = time.monotonic() + 60
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            if select.select([self._screen], [], [], 1)[0]:
                self.screen += os.read(self._screen, 10_000).decode()
        self.screen = self.screen.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


def test_on_a_terminal_lines_can_be_edited_and_answers_stopped(tmp_path: Path, llm: ScriptedLLM) -> None:
    llm.reply("Hello there.").reply("one two three four", faults=[hang(after_frames=3)]).reply("Hello again.")
    typist = Typist(tmp_path / "home", "--user", "alex", "--url", llm.base_url)
    try:
        typist.sees("Chatting as alex with scripted at ")
        typist.sees("\n> ")
        # A letter too many, taken back; then the line before, brought back.
        typist.type("Hix\x7f\r")
        typist.sees("Hello there.")
        typist.sees("\n> ")
        typist.type("\x1b[A again\r")
        typist.sees("one two")
        os.kill(typist.process.pid, signal.SIGINT)
        typist.sees("Stopped.")
        llm.wait_for(lambda server: server.disconnects, 60)
        typist.type("Still there?\r")
        typist.sees("Hello again.")
        typist.sees("\n> ")
        llm.fault(http_error(500, {"error": {"message": "out of order"}}), on="chat")
        typist.type("x\r")
        typist.sees("Error: the server refused with 500: out of order")
        typist.sees("\n> ")
        typist.type("\x04")
        assert typist.process.wait(60) == 0
    finally:
        typist.close()
    assert sent_messages(llm, 1)[-1] == ("user", "Hi again")
    assert sent_messages(llm, 2)[-2:] == [("assistant", "one two"), ("user", "Still there?")]
