"""Types of request parameters and fields: names, texts, times and numbers, with checks that explain what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recollect.errors import InvalidInput
from recollect.model.text import MAX_ID_CHARS, MAX_TEXT_BYTES, validate_id, validate_visible_text
from recollect.model.times import as_utc

# Query parameters that name an owner, and those that name a part of its memories; the headers that name a part.
OWNER_PARAMS = ("user_id", "user", "agent_id", "app_id", "run_id")
SCOPE_PARAMS = (*OWNER_PARAMS, "project_id", "session_id")
SCOPE_HEADERS = ("X-Memory-Project", "X-Memory-Session")


def decode_header(value: bytes) -> str:
    """Decode a header: most clients write UTF-8, although the framework reads Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def redecode_header(value: Any) -> Any:
    """Decode a header that the framework read as Latin-1."""
    if not isinstance(value, str) or value.isascii():
        return value
    return decode_header(value.encode("latin-1", "replace"))


DecodedHeader = BeforeValidator(redecode_header)

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
# Written out, because \s differs between languages.
_WIDE = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# Invisible characters: spaces, controls, and marks that only change their neighbours.
_BLANK = (
    rf"\x01-\x20\x7f-\x9f\u2028\u2029{_WIDE}\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
)
_VISIBLE = rf"[ {_WIDE}]*[^ {_WIDE}{_CONTROL}][^{_CONTROL}]*"
NAME_PATTERN = rf"^{_VISIBLE}$"
OPTIONAL_NAME_PATTERN = rf"^(?:{_VISIBLE})?$"
VISIBLE_PATTERN = rf"[^{_BLANK}\x00]"
TEXT_PATTERN = rf"^[{_BLANK}]*[^{_BLANK}\x00][^\x00]*$"
NO_CONTROL = rf"^[^{_CONTROL}]*$"
NO_NUL = r"^[^\x00]*$"
CURSOR_PATTERN = r"^[A-Za-z0-9_-]+$"
POSITION_PATTERN = r"^[0-9]{1,15}(-[0-9]{1,15})?$"
IDEMPOTENCY_KEY_PATTERN = r"^[!-~]([ -~]*[!-~])?$"
# What to do about a value that does not match; values of the others are empty or have a control character.
PATTERN_REMEDIES = {
    CURSOR_PATTERN: "is not a cursor; send the one of the previous page, or leave it out",
    POSITION_PATTERN: "is not a position; send the digits of one, such as 17, or leave it out",
    IDEMPOTENCY_KEY_PATTERN: "may have printable ASCII characters only, and no space at its ends; a UUID will do",
}
# The years 1 to 9999, in seconds since 1970.
FIRST_S, LAST_S = -62135596800, 253402300799
_SUBJECT = "it"


def _validate_with(check: Callable[..., object]) -> BeforeValidator:
    """Report what a check of ours says, which is clearer than the pattern that did not match."""

    def validate(value: Any) -> Any:
        if isinstance(value, str):
            try:
                check(value, name=_SUBJECT)
            except InvalidInput as error:
                message = str(error).removeprefix(f"{_SUBJECT} ")
                raise PydanticCustomError(type(error).__name__, "{message}", {"message": message}) from None
        return value

    return BeforeValidator(validate)


def _coerce_integral(value: Any) -> Any:
    """Turn 17.0 into 17: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


CHECKED_NAME = _validate_with(validate_id)
IntegralFloat = BeforeValidator(_coerce_integral)
Name = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
RequiredName = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=NAME_PATTERN), CHECKED_NAME]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS, pattern=NO_CONTROL)]
Label = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=NO_CONTROL)]
Text = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=TEXT_PATTERN), _validate_with(validate_visible_text)]
FreeText = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=NO_NUL)]
UnitFloat = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1000), IntegralFloat]
Time = Annotated[
    str,
    Field(max_length=64, description="ISO 8601; UTC without a zone.", json_schema_extra={"format": "date-time"}),
    _validate_with(as_utc),
]
Seconds = Annotated[float, Field(ge=FIRST_S, le=LAST_S)]
Embedding = Annotated[
    list[float], Field(min_length=1, max_length=16384, description="A vector of the embedding model in use.")
]


class StrictModel(BaseModel):
    """A request body: unknown fields and values of another type are rejected; its schema is built with its route."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ResponseModel(BaseModel):
    """A response body; its schema is built with the first response that has it."""

    model_config = ConfigDict(defer_build=True)


def example(**fields: Any) -> ConfigDict:
    """Return the configuration of a request body with an example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})
