"""Ids that sort by creation time: UUID version 7, monotonic within a process."""

from __future__ import annotations

import os
import socket
import threading
import time
from hashlib import blake2b
from uuid import UUID

from recollect.errors import NotFound

_EXAMPLE = "0199d3f5-6c0e-7a41-9b1e-4f2d8c7a5e36"
_lock = threading.Lock()
_last = 0


def new_worker_name() -> str:
    """Return a name of this process for leases: host, process id and a random suffix."""
    return f"{socket.gethostname()}:{os.getpid()}:{new_id()[-6:]}"


def new_id() -> str:
    """Return a new id that sorts after every id made before it in this process."""
    global _last
    # 48 bits of milliseconds and 12 of counter; if the clock steps back, the counter goes on.
    stamp = time.time_ns() // 1_000_000 << 12
    with _lock:
        _last = stamp = max(stamp, _last + 1)
    millis, counter = stamp >> 12, stamp & 0xFFF
    tail = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    return str(UUID(int=millis << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | tail))


def stable_id(*parts: str) -> str:
    """Return an id that depends only on the parts."""
    digest = blake2b("\0".join(parts).encode(errors="replace"), digest_size=16).digest()
    return str(UUID(bytes=digest, version=5))


def memory_not_found(id: str) -> NotFound:
    """Return the error for an id that the user has no memory of; ids of other users get the same one."""
    return NotFound(f"no memory {id} for this user; `list` and `search` show ids, such as {_EXAMPLE}")
