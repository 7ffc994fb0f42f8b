"""What is wrong with an answer that cannot be read."""

from __future__ import annotations

import json


def describe_parse_error(error: Exception) -> str:
    """Why an answer could not be read, in words; what this package says itself stays as it says it."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return "it is not JSON"
    message = str(error)
    # Python's own words speak of the code that read the answer, not of the answer.
    return message if type(error) is ValueError and message else "it is JSON of another shape"
