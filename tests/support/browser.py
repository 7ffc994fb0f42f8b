"""A real headless browser, controlled over a pipe with the DevTools protocol."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
          "--no-first-run", "--disable-background-networking", "--disable-component-update")  # fmt: skip
_LOOK_EVERY_MS = 50
_WAIT_S = 40.0


class Browser:
    """One page; `asked` has the requested addresses, `complaints` the errors in its console."""

    def __init__(self, reading: asyncio.StreamReader, writing: Any) -> None:
        self._reading = reading
        self._writing = writing
        self._number = 0
        self._session = ""
        self._awaited: dict[int, asyncio.Future[Any]] = {}
        self._page_loaded = asyncio.Event()
        self.requests: list[str] = []
        self.complaints: list[str] = []

    async def listen(self) -> None:
        """Process messages of the browser until it ends."""
        while message := await self._reading.readuntil(b"\0"):
            report = json.loads(message[:-1])
            if waiting := self._awaited.pop(report.get("id", 0), None):
                waiting.set_result(report)
            elif report.get("method") == "Network.requestWillBeSent":
                self.requests.append(report["params"]["request"]["url"])
            elif report.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(report["params"]["exceptionDetails"]))
            elif report.get("method") == "Page.loadEventFired":
                self._page_loaded.set()

    async def open(self, address: str) -> None:
        """Open a page."""
        target = await self._send("Target.createTarget", url="about:blank")
        attached = await self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for part in ("Network", "Runtime", "Page"):
            await self._send(f"{part}.enable")
        self._page_loaded.clear()
        await self._send("Page.navigate", url=address)
        await self._page_loaded.wait()

    async def run(self, script: str) -> Any:
        """Run a script in the page and return its value."""
        done = await self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a condition holds in the page."""
        await self.run(
            "new Promise(done => { const look = () => "
            f"({condition}) ? done(true) : setTimeout(look, {_LOOK_EVERY_MS}); look(); }})"
        )

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        waiting = self._awaited[self._number] = asyncio.get_running_loop().create_future()
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writing.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(_WAIT_S):
            report = await waiting
        assert "error" not in report, report
        result: dict[str, Any] = report["result"]
        return result


def _pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are not those that the browser expects."""
    low = os.pipe()
    reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
    for end in low:
        os.close(end)
    return reading, writing


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Browser]:
    """Run Chromium with an empty profile; without it, the test fails and names the package."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "this needs a browser: apt install chromium"
    (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
    # It reads from descriptor 3 and writes to 4.
    redirected = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", redirected, program, *_FLAGS, f"--user-data-dir={profile}"),
        pass_fds=(theirs_in, theirs_out),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    loop, reading = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 26)
    ear, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reading), os.fdopen(ours_in, "rb"))
    mouth, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours_out, "wb"))
    browser = Browser(reading, mouth)
    listening = asyncio.create_task(browser.listen())
    try:
        yield browser
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if process.returncode is None:
            process.terminate()
        await process.wait()
        mouth.close()
        ear.close()
