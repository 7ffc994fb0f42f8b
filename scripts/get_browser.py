"""Find Chromium, or install Debian's; without one, say so and fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.support.web_page import chromium


def main() -> int:
    """Return 0 if there is a browser now."""
    if chromium() or (can_install() and install()):
        return 0
    print(
        "No page was tested or shown: there is no Chromium, and it cannot be installed here: apt-get install chromium"
    )
    return 1


def can_install() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install() -> bool:
    """Return whether Chromium is there after an attempt to install it."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(command, env=environment, capture_output=True, check=False)
    return chromium() is not None


if __name__ == "__main__":
    sys.exit(main())
