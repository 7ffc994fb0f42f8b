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


class AuthSettings(BaseModel):
    """Who may ask the server, and how they show it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    auth: Annotated[
        str,
        Field(
            description="Who may ask: auto (whoever has a key, a trusted gateway or a token; anyone on this machine "
            "while none of them is set up), off, or some of keys, gateway and jwt, separated by commas."
        ),
    ] = "auto"
    trusted_gateways: Annotated[
        str, Field(description="Addresses or networks, separated by commas, that may say in a header who is asking.")
    ] = ""
    gateway_user_header: Annotated[str, Field(description="The header in which they name the user.")] = (
        "x-authz-user-id"
    )
    gateway_project_header: Annotated[
        str, Field(description="The header in which they name the project; empty for none.")
    ] = ""
    jwt_jwks_url: Annotated[str, Field(description="Where the keys are published that sign users' tokens.")] = ""
    jwt_issuer: Annotated[str, Field(description="Who issues the tokens: their iss.")] = ""
    jwt_audience: Annotated[str, Field(description="For whom they are issued: their aud.")] = ""
    jwt_user_claim: Annotated[str, Field(description="The claim of a token that names the user.")] = "sub"
    jwt_project_claim: Annotated[
        str, Field(description="The claim of a token that names the project; empty for none.")
    ] = ""
    jwt_skew_s: Annotated[float, Field(ge=0, le=600, description="How far the clock of the issuer may be off.")] = (
        30.0
    )


class OperationSettings(BaseModel):
    """How the server is watched, what its processes share, and how much anyone may ask of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    access_log: Annotated[
        bool, Field(description="Whether the server logs a line for each request; never what is in it.")
    ] = True
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$", description="How much is logged.")] = (
        "info"
    )
    log_format: Annotated[
        Literal["text", "json"], Field(description="How the server's log is written: text, or a JSON object a line.")
    ] = "text"
    traces: Annotated[
        bool,
        Field(description="Make OpenTelemetry spans of recalling and remembering (an extra), without what was said."),
    ] = False
    traces_url: Annotated[
        str,
        Field(description="OTLP/HTTP address spans are sent to; empty for what this program has set up for them."),
    ] = ""

    redis_url: Annotated[
        str,
        Field(
            description="Address of a Redis (an extra) that server processes share: a cache in front of recall, "
            "limits and news of changes. Empty for none; while it is away, all goes on without."
        ),
    ] = ""
    redis_prefix: Annotated[
        str, Field(pattern="^[A-Za-z0-9._-]{1,64}$", description="How the names of all keys in that Redis begin.")
    ] = "recollect"
    redis_timeout_s: Annotated[float, Field(gt=0, le=10, description="Longest wait for Redis.")] = 0.1
    cache_ttl_s: Annotated[
        int, Field(ge=1, le=86_400, description="How long what was found or looked up stays in Redis.")
    ] = 300
    cache_from_ms: Annotated[
        float,
        Field(
            ge=0,
            description="Only what took this long to find is put there: what is found sooner is as soon found again.",
        ),
    ] = 10.0
    cache_lookups: Annotated[
        Literal["off", "lists", "all"],
        Field(
            description="Which lookups are put there, too, with what the memories say: none, lists and counts, or "
            "single memories as well. Of what was recalled or searched Redis holds no more than ids."
        ),
    ] = "lists"
    rate_limit_per_minute: Annotated[
        int,
        Field(
            ge=0,
            description="Most requests a minute to the server by one key, or by one address where there are no keys; "
            "then 429. 0 for any number.",
        ),
    ] = 0
    user_writes_per_minute: Annotated[
        int,
        Field(
            ge=0,
            description="Most messages and memories a minute that the server keeps for one user; then 429. "
            "0 for any number.",
        ),
    ] = 6000
    user_memories_most: Annotated[
        int,
        Field(
            ge=0,
            description="Most memories of one user that are kept, with what was said and what was forgotten but not "
            "erased; then nothing more is (429). 0 for any number.",
        ),
    ] = 1_000_000
    mirror: Annotated[
        str,
        Field(
            description="Folder in which the server mirrors memories as Markdown files, both ways, relative to "
            "`home`; empty for none."
        ),
    ] = ""
    mirror_git: Annotated[
        bool, Field(description="Version those files with git: a commit for each change, rewritten by an erasure.")
    ] = False


class HttpToolSettings(BaseModel):
    """A tool that is an HTTP request."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    description: Annotated[str, Field(min_length=1, description="What it is for, as the model is told.")]
    url: Annotated[str, Field(description="Address; {name} in its path or query stands for an argument.")]
    method: Annotated[Literal["GET", "POST", "PUT", "PATCH", "DELETE"], Field(description="The method.")] = "GET"
    parameters: Annotated[dict[str, Any], Field(description="JSON schema of each argument, by its name.")] = {}
    optional: Annotated[list[str], Field(description="Arguments that need not be given.")] = []
    headers: Annotated[dict[str, SecretStr], Field(description="Headers, such as one with a key.")] = {}


class McpSettings(BaseModel):
    """An MCP server whose tools the agent may use."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    command: Annotated[str, Field(description="Program that speaks MCP on its standard input and output.")] = ""
    args: Annotated[list[str], Field(description="Its arguments.")] = []
    env: Annotated[dict[str, SecretStr], Field(description="Variables of its environment.")] = {}
    url: Annotated[str, Field(description="Address of a server that speaks MCP over HTTP, instead.")] = ""


class AgentSettings(BaseModel):
    """How the agent reasons, what it may use, and what it does with memory."""

    agent_llm: Annotated[
        str, Field(description="Model of the agent, named as `llm` is; empty for the same. It may call tools.")
    ] = ""
    agent_tool_calls: Annotated[
        Literal["auto", "native", "text", "schema"],
        Field(
            description="How it calls tools: by the endpoint (native), in words (text), as JSON that the endpoint "
            "holds the model to (schema, for small local models), or auto: native, and text if that is refused."
        ),
    ] = "auto"
    agent_context: Annotated[
        str, Field(description="What the agent is told of itself and its work, in each run.")
    ] = ""
    agent_iterations: Annotated[int, Field(ge=1, le=1000, description="Most steps of a run.")] = 10
    agent_time_s: Annotated[float, Field(gt=0, le=86_400, description="Longest time of a run.")] = 120.0
    agent_tokens: Annotated[int, Field(ge=0, description="Most tokens of the LLM in a run; 0 for any number.")] = (
        100_000
    )
    agent_answer_tokens: Annotated[
        int, Field(ge=64, le=131_072, description="Most tokens of one answer of the LLM, thinking included.")
    ] = 2048
    agent_tool_s: Annotated[float, Field(gt=0, le=3600, description="Longest wait for a tool.")] = 30.0
    agent_working_tokens: Annotated[
        int,
        Field(
            ge=400,
            le=1_000_000,
            description="From so many tokens on, older steps in a run's working memory are summed up.",
        ),
    ] = 2000
    agent_working_most: Annotated[
        int,
        Field(
            ge=400,
            le=1_000_000,
            description="Most tokens of working memory: what a tool gives beyond its share of them is cut. Of a "
            "local model's window it takes half at most.",
        ),
    ] = 16_000
    agent_keep_steps: Annotated[
        int, Field(ge=1, le=20, description="How many of the last steps working memory keeps word for word.")
    ] = 3
    agent_facts: Annotated[int, Field(ge=0, le=100, description="How many facts a run begins with.")] = 5
    agent_episodes: Annotated[int, Field(ge=0, le=100, description="How many past episodes a run begins with.")] = 3
    agent_learn: Annotated[
        bool, Field(description="Learn facts from what was asked and answered, when a run ends.")
    ] = True
    agent_episodes_kept: Annotated[
        bool, Field(description="Keep an episode of each run that was a task, when it ends.")
    ] = True
    agent_memory_tools: Annotated[
        bool, Field(description="Whether runs with memory have tools to retrieve, store, correct and forget.")
    ] = True
    agent_tools: Annotated[
        dict[str, HttpToolSettings],
        BeforeValidator(parse_json),
        Field(description="HTTP requests as tools: tables of description, url, method, parameters, headers."),
    ] = {}
    agent_mcp: Annotated[
        dict[str, McpSettings],
        BeforeValidator(parse_json),
        Field(description="MCP servers as sources of tools (an extra): tables of command, args, env; or url."),
    ] = {}
    agent_groups: Annotated[
        dict[str, list[str]],
        BeforeValidator(parse_json),
        Field(
            description="Which tools each group of callers may use, * for any letters; `default` is for those who "
            "name none. Without any, all may use all."
        ),
    ] = {}
