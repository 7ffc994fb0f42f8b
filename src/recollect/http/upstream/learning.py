"""Learn with the chat's own model at the upstream, if the server has access to it.

The server has access if it has a key for the endpoint, runs the model itself, or the endpoint is on the local network
and answers without a key. With `learn_with_client_key`, what a user said is also learned with the key of the user's
last chat in the same project, which is kept in memory only. Otherwise a client's key is never used in the background.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recollect import __version__
from recollect.config.settings import Settings
from recollect.errors import BrokenAnswer, CircuitOpen, ModelUnavailable, RecollectError, UpstreamUnavailable
from recollect.http.auth.address import parse_address
from recollect.http.auth.caller import Caller
from recollect.http.upstream.extractive import ExtractiveUpstream
from recollect.http.upstream.router import (
    LOCAL_PREFIX,
    Header,
    KeyedUpstream,
    LocalUpstream,
    Upstream,
    UpstreamRequest,
    UpstreamRouter,
    open_upstream_router,
)
from recollect.model.job import ExtractPayload, Job, JobKind
from recollect.model.scope import Scope
from recollect.model.usage import LlmQuota
from recollect.models.chat import LearningChat
from recollect.models.local_chat import find_model, is_small_model
from recollect.service.jobs import ModelChoice, RecentJobs

if TYPE_CHECKING:
    from recollect.models.openai_chat import OpenAIChat

_log = logging.getLogger("recollect")
USER_TOKENS_A_DAY = 100_000
# The user agent tells these requests from chats; nothing in them comes from a client.
LEARNING_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", f"recollect/{__version__} (learning)".encode()),
)
WITHOUT_LLM = "learning without an LLM: built-in selector"
WITH_CHAT_MODEL = "learning with the chat's own model via the upstream"
_PROBE_S = 5.0
_PROBE_INTERVAL_S = 60.0
# A model that cannot be used is retried after the first pause, then each time after twice as long.
_FIRST_PAUSE_S = 600.0
_MAX_PAUSE_S = 6 * 3600.0
# One that did not answer may be back soon.
_UNAVAILABLE_PAUSE_S = 60.0
# Of each endpoint, and of each client's key.
_MAX_MODELS = 1024
_MAX_USERS = 10_000
_LOCAL_NAMES = (".local", ".internal", ".lan")
# By these an endpoint says that it does not list its models; whether it needs a key, the first answer shows.
_NO_LIST_STATUSES = (404, 405, 501)
_STATUS = re.compile(r" answered (\d{3})\b")


@dataclass(slots=True)
class Access:
    """Whether the server may use an endpoint by itself, or the reason why not."""

    upstream: Upstream
    is_open: bool = False
    is_probed: bool = False
    reason: str = ""
    probed_at: float | None = None


@dataclass(slots=True)
class _Model:
    """A model that chats name; it has to answer an extraction with JSON to be proven.

    After `rejection_count` failures it is not used until `rejected_until`.
    """

    name: str
    access: Access
    chat: OpenAIChat | None = None
    is_proven: bool = False
    rejected_reason: str = ""
    rejected_until: float = 0.0
    rejection_count: int = 0


class UpstreamModels:
    """The models of chats for learning jobs; implements `LearningModels`."""

    def __init__(
        self, settings: Settings, upstreams: UpstreamRouter, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._clock = clock
        self._access = {upstream: access_of(upstream) for upstream in upstreams.all}
        self._probing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._models: OrderedDict[tuple[str, Upstream], _Model] = OrderedDict()
        # By user, project and endpoint: the key of the last chat, with access by it.
        self._client_access: OrderedDict[tuple[str, str, Upstream], tuple[str, Access]] = OrderedDict()
        self._model_of: OrderedDict[str, str] = OrderedDict()
        # Of any user: the model of the last chat, and the last one that was useful.
        self._last_model = self._last_proven = ""
        self._last_scope: Scope | None = None
        self._reported = describe_start(settings)

    @property
    def wait_s(self) -> float:
        """How long a job waits for more turns, so that one LLM call covers them."""
        return self._settings.learn_wait_s

    @property
    def allowance(self) -> LlmQuota:
        return allowance_of(self._settings)

    @property
    def is_ready(self) -> bool:
        model = self._usable(self._last_scope, self._last_model, self._last_proven)
        return model is not None and model.access.is_open and not self._is_rejected(model)

    @property
    def last_model(self) -> str:
        """The model that the last chat named, or an empty text."""
        return self._last_model

    def describe(self) -> str:
        if not self._settings.worker:
            return describe_start(self._settings)
        model = self._usable(self._last_scope, self._last_model, self._last_proven)
        if model is None:
            if self._is_any_open() or self._settings.learn_with_client_key:
                return WITH_CHAT_MODEL
            return _without_llm(next((each.reason for each in self._access.values() if each.reason), ""))
        if not model.access.is_open:
            return _without_llm(model.access.reason)
        if self._is_rejected(model):
            minutes = max(1, round((model.rejected_until - self._clock()) / 60))
            return _without_llm(f"{model.name} is left out for {minutes} min: {model.rejected_reason}")
        return f"learning with {model.name} via the upstream"

    def note_client_key(self, scope: Scope, upstream: Upstream, headers: Sequence[Header], *, caller: Caller) -> None:
        """Use the key of a user's chat to learn from chats of the user and project, if the settings allow it.

        A caller who could not be authenticated may be anyone.
        """
        if not self._settings.learn_with_client_key or caller.is_unknown:
            return
        from recollect.http.upstream.http_upstream import HttpUpstream

        if not isinstance(upstream, HttpUpstream):
            return
        values = [value for name, value in headers if name.lower() == b"authorization"]
        scheme, _, key = values[0].decode("latin-1").partition(" ") if values else ("", "", "")
        place = scope.user, scope.project, upstream
        if scheme.lower() != "bearer" or not (key := key.strip()):
            return
        if place not in self._client_access or self._client_access[place][0] != key:
            self._client_access[place] = key, Access(KeyedUpstream(upstream, key), is_open=True)
        self._client_access.move_to_end(place)
        _trim(self._client_access, _MAX_USERS)

    def start(self) -> None:
        """Probe in the background which endpoints answer without a key."""
        self._task = asyncio.create_task(self._probe_and_report())

    async def close(self) -> None:
        """Close all clients; the upstreams are closed by their owner."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for model in self._models.values():
            if model.chat is not None:
                await model.chat.close()

    async def choose(self, job: Job, recent_jobs: RecentJobs) -> ModelChoice:
        """Return the model of the chat that caused a job, or else the last one of the user, or of anyone."""
        if name := _model_in(job):
            self._last_model, self._last_scope = name, job.scope
            self._note(job.scope.user, name)
            model: _Model | None = self._model(name, job.scope)
        else:
            model = await self._last_model_of(job.scope, recent_jobs)
        if model is None:
            return ModelChoice(reason="no chat has named a model yet" if self._is_any_open() else "")
        access = model.access
        if not access.is_open and access.is_probed:
            await self._probe(access)
        if not access.is_open:
            self._report()
            return ModelChoice(reason=access.reason)
        if self._is_rejected(model):
            return ModelChoice(reason=f"{model.name} cannot be used for learning: {model.rejected_reason}")
        if job.kind is not JobKind.EXTRACT and not model.is_proven:
            # Any text would pass for a summary, so a model first has to answer an extraction with JSON.
            return ModelChoice(reason=f"{model.name} has not been used for learning yet")
        if model.chat is None:
            model.chat = self._open_chat(model)
        is_small = self._is_small(model)
        return ModelChoice(chat=LearningChat(model.chat, is_proven=model.is_proven, is_small=is_small))

    def accept(self, scope: Scope, chat: LearningChat) -> None:
        """Note that a model was useful."""
        model = self._model(chat.model, scope)
        model.rejected_until, model.rejection_count = 0.0, 0
        model.is_proven = True
        self._last_proven = chat.model
        self._report()

    def reject(self, scope: Scope, chat: LearningChat, error: Exception) -> str:
        """Do not use a model for some minutes; returns the reason."""
        model = self._model(chat.model, scope)
        model.is_proven = False
        model.rejected_reason = "it answered without JSON" if chat.rejected is not None else _describe_error(error)
        if chat.rejected is None and type(error) in (ModelUnavailable, CircuitOpen):
            pause_s, model.rejection_count = _UNAVAILABLE_PAUSE_S, 0
        else:
            pause_s = min(_FIRST_PAUSE_S * 2**model.rejection_count, _MAX_PAUSE_S)
            model.rejection_count += 1
        model.rejected_until = self._clock() + pause_s
        self._report()
        return f"{chat.model} cannot be used for learning: {model.rejected_reason}"

    def forget(self, user: str) -> None:
        """Forget which model a user chats with, and with which keys."""
        self._model_of.pop(user, None)
        for place in [place for place in self._client_access if place[0] == user]:
            del self._client_access[place]

    def _model(self, name: str, scope: Scope | None) -> _Model:
        access = self._access_for(name, scope)
        place = name, access.upstream
        model = self._models.get(place)
        if model is None:
            model = self._models[place] = _Model(name, access)
            # A client has no connection of its own, so one in use may leave the cache.
            _trim(self._models, _MAX_MODELS)
        self._models.move_to_end(place)
        return model

    def _access_for(self, name: str, scope: Scope | None) -> Access:
        """Return the server's own access to a model, or else that of the user's last chat in the project."""
        access = self._access[self._upstreams.for_model(name)]
        if access.is_open or scope is None:
            return access
        _, by_client = self._client_access.get((scope.user, scope.project, access.upstream), ("", access))
        return by_client

    def _note(self, user: str, model: str) -> None:
        self._model_of[user] = model
        self._model_of.move_to_end(user)
        _trim(self._model_of, _MAX_USERS)

    async def _last_model_of(self, scope: Scope, recent_jobs: RecentJobs) -> _Model | None:
        """Return the last recorded model of the user's chats, or else of anyone's."""
        user = scope.user
        if user not in self._model_of:
            recorded = _newest_model_in(await recent_jobs(user))
            if not recorded and not self._last_model:
                self._last_model = _newest_model_in(await recent_jobs(None))
            # Also if there is none, so that not every job looks for it.
            self._note(user, recorded)
        return self._usable(scope, self._model_of[user], self._last_model, self._last_proven)

    def _usable(self, scope: Scope | None, *names: str) -> _Model | None:
        """Return the first model that is not rejected, or else the first one."""
        models = [self._model(name, scope) for name in names if name]
        return next((model for model in models if not self._is_rejected(model)), models[0] if models else None)

    def _is_rejected(self, model: _Model) -> bool:
        return self._clock() < model.rejected_until

    def _is_any_open(self) -> bool:
        return any(access.is_open for access in self._access.values())

    def _open_chat(self, model: _Model) -> OpenAIChat:
        from recollect.http.upstream.learning_transport import UpstreamTransport
        from recollect.models.openai_chat import OpenAIChat

        upstream = model.access.upstream
        return OpenAIChat(
            upstream.name if upstream.name.startswith("http") else "http://local",
            model=model.name,
            timeout_s=self._settings.llm_timeout_s,
            transport=UpstreamTransport(upstream),
        )

    def _is_small(self, model: _Model) -> bool:
        if self._settings.llm_size != "auto":
            return self._settings.llm_size == "small"
        upstream = model.access.upstream
        if not isinstance(upstream, LocalUpstream):
            return is_small_model(model.name)
        try:
            # It answers for any model that a chat names.
            file = find_model(upstream.name.removeprefix(LOCAL_PREFIX))
        except RecollectError:
            return False
        return is_small_model(file.stem, file)

    async def probe_all(self) -> None:
        for access in self._access.values():
            if access.is_probed:
                await self._probe(access)

    async def _probe_and_report(self) -> None:
        await self.probe_all()
        self._report()

    async def _probe(self, access: Access) -> None:
        """Probe an endpoint, at most once a minute."""
        async with self._probing:
            if access.probed_at is not None and self._clock() - access.probed_at < _PROBE_INTERVAL_S:
                return
            access.reason = await probe(access.upstream)
            access.is_open = not access.reason
            access.probed_at = self._clock()

    def _report(self) -> None:
        """Log how learning is done whenever that changes."""
        described = self.describe()
        # A shorter remaining pause is no change.
        if (summary := re.sub(r" for \d+ min", "", described)) != self._reported:
            self._reported = summary
            _log.info("%s", described)


def access_of(upstream: Upstream) -> Access:
    """Return the server's access to an endpoint, as far as it is known without a request."""
    if isinstance(upstream, KeyedUpstream | LocalUpstream):
        return Access(upstream, is_open=True)
    if isinstance(upstream, ExtractiveUpstream):
        return Access(upstream)
    if is_local(urlsplit(upstream.name).hostname or ""):
        return Access(upstream, is_probed=True, reason="the upstream has not answered without a key yet")
    return Access(upstream, reason="the server holds no key for the upstream")


def is_local(host: str) -> bool:
    """Return whether a host is this machine or on the local network, by its address or name."""
    if (address := parse_address(host.strip("[]"))) is not None:
        return address.is_private
    return "." not in host or host.endswith(_LOCAL_NAMES)


async def probe(upstream: Upstream) -> str:
    """Request an endpoint's models without a key; returns why it cannot be used, or "" if it answers."""
    try:
        async with asyncio.timeout(_PROBE_S):
            reply = await upstream.send(UpstreamRequest(method="GET", path="/models", headers=LEARNING_HEADERS))
            status = reply.status
            await reply.close()
    except (UpstreamUnavailable, TimeoutError):
        return "the upstream does not answer"
    if 200 <= status < 300 or status in _NO_LIST_STATUSES:
        return ""
    if status in (401, 403):
        return "the upstream needs a key and the server holds none"
    return f"the upstream answered {status} to a request for its models"


def allowance_of(settings: Settings) -> LlmQuota:
    """Return the daily limits; each user has one, unless the settings name another."""
    is_set = "llm_user_tokens_per_day" in settings.model_fields_set
    return LlmQuota(
        user=settings.llm_user_tokens_per_day if is_set else USER_TOKENS_A_DAY, everyone=settings.llm_tokens_per_day
    )


def has_upstream(settings: Settings) -> bool:
    return bool(settings.upstream_url or settings.upstreams or settings.upstream_api_key.get_secret_value())


def may_learn_with_upstream(settings: Settings) -> bool:
    return settings.learn == "auto" and not settings.llm and settings.learn_with_upstream and has_upstream(settings)


def describe_start(settings: Settings) -> str:
    """Describe how a server with these settings learns, as far as that is known before it starts."""
    if settings.learn == "off":
        return "learning is off"
    if settings.llm and settings.learn not in ("selector", "rules"):
        return f"learning with {settings.llm}"
    if not may_learn_with_upstream(settings):
        return WITHOUT_LLM
    if not settings.worker:
        return _without_llm("`recollect worker` does the jobs, and uses a model only where llm is set")
    keys = [settings.upstream_api_key, *(each.api_key for each in settings.upstreams.values())]
    urls = [settings.upstream_url, *(each.url for each in settings.upstreams.values())]
    has_key = settings.learn_with_client_key or any(key.get_secret_value() for key in keys)
    if has_key or any(url.startswith(LOCAL_PREFIX) for url in urls):
        return WITH_CHAT_MODEL
    if any(is_local(urlsplit(url).hostname or "") for url in urls if url):
        return _without_llm("the upstream has not answered without a key yet")
    return _without_llm("the server holds no key for the upstream")


async def describe_access(settings: Settings) -> str:
    """Describe how a server with these settings learns, after probing the endpoints that may need no key."""
    if not may_learn_with_upstream(settings):
        return describe_start(settings)
    upstreams = open_upstream_router(settings, fallback=ExtractiveUpstream())
    models = UpstreamModels(settings, upstreams)
    try:
        await models.probe_all()
        return models.describe()
    finally:
        await models.close()
        await upstreams.close()


def _without_llm(reason: str) -> str:
    return f"{WITHOUT_LLM} ({reason})" if reason else WITHOUT_LLM


def _newest_model_in(jobs: list[Job]) -> str:
    return next(filter(None, map(_model_in, jobs)), "")


def _model_in(job: Job) -> str:
    return job.payload.model if isinstance(job.payload, ExtractPayload) else ""


def _describe_error(error: Exception) -> str:
    """Describe why a model could not be used, without the server's message, which may repeat a key or a chat."""
    status_match = _STATUS.search(str(error))
    status = status_match[1] if status_match else ""
    if status in ("401", "403"):
        return f"the upstream refused the key ({status})"
    if status == "404":
        return "the upstream does not offer it for chats (404)"
    if isinstance(error, BrokenAnswer):
        return "it gave no answer that can be used"
    if isinstance(error, ModelUnavailable):
        return f"the upstream is not available ({status})" if status else "the upstream does not answer"
    if isinstance(error, RecollectError) and status:
        return f"the upstream refused the request ({status})"
    return "the request failed"


def _trim(cache: OrderedDict[Any, Any], max_size: int) -> None:
    while len(cache) > max_size:
        cache.popitem(last=False)
