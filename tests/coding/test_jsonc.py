"""JSON with comments is edited in place."""

from __future__ import annotations

import pytest

from recollect.coding import jsonc

SETTINGS = """// Settings of the editor
{
    "theme": "dark", // at night
    /* servers */
    "servers": {
        "other": {"url": "http://127.0.0.1:1"}, // keep
    },
    "list": [1, 2],
    "empty": {},
    "path": "C:\\\\Users // no comment",
}
"""


def test_comments_and_trailing_commas_are_read() -> None:
    assert jsonc.parse(SETTINGS) == {
        "theme": "dark",
        "servers": {"other": {"url": "http://127.0.0.1:1"}},
        "list": [1, 2],
        "empty": {},
        "path": "C:\\Users // no comment",
    }
    assert jsonc.parse("") == {}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (SETTINGS, ("servers", "recollect")),
        (SETTINGS, ("empty", "recollect")),
        (SETTINGS, ("new", "deep", "recollect")),
        (SETTINGS.replace("\n", "\r\n"), ("servers", "recollect")),
        ('{"a": {"b": 1}}', ("a", "recollect")),
        ('{"a": {"b": 1}}', ("recollect",)),
        ('{\n\t"a": 1 // the first\n}\n', ("recollect",)),
        ("{}", ("a", "recollect")),
        ("{\n}\n", ("recollect",)),
        ('{\n  "a": {\n    // nothing yet\n  }\n}\n', ("a", "recollect")),
    ],
)
def test_a_value_is_added_replaced_and_removed_and_all_else_stays(text: str, path: tuple[str, ...]) -> None:
    added = jsonc.set_value(text, path, {"command": "recollect", "args": ["mcp"]})
    value = jsonc.parse(added)
    for key in path:
        value = value[key]
    assert value == {"command": "recollect", "args": ["mcp"]}
    assert jsonc.set_value(added, path, value) == added
    replaced = jsonc.set_value(added, path, "é")
    assert jsonc.remove(replaced, path) == jsonc.remove(added, path)
    # Missing objects are added, and are removed by whoever knows that they were missing.
    first_missing = next(n for n in range(1, len(path) + 1) if _get(text, path[:n]) is None)
    removed = jsonc.remove(added, path[:first_missing])
    assert removed == text or (jsonc.parse(removed) == jsonc.parse(text) and len(text.splitlines()) <= 2)
    for comment in ("// Settings", "// at night", "/* servers */", "// keep", "// the first", "// nothing yet"):
        assert (comment in added) == (comment in text)


def _get(text: str, path: tuple[str, ...]) -> object:
    value = jsonc.parse(text)
    for key in path:
        value = value.get(key)
        if value is None:
            return None
    return value


def test_values_of_arrays_are_appended_and_removed_by_index() -> None:
    added = jsonc.append(SETTINGS, ("list",), 3)
    assert '"list": [1, 2, 3],' in added
    assert jsonc.remove(added, ("list", 2)) == SETTINGS
    assert jsonc.parse(jsonc.remove(added, ("list", 0)))["list"] == [2, 3]
    several = '{\n  "a": [\n    {"x": 1}, // one\n    {"x": 2}\n  ]\n}\n'
    assert jsonc.remove(jsonc.append(several, ("a",), {"x": 3}), ("a", 2)) == several
    assert jsonc.parse(jsonc.remove(several, ("a", 0))) == {"a": [{"x": 2}]}
    assert jsonc.parse(jsonc.append("", ("hooks", "Stop"), 1)) == {"hooks": {"Stop": [1]}}


def test_removing_what_is_missing_changes_nothing() -> None:
    assert jsonc.remove(SETTINGS, ("servers", "recollect")) == SETTINGS
    assert jsonc.remove(SETTINGS, ("missing", "recollect")) == SETTINGS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', "line 3: a comma or } is missing"),
        ('{"a" 1}', "line 1: a colon is missing"),
        ('{"a": }', "line 1: a value is missing or invalid"),
        ('{"a": 01x}', "line 1: a value is missing or invalid"),
        ('{"a": 1} x', "line 1: something follows the document"),
        ("{", "line 1: a key or } is missing"),
        ("[" * 300, "line 1: it is nested too deep"),
        ('{\n"a": "b\n"}', "line 2: a value is missing or invalid"),
    ],
)
def test_an_invalid_document_is_refused_with_the_line(text: str, problem: str) -> None:
    with pytest.raises(jsonc.InvalidJson, match=problem.replace("}", "\\}")):
        jsonc.parse(text)


def test_a_value_of_another_type_is_not_overwritten() -> None:
    with pytest.raises(jsonc.InvalidJson, match="theme is not an object"):
        jsonc.set_value(SETTINGS, ("theme", "recollect"), 1)
    with pytest.raises(jsonc.InvalidJson, match="theme is not an array"):
        jsonc.append(SETTINGS, ("theme",), 1)
