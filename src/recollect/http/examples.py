"""Examples for bodies and answers in OpenAPI: a shape without one of its own has that of its parts, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_POINTER = "#/components/schemas/"
_NOTHING = object()
# Of what needs no telling; words are not among it.
_PLAIN: Mapping[str, Any] = {"null": None, "boolean": True, "integer": 0, "number": 0.0, "object": {}}


def give_examples(schema: dict[str, Any]) -> None:
    """Give every body and answer in JSON an example, where one can be told; what is there already stays."""
    shapes = schema["components"]["schemas"]
    for methods in schema["paths"].values():
        for operation in methods.values():
            for part in (operation.get("requestBody", {}), *operation["responses"].values()):
                content = part.get("content", {}).get("application/json")
                if content is not None and not content.keys() & {"example", "examples"}:
                    found = example_of(content["schema"], shapes)
                    if found is not _NOTHING:
                        content["example"] = found


def example_of(shape: Mapping[str, Any], shapes: Mapping[str, Any]) -> Any:
    """The first example of a shape, or one made of those of its parts."""
    if "example" in shape:
        return shape["example"]
    for told in shape.get("examples", ()):
        return told
    if "$ref" in shape:
        return example_of(shapes[shape["$ref"].removeprefix(_POINTER)], shapes)
    for word in ("const", "default"):
        if word in shape:
            return shape[word]
    if "enum" in shape:
        return shape["enum"][0]
    for kind in shape.get("anyOf", ()):
        return example_of(kind, shapes)
    if shape.get("type") == "array":
        inside = example_of(shape.get("items", {}), shapes)
        return _NOTHING if inside is _NOTHING else [inside]
    if "properties" in shape:
        return _of_parts(shape, shapes)
    return _PLAIN.get(shape.get("type", ""), _NOTHING)


def _of_parts(shape: Mapping[str, Any], shapes: Mapping[str, Any]) -> Any:
    told = {name: example_of(part, shapes) for name, part in shape["properties"].items()}
    if any(told[name] is _NOTHING for name in shape.get("required", ())):
        return _NOTHING
    return {name: each for name, each in told.items() if each is not _NOTHING}
