"""The settings of how a server is watched, and of what its processes share: declared once, typed, bounded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


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
