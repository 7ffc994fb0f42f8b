"""The server process: checks of the settings, logging, uvicorn, and a server in a thread for tests and the CLI."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Self
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from recollect import __version__
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, Unavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.http.app import make_app
from recollect.http.auth.address import is_loopback
from recollect.http.auth.rules import check_bind
from recollect.http.connections import guarded_protocol
from recollect.http.upstream.learning import describe_start
from recollect.models.embedding import EmbeddingModel
from recollect.observability.prometheus import share_metrics
from recollect.observability.tracing import request_id
from recollect.wiring import open_ledger

_SWITCH_S = 0.0001
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TextFormatter(logging.Formatter):
    """Formats time, level and message; control characters are escaped, so that no message can forge a line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats a JSON object per line: time, level, logger, message, request id and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if id := request_id.get():
            fields["request_id"] = id
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = record.exc_text or self.formatException(record.exc_info)
        elif record.exc_text:
            fields["traceback"] = record.exc_text
        return json.dumps(fields, default=str)


_log = logging.getLogger("recollect")


def serve(
    settings: Settings,
    listening: BoundSockets,
    *,
    make: Callable[[Settings], ASGIApp] = make_app,
    worker: bool = False,
) -> None:
    """Serve on these sockets until a graceful stop.

    After SIGTERM or Ctrl-C no request is accepted, and running ones may finish within `shutdown_timeout_s`. A second
    signal ends the process at once. Everything that was acknowledged is on disk by then.
    """
    if settings.server_processes > 1 and not worker:
        with TemporaryDirectory(prefix="recollect-numbers-") as metrics_dir:
            ProcessSupervisor(
                partial(_run_worker, settings, listening, make, Path(metrics_dir)), listening, settings
            ).run()
        return
    # While another thread computes, the loop waits for so long after each system call: dozens of times in a request.
    sys.setswitchinterval(_SWITCH_S)
    server = _Server(_uvicorn_config(settings, make), quits_on_interrupt=not worker)
    _log.info("recollect %s: %s", __version__, describe_start(settings))
    with listening:
        server.run(listening.sockets)
    if not server.started:
        raise Unavailable("the server could not start; its log has the reason")


def _run_worker(
    settings: Settings, listening: BoundSockets, make: Callable[[Settings], ASGIApp], metrics_dir: Path
) -> None:
    share_metrics(metrics_dir)
    threading.Thread(target=stop_when_orphaned, daemon=True).start()
    try:
        serve(settings, listening, make=make, worker=True)
    except Unavailable:
        sys.exit(1)


def check_settings(settings: Settings) -> None:
    """Raise InvalidSettings for settings that cannot be served, before anything is opened."""
    check_bind(settings, has_keys=is_loopback(settings.host) or asyncio.run(_may_have_keys(settings)))
    _check_upstream(settings)
    if settings.server_processes > 1 and settings.database == "memory:":
        raise InvalidSettings("database memory: belongs to one process; set server_processes = 1")
    if settings.ssl_keyfile and not settings.ssl_certfile:
        raise InvalidSettings("ssl_keyfile needs ssl_certfile")
    if settings.ssl_certfile:
        _check_certificate(settings)


async def _may_have_keys(settings: Settings) -> bool:
    """Whether the ledger has keys; while it is unavailable requests without a key are rejected, so True is safe."""
    try:
        # Any model will do, because nothing is embedded.
        ledger = await open_ledger(settings, EmbeddingModel("none", 1))
    except Unavailable:
        return True
    try:
        return await ledger.has_keys()
    finally:
        await ledger.close()


def _check_upstream(settings: Settings) -> None:
    """Reject an upstream that is this server, as in a shell whose OPENAI_BASE_URL is set for its clients."""
    for url in (settings.upstream_url, *(each.url for each in settings.upstreams.values())):
        try:
            parts = urlsplit(url)
            is_self = is_loopback(parts.hostname or "") and parts.port == settings.port
        except ValueError:
            # An invalid URL is reported when it is opened.
            continue
        if is_self and settings.port:
            raise InvalidSettings(
                f"upstream_url {url} is this server itself: set it to the upstream, or start without OPENAI_BASE_URL"
            )


def _check_certificate(settings: Settings) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a password the library would prompt on the terminal.
    password = settings.ssl_keyfile_password.get_secret_value()
    try:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile or None, lambda: password)
    except (OSError, ValueError) as error:
        files = (
            f"{settings.ssl_certfile} and {settings.ssl_keyfile}" if settings.ssl_keyfile else settings.ssl_certfile
        )
        raise InvalidSettings(f"{files} cannot be used for HTTPS: {error}") from None


def _uvicorn_config(settings: Settings, make: Callable[[Settings], ASGIApp]) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if settings.ssl_certfile:
        tls = {
            "ssl_certfile": settings.ssl_certfile,
            "ssl_keyfile": settings.ssl_keyfile or None,
            "ssl_keyfile_password": settings.ssl_keyfile_password.get_secret_value() or None,
        }
    return uvicorn.Config(
        make(settings),
        log_config=_logging_config(settings),
        log_level=settings.log_level,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        timeout_keep_alive=settings.keep_alive_s,
        http=guarded_protocol(settings),
        # No route takes a websocket.
        ws="none",
        **tls,
    )


def _logging_config(settings: Settings) -> dict[str, Any]:
    """Return a configuration that logs everything to stderr in one format, and requests only with `access_log`."""
    level = settings.log_level.upper()
    logger: dict[str, Any] = {"handlers": ["stderr"], "level": level, "propagate": False}
    requests = {"level": level if settings.access_log else "WARNING"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": JsonFormatter if settings.log_format == "json" else TextFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"recollect": logger, "uvicorn": logger, "recollect.access": requests},
    }


class _Server(uvicorn.Server):
    """A server for which a stop by a signal is a success: the signal is not raised again afterwards."""

    def __init__(self, config: uvicorn.Config, *, quits_on_interrupt: bool) -> None:
        super().__init__(config)
        self._interrupt = self.handle_exit if quits_on_interrupt else signal.SIG_IGN

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Ctrl-C reaches every process of a group; the supervisor stops the others itself.
        handlers = {signal.SIGTERM: self.handle_exit, signal.SIGINT: self._interrupt}
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Objects of the start are exempt from garbage collection, which delayed chats by 50 ms.
        gc.freeze()
        gc.set_threshold(5_000)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        if (stopping := getattr(getattr(self.config.app, "state", None), "stopping", None)) is not None:
            stopping.set()

    def run(self, sockets: Sequence[socket.socket] | None = None) -> None:
        try:
            super().run(list(sockets or ()))
        except SystemExit as error:
            # uvicorn has logged the reason; its exit codes mean something else in our CLI.
            if error.code:
                raise Unavailable("the server could not start; its log has the reason") from None


_EMBEDDED_START_S = 60.0
_EMBEDDED_STOP_S = 40.0


@contextmanager
def run_embedded_server(settings: Settings) -> Iterator[str]:
    """Serve on a free local port while the context is open, and yield the URL."""
    config = uvicorn.Config(
        make_app(settings), log_config=None, access_log=False, proxy_headers=False, http=guarded_protocol(settings)
    )
    server = uvicorn.Server(config)
    with bind_sockets("127.0.0.1", 0) as listening:
        thread = threading.Thread(
            target=_run_server, args=(server, list(listening.sockets)), name="recollect-server", daemon=True
        )
        thread.start()
        deadline = time.monotonic() + _EMBEDDED_START_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not server.started:
            raise Unavailable("the server could not start; `recollect serve` shows the reason")
        try:
            yield listening.url()
        finally:
            server.should_exit = True
            thread.join(_EMBEDDED_STOP_S)


def _run_server(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    # The caller sees that it has not started.
    with suppress(SystemExit):
        server.run(sockets)


# The unsent bytes that are buffered for a slow client before its upstream has to wait; bytes in flight do not count.
_MAX_UNSENT_BYTES = 1 << 16


@frozen_dataclass
class BoundSockets:
    """Bound sockets, one for each address of the host; a context manager that closes them."""

    sockets: Sequence[socket.socket]
    host: str

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def url(self, *, tls: bool = False) -> str:
        host = self.host.strip("[]")
        return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        for each in self.sockets:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bind_sockets(host: str, port: int) -> BoundSockets:
    """Bind the host's addresses; Unavailable if the port is in use."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidSettings(f"host {host!r} is not an address of this machine: {error.strerror}") from None
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(addresses):
        # With port 0 the first address gets a free port, and the others the same.
        bound_port = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bind_socket(family, (address[0], bound_port, *address[2:])))
        except OSError as error:
            if sockets and error.errno == errno.EADDRNOTAVAIL:
                continue
            for each in sockets:
                each.close()
            remedy = "stop the program that uses it, or choose another with --port (the setting port)"
            hint = f"; {remedy}" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
            raise Unavailable(f"cannot listen on {host}, port {port}: {error.strerror}{hint}") from None
    return BoundSockets(sockets, host)


def _bind_socket(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Not available on every system. Connections inherit it from the listening socket.
        with suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
        sock.bind(address)
        # From now on the port is reserved; connections wait until the server accepts them.
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    return sock


_spawn = multiprocessing.get_context("spawn")
# The time a process needs to stop in addition to its requests: to close the ledger and end jobs.
_GRACE_S = 15.0
_TICK_S = 0.2


class ProcessSupervisor:
    """Runs `server_processes` processes; replaces one that dies and forwards signals to all of them."""

    def __init__(self, work: Callable[[], None], listening: BoundSockets, settings: Settings) -> None:
        self._work = work
        self._listening = listening
        self._settings = settings
        self._running: list[SpawnProcess] = []
        self._stopping_at = 0.0

    def run(self) -> None:
        """Serve until a signal arrives; Unavailable if the processes cannot start."""
        previous = {number: signal.signal(number, self._handle_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for _ in range(self._settings.server_processes):
                self._start()
            while self._running:
                wait([process.sentinel for process in self._running], timeout=_TICK_S)
                self._reap()
        except BaseException:
            self._kill_all()
            raise
        finally:
            self._listening.close()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _start(self) -> None:
        # A signal may arrive between two starts.
        if not self._stopping_at:
            process = _spawn.Process(target=self._work)
            process.start()
            self._running.append(process)
            if self._stopping_at:
                process.terminate()

    def _reap(self) -> None:
        if self._stopping_at:
            # The port is free only when this process has closed it as well.
            self._listening.close()
        for process in list(self._running):
            if process.is_alive():
                continue
            process.join()
            self._running.remove(process)
            if self._stopping_at:
                continue
            # A process that was killed is replaced; one that exited with an error would fail again.
            if (process.exitcode or 0) > 0:
                raise Unavailable("the server could not start; its log has the reason")
            _log.warning("server process %s ended with %s; starting another", process.pid, process.exitcode)
            self._start()
        timeout_s = self._settings.shutdown_timeout_s + _GRACE_S
        if self._stopping_at and time.monotonic() - self._stopping_at > timeout_s:
            self._kill_all()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop all processes; a second signal ends them at once."""
        if self._stopping_at:
            self._kill_all()
            os._exit(128 + number)
        self._stopping_at = time.monotonic()
        for process in list(self._running):
            process.terminate()

    def _kill_all(self) -> None:
        for process in list(self._running):
            process.kill()


def stop_when_orphaned() -> None:
    """Wait until the parent process is gone, then stop this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
