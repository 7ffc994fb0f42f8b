"""recollect add, remember, update, forget, restore, undo and erase."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from recollect.cli.context import CliContext, command, to_results, usage_error
from recollect.cli.options import (
    VERSION_OPTION,
    WHY_OPTION,
    YES_OPTION,
    enum_choice,
    field_options,
    filter_options,
    open_new_file,
    read_file_argument,
    read_text_argument,
)
from recollect.cli.output import (
    Column,
    bold,
    dim,
    format_short_time,
    json_text,
    pluralize,
    print_line,
    print_redacted,
)
from recollect.errors import InvalidInput
from recollect.model.change import ChangeKind, Outcome
from recollect.model.erasure import Erasure, Receipt, parse_erasure
from recollect.model.job import Job, JobState
from recollect.model.query import EVERYTHING, Filter
from recollect.model.scope import Level
from recollect.model.text import validate_text
from recollect.model.turn import Role

if TYPE_CHECKING:
    from recollect.sync import Memory


@command(
    'recollect add "The budget for the Hawaii trip is 10,000 dollars" --user alex --tag travel',
    "recollect add --key diet --value vegetarian --category preference --user alex",
    'echo "Prefers window seats" | recollect add --user alex',
    scope="user project session",
)
@click.argument("text", nargs=-1)
@field_options
@click.option(
    "--level",
    **enum_choice(Level),
    help="Where it is visible: user, project or session. [default: the project, if any]",
)
@click.option("--correction", is_flag=True, help="Replace the value of the key, whatever its confidence.")
@click.option("--idempotency-key", metavar="KEY", help="Run once, however often the same key is sent.")
@WHY_OPTION
def add(cli: CliContext, /, text: tuple[str, ...], fields: dict[str, Any], why: str, **options: Any) -> None:
    """Store a memory verbatim.

    TEXT is the content; without it, standard input is read. Passwords, keys and card numbers are removed. A memory
    that exists is not stored twice. With --key and --value it is a fact with one value at a time.
    """
    is_keyed = not text and fields.get("key") and fields.get("value")
    content = None if is_keyed else read_text_argument(text, name="content")
    with cli.open() as memory:
        outcome = memory.acting_as("cli", why=why).add(content, **cli.scope_args, **options, **fields)
    if not cli.replied(outcome.to_dict()):
        _print_added(outcome, content)
        print_redacted(outcome.redacted)


def _print_added(outcome: Outcome, content: str | None) -> None:
    record = outcome.record
    if outcome.changed and outcome.verb is ChangeKind.SUPERSEDE:
        print_line("Added ", bold(record.id), f"; it replaces the earlier value of {record.key!r}.")
    elif outcome.changed:
        within = {Level.USER: "", Level.PROJECT: f" in project {record.scope.project}"}
        visible = f"for user {record.scope.user}{within.get(record.level, f' in session {record.scope.session}')}"
        print_line("Added ", bold(record.id), dim(f"  {record.category}, {visible}"))
    elif content is None or outcome.redacted or record.content.casefold().split() == content.casefold().split():
        print_line("Exists as ", bold(record.id), "; nothing changed.")
    else:
        print_line(
            "Not added: ", bold(record.id), f" has a higher confidence for {record.key!r}; --correction replaces it."
        )


@command(
    'recollect remember "I moved to Lisbon last week" --user alex --session monday',
    'echo "Noted, congratulations!" | recollect remember --role assistant --user alex --session monday',
    scope="user project session",
)
@click.argument("text", nargs=-1)
@click.option("--role", **enum_choice(Role), default="user", help="Who said it: user or assistant. [default: user]")
@click.option("--name", metavar="NAME", help="The speaker's name.")
@click.option("--mode", metavar="MODE", help="What the LLM extracts from: chat, document, task or profile.")
@click.option("--no-wait", is_flag=True, help="Leave learning to a worker.")
def remember(
    cli: CliContext, text: tuple[str, ...], role: str, name: str | None, mode: str | None, no_wait: bool
) -> None:
    """Store a turn of a session, and learn from it.

    TEXT is the message; without it, standard input is read. It can be searched at once.
    """
    content = validate_text(read_text_argument(text, name="text"), name="text")
    message = {"role": role, "content": content, **({"name": name} if name else {})}
    with cli.open({"worker": False} if no_wait else None) as memory:
        remembered = memory.acting_as("cli").remember(message, **cli.scope_args, wait=not no_wait, mode=mode)
    if cli.replied(remembered.to_dict()):
        return
    where = f" of session {cli.session}" if cli.session else ""
    for turn in remembered:
        print_line(f"Remembered turn {turn.position}{where}  ", dim(turn.id))
    print_redacted(remembered.redacted)
    for line in _describe_learning(remembered.job):
        print_line(dim(f"  {line}"))


def _describe_learning(job: Job | None) -> list[str]:
    """Return the decisions of the learning job, or its state, a line each."""
    if job is None:
        return []
    if job.state is JobState.DONE:
        result = job.result or {}
        decisions = [str(decision) for decision in result.get("decisions") or []] or ["nothing to learn from it"]
        by = str(result.get("by") or "")
        # The selector gives the reason if it replaced the LLM.
        return [*decisions, f"learned by {by}"] if by.startswith("selector, ") else decisions
    if job.state is JobState.WAITING and not job.error:
        return ["a worker will learn from it"]
    if job.state is JobState.DEAD:
        return [f"the LLM learned nothing from it (dead): {job.error}", "recollect jobs --replay ID tries again"]
    return [f"not learned from yet ({job.state}){f': {job.error}' if job.error else ''}"]


@command(
    'recollect update ID "The budget for the Hawaii trip is 12,000 dollars" --user alex',
    "recollect update ID --importance 0.9 --tag travel --tag money --user alex",
)
@click.argument("memory_id", metavar="ID")
@click.argument("text", nargs=-1)
@field_options
@VERSION_OPTION
@WHY_OPTION
def update(
    cli: CliContext,
    memory_id: str,
    text: tuple[str, ...],
    fields: dict[str, Any],
    expect_version: int | None,
    why: str,
) -> None:
    """Change the text or the fields of a memory.

    TEXT replaces its text; "-" reads standard input. Tags and metadata are replaced as a whole.
    """
    content = read_text_argument(text, name="content") if text else None
    with cli.open() as memory:
        outcome = memory.acting_as("cli", why=why).update(
            memory_id, content, user_id=cli.user_id, expected_version=expect_version, **fields
        )
    if outcome.changed:
        cli.reply(outcome.to_dict(), "Updated ", bold(outcome.id), f" to version {outcome.record.version}.")
    else:
        cli.reply(outcome.to_dict(), bold(outcome.id), " already has these values; nothing changed.")
    print_redacted(() if cli.json else outcome.redacted)


_MAX_COUNTED = 1000


@command(
    "recollect forget ID --user alex",
    "recollect forget --all --user alex --tag travel --yes",
    scope="user project session",
)
@click.argument("memory_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="All memories and turns of the user; filters narrow it.")
@YES_OPTION
@WHY_OPTION
@filter_options
def forget(cli: CliContext, memory_id: str | None, everything: bool, yes: bool, why: str, filter: Filter) -> None:
    """Remove a memory, or all of them, from recall.

    undo and restore bring it back.
    """
    if (memory_id is None) != everything:
        raise usage_error("Give the ID of a memory, or --all.")
    if memory_id is not None and filter != EVERYTHING:
        raise usage_error("Filters go with --all.")
    with cli.open() as memory:
        if memory_id is None:
            _forget_all(cli, memory, filter, yes=yes, why=why)
            return
        outcome = memory.acting_as("cli", why=why).delete(memory_id, user_id=cli.user_id)
    if outcome.changed:
        cli.reply(outcome.to_dict(), "Forgot ", bold(outcome.id), dim("  recollect undo brings it back"))
    else:
        cli.reply(outcome.to_dict(), bold(outcome.id), " was forgotten already.")


def _forget_all(cli: CliContext, memory: Memory, filter: Filter, *, yes: bool, why: str) -> None:
    if not yes and not _confirm_forget_all(cli, memory, filter):
        print_line("Nothing was forgotten.", err=True)
        return
    count = memory.acting_as("cli", why=why).delete_all(**cli.scope_args, filters=filter)
    cli.reply({"forgotten": count}, f"Forgot {pluralize(count, 'memory', 'memories')}.")


def _confirm_forget_all(cli: CliContext, memory: Memory, filter: Filter) -> bool:
    page = memory.get_all(**cli.scope_args, filters=filter, turns=True, limit=_MAX_COUNTED)
    if not len(page):
        print_line(f"User {cli.user_id} has no such memories.", err=True)
        return False
    count = f"more than {_MAX_COUNTED:,} memories" if page.cursor else pluralize(len(page), "memory", "memories")
    return cli.confirm(f"Forget {count} of user {cli.user_id}{cli.within}?")


@command("recollect restore ID --user alex")
@click.argument("memory_id", metavar="ID")
@WHY_OPTION
def restore(cli: CliContext, memory_id: str, why: str) -> None:
    """Make a forgotten or superseded memory active again."""
    with cli.open() as memory:
        outcome = memory.acting_as("cli", why=why).restore(memory_id, user_id=cli.user_id)
    if outcome.changed:
        cli.reply(outcome.to_dict(), "Restored ", bold(outcome.id))
    else:
        cli.reply(outcome.to_dict(), bold(outcome.id), " is active already.")


@command("recollect undo --user alex", "recollect undo 12 --user alex", "recollect undo --any --user alex")
@click.argument("change_id", metavar="[CHANGE]", type=int, required=False)
@click.option("--any", "anyones", is_flag=True, help="The last change by anyone, learning and maintenance included.")
@WHY_OPTION
def undo(cli: CliContext, change_id: int | None, anyones: bool, why: str) -> None:
    """Undo the last change, or a change by its number.

    Undoing a turn also undoes what was learned from it. CHANGE is a number that history lists. An undo can be undone
    by its own number.
    """
    if anyones and change_id is not None:
        raise usage_error("Give either a number or --any.")
    with cli.open() as memory:
        outcomes = memory.acting_as("cli", why=why).undo(change_id, user_id=cli.user_id, anyones=anyones)
        description = "" if cli.json else _describe_undone(memory, outcomes, cli.user_id)
    cli.reply(to_results(outcomes), description)
    for outcome in () if cli.json else outcomes:
        print_line("Undone: ", bold(outcome.id), f" is {outcome.record.status}", dim(f"  {outcome.memory[:200]}"))


def _describe_undone(memory: Memory, outcomes: tuple[Outcome, ...], user_id: str) -> str:
    """Return which change was undone, from the history of the last memory it touched."""
    entries = memory.history(outcomes[-1].id, user_id=user_id)
    by_number = {entry.id: entry for entry in entries}
    undone = next(by_number[entry.undoes] for entry in entries if entry.undoes in by_number)
    why = f" ({undone.by.why})" if undone.by.why else ""
    return f"Undid change {undone.id}: {undone.verb} by {undone.by.who} at {format_short_time(undone.at)}{why}"


@command(
    "recollect erase ID --user alex --yes",
    "recollect erase --session monday --user alex --yes",
    "recollect erase --everything --user alex --yes",
    "recollect erase --receipts --to erased.jsonl",
    "recollect erase --replay erased.jsonl --yes",
    scope="user project session",
)
@click.argument("erased_id", metavar="[ID]", required=False)
@click.option("--memory", "memory_id", metavar="ID", help="One memory, with its earlier versions; the same as ID.")
@click.option("--turn", "turn_id", metavar="ID", help="One turn, with everything learned from it.")
@click.option("--everything", is_flag=True, help="Everything of the user, or of the named project or session.")
@click.option("--receipts", is_flag=True, help="List earlier erasures, without their content.")
@click.option("--to", metavar="FILE", help="With --receipts: write them as JSON Lines; - is standard output.")
@click.option("--replay", metavar="FILE", help="Repeat the erasures of these receipts in a restored database.")
@YES_OPTION
@click.option("--why", default="", metavar="TEXT", help="The reason, stored with the receipt.")
def erase(
    cli: CliContext,
    erased_id: str | None,
    memory_id: str | None,
    turn_id: str | None,
    everything: bool,
    receipts: bool,
    to: str | None,
    replay: str | None,
    yes: bool,
    why: str,
) -> None:
    """Delete permanently, with everything derived from it.

    Unlike forget, it cannot be undone. The receipt lists what was deleted from each store, and what was not reached.
    Backups are not: keep the output of --receipts with them, and --replay it after a restore, before anyone uses it.
    """
    if erased_id is not None and memory_id is not None:
        raise usage_error("Give the memory once: as ID or as --memory ID.")
    memory_id = memory_id or erased_id
    if receipts or replay is not None or to is not None:
        if memory_id or turn_id or everything or cli.project or cli.session or (receipts == (replay is not None)):
            raise usage_error("--receipts, with --to, and --replay cannot be combined with other options.")
        if receipts:
            _list_receipts(cli, to)
        else:
            _replay_receipts(cli, replay or "", yes=yes, why=why)
        return
    description = _describe_target(cli, memory_id, turn_id, everything)
    if not yes and not cli.confirm(f"Erase {description} for good?"):
        print_line("Nothing was erased.", err=True)
        return
    with cli.open() as memory:
        whole = not (memory_id or turn_id or cli.session or cli.project)
        receipt = memory.acting_as("cli", why=why).erasure.erase(
            **cli.scope_args, memory_id=memory_id, turn_id=turn_id, everything=whole
        )
    if not cli.replied(receipt.to_dict()):
        _print_receipt(receipt, description)


def _describe_target(cli: CliContext, memory_id: str | None, turn_id: str | None, everything: bool) -> str:
    """Return what is to be erased; raise a usage error unless exactly one thing is named."""
    targets = [f"{kind} {id}" for kind, id in (("memory", memory_id), ("turn", turn_id)) if id is not None]
    if len(targets) > 1 or (targets and everything):
        raise usage_error("Give only one of --memory, --turn and --everything.")
    if not (targets or everything or cli.session or cli.project):
        raise usage_error(
            "Give the ID of a memory, or one of --memory, --turn, --session, --project and --everything."
        )
    return f"{targets[0] if targets else 'everything'} of user {cli.user_id}{cli.within}"


def _print_receipt(receipt: Receipt, description: str) -> None:
    """Print what was deleted from each store, what was not reached, and what is out of reach."""
    print_line(f"Erased {description} for good  ", dim(f"receipt {receipt.id}"))
    for store in receipt.stores:
        removed = ", ".join(f"{name} {count:,}" for name, count in store.counts.items() if count) or "nothing"
        print_line(f"  {store.store}: {removed}", dim(f"  {store.note}") if store.note else "")
        if unreached := [part for part, reached in store.parts.items() if not reached]:
            print_line(f"    not reached: {', '.join(unreached)}")
    if receipt.remade:
        print_line(dim(f"  {pluralize(len(receipt.remade), 'item')} can be rebuilt from the remaining data"))
    if receipt.hidden:
        print_line(f"  forgotten, not erased: {pluralize(len(receipt.hidden), 'turn')} that it was learned from")
        for id in receipt.hidden:
            print_line(dim(f"    recollect erase --turn {id} --user {receipt.scope.user}"))
    if remaining := [id for id in receipt.stays if id not in receipt.hidden]:
        print_line(dim(f"  the sources it was learned from stay: {', '.join(remaining)}"))
    if receipt.out_of_reach:
        print_line(dim(f"  out of reach from here: {', '.join(each.store for each in receipt.out_of_reach)}"))
    if not receipt.reached:
        print_line("Not every store was reached: erase again when they are available.", err=True)


_RECEIPT_COLUMNS = [
    Column("RECEIPT", style="bold"),
    Column("WHEN", style="dim"),
    Column("WHAT"),
    Column("WHICH", optional=True),
    Column("USER'S DIGEST", style="dim"),
]


def _list_receipts(cli: CliContext, to: str | None) -> None:
    """Print the erasures of one user or of all, or write them to a file as JSON Lines."""
    with cli.open() as memory:
        erasures = memory.erasure.list(user_id=cli.user)
    if to is None:
        cli.reply_rows(erasures, _RECEIPT_COLUMNS, _receipt_row, "Nothing was erased so far.")
    elif to == "-":
        _write_receipts(erasures, sys.stdout)
    else:
        with open_new_file(Path(to), force=True) as out:
            _write_receipts(erasures, out)
        message = f"Wrote {pluralize(len(erasures), 'receipt')} to {to}"
        cli.reply({"receipts": len(erasures), "file": to}, message)


def _write_receipts(erasures: list[Erasure], out: TextIO) -> None:
    for each in erasures:
        out.write(json_text(each.to_dict()) + "\n")
    out.flush()


def _receipt_row(erasure: Erasure) -> tuple[str, ...]:
    names = [name for name in (erasure.project, erasure.session) if name]
    more = f" and {len(erasure.ids) - 1:,} more" if len(erasure.ids) > 1 else ""
    which = "/".join(names or erasure.ids[:1]) + more
    return erasure.id, format_short_time(erasure.at), str(erasure.target), which, erasure.user


def _replay_receipts(cli: CliContext, file: str, *, yes: bool, why: str) -> None:
    """Repeat the erasures of a file that this database has not seen."""
    if cli.user is not None:
        raise usage_error("--replay applies to all users of the file; leave --user out.")
    erasures = read_receipts(file)
    kinds = Counter(str(each.target) for each in erasures)
    description = ", ".join(f"{name} {count:,}" for name, count in kinds.items()) or "nothing"
    if erasures and not yes and not cli.confirm(f"Erase again for good, as far as it exists here: {description}?"):
        print_line("Nothing was erased.", err=True)
        return
    with cli.open() as memory:
        receipts = memory.acting_as("cli", why=why).erasure.replay(erasures)
    if cli.replied({"given": len(erasures), **to_results(receipts)}):
        return
    for receipt in receipts:
        target = f"{receipt.what.target} {receipt.what.id}".rstrip()
        _print_receipt(receipt, f"{target} of user {receipt.scope.user}")
    done, skipped = pluralize(len(receipts), "erasure"), len(erasures) - len(receipts)
    print_line(f"Replayed {done}; {skipped:,} were known here, or had nothing to erase.")


def read_receipts(file: str) -> list[Erasure]:
    """Return the erasures of a JSON Lines file, all of it parsed before anything is erased."""
    erasures = []
    for number, line in enumerate(read_file_argument(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            erasures.append(parse_erasure(json.loads(line)))
        except (ValueError, RecursionError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of {file} is not a receipt: {error}; nothing was erased") from None
    return erasures
