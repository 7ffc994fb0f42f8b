"""Keep secrets out of the log, whoever wrote the line: the last net, not the first."""

from __future__ import annotations

import logging

from recollect.write.screening.redact import redact


class RedactingLogFilter(logging.Filter):
    """Lets every line pass, redacted, its traceback with it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if redact(record.getMessage()).kinds:
            if isinstance(record.args, tuple):
                # The server's own format takes its arguments apart.
                record.args = tuple(redact(each).text if isinstance(each, str) else each for each in record.args)
            if (clean := redact(record.getMessage())).kinds:
                record.msg, record.args = clean.text, ()
        if record.exc_info and (trace := redact(logging.Formatter().formatException(record.exc_info))).kinds:
            record.exc_info, record.exc_text = None, trace.text
        return True


def install_log_filter() -> None:
    """Have all lines of this package, and of the server it runs in, redacted from now on."""
    for name in ("recollect", "uvicorn.error", "uvicorn.access"):
        log = logging.getLogger(name)
        if not any(isinstance(each, RedactingLogFilter) for each in log.filters):
            log.addFilter(RedactingLogFilter())
