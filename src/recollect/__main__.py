"""`recollect` and `python -m recollect`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line; a hook without importing the other commands, because a coding agent waits for it."""
    if sys.argv[1:2] == ["hook"] and not {"-h", "--help"}.intersection(sys.argv):
        from recollect.coding.hook import main as run_hook

        run_hook(sys.argv[2:], os.environ)
    # Imports make many objects that stay: looking for garbage among them takes a tenth of a short command.
    gc.set_threshold(100_000)
    from recollect.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
