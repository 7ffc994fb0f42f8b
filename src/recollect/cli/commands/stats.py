"""recollect stats"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from recollect.cli.command import Command
from recollect.cli.given import CliContext, pass_cli
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import dim, print_json, print_line
from recollect.model.usage import PARTS, Part, Usage

if TYPE_CHECKING:
    from recollect import Memory

_DEFAULT_PARTS: tuple[Part, ...] = ("day", "model", "step")
_DESCRIPTIONS = {
    "memories": "active",
    "turns": "active, what was said",
    "superseded": "replaced by a newer value",
    "review": "waiting for a decision",
    "forgotten": "can be restored",
    "history": "changes that can be told and undone",
    "bytes": "on disk",
}


@click.command(
    cls=Command,
    whose="everyone",
    examples=("recollect stats", "recollect stats --user alex", "recollect stats --cost"),
)
@click.option("--cost", is_flag=True, help="What the LLM was asked instead, by day, model and step.")
@click.option(
    "--by",
    "parts",
    type=click.Choice(PARTS),
    metavar="PART",
    multiple=True,
    help="With --cost: summed up by user, day, model or step; several may be given.",
)
@pass_cli
def stats(cli: CliContext, cost: bool, parts: tuple[Part, ...]) -> None:
    """Count what is kept, and what the LLM cost."""
    if parts and not cost:
        raise click.UsageError("--by goes with --cost.", click.get_current_context())
    with cli.open() as memory:
        if cost:
            by = tuple(part for part in PARTS if part in (parts or _DEFAULT_PARTS))
            usage = memory.usage(user_id=cli.user, parts=parts or _DEFAULT_PARTS)
            _print_usage(cli, usage, by, limits=_daily_limits(memory, cli.user))
            return
        counts = memory.stats(cli.user)
    if cli.json:
        print_json(dict(counts))
        return
    numbers = {name: f"{number:,}" for name, number in counts.items()}
    longest = max(map(len, numbers.values()))
    for name, number in numbers.items():
        print_line(name.ljust(15), number.rjust(longest), dim(f"  {_DESCRIPTIONS.get(name, '')}"))


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit of the day that is set; `spent` is None where there is one for each user and no user was named."""

    whose: str
    tokens: int
    spent: int | None = None


def _daily_limits(memory: Memory, user: str | None) -> list[_Limit]:
    user_tokens, total_tokens = memory.settings.llm_user_tokens_a_day, memory.settings.llm_tokens_a_day
    limits = []
    if user_tokens:
        spent = None if user is None else memory.spent_today(user_id=user).tokens
        limits.append(_Limit("each user" if user is None else f"user {user}", user_tokens, spent))
    if total_tokens:
        limits.append(_Limit("all users", total_tokens, memory.spent_today().tokens))
    return limits


def _print_usage(cli: CliContext, usage: list[Usage], by: Sequence[str], *, limits: Sequence[_Limit]) -> None:
    if cli.json:
        print_json({"results": [each.to_dict() for each in usage], "limits": [asdict(each) for each in limits]})
        return
    _print_usage_table(usage, by)
    for limit in limits:
        so_far = "" if limit.spent is None else f"{limit.spent:,} of "
        is_exceeded = limit.spent is not None and limit.spent >= limit.tokens
        note = "; the LLM is not asked again before midnight, UTC" if is_exceeded else ""
        print_line(f"Today: {so_far}{limit.tokens:,} tokens for {limit.whose}{note}.")


def _print_usage_table(usage: list[Usage], by: Sequence[str]) -> None:
    if not usage:
        print_line("No LLM was asked anything.")
        return
    columns = [Column(part.upper(), style="dim" if part == "day" else "") for part in by]
    columns += [Column(title, right=True) for title in ("CALLS", "TOKENS IN", "TOKENS OUT")]
    rows = [[*(str(getattr(each, part) or "") for part in by), *_usage_cells(each)] for each in usage]
    if len(usage) > 1:
        total = Usage(
            calls=sum(each.calls for each in usage),
            tokens_in=sum(each.tokens_in for each in usage),
            tokens_out=sum(each.tokens_out for each in usage),
        )
        rows.append(["all", *[""] * (len(by) - 1), *_usage_cells(total)])
    print_table(columns, rows)


def _usage_cells(usage: Usage) -> list[str]:
    return [f"{number:,}" for number in (usage.calls, usage.tokens_in, usage.tokens_out)]
