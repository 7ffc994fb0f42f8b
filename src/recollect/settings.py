"""Every setting, declared once: typed, bounded, described. Nothing else reads the environment.

Later layers win: defaults, preset, file, environment, command line (or arguments).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from recollect.errors import InvalidSettings

PREFIX = "RECOLLECT_"
# In an address: before the host, or as a parameter.
_PASSWORD = re.compile(r"((?<=://)[^/@:]*:)\S*(?=@)|((?<=[?&])password=)[^&\s]+")
FILE_NAMES = ("config.toml", "config.yaml", "config.yml")


def _also(*names: str) -> Any:
    """Environment variables other tools use for the same thing; ours wins over them."""
    return {"also": names}


class Settings(BaseModel):
    """How Recollect is set up."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Annotated[Path, Field(description="Folder of the ledger and of config.toml.")] = Path("~/.recollect")
    preset: Annotated[str, Field(description="Named defaults; see below. Empty for Recollect's own.")] = ""
    database: Annotated[
        str,
        Field(description="Where the ledger is: empty for a file in `home`, a postgresql:// address, or memory:."),
    ] = ""

    embedder: Annotated[
        str,
        Field(
            description="What makes vectors: bundled, openai:MODEL, model2vec:NAME, "
            "sentence-transformers:NAME, fastembed:NAME or neural (an extra)."
        ),
    ] = "bundled"
    embedder_url: Annotated[
        str,
        Field(description="Base URL of an OpenAI-compatible endpoint.", json_schema_extra=_also("OPENAI_BASE_URL")),
    ] = "https://api.openai.com/v1"
    embedder_api_key: Annotated[
        SecretStr, Field(description="Key for that endpoint.", json_schema_extra=_also("OPENAI_API_KEY"))
    ] = SecretStr("")
    embedder_dimensions: Annotated[
        int, Field(ge=0, le=16_384, description="Ask the endpoint for vectors of this size; 0 for its own.")
    ] = 0
    embedder_timeout_s: Annotated[float, Field(gt=0, le=600, description="Longest wait for vectors.")] = 30.0
    embedding_cache_mb: Annotated[
        int, Field(ge=0, le=65_536, description="Memory for vectors of texts seen lately; 0 for none.")
    ] = 32

    index_memory_mb: Annotated[
        int, Field(ge=16, le=1_048_576, description="Memory for users' vectors; the least used leave first.")
    ] = 1024
    search_limit: Annotated[int, Field(ge=1, le=1000, description="Hits of a search that names no limit.")] = 10
    search_min_score: Annotated[
        float, Field(ge=0, le=1, description="What is less relevant than this is left out, from 0 to 1.")
    ] = 0.15
    search_elbow: Annotated[
        bool, Field(description="Also cut a search off where the scores fall steeply after the first hits.")
    ] = False
    fusion: Annotated[
        Literal["learned", "rrf", "weights"],
        Field(description="How signals become one score: the learned blend, reciprocal ranks, or plain weights."),
    ] = "learned"
    recency_weight: Annotated[float, Field(ge=0, le=1, description="How much being recent counts, from 0 to 1.")] = (
        0.2
    )
    recency_adds: Annotated[
        bool,
        Field(
            description="Whether being recent adds to the score by itself; else an old memory loses up to "
            "recency_weight of its relevance, and a recent one that hardly fits gains nothing."
        ),
    ] = False
    recency_days: Annotated[
        float, Field(gt=0, le=36_500, description="Age at which being recent has fallen to 37 %.")
    ] = 30.0
    importance_weight: Annotated[
        float, Field(ge=0, le=1, description="How much of the score is for being important, from 0 to 1.")
    ] = 0.0
    access_weight: Annotated[
        float, Field(ge=0, le=1, description="How much of the score is for having been recalled often, from 0 to 1.")
    ] = 0.0
    diversity: Annotated[
        float,
        Field(ge=0, le=1, description="Relevance against variety when hits are chosen: 1 is relevance alone."),
    ] = 0.7
    hits_per_source: Annotated[
        int, Field(ge=1, le=1000, description="Most hits that may stem from one and the same turn.")
    ] = 2

    recall_decide: Annotated[
        bool, Field(description="Let recall skip greetings, general knowledge and tool requests.")
    ] = True
    recall_timeout_s: Annotated[
        float, Field(gt=0, le=600, description="Longest a recall may take; then the chat goes on without memories.")
    ] = 5.0
    recall_facts: Annotated[
        int, Field(ge=0, le=1000, description="Most keyed facts that recall gives whatever the question.")
    ] = 20
    recall_facts_importance: Annotated[
        float, Field(ge=0, le=1, description="Least importance of the keyed facts that are always given.")
    ] = 0.5
    time_words: Annotated[
        Literal["prefer", "filter", "off"],
        Field(description='What "last March" in a question does: prefer what happened then, ask for it, or nothing.'),
    ] = "prefer"
    rewrite: Annotated[
        Literal["auto", "off", "terms", "llm", "hyde"],
        Field(
            description="How a vague question is completed: by terms of the last messages, by the LLM, by an answer "
            "the LLM imagines (hyde), or auto: terms first, the LLM where there is one and the question stays vague."
        ),
    ] = "auto"
    rewrite_timeout_s: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for a rewrite; then the words are used as they are.")
    ] = 2.0
    context_tokens: Annotated[
        int, Field(ge=256, le=1_000_000, description="Most tokens of memories that recall puts into a prompt.")
    ] = 2048
    context_format: Annotated[
        Literal["recollect", "semantic-router", "react-mem", "session-service", "markdown-proxy", "three-tier"],
        Field(description="How memories are written into a prompt."),
    ] = "recollect"
    context_place: Annotated[
        Literal["before-question", "system", "question"],
        Field(
            description="Where they go: a message before the last user message, the system message, "
            "or the last user message itself."
        ),
    ] = "before-question"
    context_summary: Annotated[
        bool, Field(description="Whether the summary of the conversation so far goes into the prompt, too.")
    ] = False
    recall_withhold: Annotated[
        str,
        Field(description="Tags, separated by commas: memories that carry one are never put into a prompt."),
    ] = ""

    llm: Annotated[
        str, Field(description="Model for rewriting questions and learning from chats; empty for none.")
    ] = ""
    llm_url: Annotated[
        str,
        Field(description="Base URL of its OpenAI-compatible endpoint.", json_schema_extra=_also("OPENAI_BASE_URL")),
    ] = "https://api.openai.com/v1"
    llm_api_key: Annotated[
        SecretStr, Field(description="Key for that endpoint.", json_schema_extra=_also("OPENAI_API_KEY"))
    ] = SecretStr("")
    llm_timeout_s: Annotated[float, Field(gt=0, le=600, description="Longest wait for an answer of the LLM.")] = 60.0

    reranker: Annotated[
        str,
        Field(
            description="What looks at the best candidates again: none, neural (an extra), "
            "sentence-transformers:NAME, fastembed:NAME or http:MODEL."
        ),
    ] = "none"
    reranker_url: Annotated[
        str, Field(description="Address of an HTTP reranker, in the shape of Cohere, Jina or TEI.")
    ] = ""
    reranker_api_key: Annotated[SecretStr, Field(description="Key for it.")] = SecretStr("")
    rerank_candidates: Annotated[
        int, Field(ge=1, le=200, description="How many of the best candidates are reranked.")
    ] = 30
    rerank_timeout_s: Annotated[
        float, Field(gt=0, le=60, description="Longest wait for the reranker; then its opinion is done without.")
    ] = 2.0

    host: Annotated[str, Field(min_length=1, description="Address the server listens on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="Port of the server; 0 for any free one.")] = 8100
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$", description="How much is logged.")] = (
        "info"
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and where each that is not a default came from."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as a person reads it."""

    name: str
    value: str
    default: str
    variable: str
    source: str
    description: str


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Put the layers together; a mistake in any of them is an InvalidSettings that names it."""
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    from_environ = dict(_from_environ(os.environ if environ is None else environ))
    home = Path(given.get("home") or from_environ.get("home", ("", ""))[0] or Settings().home).expanduser()
    path = file or next((home / name for name in FILE_NAMES if (home / name).is_file()), None)
    from_file = _read_file(path) if path else {}
    if "home" in from_file:
        raise InvalidSettings(f"home cannot be set in {path}, which is looked for there; use {variable_of('home')}")

    layers: list[tuple[str, Mapping[str, Any]]] = [
        (f"file {path}", from_file),
        *((f"environment {source}", {name: value}) for name, (value, source) in from_environ.items()),
        ("command line", given),
    ]
    preset = next((layer["preset"] for _, layer in reversed(layers) if "preset" in layer), "")
    if preset:
        layers.insert(0, (f"preset {preset}", read_preset(preset)))
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        merged |= layer
        sources |= dict.fromkeys(layer, source)
    return Loaded(_validated(merged | {"home": home}, sources), sources)


def _validated(merged: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            problem = f"there is no setting {name!r}; `recollect config show` lists them"
        else:
            problem = f"{name}: {first['msg']}"
        raise InvalidSettings(f"{problem} (from {sources.get(name, 'arguments')})") from None


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, info in Settings.model_fields.items():
        also = info.json_schema_extra.get("also", ()) if isinstance(info.json_schema_extra, dict) else ()
        for variable in (variable_of(name), *also):  # type: ignore[misc]
            if environ.get(str(variable)):
                yield name, (environ[str(variable)], str(variable))
                break


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"cannot read {path}: {error}") from None
    return _parse(text, str(path), yaml=path.suffix in (".yaml", ".yml"))


def _parse(text: str, name: str, *, yaml: bool) -> dict[str, Any]:
    try:
        if yaml:
            import yaml as pyyaml

            values = pyyaml.safe_load(text) or {}
        else:
            values = tomllib.loads(text)
    except Exception as error:
        raise InvalidSettings(f"{name} is not well-formed: {error}") from None
    if not isinstance(values, dict):
        raise InvalidSettings(f"{name} must hold names and values, such as port = 8100")
    return values


@cache
def preset_names() -> tuple[str, ...]:
    """The presets that ship with Recollect."""
    found = (file.name for file in files("recollect.presets").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def read_preset(name: str) -> dict[str, Any]:
    """The values of a preset."""
    if name not in preset_names():
        raise InvalidSettings(f"there is no preset {name!r}; the presets are {', '.join(preset_names())}")
    text = (files("recollect.presets") / f"{name}.toml").read_text(encoding="utf-8")
    return _parse(text, f"preset {name}", yaml=False)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def rows(loaded: Loaded) -> list[SettingRow]:
    """Every setting as `config show` and docs/settings.md print it; secrets are masked."""
    return [
        SettingRow(
            name=name,
            value=_shown(getattr(loaded.settings, name)),
            default=_shown(info.default),
            variable=variable_of(name),
            source=loaded.sources.get(name, "default"),
            description=info.description or "",
        )
        for name, info in Settings.model_fields.items()
    ]


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    return _PASSWORD.sub(r"\1\2********", str(value))
