"""Named defaults, one TOML file each; `preset = "NAME"` puts them below all other settings."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from recollect.errors import InvalidSettings


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    names = (file.name for file in Path(__file__).parent.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def read_preset(name: str) -> dict[str, Any]:
    """Return the values of a preset."""
    if name not in preset_names():
        raise InvalidSettings(f"there is no preset {name!r}; the presets are {', '.join(preset_names())}")
    return dict(_load_preset(name))


@cache
def _load_preset(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
