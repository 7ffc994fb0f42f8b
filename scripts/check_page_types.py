"""Check the types in the web page's scripts with TypeScript, which is installed into build/page-types.

Where no package registry can be reached it says so and succeeds, because nothing was found to be wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scripts.node import node_and_npm, npm_install

ROOT = Path(__file__).parent.parent
PROJECT = ROOT / "src" / "recollect" / "http" / "page" / "tsconfig.json"
TARGET = ROOT / "build" / "page-types"
PACKAGE = TARGET / "node_modules" / "typescript"
VERSION = "7.0.2"


def main() -> int:
    """Return the status of the check."""
    try:
        node = install()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"The types of the web page were NOT checked: TypeScript cannot be installed ({error}).")
        return 0
    return subprocess.run(
        [*node, str(PACKAGE / "bin" / "tsc"), "--noEmit", "-p", str(PROJECT)], check=False
    ).returncode


def install() -> list[str]:
    """Install TypeScript unless it is there; return the command of Node."""
    TARGET.mkdir(parents=True, exist_ok=True)
    node, npm = node_and_npm(TARGET / "venv")
    manifest = PACKAGE / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text(encoding="utf-8"))["version"] != VERSION:
        # Otherwise npm installs into a folder above that has one.
        (TARGET / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        npm_install(npm, TARGET, f"typescript@{VERSION}", "--fetch-retries=1", "--fetch-timeout=60000")
    return node


if __name__ == "__main__":
    sys.exit(main())
