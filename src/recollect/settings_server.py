"""Every setting of the server and of the chats it passes on, declared once."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr


def env_aliases(*names: str) -> Any:
    """Environment variables other tools use for the same thing; ours wins over them."""
    return {"also": names}


# An endpoint that has the Responses API is passed to as it is; for others they are translated; auto finds out.
ResponsesMode: TypeAlias = Literal["auto", "native", "translate"]


class UpstreamSettings(BaseModel):
    """One of several endpoints that chats are sent to."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    models: Annotated[str, Field(description="Names of its models, * for any letters, separated by commas.")]
    url: Annotated[str, Field(description="Base URL.")]
    api_key: Annotated[SecretStr, Field(description="Key for it; empty to pass on the client's own.")] = SecretStr("")
    responses: Annotated[ResponsesMode, Field(description="Whether it speaks OpenAI's Responses API.")] = "auto"


def parse_json(value: Any) -> Any:
    """In an environment variable, a table is written as JSON."""
    return json.loads(value) if isinstance(value, str) else value


class ServerSettings(BaseModel):
    """How the server is set up, and where its chats go."""

    upstream_url: Annotated[
        str,
        Field(
            description="Base URL of the OpenAI-compatible endpoint that chats are sent to, or local:FILE.gguf (an "
            "extra); empty for the built-in answers from memory, or, where a key is set, for OpenAI's own.",
            json_schema_extra=env_aliases("OPENAI_BASE_URL"),
        ),
    ] = ""
    upstream_api_key: Annotated[
        SecretStr,
        Field(
            description="Key for it; empty to pass on the client's own.",
            json_schema_extra=env_aliases("OPENAI_API_KEY"),
        ),
    ] = SecretStr("")
    upstream_shared: Annotated[
        bool,
        Field(
            description="Whether who speaks for one user may also reach what an endpoint keeps under the server's "
            "own key, for all users together: files, batches, vector stores, stored chats."
        ),
    ] = False
    upstream_responses: Annotated[
        ResponsesMode,
        Field(description="Whether it speaks OpenAI's Responses API (native), or only chats (translate)."),
    ] = "auto"
    learn_with_upstream: Annotated[
        bool,
        Field(
            description="Where no llm is set, learn with the chat's own model at its endpoint, if the server holds a "
            "key for that or it is on the local network and needs none. A client's own key is never used."
        ),
    ] = True
    upstreams: Annotated[
        dict[str, UpstreamSettings],
        BeforeValidator(parse_json),
        Field(description="More endpoints by the names of their models: tables of models, url and api_key."),
    ] = {}
    upstream_connect_s: Annotated[
        float, Field(gt=0, le=600, description="Longest wait for a connection to an endpoint.")
    ] = 10.0
    upstream_timeout_s: Annotated[
        float, Field(gt=0, le=86_400, description="Longest silence of an endpoint, before and in its answer.")
    ] = 600.0
    chat_user: Annotated[str, Field(min_length=1, description="Whose memory it is when a chat names no user.")] = (
        "default"
    )
    chat_memory_id: Annotated[
        str, Field(description="Conversation of chats that name none; empty to know each by its beginning.")
    ] = ""
    chat_memory_hits: Annotated[
        bool, Field(description="Add memory_hits to every answer that is not streamed; else where it is asked for.")
    ] = False

    memory_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=60,
            description="Longest a chat waits for memory, to recall and to keep what was said; then it goes on.",
        ),
    ] = 0.3
    spill_mb: Annotated[
        int,
        Field(
            ge=0,
            le=1_048_576,
            description="Most disk space in `home` for what is said while the ledger is away; 0 to keep none of it.",
        ),
    ] = 256

    responses_days: Annotated[
        float,
        Field(
            gt=0, le=36_500, description="How long Responses and Conversations are kept after they were last used."
        ),
    ] = 30.0

    host: Annotated[str, Field(min_length=1, description="Address the server listens on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port of the server; 0 for any free one.")] = 8100
    server_processes: Annotated[
        int, Field(ge=1, le=256, description="How many processes serve; each opens the ledger for itself.")
    ] = 1
    ssl_certfile: Annotated[str, Field(description="Certificate chain for https, in PEM; empty for http.")] = ""
    ssl_keyfile: Annotated[
        str, Field(description="Private key of that certificate, in PEM; empty if it is in the same file.")
    ] = ""
    ssl_keyfile_password: Annotated[SecretStr, Field(description="Password of that key, if it has one.")] = SecretStr(
        ""
    )
    allowed_hosts: Annotated[
        str,
        Field(
            description="Names the server answers to beside those of this machine, separated by commas; "
            "*.example.org is every name below it, * is any. Whoever asks for another name is refused; on an "
            "address that other machines reach, none named is any."
        ),
    ] = ""
    max_body_mb: Annotated[
        int,
        Field(ge=1, le=1024, description="Largest request in MiB; files that are only passed on may be larger."),
    ] = 32
    stop_within_s: Annotated[
        int, Field(ge=1, le=3600, description="How long requests under way may take to end when the server stops.")
    ] = 30
