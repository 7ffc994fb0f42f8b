"""recollect reembed"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.progress import Progress
from recollect.cli.records import counted
from recollect.cli.terminal import print_json, say

if TYPE_CHECKING:
    from recollect.ledger.model_states import ModelState


@click.command(
    cls=Command, whose="", examples=("recollect reembed", "recollect reembed --status", "recollect reembed --drop")
)
@click.option("--status", is_flag=True, help="Only say which model is searched, and how far another one is.")
@click.option("--back", is_flag=True, help="Also if the settings name a model that another took the place of.")
@click.option("--drop", is_flag=True, help="Remove the vectors of models before at once, not a day later.")
@pass_given
def reembed(given: Given, status: bool, back: bool, drop: bool) -> None:
    """Change to the embedding model that the settings name, now.

    Servers and workers do it behind their answers; this is for who has none, or does not want to wait. Vectors are
    made for all memories, and then searched. Until then the model before is. It can be broken off and run again.
    """
    if status:
        with given.open() as memory:
            _say_status(memory.embedding_models(), as_json=given.json)
        return
    with given.open() as memory, Progress("Embedding") as progress:
        count = memory.reembed(progress, back=back, drop=drop)
    if given.json:
        print_json({"embedded": count})
    elif count:
        say(f"Embedded {counted(count, 'memory', 'memories')}.")
    else:
        say("Every memory has a vector of the current model.")


def _say_status(states: Sequence[ModelState], *, as_json: bool) -> None:
    if as_json:
        print_json({"models": [_plain(state) for state in states]})
        return
    for state in sorted(states, key=lambda each: (not each.is_current, each.retired_at is not None)):
        say(f"{state.model}: {_told(state)}")


def _told(state: ModelState) -> str:
    if state.is_current:
        return f"searched since {state.current_at:%Y-%m-%d %H:%M} UTC"
    if state.retired_at is not None:
        return f"replaced at {state.retired_at:%Y-%m-%d %H:%M} UTC"
    so_far = f"{state.embedded:,} of {state.to_embed:,} memories done"
    return f"coming, {so_far}" if state.is_coming else f"begun, {so_far}; nobody goes on with it now"


def _state(state: ModelState) -> str:
    if state.is_current:
        return "current"
    return "replaced" if state.retired_at is not None else "coming" if state.is_coming else "begun"


def _plain(state: ModelState) -> dict[str, Any]:
    return {
        "model": state.model.name,
        "dimensions": state.model.dimensions,
        "embedder": state.origin.spec,
        "state": _state(state),
        "current_at": state.current_at.isoformat() if state.current_at else None,
        "replaced_at": state.retired_at.isoformat() if state.retired_at else None,
        "done": state.embedded,
        "total": state.to_embed,
    }
