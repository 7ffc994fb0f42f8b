"""Random operations on two ledgers, with equal results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from recollect.errors import RecollectError
from recollect.ledger.ledger import Ledger
from recollect.ledger.snapshot import LedgerSnapshot
from recollect.ledger.types import NumberedRecord
from recollect.model.change import (
    Add,
    Applied,
    Change,
    Forget,
    HistoryEntry,
    IdempotencyToken,
    Restore,
    Supersede,
    Update,
)
from recollect.model.memory import Category, MemoryRecord, Status
from recollect.model.query import Listing, matches, parse_filter
from recollect.model.scope import Level, Scope
from recollect.model.times import now
from tests.support.ledger_samples import ALL, BY, MODEL, NOON, Open, direction, memory, turn

# Few of everything, so that what is drawn meets what is there.
USERS = ("ann", "bob")
WORDS = ("tea", "TEA", "green tea", "milk  jug", "Milk jug", "coffee", "a café", "茶が好き", "tea 'OR' \"1\"=1 %")
KEYS = (None, "a", "b", "A")
PLACES = (("", "", Level.USER), ("p", "", Level.PROJECT), ("p", "s", Level.SESSION), ("q", "s", Level.SESSION))
METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"n": 1},
    {"n": "1"},
    {"n": True},
    {"n": [1, "x"]},
    {"n": 1.5, "m": None},
    {"n": "xx", "m": {"d": 1}},
)
TAGS = ((), ("x",), ("x", "y"))
EVIDENCE = ((), (), ("t1",), ("t1", "t2", "t1"))

users = st.sampled_from(USERS)
words = st.sampled_from(WORDS)
places = st.sampled_from(PLACES)
numbers = st.integers(0, 40)
scopes = st.builds(Scope, users, st.sampled_from(["", "p", "q"]), st.sampled_from(["", "s", "t"]))
drafts = st.fixed_dictionaries(
    {
        "content": words,
        "key": st.sampled_from(KEYS),
        "category": st.sampled_from([Category.FACT, Category.FACT, Category.PREFERENCE, Category.TURN]),
        "importance": st.sampled_from([0.0, 0.25, 0.5]),
        "status": st.sampled_from([Status.ACTIVE] * 5 + [Status.REVIEW]),
        "tags": st.sampled_from(TAGS),
        "evidence": st.sampled_from(EVIDENCE),
        "metadata": st.sampled_from(METADATA),
        "created_at": st.integers(0, 3).map(lambda day: NOON + timedelta(days=day)),
        "valid_from": st.just(NOON),
        "expires_at": st.sampled_from([None, NOON]),
    }
)
edits = st.fixed_dictionaries(
    {},
    optional={
        "content": words | st.sampled_from([None, "a\0b"]),
        "key": st.sampled_from(KEYS),
        "category": st.sampled_from(["fact", "preference", "gossip"]),
        "status": st.sampled_from(["active", "review", "forgotten"]),
        "importance": st.sampled_from([0.0, 0.75]),
        "tags": st.sampled_from([["x"], []]),
        "evidence": st.sampled_from([["t2"], []]),
        "metadata": st.sampled_from(METADATA),
        "expires_at": st.sampled_from([None, "2026-03-15T12:00:00Z", "soon"]),
    },
)
versions = st.sampled_from([None, None, None, 1, 2])
with_vector = st.booleans()
steps_of_change = st.one_of(
    st.tuples(st.just("add"), places, drafts, with_vector),
    st.tuples(st.just("update"), numbers, edits, versions, with_vector),
    st.tuples(st.just("supersede"), numbers, places, drafts, versions, with_vector),
    st.tuples(st.just("forget"), numbers, versions),
    st.tuples(st.just("restore"), numbers, versions),
)
_texts = st.sampled_from([*WORDS, "a", "b", "x", "n", "fact", "p", "s", "", "1", "xx"])
_values = st.one_of(_texts, st.sampled_from([0, 1, 1.5, True, False]))
_whole = st.sampled_from([0, 0.25, 0.5, 1, 2, 3])
_times = st.integers(-1, 3).map(lambda day: NOON + timedelta(days=day))
_orders = ("eq", "ne", "gt", "gte", "lt", "lte")
_named = ("content", "key", "category", "value", "source", "trust", "level", "project_id", "session_id")


def _compared(fields: Sequence[str], ops: Sequence[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda field, op, value: {field: {op: value}}, st.sampled_from(fields), st.sampled_from(ops), values
    )


comparisons = st.one_of(
    _compared(_named, ("eq", "ne", "contains"), _texts),
    _compared(("key", "tags", "content"), ("in",), st.lists(_texts, max_size=3)),
    _compared(("importance", "version", "access_count"), _orders, _whole),
    _compared(("created_at", "expires_at", "valid_to"), _orders, _times),
    _compared(("tags",), ("contains",), _texts),
    _compared(("metadata.n",), (*_orders, "contains"), _values),
    _compared(("metadata.n",), ("in",), st.lists(_values, max_size=3)),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)


T = TypeVar("T")


class LedgerMachine(RuleBasedStateMachine):
    """The same operations on both ledgers; every result is compared."""

    def __init__(self, *open_empty: Open) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._ledgers = [self._loop.run_until_complete(open_ledger()) for open_ledger in open_empty]
        self._made = 0

    def teardown(self) -> None:
        try:
            for scope in map(Scope, USERS):
                self._compare(partial(_whole_of, scope))
            self._compare(lambda ledger: ledger.check())
        finally:
            for ledger in self._ledgers:
                self._loop.run_until_complete(ledger.close())
            self._loop.close()

    def _compare(self, act: Callable[[Ledger], Awaitable[Any]]) -> None:
        """Run an operation on both; result or error must be equal."""
        expected, results = [self._loop.run_until_complete(_result_or_error(act(ledger))) for ledger in self._ledgers]
        assert results == expected

    def _id(self, number: int) -> str:
        """Return an existing or unknown id."""
        return f"m{number % (self._made + 2):04d}"

    def _fresh(self, user: str, place: tuple[str, str, Level], draft: dict[str, Any]) -> MemoryRecord:
        self._made += 1
        project, session, level = place
        return memory(id=f"m{self._made - 1:04d}", scope=Scope(user, project, session), level=level, **draft)

    def _change(self, user: str, step: tuple[Any, ...]) -> Change:
        match step:
            case ("add", place, draft, vector):
                record = self._fresh(user, place, draft)
                return Add(record, direction(self._made) if vector else None)
            case ("update", number, fields, version, vector):
                return Update(self._id(number), fields, version, direction(number) if vector else None)
            case ("supersede", number, place, draft, version, vector):
                id = self._id(number)
                return Supersede(id, self._fresh(user, place, draft), version, direction(number) if vector else None)
            case ("forget", number, version):
                return Forget(self._id(number), version)
            case _:
                return Restore(self._id(step[1]), step[2])

    @rule(user=users, place=places, draft=drafts, vector=with_vector)
    def add(self, user: str, place: tuple[str, str, Level], draft: dict[str, Any], vector: bool) -> None:
        self._apply(user, [("add", place, draft, vector)])

    @rule(user=users, steps=st.lists(steps_of_change, max_size=4))
    def change(self, user: str, steps: list[tuple[Any, ...]]) -> None:
        self._apply(user, steps)

    @rule(user=users, step=steps_of_change, key=st.sampled_from("kl"), digest=st.sampled_from("ddde"))
    def change_once(self, user: str, step: tuple[Any, ...], key: str, digest: str) -> None:
        self._apply(user, [step], once=IdempotencyToken(key, digest))

    def _apply(self, user: str, steps: Sequence[tuple[Any, ...]], *, once: IdempotencyToken | None = None) -> None:
        changes = [self._change(user, step) for step in steps]

        async def act(ledger: Ledger) -> Any:
            return _applied(await ledger.apply(Scope(user), changes, by=BY, once=once))

        self._compare(act)

    @rule(user=users, number=numbers)
    def undo(self, user: str, number: int) -> None:
        async def act(ledger: Ledger) -> Any:
            lines = await ledger.history(Scope(user), limit=1000)
            entry_id = lines[number % len(lines)].id if lines else 10**6
            return _applied(await ledger.undo(Scope(user), entry_id, by=BY))

        self._compare(act)

    @rule(scope=scopes, contents=st.lists(words, max_size=3), repeat=st.booleans(), once=st.booleans())
    def say(self, scope: Scope, contents: list[str], repeat: bool, once: bool) -> None:
        turns = [replace(turn(content), id=self._next_id()) for content in contents]
        if repeat and turns:
            turns[-1] = replace(turns[-1], id=self._id(len(contents)))
        vectors = [direction(n) for n in range(len(turns))]
        received_at = now() if once else None
        self._compare(lambda ledger: ledger.append(scope, turns, vectors=vectors, by=BY, received_at=received_at))

    def _next_id(self) -> str:
        self._made += 1
        return f"m{self._made - 1:04d}"

    @rule(user=users, ids=st.lists(numbers, max_size=3))
    def touch(self, user: str, ids: list[int]) -> None:
        self._compare(lambda ledger: ledger.touch(Scope(user), [self._id(each) for each in ids], at=NOON))

    @rule(scope=scopes, filter=filters, visible=st.booleans(), order=st.sampled_from(["newest", "oldest"]),
          limit=st.integers(1, 5), every=st.booleans())  # fmt: skip
    def find(self, scope: Scope, filter: Any, visible: bool, order: Any, limit: int, every: bool) -> None:
        async def act(ledger: Ledger) -> Any:
            statuses = tuple(Status) if every else (Status.ACTIVE,)
            listing = Listing(
                filter=parse_filter(filter), statuses=statuses, visible=visible, order=order, limit=limit
            )
            pages = []
            while True:
                page = await ledger.find(scope, listing)
                pages.append([_record(record) for record in page])
                if page.cursor is None:
                    return pages, await ledger.count(scope, listing)
                listing = replace(listing, cursor=page.cursor)

        self._compare(act)

    @rule(scope=scopes, filter=filters)
    def match(self, scope: Scope, filter: Any) -> None:
        async def act(ledger: Ledger) -> Any:
            rows = await ledger.matching(scope, parse_filter(filter))
            everyone = await ledger.matching(scope, parse_filter(None))
            fetched = await ledger.fetch(scope, everyone, filter=parse_filter(filter))
            assert {each.row for each in fetched} == set(rows)
            visible = await ledger.fetch(scope, everyone, filter=parse_filter(None))
            assert set(rows) == {each.row for each in visible if matches(each.record, parse_filter(filter))}
            return sorted((_record(each.record) for each in fetched), key=lambda record: record.id)

        self._compare(act)

    @rule(scope=scopes, text=words)
    def search(self, scope: Scope, text: str) -> None:
        async def act(ledger: Ledger) -> Any:
            scored = await ledger.lexical(scope, text)
            by_row = dict(zip(scored.rows.tolist(), scored.scores.tolist(), strict=True))
            results = await ledger.fetch(scope, list(by_row), filter=parse_filter(None))
            return len(by_row), {each.record.id: pytest.approx(by_row[each.row], abs=1e-4) for each in results}

        self._compare(act)

    @rule(scope=scopes, filter=filters, text=words, as_of=st.none() | _times)
    def snapshot(self, scope: Scope, filter: Any, text: str, as_of: Any) -> None:
        """Compare with a filter over a snapshot of all records, without SQL."""

        async def act(ledger: Ledger) -> Any:
            numbered = await _numbered(ledger, scope.user)
            copy = LedgerSnapshot([each.record for each in numbered], {})
            rows = {n: each.row for n, each in enumerate(numbered, 1)}
            parsed = parse_filter(filter)
            expected = {rows[row] for row in await copy.matching(scope, parsed, as_of=as_of)}
            assert set(await ledger.matching(scope, parsed, as_of=as_of)) == expected
            lexical, scored = await copy.lexical(scope, text), await ledger.lexical(scope, text)
            assert [rows[row] for row in lexical.rows.tolist()] == scored.rows.tolist()
            assert scored.scores.tolist() == pytest.approx(lexical.scores.tolist(), abs=1e-4)
            assert scored.coverage.tolist() == pytest.approx(lexical.coverage.tolist(), abs=1e-4)
            assert (scored.missing, scored.missing_share) == (lexical.missing, pytest.approx(lexical.missing_share))
            ids = [each.record.id for each in numbered]
            chains = await ledger.succession(scope, ids)
            assert {id: len(chain) for id, chain in chains.items()} == {
                id: len(chain) for id, chain in (await copy.succession(scope, ids)).items()
            }

        self._compare(act)

    @rule(scope=scopes, number=st.none() | numbers, limit=st.integers(1, 9))
    def history(self, scope: Scope, number: int | None, limit: int) -> None:
        memory_id = None if number is None else self._id(number)

        async def act(ledger: Ledger) -> Any:
            return _lines(await ledger.history(scope, memory_id=memory_id, limit=limit))

        self._compare(act)

    @rule(scope=scopes, after=st.integers(0, 3), limit=st.integers(1, 4))
    def turns(self, scope: Scope, after: int, limit: int) -> None:
        self._compare(lambda ledger: ledger.turns(scope, after=after, limit=limit))
        self._compare(lambda ledger: ledger.conversation(scope))

    @rule(user=users)
    def counts(self, user: str) -> None:
        self._compare(lambda ledger: ledger.stats(user))
        self._compare(lambda ledger: ledger.users())
        self._compare(lambda ledger: ledger.models())

    @rule(limit=st.integers(1, 5))
    def lacking(self, limit: int) -> None:
        async def act(ledger: Ledger) -> Any:
            return [(each.user, each.content) for each in await ledger.unembedded(MODEL, limit=limit)]

        self._compare(act)


async def _numbered(ledger: Ledger, user: str) -> list[NumberedRecord]:
    """Return all records of a user in order of their rows."""
    _, rows = await ledger.index_rows(user, model=MODEL, after=0)
    records = (await ledger.find(Scope(user), ALL)).records
    chains = await ledger.succession(Scope(user), [record.id for record in records])
    numbered = sorted((chain[0] for chain in chains.values()), key=lambda each: each.row)
    assert [each.row for each in numbered] == sorted(row.row for row in rows)
    return numbered


async def _result_or_error(work: Awaitable[T]) -> T | type[RecollectError]:
    try:
        return await work
    except RecollectError as error:
        return type(error)


def _record(record: MemoryRecord) -> MemoryRecord:
    """Return the memory without its time of writing."""
    return replace(record, updated_at=NOON)


def _applied(applied: Applied) -> Any:
    return applied.replayed, [(each.verb, _record(each.record), each.changed) for each in applied.outcomes]


def _lines(lines: Sequence[HistoryEntry]) -> Any:
    return [(each.memory_id, each.verb, each.version, each.before, each.after, each.by) for each in lines]


async def _whole_of(scope: Scope, ledger: Ledger) -> Any:
    lines = await ledger.history(scope, limit=1000)
    order = {line.id: n for n, line in enumerate(reversed(lines))}
    batches = {line.batch: n for n, line in enumerate(lines)}
    _, rows = await ledger.index_rows(scope.user, model=MODEL, after=0)
    records = (await ledger.find(scope, ALL)).records
    return (
        [_record(record) for record in records],
        await _evidence_of(scope, ledger, [record.id for record in records]),
        _lines(lines),
        [(None if line.undoes is None else order[line.undoes], batches[line.batch]) for line in lines],
        sorted((row.visibility_key, row.status, row.vector or b"") for row in rows),
    )


async def _evidence_of(scope: Scope, ledger: Ledger, ids: Sequence[str]) -> Any:
    """Return derivations and supersessions without row numbers and times of writing."""
    derived = await ledger.derived(scope, ["t1", "t2", *ids])
    chains = await ledger.succession(scope, ids)
    return (
        {turn: [(each.id, each.status, each.superseded_by) for each in result] for turn, result in derived.items()},
        {id: [each.record.id for each in chain] for id, chain in chains.items()},
    )


def compare_ledgers(*open_empty: Open, examples: int = 12, steps: int = 25) -> None:
    """Run the same random operations on two ledgers and compare every result; each function opens an empty one."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    class Machine(LedgerMachine):
        def __init__(self) -> None:
            super().__init__(*open_empty)

    run_state_machine_as_test(Machine, settings=profile)
