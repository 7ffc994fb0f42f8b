"""The chat as it is typed: lines go to the server, lines that begin with a slash are commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain

from recollect.cli.chatting.memories import Memories
from recollect.cli.chatting.talk import Talk
from recollect.cli.records import CATEGORY, CREATED, MEMORY, counted, short_time
from recollect.cli.table import Column, Row, print_table
from recollect.cli.terminal import Piece, bold, clean, dim, is_colourful, say
from recollect.cli.traces import say_trace
from recollect.errors import RecollectError

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
_NUMBER = Column("N", style="dim", right=True)
_SCORE = Column("SCORE", style="bold", right=True)


class Room:
    """Where somebody chats: reads lines until they leave, and shows the answers as they come."""

    def __init__(self, talk: Talk, memories: Memories) -> None:
        self._talk = talk
        self._memories = memories
        self._listed: Sequence[str] = ()
        # Without a terminal nobody is there to try again: the first error ends the chat, with its exit code.
        self._attended = sys.stdin.isatty()
        self._commands: Mapping[str, Callable[[str], None]] = {
            "/memories": self._list,
            "/forget": self._forget,
            "/undo": self._undo,
            "/why": self._why,
            "/new": self._begin,
            "/user": self._change_user,
            "/help": self._help,
        }

    def run(self, first: str = "") -> None:
        """Chat until Ctrl-D, /quit or the end of what is piped in, of which `first` was read already."""
        for line in self._lines(first):
            if line.split(" ")[0] == "/quit":
                return
            try:
                self._take(line)
            except RecollectError as error:
                if not self._attended:
                    raise
                say(Piece("Error: ", "red"), str(error), err=True)

    def _lines(self, first: str) -> Iterator[str]:
        if not self._attended:
            for line in chain([first], sys.stdin):
                if line.strip():
                    yield line.strip()
            return
        _edit_lines()
        prompt = "\001\x1b[36m\002> \001\x1b[0m\002" if is_colourful(sys.stdout) else "> "
        while True:
            try:
                line = input(prompt).strip()
            except EOFError:
                say()
                return
            except KeyboardInterrupt:
                say()
                say(dim("Ctrl-D leaves."))
                continue
            if line:
                yield line

    def _take(self, line: str) -> None:
        if not line.startswith("/"):
            self._ask(line)
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            near = get_close_matches(name, self._commands, n=1)
            say(f"There is no {name}; ", f"did you mean {near[0]}?" if near else "/help lists what there is.")
            return
        command(rest.strip())

    def _ask(self, text: str) -> None:
        said = ""
        try:
            for piece in self._talk.ask(text):
                said = piece
                _write(piece)
        except KeyboardInterrupt:
            if not self._attended:
                raise
            say()
            say(dim("Stopped."))
            return
        finally:
            if said and not said.endswith("\n"):
                sys.stdout.write("\n")
            sys.stdout.flush()
        trouble = self._talk.last.memory.get("x-memory-status", "") if self._talk.last else ""
        if trouble not in ("", "ok", "off"):
            say(dim(f"memory: {trouble}"), err=True)

    def _list(self, about: str) -> None:
        records = self._memories.kept(about)
        self._listed = [record.id for record in records]
        if not records:
            say("Nothing fits." if about else f"Nothing is kept of {self._memories.user} yet.")
            return
        rows = [
            (str(number), short_time(record.created_at), record.category, record.content)
            for number, record in enumerate(records, 1)
        ]
        print_table([_NUMBER, CREATED, CATEGORY, MEMORY], rows)

    def _forget(self, which: str) -> None:
        if which.isdecimal() and 1 <= int(which) <= len(self._listed):
            which = self._listed[int(which) - 1]
        elif not which or which.isdecimal():
            say("Say which by its number: /memories lists them.")
            return
        outcome = self._memories.forget(which)
        words = self._memories.get(outcome.id).content
        say("Forgot ", bold(words) if outcome.changed else "nothing new", dim("  /undo brings it back"))

    def _undo(self, _: str) -> None:
        for outcome in self._memories.undo():
            record = self._memories.get(outcome.id)
            say("Now ", bold(record.status), f": {record.content}")

    def _why(self, how: str) -> None:
        answer = self._talk.last
        if answer is None:
            say("Nothing was asked yet in this session.")
            return
        for name, value in answer.memory.items():
            say(dim(f"{name}: {value}"))
        recalled = self._memories.why(answer, session=self._talk.session)
        say(bold(recalled.outcome), f": {recalled.reason}")
        if how == "all":
            for note in recalled.notes:
                say(dim(note))
            say_trace(recalled.hits, recalled.candidates, recalled.steps_us, learned=self._memories.learned)
        elif recalled.hits:
            rows = [Row((f"{hit.score:.2f}", hit.memory), notes=[hit.why, hit.id]) for hit in recalled.hits]
            print_table([_SCORE, MEMORY], rows)

    def _begin(self, _: str) -> None:
        self._talk.renew()
        say(dim("A new session begins."))

    def _change_user(self, name: str) -> None:
        if not name:
            say("You are ", bold(self._talk.user), ".")
            return
        self._talk.user = self._memories.user = name
        self._listed = ()
        self._talk.renew()
        say("You are ", bold(name), "; a new session begins.")

    def _help(self, _: str) -> None:
        for command, purpose in HELP.items():
            say("  ", Piece(command.ljust(20), "cyan"), purpose)


def _edit_lines() -> None:
    """Let lines be edited and brought back. They are not kept on disk, where no erasure would find them."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)


def _write(piece: str) -> None:
    """Show part of an answer at once; what a terminal would obey is made visible."""
    sys.stdout.write("\n".join(clean(line) for line in piece.replace("\r\n", "\n").split("\n")))
    sys.stdout.flush()


def greet(talk: Talk, *, started: bool) -> None:
    """Say who talks to whom."""
    where = "a server of its own" if started else talk.url
    say("Chatting as ", bold(talk.user), " with ", bold(talk.pick_model()), f" at {where}.")
    say(dim(f"/help lists {counted(len(HELP), 'command')}; Ctrl-C stops an answer, Ctrl-D leaves."))
