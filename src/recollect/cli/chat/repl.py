"""What a chat asks of memory beside the conversation: what is kept, to forget, to undo, why it recalled something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

from recollect.cli.chat.client import ChatClient
from recollect.cli.context import CliContext
from recollect.cli.rendering import (
    CATEGORY_COLUMN,
    CREATED_COLUMN,
    MEMORY_COLUMN,
    format_short_time,
    pluralize,
    print_trace,
)
from recollect.cli.table import Column, TableRow, print_table
from recollect.cli.terminal import StyledText, bold, clean, dim, has_colours, print_line
from recollect.errors import RecollectError, Unsupported
from recollect.model.change import Outcome
from recollect.model.memory import MemoryRecord
from recollect.model.result import RecallResult

if TYPE_CHECKING:
    from recollect.cli.chat.client import ChatAnswer
    from recollect.sync import Memory


_MAX_LISTED = 20


class ChatMemories:
    """The memories of one user, read from the ledger that the settings name, opened when first asked.

    All that `recollect chat` knows of memory goes through here. The server has the same ledger open, unless it is
    `elsewhere`: then nothing can be told of its memories here.
    """

    def __init__(self, cli: CliContext, *, user: str, project: str | None, remote_host: str = "") -> None:
        self._cli = cli
        self._remote_host = remote_host
        self.user = user
        self.project = project
        self._memory: Memory | None = None

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def list_records(self, query: str = "") -> list[MemoryRecord]:
        """The newest memories, or those that fit the words."""
        if query:
            hits = self._open().search(query, user_id=self.user, project_id=self.project, limit=_MAX_LISTED)
            return [hit.record for hit in hits]
        return list(self._open().get_all(user_id=self.user, project_id=self.project, limit=_MAX_LISTED))

    def forget(self, memory_id: str) -> Outcome:
        """Take it out of recall, with the turns it was learned from."""
        return self._open().acting_as("chat", why="/forget").delete(memory_id, user_id=self.user)

    def undo(self) -> Sequence[Outcome]:
        """Take back the user's last change."""
        return self._open().acting_as("chat", why="/undo").undo(user_id=self.user)

    def get(self, memory_id: str) -> MemoryRecord:
        return self._open().get(memory_id, user_id=self.user)

    def explain(self, answer: ChatAnswer, *, session: str) -> RecallResult:
        """What recall finds for that question, as memory was when it was asked, with every candidate."""
        return self._open().recall(
            answer.messages,
            user_id=self.user,
            project_id=self.project,
            session_id=session,
            at=answer.at,
            as_of=answer.at,
            trace=True,
        )

    @property
    def is_fusion_learned(self) -> bool:
        """Whether the learned blend weighs the signals, so that their weights can be told."""
        return self._open().settings.fusion == "learned"

    def _open(self) -> Memory:
        if self._remote_host:
            raise Unsupported(f"the memories of the server on {self._remote_host} are not on this machine")
        if self._memory is None:
            self._memory = self._cli.open().open()
        return self._memory


HELP: Mapping[str, str] = {
    "/memories [WORDS]": "list what is kept, or find what fits the words",
    "/forget N": "forget number N of that list",
    "/undo": "take back the last change",
    "/why [all]": "tell what was recalled for the last answer, and why; all that was weighed",
    "/new": "begin a new session; what is kept stays",
    "/user NAME": "go on as another user, in a new session",
    "/help": "show this list",
    "/quit": "leave; Ctrl-D does, too",
}
_NUMBER_COLUMN = Column("N", style="dim", right=True)
_SCORE_COLUMN = Column("SCORE", style="bold", right=True)


class ChatRepl:
    """Where somebody chats: reads lines until they leave, and shows the answers as they come."""

    def __init__(self, client: ChatClient, memories: ChatMemories) -> None:
        self._client = client
        self._memories = memories
        self._listed_ids: Sequence[str] = ()
        # Without a terminal nobody is there to try again: the first error ends the chat, with its exit code.
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

    def run(self, first_line: str = "") -> None:
        """Chat until Ctrl-D, /quit or the end of what is piped in, of which `first` was read already."""
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
            print_line(
                f"There is no {name}; ", f"did you mean {matches[0]}?" if matches else "/help lists what there is."
            )
            return
        command(rest.strip())

    def _send(self, text: str) -> None:
        last_piece = ""
        try:
            for piece in self._client.send(text):
                last_piece = piece
                _print_piece(piece)
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
        trouble = (
            self._client.last_answer.memory_headers.get("x-memory-status", "") if self._client.last_answer else ""
        )
        if trouble not in ("", "ok", "off"):
            print_line(dim(f"memory: {trouble}"), err=True)

    def _list(self, query: str) -> None:
        records = self._memories.list_records(query)
        self._listed_ids = [record.id for record in records]
        if not records:
            print_line("Nothing fits." if query else f"Nothing is kept of {self._memories.user} yet.")
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
            print_line("Say which by its number: /memories lists them.")
            return
        outcome = self._memories.forget(which)
        content = self._memories.get(outcome.id).content
        print_line("Forgot ", bold(content) if outcome.changed else "nothing new", dim("  /undo brings it back"))

    def _undo(self, _: str) -> None:
        for outcome in self._memories.undo():
            record = self._memories.get(outcome.id)
            print_line("Now ", bold(record.status), f": {record.content}")

    def _why(self, mode: str) -> None:
        answer = self._client.last_answer
        if answer is None:
            print_line("Nothing was asked yet in this session.")
            return
        for name, value in answer.memory_headers.items():
            print_line(dim(f"{name}: {value}"))
        recalled = self._memories.explain(answer, session=self._client.session)
        print_line(bold(recalled.outcome), f": {recalled.reason}")
        if mode == "all":
            for note in recalled.notes:
                print_line(dim(note))
            print_trace(
                recalled.hits, recalled.candidates, recalled.steps_us, learned=self._memories.is_fusion_learned
            )
        elif recalled.hits:
            rows = [TableRow((f"{hit.score:.2f}", hit.memory), notes=[hit.why, hit.id]) for hit in recalled.hits]
            print_table([_SCORE_COLUMN, MEMORY_COLUMN], rows)

    def _start_session(self, _: str) -> None:
        self._client.start_session()
        print_line(dim("A new session begins."))

    def _change_user(self, name: str) -> None:
        if not name:
            print_line("You are ", bold(self._client.user), ".")
            return
        self._client.user = self._memories.user = name
        self._listed_ids = ()
        self._client.start_session()
        print_line("You are ", bold(name), "; a new session begins.")

    def _help(self, _: str) -> None:
        for command, purpose in HELP.items():
            print_line("  ", StyledText(command.ljust(20), "cyan"), purpose)


def _enable_line_editing() -> None:
    """Let lines be edited and brought back. They are not kept on disk, where no erasure would find them."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)


def _print_piece(piece: str) -> None:
    """Show part of an answer at once; what a terminal would obey is made visible."""
    sys.stdout.write("\n".join(clean(line) for line in piece.replace("\r\n", "\n").split("\n")))
    sys.stdout.flush()


def print_greeting(client: ChatClient, *, started: bool) -> None:
    """Say who talks to whom."""
    where = "a server of its own" if started else client.url
    print_line("Chatting as ", bold(client.user), " with ", bold(client.resolve_model()), f" at {where}.")
    print_line(dim(f"/help lists {pluralize(len(HELP), 'command')}; Ctrl-C stops an answer, Ctrl-D leaves."))
