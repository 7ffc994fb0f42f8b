"""LLM usage: one row per user, day, step and model, and a few rows per day for the total of all users."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from recollect.ledger.sql.tx import Tx
from recollect.model.change import ModelUsage
from recollect.model.text import repair_text
from recollect.model.times import now
from recollect.model.usage import Part, SpentToday, Usage, day_from_number, day_number, validate_parts

_COLUMN = {"user": "user_id", "day": "day", "model": "model", "step": "step"}
# The total of a day is spread over so many rows, so that many users can add to it concurrently.
_SLOTS = 16


async def add_usage(tx: Tx, spent: ModelUsage) -> None:
    """Add to what the user has spent."""
    await tx.run(
        "INSERT INTO usage (user_id, day, step, model, calls, input_tokens, output_tokens) "
        "VALUES (:user, :day, :step, :model, :calls, :tokens_in, :tokens_out) "
        "ON CONFLICT (user_id, day, step, model) DO UPDATE SET calls = usage.calls + excluded.calls, "
        "input_tokens = usage.input_tokens + excluded.input_tokens, "
        "output_tokens = usage.output_tokens + excluded.output_tokens",
        {
            "user": spent.user,
            "day": day_number(spent.at),
            "step": repair_text(spent.step),
            "model": repair_text(spent.model),
            "calls": spent.calls,
            "tokens_in": spent.tokens_in,
            "tokens_out": spent.tokens_out,
        },
    )


async def add_to_daily_total(tx: Tx, spent: ModelUsage) -> None:
    """Add to the total of all users, without a name; done last in a transaction, because it locks."""
    await tx.run(
        "INSERT INTO usage_of_all (day, slot, calls, tokens) VALUES (:day, :slot, :calls, :tokens) "
        "ON CONFLICT (day, slot) DO UPDATE SET calls = usage_of_all.calls + excluded.calls, "
        "tokens = usage_of_all.tokens + excluded.tokens",
        {
            "day": day_number(spent.at),
            # One slot per user: a second update in a transaction needs no further lock, so none can deadlock.
            "slot": zlib.crc32(spent.user.encode("utf-8", "surrogatepass")) % _SLOTS,
            "calls": spent.calls,
            "tokens": spent.tokens_in + spent.tokens_out,
        },
    )


async def usage(
    tx: Tx,
    user: str | None = None,
    *,
    since: datetime | None = None,
    by: Sequence[Part] = ("day", "model", "step"),
) -> list[Usage]:
    """Return the LLM usage grouped by these parts, in order; `since` counts from the beginning of its day."""
    parts = validate_parts(by)
    columns = "".join(f"{_COLUMN[part]}, " for part in parts)
    params: dict[str, Any] = {}
    tests = ["1 = 1"]
    if user is not None:
        params["user"] = user
        tests.append("user_id = :user")
    if since is not None:
        params["since"] = day_number(since)
        tests.append("day >= :since")
    grouped = f" GROUP BY {columns[:-2]} ORDER BY {columns[:-2]}" if parts else ""
    rows = await tx.rows(
        f"SELECT {columns}CAST(sum(calls) AS BIGINT), CAST(sum(input_tokens) AS BIGINT), "
        f"CAST(sum(output_tokens) AS BIGINT) FROM usage WHERE {' AND '.join(tests)}{grouped}",
        params,
    )
    # Without grouping, SQL returns a row even for no rows.
    return [_sum(parts, row) for row in rows if row[-1] is not None]


def _sum(parts: tuple[str, ...], row: Sequence[Any]) -> Usage:
    fields = dict(zip(parts, row, strict=False))
    if "day" in fields:
        fields["day"] = day_from_number(fields["day"])
    calls, tokens_in, tokens_out = row[-3:]
    return Usage(**fields, calls=calls, tokens_in=tokens_in, tokens_out=tokens_out)


async def spent_today(tx: Tx, user: str | None) -> SpentToday:
    """Return what the user has spent since midnight UTC; called before every LLM call.

    Without a user, the total of all, erased users included.
    """
    if user is None:
        rows = await tx.rows(
            "SELECT CAST(COALESCE(sum(tokens), 0) AS BIGINT), CAST(COALESCE(sum(calls), 0) AS BIGINT) "
            "FROM usage_of_all WHERE day = :day",
            {"day": day_number(now())},
        )
        return SpentToday(*rows[0])
    rows = await tx.rows(
        "SELECT CAST(COALESCE(sum(input_tokens + output_tokens), 0) AS BIGINT), "
        "CAST(COALESCE(sum(calls), 0) AS BIGINT) FROM usage WHERE user_id = :user AND day = :day",
        {"user": user, "day": day_number(now())},
    )
    return SpentToday(*rows[0])
