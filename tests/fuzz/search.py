"""Search for inputs on which fuzz targets fail, guided by coverage.

Run it with `python -m tests.fuzz.search FOLDER SECONDS [TARGET]...`; the seconds are for each target. The folder gets
a corpus for each target, which later searches extend, and the inputs that failed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["recollect"]):
    from tests.fuzz.targets import TARGETS
from tests.fuzz.seeds import SEEDS


def search(folder: Path, name: str, seconds: int) -> bool:
    """Search in a child process, which the search ends; print the result, and return whether nothing failed."""
    corpus, log = folder / name, folder / f"{name}.log"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=4096"]
    child = os.fork()
    if not child:
        with log.open("wb") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        atheris.Setup([name, *limits, f"-artifact_prefix={folder}/{name}-", str(corpus)], TARGETS[name])
        atheris.Fuzz()
    _, status = os.waitpid(child, 0)
    text = log.read_text(errors="replace")
    covered, runs = re.findall(r"cov: (\d+)", text), re.findall(r"Done (\d+) runs", text)
    print(
        f"{name:20} {runs[-1] if runs else 'no end':>10} runs {covered[-1] if covered else '?':>6} branches",
        flush=True,
    )
    if status:
        print(text[-3000:], flush=True)
    return status == 0


if __name__ == "__main__":
    logging.disable()
    results = [search(Path(sys.argv[1]), name, int(sys.argv[2])) for name in sys.argv[3:] or TARGETS]
    sys.exit(0 if all(results) else 1)
