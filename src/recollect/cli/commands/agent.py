"""recollect agent"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.command import Command
from recollect.cli.given import Given, pass_given
from recollect.cli.terminal import Piece, bold, clean_lines, dim, print_json, say
from recollect.cli.texts import given_text

if TYPE_CHECKING:
    from recollect.agent.answer import Answer, Event

_MOST_CHARS = 600
_LABELS = {"thought": "cyan", "action": "yellow", "observation": "green", "error": "red"}


@click.command(
    cls=Command,
    whose="user project session",
    examples=(
        'recollect agent "Which of my services listens on port 8443?" --memory --user alex',
        'recollect agent "And who looks after it?" --memory --session monday --user alex --model gpt-5',
    ),
)
@click.argument("question", nargs=-1)
@click.option("--memory/--no-memory", "enabled", default=False, help="Begin with what memory has, and learn. [off]")
@click.option("--model", default="", metavar="NAME", help="The model. [default: agent_llm or llm of the settings]")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Whose tools may be used; more than one may.")
@click.option("--state", default="", metavar="TEXT", help="Where the work stands.")
@click.option("--quiet", "-q", is_flag=True, help="Show the answer only.")
@pass_given
def agent(
    given: Given,
    question: tuple[str, ...],
    enabled: bool,
    model: str,
    groups: tuple[str, ...],
    state: str,
    quiet: bool,
) -> None:
    """Put a question to an agent that reasons and uses tools.

    What it thinks, does and observes is shown as it happens. Its tools are those of the settings agent_tools and
    agent_mcp, and with --memory its own memory.
    """
    asked = given_text(question, name="question")
    more = {"enable_memory": enabled, "group": groups, "state": state}
    answer = asyncio.run(_run(given, asked, model=model, quiet=quiet or given.json, **more))
    if given.json:
        from recollect.http.doors.agent_shapes import response

        print_json(response(answer).model_dump(mode="json"))
    elif answer.ended != "answered":
        say(dim(f"It ended without an answer of its own: {answer.ended}."), err=True)


async def _run(given: Given, question: str, *, model: str, quiet: bool, **more: Any) -> Answer:
    from recollect.agent.agent import Agent
    from recollect.agent.tools.sources import Sources

    async with AsyncExitStack() as opened:
        memory = given.open_async()
        opened.push_async_callback(memory.close)
        sources = Sources(memory.settings)
        opened.push_async_callback(sources.close)
        subject = Agent(memory, model or None, await sources.toolbox())
        opened.push_async_callback(subject.close)
        answer: Answer | None = None
        async for event in subject.stream(question, **given.place, **more):
            answer = event.answer or answer
            if not given.json and (not quiet or event.answer is not None):
                _show(event)
    assert answer is not None
    return answer


def _show(event: Event) -> None:
    """One event as it happens; of long observations the beginning."""
    if event.answer is not None:
        for line in clean_lines(event.text):
            say(bold(line))
        if event.answer.facts or event.answer.episodes:
            say(dim(f"(began with {len(event.answer.facts)} facts and {len(event.answer.episodes)} episodes)"))
        for note in event.answer.notes:
            say(dim(note), err=True)
    else:
        style = "red" if event.failed else _LABELS[str(event.kind)]
        text = event.text if len(event.text) <= _MOST_CHARS else f"{event.text[:_MOST_CHARS]} …"
        first, *rest = clean_lines(text) or [""]
        say(Piece(f"{event.kind.title()}: ".rjust(13), style), first)
        for line in rest:
            say(" " * 13, line)
    sys.stdout.flush()
