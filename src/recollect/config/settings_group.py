"""`SettingsGroup`: settings declared as attributes with type, default, limits and description, and validated.

The attributes and methods that are used of a pydantic model, without pydantic: importing it and building the model of
all settings took a quarter of the time of a short command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, dataclass_transform, get_args, get_origin

from recollect.errors import InvalidSettings
from recollect.frozen_dataclass import frozen_dataclass

_REQUIRED: Any = object()
_BOOLEANS = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}


class SecretStr:
    """A text that is not printed."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretStr) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"SecretStr({str(self)!r})"

    def __str__(self) -> str:
        return "**********" if self._value else ""


@frozen_dataclass(kw_only=True)
class SettingField:
    """A declared setting. `aliases` are environment variables of other tools, which its own overrides."""

    default: Any
    description: str
    annotation: Any = None
    aliases: tuple[str, ...] = ()
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int = 0
    pattern: str = ""

    def parse(self, value: Any) -> Any:
        """Return the value as the declared type; raise a ValueError that says what it must be."""
        parsed = _parse(value, self.annotation)
        if isinstance(parsed, int | float) and not self._is_within(parsed):
            limits = ((">=", self.ge), (">", self.gt), ("<=", self.le))
            allowed = " and ".join(f"{sign} {limit:,}" for sign, limit in limits if limit is not None)
            raise ValueError(f"must be {allowed}, got {value}")
        if self.min_length and len(parsed) < self.min_length:
            raise ValueError("must not be empty")
        if self.pattern and not re.search(self.pattern, parsed):
            raise ValueError(f"must match the pattern {self.pattern}")
        return parsed

    def _is_within(self, value: float) -> bool:
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
        )


def setting(default: Any, description: str, **options: Any) -> Any:
    """Declare a setting; `options` are fields of `SettingField`."""
    return SettingField(default=default, description=description, **options)


def required_setting(description: str, **options: Any) -> Any:
    """Declare a setting without a default."""
    return SettingField(default=_REQUIRED, description=description, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class SettingsGroup:
    """Settings that belong together; a function that needs one of them takes its group.

    Attributes of the class are the defaults; an instance has the values that were set.
    """

    model_fields: ClassVar[Mapping[str, SettingField]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, SettingField)}
        for name, declared in own.items():
            own[name] = replace(declared, annotation=cls.__annotations__[name])
            setattr(cls, name, declared.default)
        fields: dict[str, SettingField] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get("model_fields", {})
        cls.model_fields = fields | own

    def __init__(self, /, **values: Any) -> None:
        self._set(values, {})

    @classmethod
    def model_validate(cls, values: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> Self:
        """Return the settings with these values; an error names the setting and its source."""
        made = cls.__new__(cls)
        made._set(values, sources or {})
        return made

    def _set(self, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        vars(self)["_sources"] = sources
        for name, value in self._complete(values).items():
            source = f" (from {sources[name]})" if name in sources else ""
            if name not in self.model_fields:
                raise InvalidSettings(self._describe_unknown(name) + source)
            try:
                vars(self)[name] = self.model_fields[name].parse(value)
            except (TypeError, ValueError, InvalidSettings) as error:
                raise InvalidSettings(f"{name}: {error}{source}") from None
        for name in self.model_fields:
            if getattr(self, name) is _REQUIRED:
                raise InvalidSettings(f"{name} is missing")
        if problem := self._find_conflict():
            raise InvalidSettings(problem)

    def _complete(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values, with those that follow from them."""
        return values

    def _describe_unknown(self, name: str) -> str:
        return f"there is no setting {name!r}"

    def _find_conflict(self) -> str:
        """Return what is wrong with several settings together, or an empty text."""
        return ""

    @property
    def sources(self) -> Mapping[str, str]:
        """The source of each setting that is not a default, in words, as far as known."""
        sources: Mapping[str, str] = vars(self)["_sources"]
        return sources

    @property
    def model_fields_set(self) -> set[str]:
        """The settings that were set, to their defaults or other values."""
        return vars(self).keys() & self.model_fields.keys()

    def model_copy(self, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with other values, which are not validated."""
        made = self.__class__.__new__(self.__class__)
        # Without cached properties.
        names = self.model_fields_set | {"_sources"}
        vars(made).update({name: vars(self)[name] for name in names} | dict(update or {}))
        return made

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values, for dict()."""
        return ((name, getattr(self, name)) for name in self.model_fields)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SettingsGroup) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self)
        return f"{type(self).__name__}({values})"


def _parse(value: Any, kind: Any) -> Any:
    """Convert a value from a file or the environment to a type. Errors repeat no text, which may be a secret."""
    if kind is Any:
        return value
    if kind is bool:
        return _parse_bool(value)
    if kind in (int, float):
        return _parse_number(value, kind)
    if kind in (str, Path, SecretStr):
        return _parse_text(value, kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in parts:
            raise ValueError(f"must be one of {', '.join(parts)}")
        return value
    if isinstance(value, str):
        # An environment variable has a table as JSON.
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from None
    if origin is list:
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list")
        return [_parse(each, parts[0]) for each in value]
    if isinstance(kind, type) and isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")
    if origin is not dict:
        return kind(**value)
    return {_parse(name, parts[0]): _parse(each, parts[1]) for name, each in value.items()}


def _parse_bool(value: Any) -> bool:
    parsed = _BOOLEANS.get(str(value).lower())
    if parsed is None:
        raise ValueError("must be true or false")
    return parsed


def _parse_number(value: Any, kind: type[int] | type[float]) -> float:
    problem = "must be a whole number" if kind is int else "must be a number"
    if not isinstance(value, int | float | str):
        raise ValueError(problem)
    try:
        parsed = kind(value)
    except (ValueError, OverflowError):
        raise ValueError(problem) from None
    if not isinstance(value, str) and parsed != value and value == value:
        raise ValueError(f"{problem}, got {value}")
    return parsed


def _parse_text(value: Any, kind: Any) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return kind(value)
