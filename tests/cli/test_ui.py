"""recollect ui: the page of the running server, or of one that is started, in the user's browser."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.support.forked import run_forked
from tests.support.recollect_server import RecollectServer, environment
from tests.support.remember_samples import wait_until


def run_ui(home: Path, *options: str) -> str:
    done = run_forked(["ui", *options], environment(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_is_started_and_the_browser_opened_at_its_page(tmp_path: Path) -> None:
    home, opened = tmp_path / "home", tmp_path / "opened"
    home.mkdir()
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with RecollectServer(home, command="ui", BROWSER=str(browser)) as server:
        assert httpx.get(f"{server.url}/").headers["content-type"].startswith("text/html")
        wait_until(opened.exists)
        assert opened.read_text() == f"{server.url}/"
        port = server.url.rpartition(":")[2]
        # The running server is found, by its address or by the settings.
        assert f"{server.url}/" in run_ui(home, "--url", server.url, "--no-open")
        assert json.loads(run_ui(home, "--port", port, "--no-open", "--json")) == {"page": f"{server.url}/"}
