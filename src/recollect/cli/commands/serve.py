"""recollect serve and ui."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Mapping
from typing import Any

import click

from recollect.cli.context import CliContext, SectionOption, command, server_address
from recollect.cli.options import RealNumber, WholeNumber, apply_options
from recollect.cli.output import bold, dim, print_line

# Options of the Markdown memory proxy: the flag, its name in the preset or a setting, attributes or metavar, help.
_TYPES = {"SHARE": RealNumber(0, 1), "N": WholeNumber(0)}
_LEVELS = click.Choice(["debug", "info", "warning", "error"])
_PROXY_OPTIONS: tuple[tuple[str, str, str | dict[str, Any], str], ...] = (
    ("--memory-path", "home", "FOLDER", "Where memories are stored; the same as --home."),
    ("--openai-base-url", "openai_base_url", "URL", "Endpoint of chats, of learning and of the embedder."),
    ("--openai-api-key", "openai_api_key", "KEY", "Its key; OPENAI_API_KEY is safer, since users see commands."),
    ("--embedding-base-url", "embedding_base_url", "URL", "Another endpoint for the embedder."),
    ("--embedding-model", "embedding_model", "NAME", "Its model. [default: the bundled embedder]"),
    (
        "--chroma",
        "chroma",
        {"is_flag": False, "flag_value": "", "metavar": "[FOLDER]"},
        "Index vectors in Chroma, in this folder. [default: chroma in the folder of the memories]",
    ),
    ("--default-top-k", "default_top_k", "N", "Memories for a chat. [default: 5]"),
    ("--max-entries", "max_entries", "N", "Maximum number of turns and memories of a conversation."),
    ("--mmr-lambda", "mmr_lambda", "SHARE", "Relevance against diversity, from 0 to 1."),
    ("--recency-weight", "recency_weight", "SHARE", "Weight of recency, from 0 to 1."),
    ("--score-threshold", "score_threshold", "SHARE", "Minimum relevance."),
    ("--summarization/--no-summarization", "enable_summarization", {}, "Learn and summarize, or store turns only."),
    ("--git-versioning/--no-git-versioning", "enable_git_versioning", {}, "Whether to version the files with git."),
    ("--log-level", "log_level", {"type": _LEVELS}, "Log level. [default: info]"),
)


def proxy_options(function: Any) -> Any:
    """Add the options of the Markdown memory proxy to a command."""
    options = []
    for name, _, kind, help in _PROXY_OPTIONS:
        more = {"metavar": kind, "type": _TYPES.get(kind)} if isinstance(kind, str) else {"default": None, **kind}
        section = "As the Markdown memory proxy"
        options.append(click.option(name, cls=SectionOption, section=section, help=help, **more))
    return apply_options(function, options)


def proxy_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the options of the Markdown memory proxy stand for; they work in every preset."""
    from recollect.config.name_mapping import NAMES

    rules = NAMES["markdown-proxy"]
    settings: dict[str, Any] = {}
    for option, name, _, _ in _PROXY_OPTIONS:
        value = values.get(option.partition("/")[0].removeprefix("--").replace("-", "_"))
        if value is not None:
            settings |= rules[name](value) if name in rules else {name: value}
    return settings


# Named after the setting that each option sets.
_SERVER_OPTIONS = (
    click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]"),
    click.option("--port", type=WholeNumber(0, 65_535), metavar="N", help="Port; 0 for any. [default: 8100]"),
    click.option("--upstream", "upstream_url", metavar="URL", help="The OpenAI-compatible endpoint of chats."),
    click.option("--llm", metavar="MODEL", help="Model that learns from chats. [default: the chat's own]"),
    click.option("--llm-url", metavar="URL", help="Its OpenAI-compatible endpoint. [default: OpenAI's]"),
    click.option("--workers", "server_processes", type=WholeNumber(1), metavar="N", help="Processes. [default: 1]"),
    click.option("--ssl-certfile", metavar="FILE", help="Certificate chain in PEM, to serve https."),
    click.option("--ssl-keyfile", metavar="FILE", help="Its private key in PEM, if in another file."),
    click.option("--ssl-keyfile-password", metavar="TEXT", help="Password of the key; other users see it."),
    click.option("--allowed-hosts", metavar="NAMES", help="Further host names it answers to, separated by commas."),
    click.option("--access-log/--no-access-log", default=None, help="Whether to log each request."),
)


def server_options(function: Any) -> Any:
    """Add the options of the server to a command."""
    return apply_options(function, _SERVER_OPTIONS)


@command(
    "recollect serve",
    "recollect serve --upstream https://api.openai.com/v1",
    "recollect serve --llm gpt-5-mini --llm-url https://api.openai.com/v1",
    "recollect serve --port 9000 --workers 4",
    "recollect serve --preset markdown-proxy --openai-base-url http://localhost:11434/v1",
    "recollect serve --ssl-certfile cert.pem --ssl-keyfile key.pem",
    scope="",
)
@server_options
@proxy_options
def serve(cli: CliContext, /, **values: Any) -> None:
    """Run the server.

    Ctrl-C stops it after the running requests, a second Ctrl-C at once.
    """
    from recollect.config.settings import Settings
    from recollect.http.server import bind_sockets, check_settings
    from recollect.http.server import serve as run_server
    from recollect.http.upstream.learning import describe_start

    overrides = {name: values[name] for name in Settings.model_fields if values.get(name) is not None}
    if cli.verbose:
        overrides["log_level"] = "debug"
    settings = cli.load(proxy_settings(values) | overrides).settings
    check_settings(settings)
    with bind_sockets(settings.host, settings.port) as listening:
        address = listening.url(tls=bool(settings.ssl_certfile))
        learning = describe_start(settings)
        if not cli.replied({"address": address, "learning": learning}):
            print_line("Starting on ", bold(address), dim("  Ctrl-C stops it"))
            print_line(dim(learning))
        sys.stdout.flush()
        run_server(settings, listening)


@command("recollect ui --no-open", "recollect ui --port 9000", scope="")
@click.option("--url", metavar="ADDRESS", help="A running server. [default: that of the settings, or a new one]")
@click.option("--no-open", is_flag=True, help="Only print the address.")
@server_options
def ui(cli: CliContext, /, url: str | None, no_open: bool, **values: Any) -> None:
    """Open the web page in the browser.

    A running server is used; otherwise one is started, which Ctrl-C stops.
    """
    from recollect.cli.commands.chat import ChatClient
    from recollect.config.settings import Settings
    from recollect.http.server import bind_sockets, check_settings, serve

    overrides = {name: values[name] for name in Settings.model_fields if values.get(name) is not None}
    settings = cli.load(overrides).settings
    address = url or server_address(settings)
    client = ChatClient(address, user=cli.user_id, project=cli.project, certificate=settings.ssl_certfile)
    try:
        is_running = url is not None or (settings.port != 0 and client.is_reachable())
    finally:
        client.close()
    if is_running:
        _show(cli, address, no_open=no_open, hint="it is running")
        return
    check_settings(settings)
    with bind_sockets(settings.host, settings.port) as listening:
        # The sockets are bound, so that a browser that is faster than the server waits.
        _show(cli, listening.url(tls=bool(settings.ssl_certfile)), no_open=no_open, hint="Ctrl-C stops it")
        serve(settings, listening)


def _show(cli: CliContext, address: str, *, no_open: bool, hint: str) -> None:
    page = f"{address.rstrip('/')}/"
    cli.reply({"page": page}, "The page is at ", bold(page), dim(f"  {hint}"))
    sys.stdout.flush()
    if not no_open:
        # Some browsers of a terminal return only when they are closed.
        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
