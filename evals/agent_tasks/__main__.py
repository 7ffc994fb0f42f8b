"""python -m evals.agent_tasks: the table of docs/agent.md."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from evals.agent_tasks.measure import measure


def main() -> None:
    """Measure with memory and without, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        on = asyncio.run(measure(Path(folder) / "on", memory=True))
        off = asyncio.run(measure(Path(folder) / "off", memory=False))
    print(f"{'task':12} {'first':>6} {'again':>6} {'off':>6} {'off again':>10}  right")
    for with_memory, without in zip(on, off, strict=True):
        counts = f"{with_memory.first:6} {with_memory.second:6} {without.first:6} {without.second:10}"
        print(f"{with_memory.task:12} {counts}  {with_memory.right and without.right}")
    sums = [sum(getattr(each, name) for each in rows) for rows in (on, off) for name in ("first", "second")]
    print(f"{'all':12} {sums[0]:6} {sums[1]:6} {sums[2]:6} {sums[3]:10}")


if __name__ == "__main__":
    main()
