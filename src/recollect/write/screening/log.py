"""Keep secrets out of the log, whoever wrote the line: the last net, not the first."""

from __future__ import annotations

import logging

from recollect.write.screening.redact import redact


class WithoutSecrets(logging.Filter):
    """Lets every line pass, redacted, its traceback with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (clean := redact(message)).found:
            record.msg, record.args = clean.text, ()
        if record.exc_info and (trace := redact(logging.Formatter().formatException(record.exc_info))).found:
            record.exc_info, record.exc_text = None, trace.text
        return True


def guard_log() -> None:
    """Have all lines of this package redacted from now on."""
    log = logging.getLogger("recollect")
    if not any(isinstance(each, WithoutSecrets) for each in log.filters):
        log.addFilter(WithoutSecrets())
