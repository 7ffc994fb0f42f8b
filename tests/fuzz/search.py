"""Search for inputs on which a fuzz target fails, guided by coverage: python -m tests.fuzz.search TARGET"""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["recollect", "tests.fuzz"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    logging.disable()
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
