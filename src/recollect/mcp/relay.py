"""MCP over stdio by a running server: each line is posted to its /mcp, and its answers are printed.

A client starts this process with its session and waits for it, so it imports little: neither the SDK nor a model.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from recollect.errors import InvalidInput

_MAX_IDLE = 4
_TIMEOUT_S = 60.0
# A stream of notices has a sign of life every few seconds.
_STREAM_TIMEOUT_S = 120.0
_PROBE_S = 0.5
_EXIT_S = 5.0
_SERVER_ERROR = -32000
_PARSE_ERROR = -32700
_PLAIN = re.compile(r"(?!=\?base64\?)[!-~]([ -~]*[!-~])?")
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class ServerAddress:
    """The address of a server, such as http://127.0.0.1:8100."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/mcp")
        try:
            parts = urlsplit(self.url)
            self.host, self.port = parts.hostname or "", parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not self.host:
            raise InvalidInput(f"`url` must be an address such as http://127.0.0.1:8100, got {url!r}")
        self.path = parts.path
        self._is_https = parts.scheme == "https"

    def connect(self, timeout_s: float) -> HTTPConnection:
        kind = HTTPSConnection if self._is_https else HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)

    def answers(self) -> bool:
        connection = self.connect(_PROBE_S)
        try:
            connection.request("GET", f"{self.path}/version")
            return "version" in json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError, TypeError):
            return False
        finally:
            connection.close()


class Relay:
    """Forwards messages between a client's pipes and a server, with these headers."""

    def __init__(self, address: ServerAddress, headers: Mapping[str, str], output: BinaryIO) -> None:
        self._address, self._output = address, output
        self._headers = {
            **{name: value.encode() for name, value in headers.items() if value},
            "Content-Type": b"application/json",
            "Accept": b"application/json, text/event-stream",
        }
        self._idle: list[HTTPConnection] = []
        self._streams: dict[Any, HTTPConnection] = {}
        self._writing = threading.Lock()
        # What the handshake of the earlier protocol agreed on.
        self._version = ""

    def run(self, lines: BinaryIO) -> None:
        """Forward lines until the input ends, then wait a moment for the last answers."""
        threads: list[threading.Thread] = []
        for line in lines:
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except ValueError:
                self._print_error(None, _PARSE_ERROR, "The line is not JSON")
                continue
            thread = threading.Thread(target=self._forward, args=(line.strip(), message), daemon=True)
            thread.start()
            threads = [each for each in threads if each.is_alive()] + [thread]
        for stream in list(self._streams.values()):
            _close(stream)
        for thread in threads:
            thread.join(_EXIT_S)

    def _forward(self, body: bytes, message: Any) -> None:
        message = message if isinstance(message, dict) else {}
        id, method = message.get("id"), message.get("method")
        if method == "notifications/cancelled":
            params = message.get("params")
            stream = self._streams.pop(params.get("requestId") if isinstance(params, dict) else None, None)
            if stream is not None:
                _close(stream)
        try:
            self._post(body, message)
        except (OSError, HTTPException) as error:
            if id is not None:
                reason = str(error) or type(error).__name__
                text = f"The Recollect server at {self._address.url} does not answer ({reason}); start it"
                self._print_error(id, _SERVER_ERROR, text)

    def _post(self, body: bytes, message: Mapping[str, Any]) -> None:
        connection, response = self._send(body, self._headers | self._routing_headers(message))
        id = message.get("id")
        kind = response.headers.get_content_type()
        if kind == "text/event-stream":
            self._relay_stream(connection, response, id)
            return
        content = response.read()
        self._release(connection, response)
        if response.status == 202 or id is None:
            return
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "jsonrpc" not in answer:
            answer = {"jsonrpc": "2.0", "error": {"code": _SERVER_ERROR, "message": f"HTTP status {response.status}"}}
        # An error before the protocol does not name the request.
        answer["id"] = id
        if message.get("method") == "initialize":
            self._version = answer.get("result", {}).get("protocolVersion", "")
        self._print(answer)

    def _routing_headers(self, message: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the headers that repeat parts of the message."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {"MCP-Protocol-Version": self._version.encode()} if self._version else {}
        method = str(message.get("method", ""))
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
        if isinstance(name := params.get(_NAMES.get(method, "")), str):
            headers["Mcp-Name"] = name
        return {name: _header_value(value) for name, value in headers.items()}

    def _send(self, body: bytes, headers: Mapping[str, bytes]) -> tuple[HTTPConnection, HTTPResponse]:
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._address.connect(_TIMEOUT_S), True
            try:
                connection.request("POST", f"{self._address.path}/mcp", body, dict(headers))
                return connection, connection.getresponse()
            except (OSError, HTTPException):
                connection.close()
                # The server may have closed a connection that was not used for a while.
                if is_new:
                    raise

    def _relay_stream(self, connection: HTTPConnection, response: HTTPResponse, id: Any) -> None:
        self._streams[id] = connection
        if connection.sock is not None:
            connection.sock.settimeout(_STREAM_TIMEOUT_S)
        try:
            for data in _events(response):
                self._print(json.loads(data))
        except (OSError, HTTPException, ValueError, AttributeError):
            # Cancelled, or the server stopped: the client subscribes once more.
            pass
        finally:
            self._streams.pop(id, None)
            _close(connection)

    def _release(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        if response.will_close or len(self._idle) >= _MAX_IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def _print(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        # The client may be gone.
        with self._writing, suppress(OSError, ValueError):
            self._output.write(line + b"\n")
            self._output.flush()

    def _print_error(self, id: Any, code: int, message: str) -> None:
        self._print({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def _header_value(value: str) -> bytes:
    """Return the value as the protocol writes it into a header."""
    if _PLAIN.fullmatch(value):
        return value.encode()
    return b"=?base64?" + base64.b64encode(value.encode("utf-8", "replace")) + b"?="


def _events(response: HTTPResponse) -> Iterator[str]:
    data: list[str] = []
    while line := response.readline():
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text.removeprefix("data:").lstrip())
        elif not text and data:
            yield "\n".join(data)
            data = []


def _close(connection: HTTPConnection) -> None:
    """Close a connection that another thread may be reading."""
    if (sock := connection.sock) is not None:
        with suppress(OSError):
            sock.shutdown(2)
    connection.close()
