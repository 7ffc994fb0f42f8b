"""The command line as a process: signals, pipes, terminals, start-up."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cli_runner import Cli

COMMAND = [sys.executable, "-m", "recollect.cli.main"]
HEAVY = {"numpy", "apsw", "fastapi", "uvicorn", "httpx", "tokenizers", "asyncio"}


def environment(home: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "RECOLLECT_HOME": str(home), "PYTHONIOENCODING": "utf-8", **more}


def run(home: Path, *args: str | bytes, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*COMMAND, *args], input=input, capture_output=True, env=environment(home), timeout=200)
    assert b"Traceback" not in done.stderr
    return done


def loaded_by(*args: str) -> set[str]:
    code = (
        "import sys\nfrom recollect.cli.main import root\n"
        f"try: root.main({list(args)!r})\nexcept SystemExit: pass\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    assert not (HEAVY | {"pydantic", "rich"}) & loaded_by("--help")


def test_config_show_loads_the_settings_and_nothing_else_heavy(tmp_path: Path) -> None:
    assert not HEAVY & loaded_by("--home", str(tmp_path), "config", "show")


def test_a_search_loads_no_server_and_no_http_client(tmp_path: Path) -> None:
    run(tmp_path, "add", "I live in Lisbon")
    loaded = loaded_by("--home", str(tmp_path), "search", "Where do I live?")
    assert {"numpy", "tokenizers", "recollect.models.token_encoder"} <= loaded
    assert not {"fastapi", "uvicorn", "httpx", "aiohttp", "asyncpg", "rich.console", "yaml", "numpy.ma"} & loaded


def test_bytes_that_are_not_text_are_rejected(tmp_path: Path) -> None:
    done = run(tmp_path, "add", b"caf\xe9")
    assert done.returncode == 2
    assert done.stderr == (
        b"Error: content holds a lone surrogate (half of a character) at position 3; remove it and try again\n"
    )


def test_a_closed_pipe_ends_the_command_silently(tmp_path: Path) -> None:
    # More than a pipe buffers.
    lines = "".join(json.dumps({"memory": f"{n} {'word ' * 20_000}", "user_id": "a"}) + "\n" for n in range(5))
    Cli(tmp_path)("import", input=lines)
    command = subprocess.Popen(
        [*COMMAND, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path)
    )
    with command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
    assert command.returncode == 141


def test_a_full_disk_below_the_output_is_reported(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, env=environment(tmp_path))
    assert done.returncode == 5
    assert done.stderr == b"Error: No space left on device\n"


def interrupted(command: subprocess.Popen[bytes]) -> int:
    """Return the exit code on Ctrl-C, repeated until the command waits for the answer."""
    for _ in range(5):
        command.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return command.wait(60)
    command.kill()
    return command.wait(60)


def test_an_interrupt_at_the_question_forgets_nothing_and_ends_with_130(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.add("Likes tea")
    terminal, inside = pty.openpty()
    command = subprocess.Popen(
        [*COMMAND, "forget", "--all"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environment(tmp_path),
        # Processes in the background of a shell ignore Ctrl-C, and their children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with command:
        visible = b""
        while b"[y/N]" not in visible:
            visible += os.read(terminal, 10_000)
        assert interrupted(command) == 130
    os.close(inside)
    assert b"Forget 1 memory of user default?" in visible
    assert b"Traceback" not in os.read(terminal, 10_000)
    os.close(terminal)
    assert cli.json("stats")["forgotten"] == 0


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_printed_on_terminals_that_allow_them(
    tmp_path: Path, more: dict[str, str], coloured: bool
) -> None:
    terminal, inside = pty.openpty()
    variables = {**environment(tmp_path), "TERM": "xterm", **more}
    if not more:
        variables.pop("NO_COLOR", None)
    subprocess.run(COMMAND, stdin=inside, stdout=inside, stderr=inside, env=variables, check=True, timeout=200)
    os.close(inside)
    assert (b"\x1b[" in os.read(terminal, 10_000)) == coloured
    os.close(terminal)


def test_a_read_only_folder_is_unavailable() -> None:
    """If the tests run as root, the process drops its rights after loading everything."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        home.mkdir(mode=0o555)
        code = f"""
import os
from recollect.cli.main import root
def run(*args):
    try: root.main(list(args))
    except SystemExit as end: return int(end.code)
run("--home", "{folder}/warm", "search", "anything")
run("--home", "{folder}/warm", "doctor")
if os.geteuid() == 0: os.setuid(65534)
print(run("--home", "{home}", "add", "hello"), run("--home", "{home}", "list"), run("--home", "{home}", "doctor"))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
        assert done.stdout.splitlines()[-1] == "5 5 5"
        assert "fail  home" in done.stdout
        assert f"cannot make {home}/recollect.db: Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(home.iterdir())
