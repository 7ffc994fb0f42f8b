"""Options that users of the Markdown memory proxy know, by the names they have there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from recollect.cli.given import SectionOption
from recollect.cli.numbers import RealNumber, WholeNumber

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
