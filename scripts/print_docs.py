"""Generate the reference pages of the documentation from the code: settings, CLI help, REST operations, Python API.

`python -m scripts.print_docs` (part of `make docs`) writes docs/settings.md and docs/documents/requirements.md. The
other pages are generated while the site is built: mkdocs.yml names this file as a hook.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click

from recollect.config.name_mapping import FORMER_NAMES
from recollect.config.settings import LoadedSettings, Settings, preset_names, read_preset, rows

DOCS = Path(__file__).parent.parent / "docs"
REQUIREMENTS = DOCS.parent / "tests" / "documents" / "requirements"

_SETTINGS_HEAD = """# Settings

Each setting can be given in `config.toml` (or `config.yaml`) in the home folder, as an environment variable, or
on the command line; each of these overrides the ones before. `recollect config show` prints every value and its
source.

| setting | default | environment | meaning |
| --- | --- | --- | --- |
"""

_PRESETS_HEAD = """
## Presets

`preset = "NAME"`, `RECOLLECT_PRESET=NAME` or `recollect --preset NAME` sets these defaults:

| preset | sets |
| --- | --- |
"""

_FORMER_NAMES_HEAD = """
## Former names

These names are still accepted, in files, in the environment and as arguments:

| former name | name |
| --- | --- |
"""

_REQUIREMENTS_HEAD = """# Requirements of the five documents

Recollect implements five design documents, one preset for each. This page lists each requirement of a document, with
the tests that check it: most of them on a server that is started as the document's page says, the others through the
settings or the Python interface that the requirement is about. *Works* means as written; *differs* means on purpose,
with the reason. Generated from `tests/documents/requirements/*.toml`; tests without a folder are in
`tests/documents/`.
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a document; see tests/documents/requirements/README.md."""

    id: str
    section: str
    text: str
    status: str
    tests: tuple[str, ...]
    reason: str = ""


def read_requirements() -> dict[str, list[Requirement]]:
    """Return the requirements of each document under its file's name, such as "1-semantic-router"."""
    return {
        path.stem: [
            Requirement(**{**row, "tests": tuple(row["tests"])})
            for row in tomllib.loads(path.read_text(encoding="utf-8"))["requirement"]
        ]
        for path in sorted(REQUIREMENTS.glob("*.toml"))
    }


def requirements_page() -> str:
    """Return the table of requirements of each document, with counts."""
    documents = read_requirements()
    every = [row for rows in documents.values() for row in rows]
    lines = [_REQUIREMENTS_HEAD, f"In all: {_count_by_status(every)}."]
    for name, requirements in documents.items():
        number, _, page = name.partition("-")
        title = (DOCS / "documents" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines += ["", f"## {number}. {title}", ""]
        lines += [f"[Page]({page}.md). {_count_by_status(requirements)}.", ""]
        lines += ["| id | requirement | section | test | status |", "|---|---|---|---|---|"]
        for row in requirements:
            tests = "<br>".join(f"`{test}`" for test in row.tests)
            status = f"{row.status}: {_first_sentence(row.reason)}" if row.reason else row.status
            lines.append(f"| {row.id} | {_first_sentence(row.text)} | {row.section} | {tests} | {status} |")
    return "\n".join(lines) + "\n"


def _count_by_status(requirements: list[Requirement]) -> str:
    works = sum(row.status == "works" for row in requirements)
    return f"{len(requirements)} requirements: {works} work as written, {len(requirements) - works} differ"


def settings_page() -> str:
    """Return the table of all settings, and of the presets."""
    lines = [
        f"| `{row.name}` | {f'`{row.default}`' if row.default else ''} | `{row.variable}` | {row.description} |"
        for row in rows(LoadedSettings(Settings()))
    ]
    presets = [
        f"| `{name}` | {', '.join(f'`{key} = {value!r}`' for key, value in read_preset(name).items())} |"
        for name in preset_names()
    ]
    former = [f"| `{name}` | `{current}` |" for name, current in FORMER_NAMES.items()]
    tables = (_SETTINGS_HEAD, lines), (_PRESETS_HEAD, presets), (_FORMER_NAMES_HEAD, former)
    return "".join(head + "\n".join(rows) + "\n" for head, rows in tables)


def cli_page() -> str:
    """Return the help of every command; options shared by all commands appear once, in the overview."""
    from recollect.cli.main import root

    head = (
        "# CLI reference\n\nGenerated from the code; the same text as `recollect COMMAND --help`. The options under\n"
        '"Everywhere" apply to every command. Examples with output: [command line](../cli.md).\n'
    )
    return head + "".join(
        _command_help(root, click.Context(root, info_name="recollect", terminal_width=100, **root.context_settings))
    )


def _command_help(command: click.Command, context: click.Context) -> Iterator[str]:
    text = command.get_help(context)
    if context.parent is not None:
        text = re.sub(r"\n*^Everywhere:\n(?:^  .*(?:\n|\Z))*", "\n", text, flags=re.MULTILINE)
    yield f"\n## {context.command_path}\n\n```text\n{text.strip()}\n```\n"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            part = command.get_command(context, name)
            if part is not None:
                yield from _command_help(
                    part, click.Context(part, info_name=name, parent=context, terminal_width=100)
                )


def rest_page() -> str:
    """Return every HTTP operation with its first sentence, grouped as in the OpenAPI document."""
    from recollect.config.settings import load
    from recollect.http.app import make_app

    document = make_app(load({"home": "nowhere"}, environ={}).settings).openapi()
    groups: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            row = f"| `{method.upper()}` | `{path}` | {_first_sentence(operation['description'])} |"
            groups.setdefault(operation["tags"][0], []).append(row)
    lines = [
        "# REST operations",
        "",
        "Generated from the code. A running server has parameters, bodies, responses and errors of each operation at",
        "`/openapi.json`, and a page to try them at `/docs`. Guides: [REST API](../rest.md),",
        "[compatible APIs](../services.md), [proxy](../proxy.md).",
    ]
    for tag in document["tags"]:
        lines += [
            "",
            f"## {tag['name']}",
            "",
            tag["description"],
            "",
            "| method | path | description |",
            "|---|---|---|",
        ]
        lines += groups[tag["name"]]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """Return the signatures of the public names, with the first sentence of each docstring."""
    import recollect
    from recollect import errors
    from recollect.sync import Namespace

    lines = [
        "# Python API",
        "",
        "Generated from the code. `from recollect import NAME`; guide: [Python](../python.md). `AsyncMemory` has",
        "the methods of `Memory` as coroutines.",
    ]
    for name in sorted(set(recollect.__all__) - {"AsyncMemory", "__version__"}, key=_weight):
        lines += ["", f"## {name}", "", _first_sentence(inspect.getdoc(getattr(recollect, name)) or "")]
        lines += _members(getattr(recollect, name))
        if name == "Memory":
            for namespace, value in vars(recollect.Memory()).items():
                if isinstance(value, Namespace):
                    lines += ["", f"## memory.{namespace}", "", _first_sentence(inspect.getdoc(value) or "")]
                    lines += _members(type(value), title=f"memory.{namespace}")
    tree = textwrap.dedent("\n".join((errors.__doc__ or "").splitlines()[1:-1])).strip()
    lines += [
        "",
        "## Errors",
        "",
        "`from recollect.errors import NAME`. `error.retryable` marks errors that may pass.",
        "",
    ]
    lines += ["```text", tree, "```"]
    return "\n".join(lines) + "\n"


def _weight(name: str) -> tuple[int, str]:
    """Sort the classes that users construct before the values they receive."""
    return ["Memory", "Agent"].index(name) if name in ("Memory", "Agent") else 2, name


def _members(value: Any, title: str = "") -> list[str]:
    """Return the lines that describe a class: enum values, dataclass fields, or public methods."""
    if issubclass(value, Enum):
        return ["", "Values: " + ", ".join(f"`{member.value}`" for member in value) + "."]
    if is_dataclass(value):
        return ["", *_fence(_signature(value.__name__, value))]
    if value.__name__ == "Settings":
        return ["", "Fields: [settings](../settings.md)."]
    is_constructed = not title and not issubclass(value, Exception)
    lines = ["", *_fence(_signature(value.__name__, value))] if is_constructed else []
    for name in sorted(vars(value)):
        member = inspect.getattr_static(value, name)
        if name.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        heading = f"{title or value.__name__}.{name}"
        signature = [name] if isinstance(member, property) else _signature(name, getattr(value, name))
        lines += ["", f"### {heading}", "", _first_sentence(inspect.getdoc(member) or ""), "", *_fence(signature)]
    return lines


def _signature(name: str, value: Callable[..., Any]) -> list[str]:
    """Return a signature without quotes around annotations, wrapped at 100 characters."""
    signature = inspect.signature(value)
    parts = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        text = re.sub(r"<(\w+)\.(\w+): ('\w+')>", r"\3", str(parameter).replace("\\'", "'"))
        text = re.sub(r"<function .* at 0x\w+>|<factory>", "...", text)
        text = re.sub(r": '([^']*)'(?= = |$)", r": \1", text)
        if (
            parameter.kind is parameter.KEYWORD_ONLY
            and "*" not in parts
            and not any(p.startswith("*") for p in parts)
        ):
            parts.append("*")
        parts.append(text)
    returns = signature.return_annotation
    arrow = "" if returns in (inspect.Signature.empty, "None", None) else f" -> {str(returns).strip(chr(39))}"
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) <= 100:
        return [line]
    return [f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"]


def _fence(lines: list[str]) -> list[str]:
    return ["```text", *lines, "```"]


def _first_sentence(text: str) -> str:
    """Return the first paragraph of a description on one line, safe inside a table."""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/rest.md": rest_page,
    "reference/python.md": python_page,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site (an event of MkDocs)."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files


if __name__ == "__main__":
    for name, page in {"settings.md": settings_page, "documents/requirements.md": requirements_page}.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}")
