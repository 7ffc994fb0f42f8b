"""What several doors take: names, texts, times and numbers, held against what OpenAPI says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recollect.errors import InvalidInput
from recollect.model.text import MAX_ID_CHARS, MAX_TEXT_BYTES, checked_id
from recollect.model.times import as_utc
from recollect.write.draft import visible_text

_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
# Written out, because what \s means differs from one language to the next.
_WIDE = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# What nobody sees: spaces, controls, and marks that only change what stands beside them.
_BLANK = (
    rf"\x01-\x20\x7f-\x9f\u2028\u2029{_WIDE}\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
)
_VISIBLE = rf"[ {_WIDE}]*[^ {_WIDE}{_CONTROL}][^{_CONTROL}]*"
NAME = rf"^{_VISIBLE}$"
NAME_OR_NONE = rf"^(?:{_VISIBLE})?$"
TEXT = rf"^[{_BLANK}]*[^{_BLANK}\x00][^\x00]*$"
NO_CONTROL = rf"^[^{_CONTROL}]*$"
NO_NUL = r"^[^\x00]*$"
# From the year 1 to the year 9999, as seconds since 1970.
FIRST_S, LAST_S = -62135596800, 253402300799
# What the checks call what they look at; who tells of it knows its real name.
IT = "it"


def _told_by(check: Callable[..., object]) -> BeforeValidator:
    """Has a check of ours say what is wrong: in words, where a pattern would only be shown."""

    def checked(value: Any) -> Any:
        if isinstance(value, str):
            try:
                check(value, name=IT)
            except InvalidInput as error:
                told = str(error).removeprefix(f"{IT} ")
                raise PydanticCustomError(type(error).__name__, "{told}", {"told": told}) from None
        return value

    return BeforeValidator(checked)


def _whole(value: Any) -> Any:
    """In JSON 17.0 is as whole as 17."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


CHECKED_NAME = _told_by(checked_id)
Name = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=NAME_OR_NONE), CHECKED_NAME]
Named = Annotated[str, Field(max_length=MAX_ID_CHARS, pattern=NAME), CHECKED_NAME]
Text = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=TEXT), _told_by(visible_text)]
Words = Annotated[str, Field(max_length=MAX_TEXT_BYTES, pattern=NO_NUL)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)]
AsTime = Field(max_length=64, json_schema_extra={"format": "date-time"})
Time = Annotated[str, AsTime, _told_by(as_utc)]
Seconds = Annotated[float, Field(ge=FIRST_S, le=LAST_S)]
Embedding = Annotated[list[float], Field(min_length=1, max_length=16384)]
Even = BeforeValidator(_whole)


class Given(BaseModel):
    """What a caller sends: nothing that is not described, and nothing of another kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


def one_of(*names: str, kind: str = "string", **more: Any) -> list[dict[str, Any]]:
    """In a schema: one of these is there, and is not null."""
    return [{"required": [name], "properties": {name: {"type": kind, **more}}} for name in names]
