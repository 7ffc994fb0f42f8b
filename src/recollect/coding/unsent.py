"""Exchanges that no server took: files in Recollect's home, until a later hook reaches the server.

Each exchange is a file of its own, so that concurrent hooks need no lock: the server stores it once, however often it
is sent. Hooks import this module, so it imports little.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_FOLDER = "unsent"
_SUFFIX = ".json"
_MAX_FILES = 200
_MAX_BYTES = 4 << 20
# One large paste must not displace everything else.
_MAX_EXCHANGE_BYTES = _MAX_BYTES // 8


class UnsentExchanges:
    """The exchanges for one server and key; those for others stay where they are."""

    def __init__(self, environ: Mapping[str, str], url: str) -> None:
        self._folder = os.path.join(os.path.expanduser(environ.get("RECOLLECT_HOME") or "~/.recollect"), _FOLDER)
        self._server = f"{url}\n{environ.get('RECOLLECT_API_KEY', '')}"

    def add(self, exchange: Mapping[str, Any]) -> bool:
        """Keep an exchange, and drop the oldest beyond the limits; False if it cannot be written."""
        data = json.dumps({"server": self._server_digest(), **exchange}).encode()
        if len(data) > _MAX_EXCHANGE_BYTES:
            return False
        path = os.path.join(self._folder, f"{time.time_ns():020}-{os.getpid()}{_SUFFIX}")
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._make_space(len(data))
            descriptor = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                if os.write(descriptor, data) < len(data):
                    return False
            finally:
                os.close(descriptor)
            os.replace(f"{path}.part", path)
        except OSError:
            return False
        return True

    def _make_space(self, size: int) -> None:
        sizes = []
        with os.scandir(self._folder) as files:
            for file in files:
                try:
                    sizes.append((file.path, file.stat().st_size))
                except FileNotFoundError:
                    # Another hook sent it.
                    continue
        sizes.sort()
        total = size + sum(each for _, each in sizes)
        for count, (path, each) in enumerate(sizes):
            if len(sizes) - count < _MAX_FILES and total <= _MAX_BYTES:
                return
            _remove(path)
            total -= each

    def exchanges(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield those for this server with their paths, oldest first."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(_SUFFIX))
        except OSError:
            return
        server = self._server_digest() if names else ""
        for name in names:
            path = os.path.join(self._folder, name)
            try:
                with open(path, "rb") as file:
                    exchange = json.loads(file.read())
            except (OSError, ValueError):
                # Another hook sent it.
                continue
            if isinstance(exchange, dict) and exchange.pop("server", "") == server:
                yield path, exchange

    def remove(self, path: str) -> None:
        """Remove an exchange that was sent."""
        _remove(path)

    def _server_digest(self) -> str:
        # The key must not be in a file.
        from hashlib import blake2b

        return blake2b(self._server.encode(errors="replace"), digest_size=16).hexdigest()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
