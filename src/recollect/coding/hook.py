"""`recollect hook EVENT --client X`: pass a hook's event to the server, and print the answer for the client.

A coding agent waits for this process at each prompt, so it imports little, ends in time whatever the server does,
and always exits with 0: without memory the agent works as before. `http.client` alone takes longer to import than
all of this, and its timeout is for each read instead of the whole request.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time

from recollect.coding.events import (
    CLIENTS,
    EVENT_NAMES,
    EVENTS,
    answer_of,
    folder_of,
    format_answer,
    prompt_of,
    session_of,
)
from recollect.coding.unsent import UnsentExchanges
from recollect.project import Project, find_project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT_URL = "http://127.0.0.1:8100"
# With the start of the interpreter less than 300 ms.
_TIMEOUT_S = 0.22
# The part of it in which the server must answer; the rest is for keeping what it did not take.
_ANSWER_PART = 0.9
_MAX_PAYLOAD_BYTES = 8 << 20
_MAX_REASON_CHARS = 200
_URL = re.compile(r"(https?)://(\[[^\]/]+\]|[^/:@\[]+)(?::(\d{1,5}))?(/.*)?", re.IGNORECASE)


# After how long a transcript that lacks the prompt is read again, for an exchange that is kept.
_TRANSCRIPT_WAIT_S = 0.02


class HookFailure(Exception):
    """The reason why a hook has no answer."""


class ServerUnavailable(HookFailure):
    """The server could not take the event; it may take it later."""


class EventRefused(HookFailure):
    """The server will never take the event."""


class _Request:
    """The options of the command: which event of which client, and the server."""

    def __init__(self, arguments: list[str], environ: Mapping[str, str]) -> None:
        self.client = self.event = ""
        self.url = environ.get("RECOLLECT_URL", "")
        self.key = environ.get("RECOLLECT_API_KEY", "")
        self.timeout_s = _parse_timeout(environ.get("RECOLLECT_HOOK_TIMEOUT_S", ""))
        values = iter(arguments)
        for argument in values:
            name, _, value = argument.partition("=")
            if name == "--client":
                self.client = value or next(values, "")
            elif name == "--url":
                self.url = value or next(values, "")
            else:
                self.event = argument
        self.url = self.url or DEFAULT_URL

    def check(self) -> None:
        if self.client not in CLIENTS:
            raise HookFailure(f"--client must be one of {', '.join(CLIENTS)}, got {self.client!r}")
        if self.event not in EVENTS:
            raise HookFailure(f"the event must be one of {', '.join(EVENTS)}, got {self.event!r}")

    @property
    def neutral_answer(self) -> dict[str, Any]:
        """The answer without memory, whatever the options are."""
        return format_answer(self.client, self.event) if self.client in EVENT_NAMES else {}


def _parse_timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return _TIMEOUT_S
    return seconds if 0 < seconds <= 60 else _TIMEOUT_S


def run(arguments: list[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Run the hook; return the line for the client, and the line that says why there is no memory, if so."""
    request = _Request(arguments, environ)
    answers: list[str] = []
    reasons: list[str] = []

    def work() -> None:
        deadline = time.monotonic() + request.timeout_s * _ANSWER_PART
        unsent = UnsentExchanges(environ, request.url)
        try:
            answers.append(_run_hook(request, environ, unsent, deadline))
            # The user waits for a recall.
            if request.event != "recall":
                _send_unsent(request, unsent, deadline)
        except HookFailure as error:
            reasons.append(str(error))
        except Exception as error:
            reasons.append(f"unexpected {type(error).__name__}: {error}")

    try:
        request.check()
        # In a thread, because resolving a host name and reading standard input have no timeouts.
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(request.timeout_s)
        if not answers and not reasons:
            reasons.append(f"the server at {request.url} did not answer in time")
    except HookFailure as error:
        reasons.append(str(error))
    if answers:
        return answers[0], ""
    reason = " ".join(reasons[0].split())[:_MAX_REASON_CHARS]
    return json.dumps(request.neutral_answer), f"recollect: no memory this time: {reason}"


def main(arguments: list[str], environ: Mapping[str, str]) -> None:
    """Run the hook and end the process with 0."""
    answer, reason = run(arguments, environ)
    _write(1, answer)
    if reason:
        _write(2, reason)
    # The thread may wait for the server still.
    os._exit(0)


def _write(descriptor: int, line: str) -> None:
    try:
        os.write(descriptor, (line + "\n").encode(errors="replace"))
    except OSError:
        # The client does not listen any more.
        pass


def _run_hook(request: _Request, environ: Mapping[str, str], unsent: UnsentExchanges, deadline: float) -> str:
    """Send the payload on standard input to the server; return the answer for the client."""
    try:
        payload = json.loads(_read_input())
    except ValueError:
        payload = None
    if not isinstance(payload, dict):
        raise HookFailure("standard input is no JSON object: the client runs this command, with an event as input")
    if request.event in ("keep", "save"):
        _complete(request, payload)
    project = find_project(folder_of(payload) or os.getcwd(), environ)
    try:
        return _send(request, request.client, request.event, project, payload, deadline)
    except ServerUnavailable as error:
        exchange = _exchange_of(request, payload, project, deadline)
        if exchange and unsent.add(exchange):
            raise HookFailure(f"{error}; what was said is kept and sent later") from None
        raise


def _send(
    request: _Request, client: str, event: str, project: Project, payload: Mapping[str, Any], deadline: float
) -> str:
    """Send an event to the server; return the body of its answer."""
    url = request.url
    headers = {
        "X-Memory-Project": project.id,
        "X-Memory-Branch": project.branch,
        "Authorization": f"Bearer {request.key}" if request.key else "",
    }
    status, body = _post(url, f"/recollect/v1/hooks/{client}/{event}", headers, json.dumps(payload), deadline)
    if status == 200:
        return body.strip()
    if status in (401, 403):
        raise HookFailure(f"{url} refused the key ({status}); set RECOLLECT_API_KEY to one of this server")
    failure = HookFailure
    if status >= 500 or status in (408, 425, 429):
        failure = ServerUnavailable
    elif status in (400, 413, 422):
        failure = EventRefused
    raise failure(f"{url} answered {status}: {_describe(body)}")


def _exchange_of(
    request: _Request, payload: Mapping[str, Any], project: Project, deadline: float
) -> dict[str, Any] | None:
    """Return what the server should store of an event, for a later hook; None if that is nothing."""
    prompt, answer = prompt_of(payload), answer_of(payload)
    if request.event in ("keep", "save") and request.client == "claude-code":
        # Claude Code writes its transcript a moment after it runs the hook.
        while not prompt and time.monotonic() < deadline - 2 * _TRANSCRIPT_WAIT_S:
            time.sleep(_TRANSCRIPT_WAIT_S)
            prompt = _read_transcript(payload)[0]
    if not prompt and not answer:
        return None
    return {
        "client": request.client,
        "project": project.id,
        "branch": project.branch,
        "payload": {
            "session_id": session_of(payload),
            "cwd": folder_of(payload) or os.getcwd(),
            "timestamp": time.time(),
            "prompt": prompt,
            "last_assistant_message": answer,
        },
    }


def _complete(request: _Request, payload: dict[str, Any]) -> None:
    """Add the answer, and for Claude Code the prompt, from the client's transcript if the payload lacks them."""
    # Claude Code's hook for prompts is by HTTP, and keeps nothing while the server is down.
    needs_prompt = request.client == "claude-code" and not prompt_of(payload)
    if answer_of(payload) and not needs_prompt:
        return
    prompt, answer = _read_transcript(payload)
    if needs_prompt and prompt:
        payload["prompt"] = prompt
    if not answer_of(payload):
        payload["last_assistant_message"] = answer


def _send_unsent(request: _Request, unsent: UnsentExchanges, deadline: float) -> None:
    """Send what earlier hooks could not, as far as the time allows."""
    for path, each in unsent.exchanges():
        try:
            _send(
                request, each["client"], "keep", Project(each["project"], each["branch"]), each["payload"], deadline
            )
        except (EventRefused, KeyError):
            # It would be refused each time.
            pass
        except HookFailure:
            return
        unsent.remove(path)


def _read_transcript(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return the last prompt and the answer to it from the client's transcript; empty if there is none."""
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not path:
        return "", ""
    from recollect.coding.transcripts import read_last_exchange

    return read_last_exchange(path)


def _read_input() -> bytes:
    if sys.stdin is not None and sys.stdin.isatty():
        raise HookFailure("standard input is a terminal: the client runs this command, with an event as input")
    # Not by sys.stdin, whose lock would block the end of the process.
    data = b""
    while (piece := os.read(0, 1 << 16)) and len(data) <= _MAX_PAYLOAD_BYTES:
        data += piece
    if len(data) > _MAX_PAYLOAD_BYTES:
        raise HookFailure(f"the event is larger than {_MAX_PAYLOAD_BYTES:,} bytes")
    return data


def _describe(body: str) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body


def _post(url: str, path: str, headers: Mapping[str, str], body: str, deadline: float) -> tuple[int, str]:
    """Send a request as HTTP/1.0, whose answer ends with the connection; return its status and body."""
    parts = _URL.fullmatch(url.rstrip("/"))
    if parts is None:
        raise HookFailure(f"the server's address must be such as {DEFAULT_URL}, got {url!r}")
    is_https = parts[1].lower() == "https"
    host, port = parts[2], int(parts[3] or (443 if is_https else 80))
    data = body.encode()
    lines = [
        f"POST {parts[4] or ''}{path} HTTP/1.0",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items() if value),
    ]
    try:
        timeout_s = max(0.001, deadline - time.monotonic())
        with socket.create_connection((host.strip("[]"), port), timeout=timeout_s) as plain:
            connection = _secure(plain, host) if is_https else plain
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
            answer = b""
            while piece := connection.recv(1 << 16):
                answer += piece
                connection.settimeout(max(0.001, deadline - time.monotonic()))
    except TimeoutError:
        raise ServerUnavailable(f"the server at {url} did not answer in time") from None
    except ConnectionRefusedError:
        raise ServerUnavailable(f"no server at {url}; `recollect serve` starts it") from None
    except OSError as error:
        raise ServerUnavailable(f"no connection to {url}: {error}") from None
    if not answer:
        raise ServerUnavailable(f"the server at {url} closed the connection")
    head, _, content = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not status or not status[0].isdigit():
        raise HookFailure(f"{url} is not a Recollect server")
    return int(status[0]), content.decode(errors="replace")


def _secure(connection: socket.socket, host: str) -> socket.socket:
    import ssl

    return ssl.create_default_context().wrap_socket(connection, server_hostname=host.strip("[]"))
