"""The settings of the server, of authentication, of operation and of the agent."""

from typing import Any, Literal, TypeAlias

from recollect.config.settings_group import SecretStr, SettingsGroup, required_setting, setting

# Requests are forwarded to an endpoint with the Responses API, translated for others; auto detects it.
ResponsesMode: TypeAlias = Literal["auto", "native", "translate"]


class UpstreamSettings(SettingsGroup):
    """One of several endpoints that chats are sent to."""

    models: str = required_setting("Names of its models, with * as a wildcard, separated by commas.")
    url: str = required_setting("Base URL.")
    api_key: SecretStr = setting(SecretStr(""), "API key for it; empty to forward the client's own.")
    responses: ResponsesMode = setting("auto", "Whether it supports OpenAI's Responses API.")


class ServerSettings(SettingsGroup):
    """The settings of the server and its upstream."""

    upstream_url: str = setting(
        "",
        "Base URL of the OpenAI-compatible endpoint that chats are sent to, or local:FILE.gguf (an "
        "extra); empty for the built-in answers from memory, or, if a key is set, for OpenAI's.",
        aliases=("OPENAI_BASE_URL",),
    )
    upstream_api_key: SecretStr = setting(
        SecretStr(""), "API key for `upstream_url`; empty to forward the client's own.", aliases=("OPENAI_API_KEY",)
    )
    upstream_key: Literal["server", "client"] = setting(
        "server",
        "The key that an endpoint is sent if the server has one and the client sends one as well: the server's, or "
        "the client's.",
    )
    upstream_shared: bool = setting(
        False,
        "Whether clients of one user may access what the endpoint stores under the server's key, for "
        "all users: files, batches, vector stores, stored chats.",
    )
    upstream_responses: ResponsesMode = setting(
        "auto", "Whether the endpoint supports OpenAI's Responses API (native), or only chats (translate)."
    )
    learn_with_upstream: bool = setting(
        True,
        "Without an llm, learn with the chat's own model at its endpoint, if the server has a key for"
        " it or it is on the local network and needs none.",
    )
    learn_with_client_key: bool = setting(
        False,
        "Where learn_with_upstream lacks a key, learn from a user's chats with the key of the user's last chat, "
        "which is kept in memory only.",
    )
    upstreams: dict[str, UpstreamSettings] = setting(
        {}, "Further endpoints by the names of their models: tables of models, url and api_key."
    )
    upstream_connect_s: float = setting(10.0, "Timeout for connections to an endpoint.", gt=0, le=600)
    upstream_timeout_s: float = setting(
        600.0, "Maximum time without data from an endpoint, before and during its answer.", gt=0, le=86_400
    )
    chat_user: str = setting("default", "The user of chats that name none.", min_length=1)
    chat_memory_id: str = setting(
        "", "Conversation of chats that name none; empty to identify each by its beginning."
    )
    chat_memory_hits: bool = setting(
        False, "Add memory_hits to every answer that is not streamed; otherwise on request only."
    )

    chat_memory: bool = setting(True, "Whether chats may use memory; otherwise they are only forwarded.")
    chat_opt_in: bool = setting(
        False,
        "Use memory only in chats that ask for it: `memory_config.enabled` to recall, `memory_config.auto_store` to"
        " store as well, or the header X-Memory.",
    )

    memory_timeout_s: float = setting(
        0.3,
        "Maximum time that a chat waits for memory, to recall and to store turns; it then continues. Up to half of it"
        " is for rewriting the question with the LLM.",
        gt=0,
        le=60,
    )
    spill_mb: int = setting(
        256,
        "Maximum disk space in `home` for turns while the ledger is unavailable; 0 to drop them.",
        ge=0,
        le=1_048_576,
    )

    responses_days: float = setting(
        30.0, "Number of days that Responses and Conversations are kept after their last use.", gt=0, le=36_500
    )

    host: str = setting("127.0.0.1", "Address the server listens on.", min_length=1)
    port: int = setting(8100, "Port of the server; 0 for any free one.", ge=0, le=65_535)
    server_processes: int = setting(1, "Number of server processes; each opens the ledger.", ge=1, le=256)
    ssl_certfile: str = setting("", "Certificate chain for https, in PEM; empty for http.")
    ssl_keyfile: str = setting("", "Private key of the certificate, in PEM; empty if it is in the same file.")
    ssl_keyfile_password: SecretStr = setting(SecretStr(""), "Password of the private key, if any.")
    allowed_hosts: str = setting(
        "",
        "Host names the server answers to in addition to those of this machine, separated by commas; "
        "*.example.org matches its subdomains, * any. Requests for other names are rejected; on an "
        "address reachable from other machines, empty allows any.",
    )
    base_path: str = setting(
        "",
        "Path below which a reverse proxy serves the server, such as /memory, if it removes the path from requests. "
        "A trusted gateway may name it in X-Forwarded-Prefix instead.",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
    )
    max_body_mb: int = setting(
        32, "Maximum size of a request in MiB; files that are only forwarded may be larger.", ge=1, le=1024
    )
    header_timeout_s: float = setting(
        20.0, "Maximum time for a client to send the headers of a request.", gt=0, le=3600
    )
    body_timeout_s: float = setting(
        60.0,
        "Maximum time without data while a client sends the body of a request; a slow upload may take longer in all.",
        gt=0,
        le=86_400,
    )
    send_timeout_s: float = setting(
        300.0, "Maximum time that a client may read nothing of an answer that waits for it.", gt=0, le=86_400
    )
    keep_alive_s: int = setting(65, "Time that a connection without a request is kept open.", ge=1, le=3600)
    max_connections: int = setting(
        4096,
        "Maximum number of open connections of a server process, and fewer if it may not open that many files. If "
        "there are more, the one that has waited longest for its client is closed.",
        ge=8,
        le=1_000_000,
    )
    max_connections_per_address: int = setting(
        0,
        "The same for one address, except for trusted_gateways; 0 for half of max_connections.",
        ge=0,
        le=1_000_000,
    )
    shutdown_timeout_s: int = setting(30, "Time for running requests to end when the server stops.", ge=1, le=3600)


class McpServerSettings(SettingsGroup):
    """The settings of the MCP server."""

    mcp: bool = setting(True, "Whether the server answers MCP clients at /mcp and /mcp/{project} (an extra).")
    mcp_tools: str = setting(
        "",
        "Groups of MCP tools in addition to recall, show, remember, forget and undo, separated by commas: history, "
        "sessions, stats, reviews, and chatgpt for search and fetch.",
    )
    mcp_url: str = setting(
        "",
        "Public address of /mcp that OAuth clients are told, such as https://memory.example.org/mcp; empty for that "
        "of the request.",
        pattern="^(https?://.+)?$",
    )


class AuthSettings(SettingsGroup):
    """The settings of authentication."""

    auth: str = setting(
        "auto",
        "Authentication: auto (an API key, a trusted gateway or a token; anyone on this machine if "
        "none is configured), off, or any of keys, gateway and jwt, separated by commas.",
    )
    allow_anonymous_proxy: bool = setting(
        False,
        "While no authentication is configured, serve requests that came through a reverse proxy, as the owner's; "
        "otherwise they are refused.",
    )
    trusted_gateways: str = setting(
        "", "Addresses or networks, separated by commas, that may name the user in a header."
    )
    gateway_user_header: str = setting("x-authz-user-id", "Header in which a gateway names the user.")
    gateway_project_header: str = setting("", "Header in which a gateway names the project; empty for none.")
    jwt_jwks_url: str = setting("", "Address of the JWKS with the keys that sign users' tokens.")
    jwt_issuer: str = setting("", "Issuer (iss) of the tokens.")
    jwt_audience: str = setting("", "Audience (aud) of the tokens.")
    jwt_user_claim: str = setting("sub", "Claim of a token that names the user.")
    jwt_project_claim: str = setting("", "Claim of a token that names the project; empty for none.")
    jwt_skew_s: float = setting(30.0, "Allowed clock skew of the issuer.", ge=0, le=600)


class OperationSettings(SettingsGroup):
    """The settings of logging, tracing, Redis, limits and the mirror."""

    access_log: bool = setting(True, "Whether the server logs each request, without its content.")
    log_level: str = setting("info", "Log level.", pattern="^(debug|info|warning|error)$")
    log_format: Literal["text", "json"] = setting("text", "Log format of the server: text, or a JSON object a line.")
    recall_log: int = setting(
        200,
        "Number of recalls that each process keeps in memory for GET /recollect/v1/recalls, at most 50 of a user; "
        "0 for none.",
        ge=0,
        le=10_000,
    )
    traces: bool = setting(False, "Create OpenTelemetry spans of recall and remember (an extra), without content.")
    traces_url: str = setting("", "OTLP/HTTP address for spans; empty for the tracer provider of the program.")

    redis_url: str = setting(
        "",
        "Address of a Redis (an extra) that server processes share for a recall cache, rate limits "
        "and change notifications. Empty for none; without a connection, everything works uncached.",
    )
    redis_prefix: str = setting("recollect", "Prefix of all keys in Redis.", pattern="^[A-Za-z0-9._-]{1,64}$")
    redis_timeout_s: float = setting(0.1, "Timeout of Redis.", gt=0, le=10)
    cache_ttl_s: int = setting(300, "Lifetime of entries in Redis.", ge=1, le=86_400)
    cache_min_ms: float = setting(10.0, "Cache only results slower than this many milliseconds.", ge=0)
    cache_lookups: Literal["off", "lists", "all"] = setting(
        "lists",
        "Lookups that are cached with the content of the memories: none, lists and counts, or single "
        "memories as well. For recalls and searches only ids are cached.",
    )
    rate_limit_per_minute: int = setting(
        0,
        "Maximum number of requests a minute by one key, or by one address without keys; then 429. 0 for no limit.",
        ge=0,
    )
    user_writes_per_minute: int = setting(
        6000,
        "Maximum number of messages and memories a minute that are stored for a user; then 429. 0 for no limit.",
        ge=0,
    )
    user_max_records: int = setting(
        1_000_000,
        "Maximum number of records of a user, including turns and forgotten memories; then 429. 0 for no limit.",
        ge=0,
    )
    mirror: str = setting(
        "",
        "Folder in which the server mirrors memories as Markdown files, in both directions, relative "
        "to `home`; empty for none.",
    )
    mirror_git: bool = setting(
        False, "Version the mirrored files with git: a commit for each change, rewritten by an erasure."
    )


class HttpToolSettings(SettingsGroup):
    """A tool that is an HTTP request."""

    description: str = required_setting("Description for the model.", min_length=1)
    url: str = required_setting("Address; {name} in its path or query is replaced by an argument.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = setting("GET", "The method.")
    parameters: dict[str, Any] = setting({}, "JSON schema of each argument, by its name.")
    optional: list[str] = setting([], "Optional arguments.")
    headers: dict[str, SecretStr] = setting({}, "Headers, such as one with a key.")


class McpSettings(SettingsGroup):
    """An MCP server whose tools the agent may use."""

    command: str = setting("", "Program with an MCP server on standard input and output.")
    args: list[str] = setting([], "Its arguments.")
    env: dict[str, SecretStr] = setting({}, "Its environment variables.")
    url: str = setting("", "Address of an MCP server over HTTP, instead of a command.")


class AgentSettings(SettingsGroup):
    """The settings of the agent."""

    agent_llm: str = setting("", "Model of the agent, in the form of `llm`; empty for the same.")
    agent_tool_calls: Literal["auto", "native", "text", "schema"] = setting(
        "auto",
        "How the agent calls tools: by the endpoint (native), in text, as JSON that the endpoint "
        "enforces (schema, for small local models), or auto: native, and text if that is rejected.",
    )
    agent_context: str = setting("", "Description of the agent and its work, for each run.")
    agent_iterations: int = setting(10, "Maximum number of steps of a run.", ge=1, le=1000)
    agent_time_s: float = setting(120.0, "Time limit of a run.", gt=0, le=86_400)
    agent_tokens: int = setting(100_000, "Maximum number of LLM tokens of a run; 0 for no limit.", ge=0)
    agent_answer_tokens: int = setting(
        2048, "Maximum number of tokens of an answer of the LLM, including its reasoning.", ge=64, le=131_072
    )
    agent_tool_s: float = setting(30.0, "Timeout of a tool.", gt=0, le=3600)
    agent_working_tokens: int = setting(
        2000, "Size of the working memory, in tokens, above which older steps are summarized.", ge=400, le=1_000_000
    )
    agent_working_max_tokens: int = setting(
        16_000,
        "Maximum number of tokens of the working memory; longer tool results are cut. At most half of"
        " a local model's context window.",
        ge=400,
        le=1_000_000,
    )
    agent_keep_steps: int = setting(3, "Number of last steps that are never summarized.", ge=1, le=20)
    agent_facts: int = setting(5, "Number of facts that a run begins with.", ge=0, le=100)
    agent_episodes: int = setting(3, "Number of past episodes that a run begins with.", ge=0, le=100)
    agent_learn: bool = setting(True, "Learn facts from the question and the answer when a run ends.")
    agent_store_episodes: bool = setting(True, "Store an episode of each run that was a task when it ends.")
    agent_memory_tools: bool = setting(
        True, "Whether runs with memory have tools to retrieve, store, correct and forget."
    )
    agent_tools: dict[str, HttpToolSettings] = setting(
        {}, "HTTP requests as tools: tables of description, url, method, parameters, headers."
    )
    agent_mcp: dict[str, McpSettings] = setting(
        {}, "MCP servers as sources of tools (an extra): tables of command, args, env; or url."
    )
    agent_groups: dict[str, list[str]] = setting(
        {},
        "Tools that each group of callers may use, with * as a wildcard; `default` is for callers "
        "without a group. If empty, all may use all.",
    )
