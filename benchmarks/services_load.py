"""What locust sends to the memory services: reads and writes of many users, as often as it is told to.

Each of locust's clients keeps its own steady pace. Which user asks for what is drawn anew for each request.
"""

from __future__ import annotations

import os
import random
from itertools import count

import gevent
from locust import FastHttpUser, constant_throughput, task

from benchmarks.corpus import questions, sentences

USERS = int(os.environ.get("BENCH_USERS", "1000"))
PACE = float(os.environ.get("BENCH_PACE", "1"))
API = "/recollect/v1"
_number = count()


class Client(FastHttpUser):
    """Half of what it asks is recalled, a fifth searched; three tenths are new."""

    wait_time = constant_throughput(PACE)

    def on_start(self) -> None:
        """Draw otherwise than the others."""
        seed = next(_number)
        self._random = random.Random(seed)
        self._questions, self._sentences = questions(seed), sentences(seed)
        # Or all of them would ask at the same moments.
        gevent.sleep(self._random.uniform(0, 1 / PACE))

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
