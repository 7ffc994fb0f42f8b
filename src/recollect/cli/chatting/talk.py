"""A conversation with a server that speaks OpenAI's API: what is said goes there, the answer comes as it is made."""

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

_CONNECT_S = 5.0
# Between two words of an answer: a large model on a small machine takes its time to begin.
_SILENCE_S = 300.0
_MOST_TOLD = 500


@dataclass(slots=True)
class Answer:
    """The last answer: what was asked and when, what came of it so far, what the server said about memory."""

    asked: list[dict[str, str]]
    at: datetime
    text: str = ""
    memory: Mapping[str, str] = field(default_factory=dict)


class Talk:
    """A session with the server at `url`, as one user; a new session begins with nothing said.

    `certificate` is a file with one that is trusted beside those of the system.
    """

    def __init__(
        self, url: str, *, user: str, project: str | None = None, model: str = "", certificate: str = ""
    ) -> None:
        self.url = _checked(url).rstrip("/").removesuffix("/v1")
        self.user = user
        self.project = project
        self.model = model
        self.last: Answer | None = None
        trusted = ssl.create_default_context()
        if certificate:
            trusted.load_verify_locations(certificate)
        patience = httpx.Timeout(_SILENCE_S, connect=_CONNECT_S)
        self._http = httpx.Client(timeout=patience, verify=trusted, trust_env=False)
        self.renew()

    def renew(self) -> None:
        """Begin a new session."""
        self.session = new_id()
        self.said: list[dict[str, str]] = []
        self.last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    @property
    def host(self) -> str:
        """The name of the machine that answers."""
        return httpx.URL(self.url).host

    def is_there(self) -> bool:
        """Whether a server answers at all."""
        try:
            self._http.get(f"{self.url}/v1/models", timeout=_CONNECT_S)
        except httpx.HTTPError:
            return False
        return True

    def pick_model(self) -> str:
        """The model that was named, or else the first that the server has."""
        if not self.model:
            try:
                answer = self._http.get(f"{self.url}/v1/models", headers=self._headers(), timeout=_CONNECT_S)
                named = [each["id"] for each in answer.raise_for_status().json()["data"]]
            except httpx.ConnectError as error:
                raise self._away(error) from None
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                named = []
            if not named:
                raise InvalidInput(f"the server at {self.url} names no models; say which with --model")
            self.model = str(named[0])
        return self.model

    def ask(self, text: str) -> Iterator[str]:
        """Say something; gives the answer in pieces. What was heard of an answer that breaks off is kept."""
        messages = [*self.said, {"role": "user", "content": text}]
        body = {"model": self.pick_model(), "messages": messages, "stream": True}
        self.last = answer = Answer(messages, datetime.now(UTC))
        try:
            address = f"{self.url}/v1/chat/completions"
            with self._http.stream("POST", address, json=body, headers=self._headers()) as reply:
                answer.memory = {name: value for name, value in reply.headers.items() if name.startswith("x-memory-")}
                if reply.status_code != 200:
                    raise _refused(reply)
                for piece in _pieces(reply):
                    answer.text += piece
                    yield piece
        except httpx.ConnectError as error:
            raise self._away(error) from None
        except httpx.LocalProtocolError:
            raise InvalidInput(f"user {self.user!r} or its project cannot be sent as a header") from None
        except httpx.TimeoutException:
            raise Unavailable(f"the server at {self.url} took too long to answer") from None
        except httpx.TransportError as error:
            raise UpstreamBroken(f"the answer broke off: {error}") from None
        finally:
            if answer.text:
                self.said = [*messages, {"role": "assistant", "content": answer.text}]

    def _headers(self) -> dict[bytes, bytes]:
        named = {"X-Memory-User": self.user, "X-Memory-Session": self.session, "X-Memory-Project": self.project or ""}
        # Names may hold any letter; a header holds bytes.
        return {name.encode(): value.encode("utf-8") for name, value in named.items() if value}

    def _away(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(f"no server answers at {self.url} ({error}); start one with `recollect serve`")


def _checked(url: str) -> str:
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"{url!r} is no address: {error}") from None
    if read.scheme not in ("http", "https") or not read.host:
        raise InvalidInput(f"{url!r} is no address of a server, such as http://127.0.0.1:8100")
    return url


def _pieces(reply: httpx.Response) -> Iterator[str]:
    """The words of a stream's events; an error among them is raised."""
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        reply.read()
        yield from _said_in(_read_json(reply.text), "message")
        return
    for line in reply.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        yield from _said_in(_read_json(data), "delta")


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UpstreamBroken("the server sent something that is no answer") from None


def _said_in(chunk: Any, part: str) -> Iterator[str]:
    if not isinstance(chunk, dict):
        return
    if chunk.get("error"):
        raise UpstreamBroken(f"the answer broke off: {_told(chunk)}")
    for choice in chunk.get("choices") or ():
        said = choice.get(part) if isinstance(choice, dict) else None
        content = said.get("content") if isinstance(said, dict) else None
        if isinstance(content, str) and content:
            yield content


def _refused(reply: httpx.Response) -> Unavailable:
    reply.read()
    try:
        told = _told(reply.json())
    except ValueError:
        told = reply.text.strip()
    return Unavailable(f"the server refused with {reply.status_code}: {told[:_MOST_TOLD] or reply.reason_phrase}")


def _told(document: Any) -> str:
    """The message of an error, in whichever of the usual shapes it comes."""
    error = document.get("error", document.get("detail", document)) if isinstance(document, dict) else document
    return str(error.get("message", error) if isinstance(error, dict) else error)
