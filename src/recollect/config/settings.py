"""Load the settings from their layers. No other module reads the environment.

Later layers override earlier ones: defaults, preset, file, environment, command line (or arguments).
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from recollect.config.fields import Settings, suggest_setting
from recollect.config.name_mapping import FORMER_NAMES, translate, with_current_names
from recollect.config.presets import preset_names, read_preset
from recollect.config.settings_group import SecretStr
from recollect.errors import InvalidSettings
from recollect.frozen_dataclass import frozen_dataclass

__all__ = [
    "LoadedSettings",
    "SettingRow",
    "Settings",
    "ledger_path",
    "load",
    "preset_names",
    "read_preset",
    "rows",
    "suggest_setting",
    "variable_name",
]

_log = logging.getLogger("recollect")
PREFIX = "RECOLLECT_"
# Read by clients of a server, which load no settings: hooks and `recollect mcp`.
CLIENT_VARIABLES = frozenset({"RECOLLECT_API_KEY", "RECOLLECT_HOOK_TIMEOUT_S", "RECOLLECT_PROJECT", "RECOLLECT_URL"})
# Of an address: before the host, or as a parameter.
_PASSWORD = re.compile(r"((?<=://)[^/@:]*:)\S*(?=@)|((?<=[?&])password=)[^&\s]+")
LEDGER_FILE = "recollect.db"
FILE_NAMES = ("config.toml", "config.yaml", "config.yml")


@frozen_dataclass
class LoadedSettings:
    """The settings, and the source of each that is not a default."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)


@frozen_dataclass
class SettingRow:
    """A setting as text."""

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
) -> LoadedSettings:
    """Merge the layers; an InvalidSettings names the setting and its source."""
    from_arguments = with_current_names({k: value for k, value in (overrides or {}).items() if value is not None})
    from_environ = dict(_from_environ(os.environ if environ is None else environ))
    home = Path(from_arguments.get("home") or from_environ.get("home", ("", ""))[0] or Settings().home).expanduser()
    path = file or next((home / name for name in FILE_NAMES if (home / name).is_file()), None)
    from_file = with_current_names(_read_file(path)) if path else {}
    if "home" in from_file:
        raise InvalidSettings(f"home cannot be set in {path}, which is in that folder; use {variable_name('home')}")

    given: list[tuple[str, Mapping[str, Any]]] = [
        (f"file {path}", from_file),
        *((f"environment {source}", {name: value}) for name, (value, source) in from_environ.items()),
        ("command line", from_arguments),
    ]
    preset = next((layer["preset"] for _, layer in reversed(given) if "preset" in layer), "")
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if preset:
        layers.append((f"preset {preset}", read_preset(preset)))
    for source, layer in given:
        own, translated = translate(layer, preset, source)
        # In one source our own names override those of the preset's blocks.
        layers += [(f"{source}, {name}", values) for name, values in translated.items()]
        layers.append((source, own))
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        merged |= layer
        sources |= dict.fromkeys(layer, source)
    return LoadedSettings(Settings.model_validate(merged | {"home": home}, sources), sources)


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    former = {current: variable_name(name) for name, current in FORMER_NAMES.items()}
    variables = {*map(variable_name, Settings.model_fields), *former.values(), *CLIENT_VARIABLES}
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in variables:
            _log.warning("%s is not a setting; %s", variable, suggest_setting(variable, variables))
    for name, info in Settings.model_fields.items():
        for variable in (variable_name(name), former.get(name, ""), *info.aliases):
            if environ.get(variable):
                yield name, (environ[variable], variable)
                break


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        remedy = "name an existing settings file, or none to use the defaults"
        raise InvalidSettings(f"cannot read {path.absolute()}: {error.strerror}; {remedy}") from None
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return _parse(text, str(path), yaml=path.suffix in (".yaml", ".yml"))


def _parse(text: str, name: str, *, yaml: bool) -> dict[str, Any]:
    form, example = ("YAML", "port: 8100") if yaml else ("TOML", 'host = "127.0.0.1", with text in quotes')
    try:
        values = _parse_yaml(text) if yaml else tomllib.loads(text)
    except Exception as error:
        raise InvalidSettings(
            f"{name} is not valid {form}: {error}; a line is a setting, such as {example}"
        ) from None
    if not isinstance(values, dict):
        raise InvalidSettings(f"{name} must have names and values, such as {example}")
    return values


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text) or {}
    except yaml.MarkedYAMLError as error:
        # Without the text of the file, which is in the error and may have keys.
        found = ((error.context, error.context_mark), (error.problem, error.problem_mark))
        parts = [f"{what} (at line {at.line + 1}, column {at.column + 1})" for what, at in found if what and at]
        raise ValueError(", ".join(parts)) from None


def ledger_path(settings: Settings) -> Path:
    """Return the file of a SQLite ledger."""
    return Path(settings.database).expanduser() if settings.database else settings.home.expanduser() / LEDGER_FILE


def variable_name(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def rows(loaded: LoadedSettings) -> list[SettingRow]:
    """Return every setting for `config show` and docs/settings.md; secrets are masked."""
    return [
        SettingRow(
            name=name,
            value=_mask(getattr(loaded.settings, name)),
            default=_mask(info.default),
            variable=variable_name(name),
            source=loaded.sources.get(name, "default"),
            description=info.description,
        )
        for name, info in Settings.model_fields.items()
    ]


def _mask(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    return _PASSWORD.sub(r"\1\2********", str(value))
