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
from typing import Annotated, Any

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
            "sentence-transformers:NAME or fastembed:NAME."
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
        float, Field(ge=0, le=1, description="Hits below this score are left out, from 0 to 1.")
    ] = 0.0

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
