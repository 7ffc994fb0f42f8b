"""What was brought in from another product, told to a person."""

from __future__ import annotations

from recollect.cli.given import Given
from recollect.cli.records import counted
from recollect.cli.terminal import dim, print_json, say
from recollect.movein.terms import MovedIn

_EXAMPLES = 3
_REASONS = 20


def tell(given: Given, moved: MovedIn) -> None:
    """Say what it was, what of it is new, and all that was left out with the reasons."""
    if given.json:
        print_json(moved.to_dict())
        return
    say(f"{moved.kind}: ", dim(moved.why))
    held = [
        counted(moved.memories, "memory", "memories"),
        f"{counted(moved.turns, 'turn')} in {counted(moved.sessions, 'session')}",
    ]
    whose = f" of user {', '.join(moved.users[:10])}{' and others' if len(moved.users) > 10 else ''}"
    say(f"Found {', '.join(held)}{whose if moved.users else ''}.")
    would = "Would add" if moved.dry_run else "Added"
    say(f"{would} {moved.added:,}; {moved.present:,} were there already.")
    if moved.kept:
        say(f"{counted(moved.kept, 'fact')} here were surer, and stayed.")
    if moved.redacted:
        say(f"Secrets {'would be' if moved.dry_run else 'were'} kept out of {moved.redacted:,}.")
    if moved.learning and not moved.dry_run:
        say(f"{counted(moved.learning, 'session')} will be learned from by and by; recollect jobs shows it.")
    reasons = list(moved.left.items())
    for why, count in reasons[:_REASONS]:
        say(f"Left out {count:,}: {why}")
        for each in [each for each in moved.named if each.why == why][:_EXAMPLES]:
            say(dim(f"  {each.where}"))
    if len(reasons) > _REASONS:
        say(f"Left out {sum(count for _, count in reasons[_REASONS:]):,} for other reasons; --json tells all.")
    if moved.dry_run:
        say("Nothing was written.")
