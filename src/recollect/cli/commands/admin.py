"""recollect keys"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from recollect.cli.context import CliContext, Command, pass_cli
from recollect.cli.options import AGO_PATTERN
from recollect.cli.rendering import format_short_time
from recollect.cli.table import Column, print_table
from recollect.cli.terminal import bold, dim, print_json, print_line
from recollect.errors import InvalidInput, NotFound
from recollect.model.key import ApiKey
from recollect.model.times import as_utc, now
from recollect.model.usage import PARTS, Part, Usage

if TYPE_CHECKING:
    from recollect import Memory


_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_KEY_COLUMNS = [
    Column("KEY", style="dim", optional=True),
    Column("NAME", style="bold"),
    Column("FOR"),
    Column("MAY"),
    Column("CREATED", style="dim", optional=True),
    Column("LAST USED", style="dim"),
    Column("STATE"),
]


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of the server."""


@keys.command(
    cls=Command,
    scope_options="",
    examples=(
        "recollect keys add --user alex --name phone",
        "recollect keys add --everyone --project shop --expires 90d",
        "recollect keys add --admin --json",
    ),
)
@click.option("--user", "-u", metavar="ID", help="The one user whose memory it opens.")
@click.option("--everyone", is_flag=True, help="It opens every user's: for an application that names its users.")
@click.option("--project", metavar="ID", help="Only this project.")
@click.option("--admin", is_flag=True, help="It opens everything, and looks after keys, jobs and users.")
@click.option("--read", "reads", is_flag=True, help="It may read. Without --read and --write: both.")
@click.option("--write", "writes", is_flag=True, help="It may write.")
@click.option("--expires", metavar="TIME", help="When it ends: 12h, 90d, 4w from now, or a time such as 2027-01-31.")
@click.option("--name", metavar="TEXT", default="", help="What the list and history call it.")
@pass_cli
def add(
    cli: CliContext,
    user: str | None,
    everyone: bool,
    project: str | None,
    admin: bool,
    reads: bool,
    writes: bool,
    expires: str | None,
    name: str,
) -> None:
    """Make a key and show it, this once.

    Clients send it as Authorization: Bearer KEY, or as X-API-Key. Only a hash of it is kept.
    """
    user, project = user or cli.user, project or cli.project
    if user is None and not (everyone or admin):
        raise click.UsageError(
            "Say whose memory it opens: --user ID, --everyone or --admin.", click.get_current_context()
        )
    with cli.open() as memory:
        new = memory.keys.create(
            user_id=user,
            project_id=project,
            everyone=everyone,
            admin=admin,
            read=reads or not writes,
            write=writes or not reads,
            name=name,
            expires_at=None if expires is None else _parse_expiry(expires),
        )
    if cli.json:
        print_json({**new.key.to_dict(), "key": new.text})
        return
    # Alone on stdout, so that a script can take it.
    print_line(new.text)
    print_line(
        dim(
            f"Shown this once. {new.key.name}: {_describe_scope(new.key)}, "
            f"may {_describe_rights(new.key)}{_describe_expiry(new.key)}."
        ),
        err=True,
    )


@keys.command(
    "list", cls=Command, scope_options="everyone", examples=("recollect keys list", "recollect keys list --json")
)
@pass_cli
def list_(cli: CliContext) -> None:
    """List the keys, also those that open nothing any more."""
    with cli.open() as memory:
        api_keys = memory.keys.list(user_id=cli.user)
    if cli.json:
        print_json({"results": [key.to_dict() for key in api_keys]})
    elif api_keys:
        print_table(_KEY_COLUMNS, [_key_row(key) for key in api_keys])
    else:
        print_line("There are no keys. ", dim("Make one with: recollect keys add --user alex"))


@keys.command(cls=Command, scope_options="", examples=("recollect keys revoke phone",))
@click.argument("key", metavar="KEY")
@pass_cli
def revoke(cli: CliContext, key: str) -> None:
    """Have a key open nothing any more; KEY is its id or its name.

    Servers that run notice within seconds.
    """
    with cli.open() as memory:
        revoked = memory.keys.revoke(_find_key(memory.keys.list(), key).id)
    if cli.json:
        print_json(revoked.to_dict())
    else:
        print_line("Revoked ", bold(revoked.name), dim(f"  {revoked.id}"))


def _find_key(api_keys: list[ApiKey], text: str) -> ApiKey:
    matches = [key for key in api_keys if key.id == text]
    matches = matches or [key for key in api_keys if key.name == text and key.revoked_at is None]
    if not matches:
        raise NotFound(f"there is no such key: {text!r}; `recollect keys list` shows them")
    if len(matches) > 1:
        ids = ", ".join(key.id for key in matches)
        raise InvalidInput(f"{len(matches)} keys are called {text}: give the id of one, {ids}")
    return matches[0]


def _parse_expiry(text: str) -> datetime:
    span = AGO_PATTERN.fullmatch(text.strip())
    try:
        return now() + timedelta(**{_UNITS[span[2]]: int(span[1])}) if span else as_utc(text, name="--expires")
    except OverflowError:
        raise InvalidInput(f"--expires: {text} is after the calendar ends") from None
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or how long from now: 12h, 90d or 4w") from None


def _key_row(key: ApiKey) -> tuple[str, ...]:
    used = format_short_time(key.last_used_at) if key.last_used_at else "never"
    return (
        key.id,
        key.name,
        _describe_scope(key),
        _describe_rights(key),
        format_short_time(key.created_at),
        used,
        _key_state(key),
    )


def _describe_scope(key: ApiKey) -> str:
    owner = f"user {key.user}" if key.user is not None else "everyone"
    return f"{owner} in project {key.project}" if key.project is not None else owner


def _describe_rights(key: ApiKey) -> str:
    return key.rights.replace(" ", ", ")


def _describe_expiry(key: ApiKey) -> str:
    return f", until {format_short_time(key.expires_at)}" if key.expires_at else ""


def _key_state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if not key.is_active(now()):
        return "expired"
    return f"until {format_short_time(key.expires_at)}" if key.expires_at else "good"


@click.command(cls=Command, scope_options="", examples=("recollect users",))
@pass_cli
def users(cli: CliContext) -> None:
    """Name everyone who has memories."""
    with cli.open() as memory:
        names = memory.admin.users()
    if cli.json:
        print_json({"results": names})
        return
    for name in names:
        print_line(name)
    if not names:
        print_line("Nobody yet. ", dim('Begin with: recollect add "..." --user alex'))


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
    scope_options="everyone",
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
            usage = memory.admin.usage(user_id=cli.user, parts=parts or _DEFAULT_PARTS)
            _print_usage(cli, usage, by, limits=_daily_limits(memory, cli.user))
            return
        counts = memory.admin.stats(cli.user)
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
        spent = None if user is None else memory.admin.spent_today(user_id=user).tokens
        limits.append(_Limit("each user" if user is None else f"user {user}", user_tokens, spent))
    if total_tokens:
        limits.append(_Limit("all users", total_tokens, memory.admin.spent_today().tokens))
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
