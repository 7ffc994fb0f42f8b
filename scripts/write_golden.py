"""Write the golden files of the public interfaces to tests/golden: OpenAPI, command help, Python API, metrics, SQL.

`tests/test_golden.py` compares them with the code, so that an interface changes only where it is meant to: run this
script after an intended change and review the difference.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def openapi_outline() -> str:
    """Return every operation of the OpenAPI document with its parameters, body fields and answers, a line each."""
    from recollect.config.settings import load
    from recollect.http.app import make_app

    document = make_app(load({"home": "nowhere"}, environ={}).settings).openapi()
    lines = []
    for path, methods in sorted(document["paths"].items()):
        for method, operation in sorted(methods.items()):
            lines.append(f"{method.upper()} {path}")
            for part in operation.get("parameters", []):
                lines.append(f"    {part['in']} {part['name']}{' required' if part.get('required') else ''}")
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                lines.append(f"    body {media}: {' '.join(_fields(content.get('schema', {}), document))}".rstrip())
            for status, answer in sorted(operation.get("responses", {}).items()):
                for media, content in answer.get("content", {}).items():
                    lines.append(f"    {status} {media}: {' '.join(_fields(content.get('schema', {}), document))}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """Return the names of a schema's properties, of all its alternatives."""
    if "$ref" in schema:
        return _fields(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document)
    names = set(schema.get("properties", {}))
    for part in [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        names.update(_fields(part, document))
    if "items" in schema:
        names.update(f"[]{name}" for name in _fields(schema["items"], document))
    return sorted(names)


def cli_help() -> str:
    """Return the help of every command, in the order of their names."""
    from recollect.cli.main import root

    return "\n".join(
        _help_pages(root, click.Context(root, info_name="recollect", terminal_width=100, **root.context_settings))
    )


def _help_pages(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            part = command.get_command(context, name)
            if part is not None:
                yield from _help_pages(part, click.Context(part, info_name=name, parent=context, terminal_width=100))


def python_api() -> str:
    """Return the signatures of all public names of the package."""
    import recollect
    from recollect.sync import Namespace

    lines = []
    classes = {name: getattr(recollect, name) for name in recollect.__all__}
    namespaces = {name: value for name, value in vars(recollect.Memory()).items() if isinstance(value, Namespace)}
    classes |= {f"Memory.{name}": type(value) for name, value in namespaces.items()}
    for name, value in sorted(classes.items()):
        if not inspect.isclass(value):
            continue
        lines.append(f"class {name}")
        for member in sorted(vars(value) if name.startswith("Memory") else dir(value)):
            if member.startswith("_") and member != "__init__":
                continue
            attribute = inspect.getattr_static(value, member)
            if isinstance(attribute, property):
                lines.append(f"    {member}: property")
            elif callable(getattr(value, member)) and not inspect.isclass(attribute):
                try:
                    lines.append(f"    {member}{inspect.signature(getattr(value, member))}")
                except ValueError:
                    continue
            else:
                lines.append(f"    {member}")
    return re.sub(r"<function .*? at 0x[0-9a-f]+>", "<function>", "\n".join(lines)) + "\n"


def metric_names() -> str:
    """Return the name, kind and labels of every metric."""
    from recollect.observability.metrics import Metric

    return "".join(f"{n.kind} {n.name} {','.join(n.labels)}".rstrip() + "\n" for _, n in sorted(Metric.all.items()))


def sql_schema() -> str:
    """Return the tables and indexes of a new SQLite ledger."""
    import tempfile

    import apsw

    from recollect import Memory

    with tempfile.TemporaryDirectory() as home:
        with Memory(home=home) as memory:
            memory.add("x", user_id="u")
        (file,) = Path(home).glob("*.db")
        rows = apsw.Connection(str(file)).execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        return "".join(f"{row[0]}\n" for row in rows)


FILES: dict[str, Callable[[], str]] = {
    "openapi.txt": openapi_outline,
    "cli_help.txt": cli_help,
    "python_api.txt": python_api,
    "metrics.txt": metric_names,
    "schema.sql": sql_schema,
}

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, content in FILES.items():
        (GOLDEN / name).write_text(content(), encoding="utf-8")
        print(f"wrote tests/golden/{name}")
