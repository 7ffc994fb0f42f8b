"""The settings of the agent, declared once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from recollect.settings_server import parse_json


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
