"""Regular expressions that are compiled when they are first used.

The package has hundreds of them and a short command needs a few; compiling all took a tenth of its time.
"""

from __future__ import annotations

import re
from typing import Any, cast


class LazyPattern:
    """A pattern that is compiled with the first use of one of its methods."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        # Becomes an attribute, so that later calls do not come here.
        value = vars(self)[name] = getattr(re.compile(*self._source), name)
        return value


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return an object with the methods of a compiled pattern."""
    return cast("re.Pattern[str]", LazyPattern(pattern, flags))
