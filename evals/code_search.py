"""Measure how often a note about code is the first hit of a search by the names in it.

    python -m evals.code_search

Reads `evals/data/code_search.jsonl`: notes of 15 repositories, and queries with the number of the note that each is
for: names as they are spelled, in another spelling, by their parts, and in questions. All notes are stored for one
user by `add`. Each query runs twice, since vectors of tokens are computed in the background: the second run counts.
Repositories in even lines are held out: nothing was chosen by their figures.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from recollect import Memory

DATA = Path(__file__).parent / "data" / "code_search.jsonl"
USER = "developer"


def main() -> None:
    """Store the notes, run the queries and print the figures."""
    repositories = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as home, Memory(home=home) as memory:
        for each in repositories:
            for note in each["notes"]:
                memory.add(note, user_id=USER)
        for query in (query for each in repositories for query, _ in each["queries"]):
            memory.search(query, user_id=USER, limit=10)
        for name, chosen in (("development", repositories[::2]), ("held out", repositories[1::2])):
            ranks: list[int] = []
            for each in chosen:
                for query, number in each["queries"]:
                    contents = [hit.memory for hit in memory.search(query, user_id=USER, limit=10)]
                    note = each["notes"][number]
                    rank = contents.index(note) if note in contents else -1
                    ranks.append(rank)
                    if rank:
                        print(f"  {each['repo']}: {query!r}: {f'rank {rank + 1}' if rank > 0 else 'not found'}")
            first, five = (sum(0 <= rank < limit for rank in ranks) for limit in (1, 5))
            print(f"{name}: {len(ranks)} queries, first {first / len(ranks):.3f}, among five {five / len(ranks):.3f}")


if __name__ == "__main__":
    main()
