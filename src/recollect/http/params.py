"""What a header says: most who send one write UTF-8, while the framework reads Latin-1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from recollect.errors import InvalidInput
from recollect.model.text import MAX_ID_CHARS, MAX_TEXT_BYTES, validate_id
from recollect.model.times import as_utc
from recollect.write.draft import validate_visible_text


def decode_header(value: bytes) -> str:
    """The text of a header."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def redecode_header(value: Any) -> Any:
    """The text of a header that was read as Latin-1, as it was sent."""
    if not isinstance(value, str) or value.isascii():
        return value
    return decode_header(value.encode("latin-1", "replace"))


DecodedHeader = BeforeValidator(redecode_header)


# What says whose memories are meant, and which part of them; and the headers that say which part.
OWNER_PARAMS = ("user_id", "user", "agent_id", "app_id", "run_id")
SCOPE_PARAMS = (*OWNER_PARAMS, "project_id", "session_id")
SCOPE_HEADERS = ("X-Memory-Project", "X-Memory-Session")


def query_names(dependant: Dependant) -> Iterator[str]:
    """The parameters of the address that a route knows, by itself or by what it depends on."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for dependency in dependant.dependencies:
        yield from query_names(dependency)


def single_names(dependant: Dependant) -> Iterator[str]:
    """Those of them that are meant to come once."""
    for parameter in dependant.query_params:
        if not _is_list(parameter.field_info.annotation):
            yield parameter.alias
    for dependency in dependant.dependencies:
        yield from single_names(dependency)


def unknown_names(request: Request, allowed: Collection[str]) -> list[str]:
    """The parameters of a request's address that are not known, as they come."""
    return [name for name in request.query_params if name not in allowed]


def ignorable_names(request: Request) -> list[str]:
    """The parameters of a request's address that may be passed over: those that name nobody."""
    return [name for name in request.query_params if name not in OWNER_PARAMS]


def repeated_names(request: Request, single: Collection[str]) -> list[str]:
    """Those of the parameters meant to come once that come again: nobody can tell which of them is meant."""
    names = [name for name, _ in request.query_params.multi_items()]
    return [name for name in dict.fromkeys(names) if name in single and names.count(name) > 1]


def empty_names(request: Request, allowed: Collection[str]) -> list[str]:
    """The parameters of a request's address that are given without a value."""
    return [name for name, value in request.query_params.multi_items() if name in allowed and not value]


def empty_headers(request: Request) -> list[str]:
    """The headers that say where, and are given without a value."""
    return [name for name in SCOPE_HEADERS if name in request.headers and not request.headers[name]]


def _is_list(annotation: Any) -> bool:
    """Whether it is a list, alone or beside nothing."""
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))


_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
# Written out, because what \s means differs from one language to the next.
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
