"""The numbers of several processes as one: each puts its own into a file beside the others' every second.

A counter may not fall when a process ends, so what it had counted stays in the sum; its gauges end with it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from recollect.observe.numbers import Cells, Labels, Number

_EVERY_S = 1.0


class Board:
    """A folder where the processes of one server put their numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._written = ""

    def start(self) -> None:
        """Put this process's numbers there from now on, until it ends."""
        threading.Thread(target=self._keep, name="recollect-numbers", daemon=True).start()

    def _keep(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self.put()
            except OSError:
                # The folder is gone, and with it whoever looked: the server is being stopped.
                return
            pause.wait(_EVERY_S)

    def put(self) -> None:
        """Put them there now, if they have changed."""
        text = json.dumps({name: _flat(number.cells) for name, number in Number.all.items() if number.cells})
        if text != self._written:
            draft = self._own.with_suffix(".new")
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._own)
            self._written = text

    def others(self) -> Iterator[tuple[bool, Mapping[str, Cells]]]:
        """What each other process put there, and whether it lives."""
        for path in self._folder.glob("*.json"):
            if path != self._own:
                held = json.loads(path.read_text(encoding="utf-8"))
                yield _lives(int(path.stem)), {name: _cells(flat) for name, flat in held.items()}


_boards: list[Board] = []


def share(folder: Path) -> None:
    """Have this process's numbers be part of those of a server, which has several."""
    board = Board(folder)
    _boards[:] = [board]
    board.start()


def collected() -> dict[str, Cells]:
    """The values of every number, of all processes of this server."""
    together = {name: {labels: list(cell) for labels, cell in list(number.cells.items())}
                for name, number in Number.all.items()}  # fmt: skip
    for board in _boards:
        for lives, values in board.others():
            for name, cells in values.items():
                number = Number.all.get(name)
                if number is not None and (lives or number.kind != "gauge"):
                    _join(number, together[name], cells)
    return together


def _join(number: Number, into: Cells, cells: Cells) -> None:
    for labels, cell in cells.items():
        held = into.get(labels)
        if held is None:
            into[labels] = cell
        elif number.together == "max":
            held[0] = max(held[0], cell[0])
        else:
            held[:] = [one + other for one, other in zip(held, cell, strict=True)]


def _flat(cells: Cells) -> list[tuple[Labels, list[float]]]:
    return list(cells.items())


def _cells(flat: list[tuple[list[str], list[float]]]) -> Cells:
    return {tuple(labels): cell for labels, cell in flat}


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
