"""Options that users of the Markdown memory proxy know, by the names they have there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from recollect.cli.context import CliContext, Command, SectionOption, pass_cli
from recollect.cli.options import RealNumber, WholeNumber
from recollect.cli.terminal import bold, dim, print_json, print_line

_PROXY_SECTION = "As the Markdown memory proxy"
# Which settings an option stands for; one endpoint and one key served for everything there.
_PROXY_SETTINGS = {
    "memory_path": ("home",),
    "openai_base_url": ("upstream_url", "llm_url", "embedder_url"),
    "openai_api_key": ("upstream_api_key", "llm_api_key", "embedder_api_key"),
    "embedding_base_url": ("embedder_url",),
    "default_top_k": ("search_limit",),
    "max_entries": ("quota_project",),
    "mmr_lambda": ("diversity",),
    "recency_weight": ("recency_weight",),
    "score_threshold": ("search_min_score",),
    "git_versioning": ("mirror_git",),
    "log_level": ("log_level",),
}
_SHARE_RANGE = RealNumber(0, 1)
_PROXY_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--memory-path", {"metavar": "FOLDER", "help": "Where memories are kept; the same as --home."}),
    ("--openai-base-url", {"metavar": "URL", "help": "Endpoint of chats, of what learns and of the embedder."}),
    ("--openai-api-key", {"metavar": "KEY", "help": "Key for it; better in OPENAI_API_KEY, where nobody sees it."}),
    ("--embedding-base-url", {"metavar": "URL", "help": "Endpoint of the embedder, if that is another."}),
    ("--embedding-model", {"metavar": "NAME", "help": "Its model; without one the bundled embedder is used."}),
    ("--default-top-k", {"type": WholeNumber(1, 1000), "metavar": "N", "help": "Memories for a chat. [default: 5]"}),
    ("--max-entries", {"type": WholeNumber(0), "metavar": "N", "help": "Most memories of a conversation."}),
    ("--mmr-lambda", {"type": _SHARE_RANGE, "metavar": "SHARE", "help": "Relevance against variety, from 0 to 1."}),
    (
        "--recency-weight",
        {"type": _SHARE_RANGE, "metavar": "SHARE", "help": "How much being recent counts, from 0 to 1."},
    ),
    ("--score-threshold", {"type": _SHARE_RANGE, "metavar": "SHARE", "help": "What is less relevant is left out."}),
    ("--summarization/--no-summarization", {"default": None, "help": "Learn and sum up, or keep turns alone."}),
    ("--git-versioning/--no-git-versioning", {"default": None, "help": "Version the files with git, or not."}),
    (
        "--log-level",
        {"type": click.Choice(["debug", "info", "warning", "error"]), "help": "How much is logged. [default: info]"},
    ),
)


def proxy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options."""
    for name, attributes in reversed(_PROXY_OPTIONS):
        command = click.option(name, cls=SectionOption, section=_PROXY_SECTION, **attributes)(command)
    return command


def proxy_settings(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that the options given stand for."""
    settings: dict[str, Any] = {}
    for name, setting_names in _PROXY_SETTINGS.items():
        if values.get(name) is not None:
            settings |= dict.fromkeys(setting_names, values[name])
    if values.get("embedding_model"):
        settings["embedder"] = f"openai:{values['embedding_model']}"
    if values.get("summarization") is False:
        settings |= {"learn": "off", "summary_every": 0}
    return settings


@click.command(
    cls=Command,
    scope_options="",
    examples=(
        "recollect serve",
        "recollect serve --upstream https://api.openai.com/v1",
        "recollect serve --llm gpt-5-mini --llm-url https://api.openai.com/v1",
        "recollect serve --port 9000 --workers 4",
        "recollect serve --preset markdown-proxy --openai-base-url http://localhost:11434/v1",
        "recollect serve --ssl-certfile cert.pem --ssl-keyfile key.pem",
    ),
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=WholeNumber(0, 65_535), metavar="N", help="Port; 0 for any. [default: 8100]")
@click.option("--upstream", metavar="URL", help="The OpenAI-compatible endpoint that chats are sent to.")
@click.option("--llm", metavar="MODEL", help="Model that learns from chats; without it, the chat's own if it may.")
@click.option("--llm-url", metavar="URL", help="Its OpenAI-compatible endpoint. [default: OpenAI's]")
@click.option("--workers", type=WholeNumber(1, 256), metavar="N", help="Processes that serve. [default: 1]")
@click.option("--ssl-certfile", metavar="FILE", help="Certificate chain in PEM: serve https.")
@click.option("--ssl-keyfile", metavar="FILE", help="Its private key in PEM, if that is in a file of its own.")
@click.option(
    "--ssl-keyfile-password", metavar="TEXT", help="Password of the key; others on this machine see it if given here."
)
@click.option("--allowed-hosts", metavar="NAMES", help="Names it answers to beside localhost, separated by commas.")
@click.option("--access-log/--no-access-log", default=None, help="Log a line for each request, or none.")
@proxy_options
@pass_cli
def serve(
    cli: CliContext,
    /,
    host: str | None,
    port: int | None,
    upstream: str | None,
    llm: str | None,
    llm_url: str | None,
    workers: int | None,
    ssl_certfile: str | None,
    ssl_keyfile: str | None,
    ssl_keyfile_password: str | None,
    allowed_hosts: str | None,
    access_log: bool | None,
    **proxy_values: Any,
) -> None:
    """Run the server.

    Ctrl-C stops it, after what is under way; a second Ctrl-C at once.
    """
    from recollect.http.server import check_settings
    from recollect.http.server import serve as run
    from recollect.http.sockets import bind_sockets
    from recollect.http.upstream.learning import describe_start

    options = {
        "host": host,
        "port": port,
        "upstream_url": upstream,
        "llm": llm,
        "llm_url": llm_url,
        "server_processes": workers,
        "ssl_certfile": ssl_certfile,
        "ssl_keyfile": ssl_keyfile,
        "ssl_keyfile_password": ssl_keyfile_password,
        "allowed_hosts": allowed_hosts,
        "access_log": access_log,
        "log_level": "debug" if cli.verbose else None,
    }
    overrides = {name: value for name, value in options.items() if value is not None}
    settings = cli.load(proxy_settings(proxy_values) | overrides).settings
    check_settings(settings)
    with bind_sockets(settings.host, settings.port) as listening:
        address = listening.url(tls=bool(settings.ssl_certfile))
        if cli.json:
            print_json({"address": address, "learning": describe_start(settings)})
        else:
            print_line("Starting on ", bold(address), dim("  Ctrl-C stops it"))
            print_line(dim(describe_start(settings)))
        sys.stdout.flush()
        run(settings, listening)
