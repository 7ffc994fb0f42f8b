"""recollect keys, users and stats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.context import CliContext, command, to_results, usage_error
from recollect.cli.options import parse_span
from recollect.cli.output import Column, bold, dim, format_short_time, print_line, print_table
from recollect.errors import InvalidInput, NotFound
from recollect.model.key import ApiKey
from recollect.model.times import as_utc, now
from recollect.model.usage import PARTS, Part, Usage

if TYPE_CHECKING:
    from recollect import Memory

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
    """Create, list and revoke API keys of the server."""


@command(
    "recollect keys add --user alex --name phone",
    "recollect keys add --everyone --project shop --expires 90d",
    "recollect keys add --admin --json",
    scope="",
    group=keys,
)
@click.option("--user", "-u", metavar="ID", help="The user whose memory it gives access to.")
@click.option("--everyone", is_flag=True, help="Access to every user, for an application that names its users.")
@click.option("--project", metavar="ID", help="Only this project.")
@click.option("--admin", is_flag=True, help="Access to everything, including keys, jobs and users.")
@click.option("--read", is_flag=True, help="Allow reading. Without --read and --write, both are allowed.")
@click.option("--write", is_flag=True, help="Allow writing.")
@click.option("--person", is_flag=True, help="For a person, who may approve what programs propose.")
@click.option("--expires", metavar="TIME", help="When it expires: 12h, 90d, 4w from now, or a time like 2027-01-31.")
@click.option("--name", metavar="TEXT", default="", help="Its name in the list and in history.")
def add(
    cli: CliContext,
    /,
    user: str | None,
    project: str | None,
    read: bool,
    write: bool,
    expires: str | None,
    **options: Any,
) -> None:
    """Create a key and show it once.

    Clients send it as Authorization: Bearer KEY, or as X-API-Key. Only a hash of it is stored.
    """
    user, project = user or cli.user, project or cli.project
    if user is None and not (options["everyone"] or options["admin"]):
        raise usage_error("Give one of --user ID, --everyone and --admin.")
    with cli.open() as memory:
        new = memory.keys.create(
            user_id=user,
            project_id=project,
            read=read or not write,
            write=write or not read,
            expires_at=None if expires is None else _parse_expiry(expires),
            **options,
        )
    # Alone on standard output, so that a script can read it.
    cli.reply({**new.key.to_dict(), "key": new.text}, new.text)
    if not cli.json:
        until = f", until {format_short_time(new.key.expires_at)}" if new.key.expires_at else ""
        summary = f"{new.key.name}: {_describe_scope(new.key)}, may {_describe_rights(new.key)}{until}."
        print_line(dim(f"Shown only once. {summary}"), err=True)


@command("recollect keys list", "recollect keys list --json", scope="everyone", group=keys, name="list")
def list_(cli: CliContext) -> None:
    """List the keys, including expired and revoked ones."""
    with cli.open() as memory:
        api_keys = memory.keys.list(user_id=cli.user)
    hint = dim("Create one with: recollect keys add --user alex")
    cli.reply_rows(api_keys, _KEY_COLUMNS, _key_row, "There are no keys. ", hint)


@command("recollect keys revoke phone", scope="", group=keys)
@click.argument("key", metavar="KEY")
def revoke(cli: CliContext, key: str) -> None:
    """Revoke a key; KEY is its id or its name.

    Running servers reject it within seconds.
    """
    with cli.open() as memory:
        revoked = memory.keys.revoke(_find_key(memory.keys.list(), key).id)
    cli.reply(revoked.to_dict(), "Revoked ", bold(revoked.name), dim(f"  {revoked.id}"))


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
    try:
        span = parse_span(text)
        return as_utc(text, name="--expires") if span is None else now() + span
    except OverflowError:
        raise InvalidInput(f"--expires: {text} is after the calendar ends") from None
    except InvalidInput as error:
        raise InvalidInput(f"{error}, or how long from now: 12h, 90d or 4w") from None


def _key_row(key: ApiKey) -> tuple[str, ...]:
    if key.revoked_at is not None:
        state = "revoked"
    elif not key.is_active(now()):
        state = "expired"
    else:
        state = f"until {format_short_time(key.expires_at)}" if key.expires_at else "good"
    used = format_short_time(key.last_used_at) if key.last_used_at else "never"
    created = format_short_time(key.created_at)
    return key.id, key.name, _describe_scope(key), _describe_rights(key), created, used, state


def _describe_scope(key: ApiKey) -> str:
    owner = f"user {key.user}" if key.user is not None else "everyone"
    return f"{owner} in project {key.project}" if key.project is not None else owner


def _describe_rights(key: ApiKey) -> str:
    return key.rights.replace(" ", ", ")


@command("recollect users", scope="")
def users(cli: CliContext) -> None:
    """List the users that have memories."""
    with cli.open() as memory:
        names = memory.admin.users()
    if not names or cli.json:
        hint = dim('Begin with: recollect add "..." --user alex')
        cli.reply({"results": names}, "There are no users yet. ", hint)
        return
    for name in names:
        print_line(name)


_DEFAULT_PARTS: tuple[Part, ...] = ("day", "model", "step")
_DESCRIPTIONS = {
    "memories": "active",
    "turns": "active",
    "superseded": "replaced by a newer value",
    "review": "waiting for a decision",
    "forgotten": "can be restored",
    "history": "changes that can be undone",
    "bytes": "on disk",
}


@command("recollect stats", "recollect stats --user alex", "recollect stats --cost", scope="everyone")
@click.option("--cost", is_flag=True, help="Print the LLM usage by day, model and step instead.")
@click.option(
    "--by",
    "parts",
    type=click.Choice(PARTS),
    metavar="PART",
    multiple=True,
    help="With --cost: group by user, day, model or step; can be repeated.",
)
def stats(cli: CliContext, cost: bool, parts: tuple[Part, ...]) -> None:
    """Count stored records, and tokens of the LLM."""
    if parts and not cost:
        raise usage_error("--by goes with --cost.")
    with cli.open() as memory:
        if cost:
            by = tuple(part for part in PARTS if part in (parts or _DEFAULT_PARTS))
            usage = memory.admin.usage(user_id=cli.user, parts=parts or _DEFAULT_PARTS)
            _print_usage(cli, usage, by, _daily_limits(memory, cli.user))
            return
        counts = memory.admin.stats(cli.user)
    if cli.replied(dict(counts)):
        return
    numbers = {name: f"{number:,}" for name, number in counts.items()}
    longest = max(map(len, numbers.values()))
    for name, number in numbers.items():
        print_line(name.ljust(15), number.rjust(longest), dim(f"  {_DESCRIPTIONS.get(name, '')}"))


def _daily_limits(memory: Memory, user: str | None) -> list[dict[str, Any]]:
    """Return the daily token limits; nothing is spent of a limit per user if no user is named."""
    limits: list[dict[str, Any]] = []
    if tokens := memory.settings.llm_user_tokens_per_day:
        spent = None if user is None else memory.admin.spent_today(user_id=user).tokens
        limits.append({"owner": "each user" if user is None else f"user {user}", "tokens": tokens, "spent": spent})
    if tokens := memory.settings.llm_tokens_per_day:
        limits.append({"owner": "all users", "tokens": tokens, "spent": memory.admin.spent_today().tokens})
    return limits


def _print_usage(cli: CliContext, usage: list[Usage], by: Sequence[str], limits: Sequence[dict[str, Any]]) -> None:
    if cli.replied({**to_results(usage), "limits": limits}):
        return
    if usage:
        columns = [Column(part.upper(), style="dim" if part == "day" else "") for part in by]
        columns += [Column(title, right=True) for title in ("CALLS", "TOKENS IN", "TOKENS OUT")]
        rows = [[*(str(getattr(each, part) or "") for part in by), *_usage_cells([each])] for each in usage]
        total = [["all", *[""] * (len(by) - 1), *_usage_cells(usage)]] if len(usage) > 1 else []
        print_table(columns, rows + total)
    else:
        print_line("The LLM was not used.")
    for limit in limits:
        spent, tokens = limit["spent"], limit["tokens"]
        so_far = "" if spent is None else f"{spent:,} of "
        note = "; the LLM is not used again before midnight, UTC" if spent is not None and spent >= tokens else ""
        print_line(f"Today: {so_far}{tokens:,} tokens for {limit['owner']}{note}.")


def _usage_cells(usage: Sequence[Usage]) -> list[str]:
    return [f"{sum(getattr(each, name) for each in usage):,}" for name in ("calls", "tokens_in", "tokens_out")]
