"""What was brought in from another product, told to a person."""

from __future__ import annotations

from recollect.cli.given import CliContext
from recollect.cli.records import pluralize
from recollect.cli.terminal import dim, print_json, print_line
from recollect.movein.terms import ImportReport

_MAX_EXAMPLES = 3
_MAX_REASONS = 20


def _print_import_report(cli: CliContext, report: ImportReport) -> None:
    """Say what it was, what of it is new, and all that was left out with the reasons."""
    if cli.json:
        print_json(report.to_dict())
        return
    print_line(f"{report.kind}: ", dim(report.why))
    counts = [
        pluralize(report.memories, "memory", "memories"),
        f"{pluralize(report.turns, 'turn')} in {pluralize(report.sessions, 'session')}",
    ]
    owners = f" of user {', '.join(report.users[:10])}{' and others' if len(report.users) > 10 else ''}"
    print_line(f"Found {', '.join(counts)}{owners if report.users else ''}.")
    verb = "Would add" if report.dry_run else "Added"
    print_line(f"{verb} {report.added:,}; {report.present:,} were there already.")
    if report.kept:
        print_line(f"{pluralize(report.kept, 'fact')} here were surer, and stayed.")
    if report.redacted:
        print_line(f"Secrets {'would be' if report.dry_run else 'were'} kept out of {report.redacted:,}.")
    if report.learning and not report.dry_run:
        print_line(
            f"{pluralize(report.learning, 'session')} will be learned from by and by; recollect jobs shows it."
        )
    reasons = list(report.left.items())
    for why, count in reasons[:_MAX_REASONS]:
        print_line(f"Left out {count:,}: {why}")
        for each in [each for each in report.named if each.why == why][:_MAX_EXAMPLES]:
            print_line(dim(f"  {each.where}"))
    if len(reasons) > _MAX_REASONS:
        print_line(
            f"Left out {sum(count for _, count in reasons[_MAX_REASONS:]):,} for other reasons; --json tells all."
        )
    if report.dry_run:
        print_line("Nothing was written.")
