"""recollect end-run"""

from __future__ import annotations

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.conversation.run import StepKind

_STEP_KINDS = ", ".join(StepKind)


@click.command(
    "end-run",
    cls=Command,
    whose="user project session",
    examples=(
        "recollect end-run 'Deploy the shop' --step 'action: build' --step 'action: push' --answer 'It is live' "
        "--session monday --user alex",
        "recollect end-run 'Deploy the shop' --lesson 'The tests take an hour' --failed --session monday --user alex",
    ),
)
@click.argument("goal")
@click.option(
    "--step", "steps", multiple=True, metavar="KIND:TEXT", help=f"A step, in order; a KIND is {_STEP_KINDS}."
)
@click.option("--answer", default="", metavar="TEXT", help="What came of it.")
@click.option("--lesson", "lessons", multiple=True, metavar="TEXT", help="What is to be kept for the next time.")
@click.option("--succeeded/--failed", "success", default=None, help="How it went, if that is known.")
@click.option("--run-id", metavar="ID", help="Its name: the same run told of twice is kept once.")
@pass_cli
def end_run(
    cli: CliContext,
    goal: str,
    steps: tuple[str, ...],
    answer: str,
    lessons: tuple[str, ...],
    success: bool | None,
    run_id: str | None,
) -> None:
    """Keep what an agent's run came to.

    It is noted with its session. If it was a task, one of several steps or one that taught something, it becomes an
    episode with its goal, steps, outcome and lessons.
    """
    if not cli.session:
        raise click.UsageError("Say in which session with --session.", click.get_current_context())
    with cli.open() as memory:
        outcomes = memory.end_run(
            goal,
            user_id=cli.user_id,
            project_id=cli.project,
            session_id=cli.session,
            steps=[_parse_step(step) for step in steps],
            answer=answer,
            success=success,
            lessons=lessons,
            run_id=run_id,
        )
    if cli.json:
        print_json({"results": [outcome.to_dict() for outcome in outcomes]})
        return
    print_line("Noted the run in session ", bold(cli.session))
    for outcome in outcomes:
        print_line(f"  {outcome.record.category}: ", bold(outcome.id), dim(f"  {outcome.memory[:200]}"))


def _parse_step(text: str) -> dict[str, str]:
    kind, colon, content = text.partition(":")
    if not colon or kind.strip() not in tuple(StepKind):
        raise click.UsageError(f"A step is KIND:TEXT with one of {_STEP_KINDS}.", click.get_current_context())
    return {"kind": kind.strip(), "content": content.strip()}
