"""Generate docs/settings.md."""

from __future__ import annotations

from recollect.config.settings import LoadedSettings, Settings, preset_names, read_preset, rows

_HEAD = """# Settings

Each setting can be given in `config.toml` (or `config.yaml`) in the home folder, as an environment variable, or
on the command line; each of these overrides the ones before. `recollect config show` prints every value and its
source.

| setting | default | environment | meaning |
| --- | --- | --- | --- |
"""

_PRESETS = """
## Presets

`preset = "NAME"`, `RECOLLECT_PRESET=NAME` or `recollect --preset NAME` sets these defaults:

| preset | sets |
| --- | --- |
"""


def render_settings_page() -> str:
    """Return the page."""
    lines = [
        f"| `{row.name}` | {f'`{row.default}`' if row.default else ''} | `{row.variable}` | {row.description} |"
        for row in rows(LoadedSettings(Settings()))
    ]
    presets = [
        f"| `{name}` | {', '.join(f'`{key} = {value!r}`' for key, value in read_preset(name).items())} |"
        for name in preset_names()
    ]
    return _HEAD + "\n".join(lines) + "\n" + _PRESETS + "\n".join(presets) + "\n"
