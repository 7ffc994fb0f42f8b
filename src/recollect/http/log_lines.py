"""How the server's log is written: text for people, or one JSON object a line for programs.

In both nothing that is logged can begin a line of its own; only a traceback, in text, has several.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from recollect.observe.request import request_id

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TextFormatter(logging.Formatter):
    """Time, level and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _CONTROL.sub(_escape_match, record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, the id of the request, and what the line is about, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if id := request_id.get():
            fields["request_id"] = id
        fields |= getattr(record, "told", {})
        if record.exc_info:
            fields["traceback"] = record.exc_text or self.formatException(record.exc_info)
        elif record.exc_text:
            fields["traceback"] = record.exc_text
        return json.dumps(fields, default=str)


def _escape_match(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
