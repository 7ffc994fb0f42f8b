"""Every route with its cases. A new route needs a line in CASES, or in EXEMPT if it tells nothing about anyone.

How a case is written is told in `isolation_call.py`; those of our own API are in `isolation_own.py`, those of the
other doors in `isolation_doors.py`, those of OpenAI's API in `isolation_openai.py`.
"""

from __future__ import annotations

from isolation_call import Call, Cases
from isolation_doors import COMPAT
from isolation_openai import OPENAI
from isolation_own import OWN

CASES: Cases = {
    **OWN,
    **COMPAT,
    **OPENAI,
    # Whoever has a key may read the numbers of the server; nobody's name or words are among them.
    "GET /metrics": [Call(answers=(200,))],
    "HEAD /metrics": [Call(answers=(200,))],
}

EXEMPT: dict[str, str] = {
    "GET /live": "only says that the process is there",
    "GET /health": "tells how the server is set up",
    "GET /ready": "tells whether the ledger answers",
    "GET /version": "tells what runs here",
    **{f"HEAD /{path}": "tells less than GET does" for path in ("live", "health", "ready", "version")},
    "GET /openapi.json": "describes the routes",
    "GET /docs": "shows that description",
    "GET /docs/start.js": "is a part of that page",
    "GET /docs/swagger-ui-bundle.js": "is a part of that page",
    "GET /docs/swagger-ui.css": "is a part of that page",
}
