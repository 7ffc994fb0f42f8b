"""What several doors take: names, texts, times and numbers, held against what OpenAPI says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recollect.errors import InvalidInput
from recollect.model.text import MAX_ID_CHARS, MAX_TEXT_BYTES, validate_id
from recollect.model.times import as_utc
from recollect.write.draft import validate_visible_text

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
# StepOutput out, because what \s means differs from one language to the next.
_WIDE = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# What nobody sees: spaces, controls, and marks that only change what stands beside them.
_BLANK = (
    rf"\x01-\x20\x7f-\x9f\u2028\u2029{_WIDE}\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
)
_VISIBLE = rf"[ {_WIDE}]*[^ {_WIDE}{_CONTROL}][^{_CONTROL}]*"
NAME_PATTERN = rf"^{_VISIBLE}$"
OPTIONAL_NAME_PATTERN = rf"^(?:{_VISIBLE})?$"
TEXT_PATTERN = rf"^[{_BLANK}]*[^{_BLANK}\x00][^\x00]*$"
NO_CONTROL = rf"^[^{_CONTROL}]*$"
NO_NUL = r"^[^\x00]*$"
# From the year 1 to the year 9999, as seconds since 1970.
FIRST_S, LAST_S = -62135596800, 253402300799
# What the checks call what they look at; who tells of it knows its real name.
SUBJECT = "it"


def _validate_with(check: Callable[..., object]) -> BeforeValidator:
    """Has a check of ours say what is wrong: in words, where a pattern would only be shown."""

    def validate(value: Any) -> Any:
        if isinstance(value, str):
            try:
                check(value, name=SUBJECT)
            except InvalidInput as error:
                message = str(error).removeprefix(f"{SUBJECT} ")
                raise PydanticCustomError(type(error).__name__, "{told}", {"told": message}) from None
        return value

    return BeforeValidator(validate)


def _coerce_integral(value: Any) -> Any:
    """In JSON 17.0 is as whole as 17."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


CHECKED_NAME = _validate_with(validate_id)
Name = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=OPTIONAL_NAME_PATTERN), CHECKED_NAME]
RequiredName = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=NAME_PATTERN), CHECKED_NAME]
Text = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=TEXT_PATTERN), _validate_with(validate_visible_text)]
FreeText = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=NO_NUL)]
UnitFloat = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_coerce_integral)]
TIME_FIELD = Field(max_length=64, json_schema_extra={"format": "date-time"})
Time = Annotated[str, TIME_FIELD, _validate_with(as_utc)]
Seconds = Annotated[float, Field(ge=FIRST_S, le=LAST_S)]
Embedding = Annotated[list[float], Field(min_length=1, max_length=16384)]
IntegralFloat = BeforeValidator(_coerce_integral)


class StrictModel(BaseModel):
    """What a caller sends: nothing that is not described, and nothing of another kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


def require_one_of(*names: str, kind: str = "string", **more: Any) -> list[dict[str, Any]]:
    """In a schema: one of these is there, and is not null."""
    return [{"required": [name], "properties": {name: {"type": kind, **more}}} for name in names]
