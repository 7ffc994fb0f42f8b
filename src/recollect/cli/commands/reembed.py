"""recollect reembed"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.progress import Progress
from recollect.cli.records import pluralize
from recollect.cli.terminal import print_json, print_line

if TYPE_CHECKING:
    from recollect.ledger.model_states import ModelState


@click.command(
    cls=Command, whose="", examples=("recollect reembed", "recollect reembed --status", "recollect reembed --drop")
)
@click.option("--status", is_flag=True, help="Only say which model is searched, and how far another one is.")
@click.option("--back", is_flag=True, help="Also if the settings name a model that another took the place of.")
@click.option("--drop", is_flag=True, help="Remove the vectors of models before at once, not a day later.")
@pass_cli
def reembed(cli: CliContext, status: bool, back: bool, drop: bool) -> None:
    """Change to the embedding model that the settings name, now.

    Servers and workers do it behind their answers; this is for who has none, or does not want to wait. Vectors are
    made for all memories, and then searched. Until then the model before is. It can be broken off and run again.
    """
    if status:
        with cli.open() as memory:
            _print_models(memory.embedding_models(), as_json=cli.json)
        return
    with cli.open() as memory, Progress("Embedding") as progress:
        count = memory.reembed(progress, back=back, drop=drop)
    if cli.json:
        print_json({"embedded": count})
    elif count:
        print_line(f"Embedded {pluralize(count, 'memory', 'memories')}.")
    else:
        print_line("Every memory has a vector of the current model.")


def _print_models(states: Sequence[ModelState], *, as_json: bool) -> None:
    if as_json:
        print_json({"models": [_model_dict(state) for state in states]})
        return
    for state in sorted(states, key=lambda each: (not each.is_current, each.retired_at is not None)):
        print_line(f"{state.model}: {_describe_model(state)}")


def _describe_model(state: ModelState) -> str:
    if state.is_current:
        return f"searched since {state.current_at:%Y-%m-%d %H:%M} UTC"
    if state.retired_at is not None:
        return f"replaced at {state.retired_at:%Y-%m-%d %H:%M} UTC"
    so_far = f"{state.embedded:,} of {state.to_embed:,} memories done"
    return f"coming, {so_far}" if state.is_pending else f"begun, {so_far}; nobody goes on with it now"


def _model_state_name(state: ModelState) -> str:
    if state.is_current:
        return "current"
    return "replaced" if state.retired_at is not None else "coming" if state.is_pending else "begun"


def _model_dict(state: ModelState) -> dict[str, Any]:
    return {
        "model": state.model.name,
        "dimensions": state.model.dimensions,
        "embedder": state.origin.spec,
        "state": _model_state_name(state),
        "current_at": state.current_at.isoformat() if state.current_at else None,
        "replaced_at": state.retired_at.isoformat() if state.retired_at else None,
        "done": state.embedded,
        "total": state.to_embed,
    }
