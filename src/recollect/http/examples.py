"""Examples for bodies and answers in OpenAPI: a shape without one of its own has that of its parts, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REF_PREFIX = "#/components/schemas/"
_NO_EXAMPLE = object()
# Of what needs no telling; words are not among it.
_DEFAULT_EXAMPLES: Mapping[str, Any] = {"null": None, "boolean": True, "integer": 0, "number": 0.0, "object": {}}


def add_examples(schema: dict[str, Any]) -> None:
    """Give every body and answer in JSON an example, where one can be told; what is there already stays."""
    schemas = schema["components"]["schemas"]
    for methods in schema["paths"].values():
        for operation in methods.values():
            for part in (operation.get("requestBody", {}), *operation["responses"].values()):
                content = part.get("content", {}).get("application/json")
                if content is not None and not content.keys() & {"example", "examples"}:
                    example = example_of(content["schema"], schemas)
                    if example is not _NO_EXAMPLE:
                        content["example"] = example


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """The first example of a shape, or one made of those of its parts."""
    if "example" in schema:
        return schema["example"]
    for example in schema.get("examples", ()):
        return example
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].removeprefix(_REF_PREFIX)], schemas)
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if "enum" in schema:
        return schema["enum"][0]
    for kind in schema.get("anyOf", ()):
        return example_of(kind, schemas)
    if schema.get("type") == "array":
        inside = example_of(schema.get("items", {}), schemas)
        return _NO_EXAMPLE if inside is _NO_EXAMPLE else [inside]
    if "properties" in schema:
        return _example_of_properties(schema, schemas)
    return _DEFAULT_EXAMPLES.get(schema.get("type", ""), _NO_EXAMPLE)


def _example_of_properties(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    values = {name: example_of(part, schemas) for name, part in schema["properties"].items()}
    if any(values[name] is _NO_EXAMPLE for name in schema.get("required", ())):
        return _NO_EXAMPLE
    return {name: each for name, each in values.items() if each is not _NO_EXAMPLE}
