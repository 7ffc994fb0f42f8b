"""The interactive chat: messages for a server that has OpenAI's API, and commands on the memories."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any

import httpx

from recollect.cli.context import CliContext
from recollect.cli.output import (
    CATEGORY_COLUMN,
    CREATED_COLUMN,
    MEMORY_COLUMN,
    SCORE_COLUMN,
    Column,
    StyledText,
    TableRow,
    bold,
    clean,
    dim,
    format_short_time,
    has_colours,
    pluralize,
    print_line,
    print_table,
    print_trace,
)
from recollect.errors import InvalidInput, RecollectError, Unavailable, Unsupported, UpstreamBroken
from recollect.model.ids import new_id

if TYPE_CHECKING:
    from recollect.sync import Memory

_CONNECT_TIMEOUT_S = 5.0
# Between two pieces of an answer: a large model on a small machine is slow to begin.
_READ_TIMEOUT_S = 300.0
_MAX_ERROR_CHARS = 500


@dataclass(slots=True)
class ChatAnswer:
    """An answer: its messages and time, the text so far, and the memory headers of the server."""

    messages: list[dict[str, str]]
    at: datetime
    text: str = ""
    memory_headers: Mapping[str, str] = field(default_factory=dict)


class ChatClient:
    """A session with the server at `url`, as one user.

    `certificate` is a file with an additional trusted certificate.
    """

    def __init__(
        self, url: str, *, user: str, project: str | None = None, model: str = "", certificate: str = ""
    ) -> None:
        self.url = _check_url(url).rstrip("/").removesuffix("/v1")
        self.user = user
        self.project = project
        self.model = model
        ssl_context = ssl.create_default_context()
        if certificate:
            ssl_context.load_verify_locations(certificate)
        timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        self._http = httpx.Client(timeout=timeout, verify=ssl_context, trust_env=False)
        self.start_session()

    def start_session(self) -> None:
        self.session = new_id()
        self.messages: list[dict[str, str]] = []
        self.last_answer: ChatAnswer | None = None

    def close(self) -> None:
        self._http.close()

    @property
    def host(self) -> str:
        return httpx.URL(self.url).host

    def is_reachable(self) -> bool:
        """Return whether a server responds."""
        try:
            self._http.get(f"{self.url}/v1/models", timeout=_CONNECT_TIMEOUT_S)
        except httpx.HTTPError:
            return False
        return True

    def resolve_model(self) -> str:
        """Return the chosen model, or the first of the server."""
        if not self.model:
            try:
                answer = self._http.get(f"{self.url}/v1/models", headers=self._headers(), timeout=_CONNECT_TIMEOUT_S)
                self.model = str(answer.raise_for_status().json()["data"][0]["id"])
            except httpx.ConnectError as error:
                raise self._unreachable(error) from None
            except (httpx.HTTPError, ValueError, LookupError, TypeError):
                raise InvalidInput(f"the server at {self.url} lists no models; name one with --model") from None
        return self.model

    def send(self, text: str) -> Iterator[str]:
        """Send a message and yield the answer in pieces; an interrupted answer stays in the session."""
        messages = [*self.messages, {"role": "user", "content": text}]
        body = {"model": self.resolve_model(), "messages": messages, "stream": True}
        self.last_answer = answer = ChatAnswer(messages, datetime.now(UTC))
        try:
            address = f"{self.url}/v1/chat/completions"
            with self._http.stream("POST", address, json=body, headers=self._headers()) as reply:
                answer.memory_headers = {
                    name: value for name, value in reply.headers.items() if name.startswith("x-memory-")
                }
                if reply.status_code != 200:
                    raise _refusal(reply)
                for piece in _iter_content(reply):
                    answer.text += piece
                    yield piece
        except httpx.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx.LocalProtocolError:
            raise InvalidInput(f"user {self.user!r} or its project cannot be sent as a header") from None
        except httpx.TimeoutException:
            raise Unavailable(f"the server at {self.url} took too long to answer") from None
        except httpx.TransportError as error:
            raise UpstreamBroken(f"the answer broke off: {error}") from None
        finally:
            if answer.text:
                self.messages = [*messages, {"role": "assistant", "content": answer.text}]

    def _headers(self) -> dict[bytes, bytes]:
        headers = {"User": self.user, "Session": self.session, "Project": self.project or ""}
        # Names may have any letter; headers are bytes.
        named = {f"X-Memory-{name}".encode(): value.encode() for name, value in headers.items() if value}
        return {b"X-Memory": b"on", **named}

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(f"no server answers at {self.url} ({error}); start one with `recollect serve`")


def _check_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"{url!r} is not an address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"{url!r} is not an address of a server, such as http://127.0.0.1:8100")
    return url


def _iter_content(reply: httpx.Response) -> Iterator[str]:
    """Yield the text of a streamed answer; raise an error that it contains."""
    for line in reply.iter_lines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                raise UpstreamBroken(f"the answer broke off: {_error_message(chunk)}")
            pieces = [choice["delta"].get("content") for choice in chunk["choices"]]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UpstreamBroken("the server sent an answer that is not a chat completion") from None
        yield from filter(None, pieces)


def _refusal(reply: httpx.Response) -> Unavailable:
    reply.read()
    try:
        message = _error_message(reply.json())
    except ValueError:
        message = reply.text.strip()
    return Unavailable(
        f"the server refused with {reply.status_code}: {message[:_MAX_ERROR_CHARS] or reply.reason_phrase}"
    )


def _error_message(document: Any) -> str:
    """Return the message of an error in any of the usual shapes."""
    error = document.get("error", document.get("detail", document)) if isinstance(document, dict) else document
    return str(error.get("message", error) if isinstance(error, dict) else error)


_MAX_LISTED = 20
_NUMBER_COLUMN = Column("N", style="dim", right=True)
HELP: Mapping[str, str] = {
    "/memories [WORDS]": "list the newest memories, or search them",
    "/forget N": "forget number N of that list",
    "/undo": "undo the last change",
    "/why [all]": "show the memories recalled for the last answer, or all candidates",
    "/new": "begin a new session; memories stay",
    "/user NAME": "continue as another user, in a new session",
    "/help": "show this list",
    "/quit": "leave, like Ctrl-D",
}


class ChatRepl:
    """Read lines until the user leaves, and print the answers as they arrive.

    The memories are read from the ledger of the settings, which is the server's own unless it runs on `remote_host`.
    """

    def __init__(self, cli: CliContext, client: ChatClient, *, remote_host: str = "") -> None:
        self._cli = cli
        self._client = client
        self._remote_host = remote_host
        self._memory: Memory | None = None
        self._listed_ids: Sequence[str] = ()
        # Without a terminal nobody can retry: the first error ends the chat with its exit code.
        self._is_interactive = sys.stdin.isatty()
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/memories": self._list,
            "/forget": self._forget,
            "/undo": self._undo,
            "/why": self._why,
            "/new": self._start_session,
            "/user": self._change_user,
            "/help": self._help,
        }

    def close(self) -> None:
        """Close the memory, if a command opened it."""
        if self._memory is not None:
            self._memory.close()

    def print_greeting(self, server: str) -> None:
        """Print the user, the model and the server."""
        model = self._client.resolve_model()
        print_line("Chatting as ", bold(self._client.user), " with ", bold(model), f" at {server}.")
        print_line(dim(f"/help lists {pluralize(len(HELP), 'command')}; Ctrl-C stops an answer, Ctrl-D leaves."))

    def run(self, first_line: str = "") -> None:
        """Chat until Ctrl-D, /quit or the end of standard input, of which `first_line` was read already."""
        for line in self._lines(first_line):
            if line.split(" ")[0] == "/quit":
                return
            try:
                self._handle(line)
            except RecollectError as error:
                if not self._is_interactive:
                    raise
                print_line(StyledText("Error: ", "red"), str(error), err=True)

    def _lines(self, first_line: str) -> Iterator[str]:
        if not self._is_interactive:
            for line in chain([first_line], sys.stdin):
                if line.strip():
                    yield line.strip()
            return
        _enable_line_editing()
        prompt = "\001\x1b[36m\002> \001\x1b[0m\002" if has_colours(sys.stdout) else "> "
        while True:
            try:
                line = input(prompt).strip()
            except EOFError:
                print_line()
                return
            except KeyboardInterrupt:
                print_line()
                print_line(dim("Ctrl-D leaves."))
                continue
            if line:
                yield line

    def _handle(self, line: str) -> None:
        if not line.startswith("/"):
            self._send(line)
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            matches = get_close_matches(name, self._commands, n=1)
            hint = f"did you mean {matches[0]}?" if matches else "/help lists the commands."
            print_line(f"There is no {name}; {hint}")
            return
        command(rest.strip())

    def _send(self, text: str) -> None:
        last_piece = ""
        try:
            for piece in self._client.send(text):
                last_piece = piece
                sys.stdout.write("\n".join(clean(line) for line in piece.replace("\r\n", "\n").split("\n")))
                sys.stdout.flush()
        except KeyboardInterrupt:
            if not self._is_interactive:
                raise
            print_line()
            print_line(dim("Stopped."))
            return
        finally:
            if last_piece and not last_piece.endswith("\n"):
                sys.stdout.write("\n")
            sys.stdout.flush()
        answer = self._client.last_answer
        trouble = answer.memory_headers.get("x-memory-status", "") if answer else ""
        if trouble not in ("", "ok", "off"):
            print_line(dim(f"memory: {trouble}"), err=True)

    def _open(self) -> Memory:
        if self._remote_host:
            raise Unsupported(f"the memories of the server on {self._remote_host} are not on this machine")
        if self._memory is None:
            self._memory = self._cli.open().open()
        return self._memory

    def _list(self, query: str) -> None:
        user, project = self._client.user, self._client.project
        if query:
            hits = self._open().search(query, user_id=user, project_id=project, limit=_MAX_LISTED)
            records = [hit.record for hit in hits]
        else:
            records = list(self._open().get_all(user_id=user, project_id=project, limit=_MAX_LISTED))
        self._listed_ids = [record.id for record in records]
        if not records:
            print_line("Nothing matches." if query else f"There are no memories of {user} yet.")
            return
        rows = [
            (str(number), format_short_time(record.created_at), record.category, record.content)
            for number, record in enumerate(records, 1)
        ]
        print_table([_NUMBER_COLUMN, CREATED_COLUMN, CATEGORY_COLUMN, MEMORY_COLUMN], rows)

    def _forget(self, which: str) -> None:
        if which.isdecimal() and 1 <= int(which) <= len(self._listed_ids):
            which = self._listed_ids[int(which) - 1]
        elif not which or which.isdecimal():
            print_line("Give a number of the list that /memories prints.")
            return
        user = self._client.user
        outcome = self._open().acting_as("chat", why="/forget").delete(which, user_id=user)
        content = self._open().get(outcome.id, user_id=user).content
        print_line("Forgot ", bold(content) if outcome.changed else "nothing new", dim("  /undo brings it back"))

    def _undo(self, _: str) -> None:
        for outcome in self._open().acting_as("chat", why="/undo").undo(user_id=self._client.user):
            record = self._open().get(outcome.id, user_id=self._client.user)
            print_line("Now ", bold(record.status), f": {record.content}")

    def _why(self, mode: str) -> None:
        answer = self._client.last_answer
        if answer is None:
            print_line("There is no answer yet in this session.")
            return
        for name, value in answer.memory_headers.items():
            print_line(dim(f"{name}: {value}"))
        recalled = self._open().recall(
            answer.messages,
            user_id=self._client.user,
            project_id=self._client.project,
            session_id=self._client.session,
            at=answer.at,
            as_of=answer.at,
            trace=True,
        )
        print_line(bold(recalled.outcome), f": {recalled.reason}")
        if mode == "all":
            for note in recalled.notes:
                print_line(dim(note))
            learned = self._open().settings.fusion == "learned"
            print_trace(recalled.hits, recalled.candidates, recalled.steps_us, learned=learned)
        elif recalled.hits:
            rows = [TableRow((f"{hit.score:.2f}", hit.memory), notes=[hit.why, hit.id]) for hit in recalled.hits]
            print_table([SCORE_COLUMN, MEMORY_COLUMN], rows)

    def _start_session(self, _: str) -> None:
        self._client.start_session()
        print_line(dim("A new session begins."))

    def _change_user(self, name: str) -> None:
        if not name:
            print_line("You are ", bold(self._client.user), ".")
            return
        self._client.user = name
        self._listed_ids = ()
        self._client.start_session()
        print_line("You are ", bold(name), "; a new session begins.")

    def _help(self, _: str) -> None:
        for command, purpose in HELP.items():
            print_line("  ", StyledText(command.ljust(20), "cyan"), purpose)


def _enable_line_editing() -> None:
    """Enable line editing and history, which is not saved: an erasure would not reach it."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)
