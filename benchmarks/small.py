"""Run every benchmark on little data (`make bench-small`): its figures mean nothing, but a broken one fails.

`python -m benchmarks.small [NAME...]` runs some of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# The slowest first, because two run at a time.
OPTIONS = {
    "proxy": "--clients 2 --streams 4 --seconds 0.2 --rounds 1 --memories 5 --readers 5",
    "cache": "--memories 50 --questions 10",
    "run": "--sizes 50,100 --others 2 --other-memories 5 --questions 10 --turns 20 --jobs 10",
    "engines": "pgvector chroma-folder milvus-lite --sizes 50,100 --questions 6 --seconds 0.3",
    "scale": "--stores sqlite,pgvector --memories 1000 --users 12 --ordinary 2 --small 400 --questions 6 --adds 10",
    "services": "--users 3 --memories 10 --rate 20 --seconds 1 --questions 5",
    "hostile": "--seconds 0.3 --rounds 1 --megabytes 0.2",
    "mirror": "--files 30",
    "start": "--rounds 1",
    "peers": "recollect --here --folder build/small --sizes 50 --calls 2 --rounds 1 --clients 1,2 --seconds 0.2",
    "hooks": "--memories 50 --rounds 3 --warmup 3",
}
_TIMEOUT_S = 300


def run(name: str) -> bool:
    """Run one benchmark; print its output if it fails."""
    started = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", *OPTIONS[name].split()]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S
        )
        output, is_ok = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, is_ok = f"{error.output or ''}\nended after {_TIMEOUT_S} s", False
    print(f"benchmarks.{name} {'ok' if is_ok else 'FAILED'} in {time.monotonic() - started:.0f} s", flush=True)
    if not is_ok:
        print(" ".join(command), output, sep="\n", flush=True)
    return is_ok


def main() -> None:
    """Run the named benchmarks, or all, and repeat those that fail once, alone; exit with 1 if one fails again."""
    names = sys.argv[1:] or list(OPTIONS)
    if unknown := set(names) - set(OPTIONS):
        sys.exit(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
    with ThreadPoolExecutor(2) as threads:
        failed = [name for name, is_ok in zip(names, threads.map(run, names), strict=True) if not is_ok]
    if failed:
        print("Repeating failed benchmarks alone. Each that passes now is flaky and must be fixed:", flush=True)
    failed = [name for name in failed if not run(name)]
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
