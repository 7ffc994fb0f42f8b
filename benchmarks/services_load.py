"""What locust sends to the memory services: reads and writes of many users, as often as it is told to.

Each of locust's clients asks so often on average, at moments drawn by chance, as many people do who know nothing of
each other. Which user asks for what is drawn anew for each request.
"""

from __future__ import annotations

import os
import random
from itertools import count
from time import perf_counter

import gevent
from locust import FastHttpUser, task

from benchmarks.corpus import questions, sentences

USERS = int(os.environ.get("BENCH_USERS", "1000"))
PACE = float(os.environ.get("BENCH_PACE", "1"))
API = "/recollect/v1"
_number = count()


class Client(FastHttpUser):
    """Half of what it asks is recalled, a fifth searched; three tenths are new."""

    def on_start(self) -> None:
        """Draw otherwise than the others."""
        seed = next(_number)
        self._random = random.Random(seed)
        self._questions, self._sentences = questions(seed), sentences(seed)
        self._next_at = perf_counter()
        # The first moment is drawn, too: or all of them would begin at the same one.
        gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """How long until the next moment; none if an answer took until after it, so that the rate is kept."""
        # Locust's own pace counts from when a client was made, which is the same moment for all of them.
        self._next_at += self._random.expovariate(PACE)
        return max(0.0, self._next_at - perf_counter())

    def _send(self, path: str, body: dict[str, object]) -> None:
        user = {"X-Memory-User": f"user-{self._random.randrange(USERS)}"}
        self.client.post(f"{API}{path}", json=body, headers=user, name=path)

    @task(5)
    def recall(self) -> None:
        """What helps to answer."""
        self._send("/recall", {"messages": next(self._questions)})

    @task(2)
    def search(self) -> None:
        """Memories by a question."""
        self._send("/search", {"query": next(self._questions)})

    @task(2)
    def remember(self) -> None:
        """What was said."""
        self._send("/remember", {"messages": [{"role": "user", "content": next(self._sentences)}]})

    @task(1)
    def add(self) -> None:
        """A memory, word for word."""
        self._send("/memories", {"content": next(self._sentences)})
