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
