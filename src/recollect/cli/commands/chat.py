"""recollect chat and agent."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
import httpx

from recollect.cli.context import CliContext, command, server_address, usage_error
from recollect.cli.options import read_text_argument
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
    clean_lines,
    dim,
    format_short_time,
    has_colours,
    pluralize,
    print_json,
    print_line,
    print_table,
    print_trace,
)
from recollect.errors import InvalidInput, RecollectError, Unavailable, Unsupported, UpstreamBroken
from recollect.model.ids import new_id

if TYPE_CHECKING:
    from recollect.agent.types import Answer, Event
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
        for line, purpose in HELP.items():
            print_line("  ", StyledText(line.ljust(20), "cyan"), purpose)


def _enable_line_editing() -> None:
    """Enable line editing and history, which is not saved: an erasure would not reach it."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)


@command(
    "recollect chat --user alex", "recollect chat --url http://127.0.0.1:8100 --model gpt-5", scope="user project"
)
@click.option("--url", metavar="ADDRESS", help="The server. [default: that of the settings, or a new one]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: the first of the server]")
def chat(cli: CliContext, url: str | None, model: str) -> None:
    """Chat with a model that has memory.

    Messages are sent to a running server, or to one that runs as long as the chat. Lines that begin with a slash are
    commands; /help lists them. Without a terminal, every line of standard input is a message.
    """
    from recollect.http.auth.address import is_loopback

    if cli.json:
        raise usage_error("A chat has no JSON output; leave --json out.")
    settings = cli.load().settings
    # Without input no server is needed.
    first_line = "" if sys.stdin.isatty() else sys.stdin.readline()
    if not first_line and not sys.stdin.isatty():
        return
    with ExitStack() as stack:
        client = ChatClient(
            url or server_address(settings),
            user=cli.user_id,
            project=cli.project,
            model=model,
            certificate="" if url else settings.ssl_certfile,
        )
        stack.callback(client.close)
        started = url is None and not client.is_reachable()
        if started:
            from recollect.http.server import run_embedded_server

            client.url = stack.enter_context(run_embedded_server(settings))
        remote_host = "" if started or is_loopback(client.host) else client.host
        repl = ChatRepl(cli, client, remote_host=remote_host)
        stack.callback(repl.close)
        if sys.stdin.isatty():
            repl.print_greeting("a server of its own" if started else client.url)
        repl.run(first_line)


_MAX_EVENT_CHARS = 600
_LABELS = {"thought": "cyan", "action": "yellow", "observation": "green", "error": "red"}


@command(
    'recollect agent "Which of my services listens on port 8443?" --memory --user alex',
    'recollect agent "And who looks after it?" --memory --session monday --user alex --model gpt-5',
    scope="user project session",
)
@click.argument("question", nargs=-1)
@click.option("--memory/--no-memory", "enable_memory", default=False, help="Use memory, and learn. [default: off]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: agent_llm or llm of the settings]")
@click.option("--group", multiple=True, metavar="NAME", help="A group of allowed tools; can be repeated.")
@click.option("--state", default="", metavar="TEXT", help="The state of the work.")
@click.option("--quiet", "-q", is_flag=True, help="Print the answer only.")
def agent(cli: CliContext, /, question: tuple[str, ...], model: str, quiet: bool, **options: Any) -> None:
    """Ask an agent that reasons and uses tools.

    Its thoughts, actions and observations are printed as they happen. Its tools are those of the settings
    agent_tools and agent_mcp, and with --memory its own memory.
    """
    prompt = read_text_argument(question, name="question")
    answer = asyncio.run(_run_agent(cli, prompt, model=model, quiet=quiet or cli.json, **options))
    if cli.json:
        from recollect.http.compat.agent import to_agent_response

        print_json(to_agent_response(answer).model_dump(mode="json"))
    elif answer.ended != "answered":
        print_line(dim(f"It ended without an answer: {answer.ended}."), err=True)


async def _run_agent(cli: CliContext, question: str, *, model: str, quiet: bool, **options: Any) -> Answer:
    from recollect.agent.agent import Agent
    from recollect.agent.tool_sources import ToolSources

    async with AsyncExitStack() as opened:
        memory = cli.open_async()
        opened.push_async_callback(memory.close)
        sources = ToolSources(memory.settings)
        opened.push_async_callback(sources.close)
        subject = Agent(memory, model or None, await sources.toolbox())
        opened.push_async_callback(subject.close)
        answer: Answer | None = None
        async for event in subject.stream(question, **cli.scope_args, **options):
            answer = event.answer or answer
            if not cli.json and (not quiet or event.answer is not None):
                _print_event(event)
    assert answer is not None
    return answer


def _print_event(event: Event) -> None:
    """Print an event; long observations are cut."""
    if event.answer is not None:
        for line in clean_lines(event.text):
            print_line(bold(line))
        if event.answer.facts or event.answer.episodes:
            print_line(dim(f"(began with {len(event.answer.facts)} facts and {len(event.answer.episodes)} episodes)"))
        for note in event.answer.notes:
            print_line(dim(note), err=True)
    else:
        style = "red" if event.failed else _LABELS[str(event.kind)]
        text = event.text if len(event.text) <= _MAX_EVENT_CHARS else f"{event.text[:_MAX_EVENT_CHARS]} …"
        first, *rest = clean_lines(text) or [""]
        print_line(StyledText(f"{event.kind.title()}: ".rjust(13), style), first)
        for line in rest:
            print_line(" " * 13, line)
    sys.stdout.flush()
