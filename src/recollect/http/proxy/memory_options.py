"""The fields and headers by which a chat request controls memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError

from recollect.config.settings import Settings
from recollect.errors import InvalidInput
from recollect.http.auth.caller import LOCAL_CALLER, Caller
from recollect.http.params import IntegralFloat, Name, StrictModel
from recollect.model.memory import MemoryType
from recollect.model.query import EVERYTHING, Filter, Op, Where
from recollect.model.scope import Scope
from recollect.model.text import is_storable

HEADER_PREFIX = "x-memory"
_MAX_MODEL_CHARS = 200
# The memory id of the user's own level, which every conversation sees.
_GLOBAL_MEMORY_ID = "global"
# Whether the values of X-Memory read and write.
_SWITCHES = {
    "": (True, True),
    "on": (True, True),
    "off": (False, False),
    "read": (True, False),
    "write": (False, True),
}
_SIGNALS = {"": None, "true": True, "false": False}


class InvalidField(InvalidInput):
    """A field or header that controls memory has an invalid value."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


_Limit = Annotated[int, Field(ge=0, le=1000), IntegralFloat]
_Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Type = Annotated[MemoryType, Field(strict=False)]


_Mode = Literal["chat", "document", "task", "profile"]


class ChatMemoryConfig(StrictModel):
    """The options of memory for this request."""

    enabled: bool | None = None
    auto_store: bool | None = None
    memory_types: list[_Type] | None = None
    retrieval_limit: _Limit | None = None
    similarity_threshold: _Fraction | None = None


class ChatMemoryContext(StrictModel):
    """The user and the project of the memory, and the caller's classification of the question."""

    user_id: Name | None = None
    project_id: Name | None = None
    is_fact: bool | None = Field(default=None, description="Whether it asks for general knowledge, if known.")
    requires_tool: bool | None = Field(default=None, description="Whether a tool will answer it, if known.")


class ChatMemoryFields(StrictModel):
    """The fields of a request that control memory; they are not sent to the upstream."""

    memory_id: Name | None = Field(default=None, description="Names the memories that conversations share.")
    memory_top_k: Annotated[int, Field(le=1000), IntegralFloat] | None = Field(
        default=None, description="The number of memories; 0 or less for none."
    )
    memory_recency_weight: _Fraction | None = None
    memory_score_threshold: _Fraction | None = None
    memory_hits: bool | None = Field(default=None, description="Whether the answer lists the memories used.")
    memory_mode: _Mode | None = Field(
        default=None, description="What the LLM extracts from the exchange; by default `learn_mode`."
    )
    memory_config: ChatMemoryConfig | None = None
    memory_context: ChatMemoryContext | None = None


# `user` and `metadata` are the upstream's too, and stay in the request.
MEMORY_FIELDS = frozenset(ChatMemoryFields.model_fields)
_NO_FIELDS = ChatMemoryFields()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """Memory's part in one request; None stands for the server's setting."""

    scope: Scope
    reads: bool = True
    writes: bool = True
    limit: int | None = None
    min_score: float | None = None
    recency_weight: float | None = None
    types: tuple[MemoryType, ...] = ()
    is_fact: bool | None = None
    requires_tool: bool | None = None
    include_hits: bool = False
    # What the LLM extracts.
    mode: str | None = None
    # The restriction of the caller, as X-Memory-Status reports it.
    restriction: str = ""
    # The request's model, which may be used to learn from the conversation.
    model: str = ""

    @property
    def filter(self) -> Filter:
        """The filter for the requested types, or for all."""
        return Where("type", Op.IN, tuple(map(str, self.types))) if self.types else EVERYTHING


def parse_memory_options(
    fields: Mapping[str, Any], headers: Mapping[str, str], settings: Settings, *, caller: Caller = LOCAL_CALLER
) -> MemoryOptions:
    """Parse the options of a request; raises InvalidField, or NotAllowed if it names another user."""
    own = _parse_fields(fields)
    config = own.memory_config or ChatMemoryConfig()
    switch = headers.get("x-memory", "").strip().lower()
    if switch not in _SWITCHES:
        raise InvalidField("X-Memory", f"must be on, off, read or write, got {switch[:40]!r}")
    reads, writes = _SWITCHES[switch]
    is_on = bool(switch) or not settings.chat_opt_in
    enabled = settings.chat_memory and (is_on if config.enabled is None else config.enabled)
    stores = is_on if config.auto_store is None else config.auto_store
    context = own.memory_context or ChatMemoryContext()
    limit = config.retrieval_limit if own.memory_top_k is None else own.memory_top_k
    threshold = own.memory_score_threshold
    return MemoryOptions(
        scope=_parse_scope(fields, own, headers, settings, caller),
        reads=reads and enabled and (limit is None or limit > 0) and caller.reads,
        writes=writes and enabled and stores and caller.writes,
        limit=limit,
        min_score=config.similarity_threshold if threshold is None else threshold,
        recency_weight=own.memory_recency_weight,
        types=tuple(config.memory_types or ()),
        is_fact=_parse_signal(headers, "X-Memory-Is-Fact", context.is_fact),
        requires_tool=_parse_signal(headers, "X-Memory-Requires-Tool", context.requires_tool),
        include_hits=settings.chat_memory_hits if own.memory_hits is None else own.memory_hits,
        mode=own.memory_mode or _parse_mode(headers),
        model=_parse_model(fields.get("model")),
        restriction="" if caller.reads and caller.writes else "read_only" if caller.reads else "write_only",
    )


def _parse_mode(headers: Mapping[str, str]) -> str | None:
    mode = headers.get("x-memory-mode", "").strip().lower()
    if mode and mode not in get_args(_Mode):
        raise InvalidField("X-Memory-Mode", f"must be one of {', '.join(get_args(_Mode))}, got {mode[:40]!r}")
    return mode or None


def _parse_fields(fields: Mapping[str, Any]) -> ChatMemoryFields:
    if MEMORY_FIELDS.isdisjoint(fields):
        return _NO_FIELDS
    try:
        return ChatMemoryFields.model_validate({name: fields[name] for name in MEMORY_FIELDS if name in fields})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = ".".join(part for part in first["loc"] if isinstance(part, str))
    if first["type"] == "extra_forbidden":
        known = ChatMemoryConfig if first["loc"][0] == "memory_config" else ChatMemoryContext
        raise InvalidField(name, f"is unknown; the fields are {', '.join(known.model_fields)}")
    if first["type"] == "string_pattern_mismatch":
        raise InvalidField(name, "is blank; leave it out, or name something")
    raise InvalidField(name, first["msg"].removeprefix("Input "))


def _parse_signal(headers: Mapping[str, str], name: str, in_body: bool | None) -> bool | None:
    """Return the caller's classification of the question: the header's, else that of the body."""
    value = headers.get(name.lower(), "").strip().lower()
    if value not in _SIGNALS:
        raise InvalidField(name, f"must be true or false, got {value[:40]!r}")
    return _SIGNALS[value] if value else in_body


def _parse_scope(
    fields: Mapping[str, Any], own: ChatMemoryFields, headers: Mapping[str, str], settings: Settings, caller: Caller
) -> Scope:
    context = own.memory_context or ChatMemoryContext()
    metadata = fields.get("metadata")
    other_users = (metadata.get("user_id") if isinstance(metadata, Mapping) else None, fields.get("user"))
    users = [headers.get("x-memory-user"), context.user_id or None]
    # A number is a user's id in another database.
    users += [str(each) if type(each) in (str, int) else None for each in other_users]
    # All of them, so that naming another user is refused even if a more specific name overrides it.
    allowed = [caller.resolve_user(each) for each in users]
    user = next(filter(None, allowed), settings.chat_user if caller.kind == "local" else None)
    memory_id = own.memory_id or settings.chat_memory_id
    projects = (headers.get("x-memory-project"), context.project_id or None)
    project = next(filter(None, [caller.resolve_project(each) for each in projects]), None)
    if project is None:
        project = "" if memory_id == _GLOBAL_MEMORY_ID else memory_id
    # A conversation with a memory id is one session, whoever sends which part of it.
    return caller.scope(user, project, headers.get("x-memory-session") or memory_id)


def _parse_model(name: object) -> str:
    """Return the model's name; an invalid one is left to the upstream to refuse."""
    if not isinstance(name, str) or len(name) > _MAX_MODEL_CHARS or not name.isprintable():
        return ""
    return name if is_storable(name) else ""
