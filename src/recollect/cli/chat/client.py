"""A chat session with a server that has OpenAI's API; answers are streamed."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import httpx

from recollect.errors import InvalidInput, Unavailable, UpstreamBroken
from recollect.model.ids import new_id

_CONNECT_TIMEOUT_S = 5.0
# Between two pieces of an answer: a large model on a small machine is slow to begin.
_READ_TIMEOUT_S = 300.0
_MAX_ERROR_CHARS = 500


@dataclass(slots=True)
class ChatAnswer:
    """An answer: its messages and time, the text so far, and the memory headers of the server."""

    messages: list[dict[str, str]]
    at: datetime
    text: str = ""
    memory_headers: Mapping[str, str] = field(default_factory=dict)


class ChatClient:
    """A session with the server at `url`, as one user.

    `certificate` is a file with an additional trusted certificate.
    """

    def __init__(
        self, url: str, *, user: str, project: str | None = None, model: str = "", certificate: str = ""
    ) -> None:
        self.url = _check_url(url).rstrip("/").removesuffix("/v1")
        self.user = user
        self.project = project
        self.model = model
        self.last_answer: ChatAnswer | None = None
        ssl_context = ssl.create_default_context()
        if certificate:
            ssl_context.load_verify_locations(certificate)
        timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        self._http = httpx.Client(timeout=timeout, verify=ssl_context, trust_env=False)
        self.start_session()

    def start_session(self) -> None:
        """Begin a new session."""
        self.session = new_id()
        self.messages: list[dict[str, str]] = []
        self.last_answer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    @property
    def host(self) -> str:
        """The host name of the server."""
        return httpx.URL(self.url).host

    def is_reachable(self) -> bool:
        """Return whether a server responds."""
        try:
            self._http.get(f"{self.url}/v1/models", timeout=_CONNECT_TIMEOUT_S)
        except httpx.HTTPError:
            return False
        return True

    def resolve_model(self) -> str:
        """Return the chosen model, or the first of the server."""
        if not self.model:
            try:
                answer = self._http.get(f"{self.url}/v1/models", headers=self._headers(), timeout=_CONNECT_TIMEOUT_S)
                names = [each["id"] for each in answer.raise_for_status().json()["data"]]
            except httpx.ConnectError as error:
                raise self._unreachable(error) from None
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                names = []
            if not names:
                raise InvalidInput(f"the server at {self.url} lists no models; name one with --model")
            self.model = str(names[0])
        return self.model

    def send(self, text: str) -> Iterator[str]:
        """Send a message and yield the answer in pieces; an interrupted answer stays in the session."""
        messages = [*self.messages, {"role": "user", "content": text}]
        body = {"model": self.resolve_model(), "messages": messages, "stream": True}
        self.last_answer = answer = ChatAnswer(messages, datetime.now(UTC))
        try:
            address = f"{self.url}/v1/chat/completions"
            with self._http.stream("POST", address, json=body, headers=self._headers()) as reply:
                answer.memory_headers = {
                    name: value for name, value in reply.headers.items() if name.startswith("x-memory-")
                }
                if reply.status_code != 200:
                    raise _refusal(reply)
                for piece in _iter_content(reply):
                    answer.text += piece
                    yield piece
        except httpx.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx.LocalProtocolError:
            raise InvalidInput(f"user {self.user!r} or its project cannot be sent as a header") from None
        except httpx.TimeoutException:
            raise Unavailable(f"the server at {self.url} took too long to answer") from None
        except httpx.TransportError as error:
            raise UpstreamBroken(f"the answer broke off: {error}") from None
        finally:
            if answer.text:
                self.messages = [*messages, {"role": "assistant", "content": answer.text}]

    def _headers(self) -> dict[bytes, bytes]:
        headers = {
            "X-Memory-User": self.user,
            "X-Memory-Session": self.session,
            "X-Memory-Project": self.project or "",
        }
        # Names may have any letter; headers are bytes.
        return {name.encode(): value.encode("utf-8") for name, value in headers.items() if value}

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(f"no server answers at {self.url} ({error}); start one with `recollect serve`")


def _check_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"{url!r} is not an address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"{url!r} is not an address of a server, such as http://127.0.0.1:8100")
    return url


def _iter_content(reply: httpx.Response) -> Iterator[str]:
    """Yield the text of a response, streamed or not; raise an error that it contains."""
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        reply.read()
        yield from _chunk_content(_read_json(reply.text), "message")
        return
    for line in reply.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        yield from _chunk_content(_read_json(data), "delta")


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UpstreamBroken("the server sent an answer that is not JSON") from None


def _chunk_content(chunk: Any, part: str) -> Iterator[str]:
    if not isinstance(chunk, dict):
        return
    if chunk.get("error"):
        raise UpstreamBroken(f"the answer broke off: {_error_message(chunk)}")
    for choice in chunk.get("choices") or ():
        message = choice.get(part) if isinstance(choice, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str) and content:
            yield content


def _refusal(reply: httpx.Response) -> Unavailable:
    reply.read()
    try:
        message = _error_message(reply.json())
    except ValueError:
        message = reply.text.strip()
    return Unavailable(
        f"the server refused with {reply.status_code}: {message[:_MAX_ERROR_CHARS] or reply.reason_phrase}"
    )


def _error_message(document: Any) -> str:
    """Return the message of an error in any of the usual shapes."""
    error = document.get("error", document.get("detail", document)) if isinstance(document, dict) else document
    return str(error.get("message", error) if isinstance(error, dict) else error)
