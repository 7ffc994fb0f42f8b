"""The process in which a local model runs: llama.cpp behind an OpenAI-compatible port that only its starter can use.

It is run as a file, so it imports nothing of ours. One line of JSON comes in, what to load; one goes out, where it
listens or why it does not. It ends with its starter: when its input is closed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from time import monotonic, sleep
from typing import IO, Any

# An error as llama.cpp logs it: a time, "E", what went wrong.
_ERROR = " E "
_MAX_THREADS = 8
_MAX_LOG_BYTES, _LOG_WAIT_S = 1 << 20, 2.0


def main() -> None:
    """Serve the model named in the first line of the input, until the input ends."""
    request = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryFile() as log:
        # What llama.cpp prints is for a person at a terminal, and no part of the answer.
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            server = _serve(request)
            response = {"url": server.listening_address}
        except Exception as error:
            response = {"error": _reason(log) or str(error)}
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
    print(json.dumps(response), file=answers, flush=True)
    while "url" in response and sys.stdin.read(1 << 16):
        pass
    # Without farewell: what is still being written has no reader any more, and would be waited for.
    os._exit(0)


def _serve(request: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = request["file"]
    params.model_alias = {request["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Whoever shares the machine can reach the port, and a web page in a browser too.
    params.api_keys = [request["key"]]
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_props = False
    params.endpoint_metrics = False
    # Learning goes on in one, a question of the moment is answered in the other.
    params.n_parallel = 2
    params.n_ctx = 2 * request["context_tokens"]
    threads = _threads()
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    # Old prompts are kept in memory for the next question only: there may be many users.
    params.cache_ram_mib = 0
    params.warmup = False
    params.enable_reasoning = 0
    params.verbosity = 1
    return xllamacpp.Server(params)


def _threads() -> int:
    """All cores but one, and no more than help a small model.

    Its threads wait for each other at every step: one that shares its core with somebody makes all of them slow,
    on a busy machine of two cores ten times.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MAX_THREADS, cores - 1))


def _reason(log: IO[bytes]) -> str:
    """Return the first logged error, which caused the later ones; the log is written with a delay."""
    until = monotonic() + _LOG_WAIT_S
    while True:
        # Whoever writes goes on where it was.
        text = os.pread(log.fileno(), _MAX_LOG_BYTES, 0).decode(errors="replace")
        whole = text[: text.rfind("\n") + 1].splitlines()
        message = next((line.partition(_ERROR)[2].strip() for line in whole if _ERROR in line), "")
        if message or monotonic() > until:
            return message[:300]
        sleep(0.01)


if __name__ == "__main__":
    main()
