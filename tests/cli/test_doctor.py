"""doctor: what it looks at, what it says, what it mends."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from recollect import Memory
from recollect.testing.fake_embedder import FakeEmbedder
from tests.support.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


def states(cli: Cli, *options: str) -> dict[str, str]:
    return {check["name"]: check["state"] for check in cli.json("doctor", *options)["checks"]}


def test_a_healthy_home_gets_a_line_of_ok_for_each_check(cli: Cli) -> None:
    cli.add("Likes tea")
    results = states(cli)
    assert set(results.values()) == {"ok"}
    expected = "versions settings home disk embedder ledger integrity vectors index"
    assert {*expected.split(), "full text"} <= set(results)
    output = cli("doctor").stdout
    assert all(name in output for name in ("recollect ", "Python ", "SQLite ", "apsw ", "numpy ", "schema "))
    assert output.endswith("All is well.\n")


def test_looking_makes_no_ledger(cli: Cli) -> None:
    assert "none yet" in cli("doctor").stdout
    assert not cli.home.exists()


def test_vectors_of_another_model_are_told_and_reembed_mends_them(cli: Cli) -> None:
    with Memory(home=cli.home, embedder=FakeEmbedder()) as memory:
        memory.add("Likes tea", user_id="alex")
    output = cli("doctor").stdout
    assert "warn  vectors" in output
    assert "recollect reembed" in output
    assert cli("reembed").stdout == "Embedded 1 memory.\n"
    assert states(cli)["vectors"] == "ok"


def test_a_full_text_that_lost_count_is_told_and_mended(cli: Cli) -> None:
    cli.add("Likes tea")
    connection = apsw.Connection(str(cli.home / "recollect.db"))
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    connection.close()
    assert "recollect doctor --mend" in cli("doctor", code=6).stdout
    assert "rebuilt" in cli("doctor", "--mend").stdout
    assert states(cli)["integrity"] == "ok"


def test_an_embedder_that_does_not_answer_hides_nothing_else(cli: Cli, tmp_path: Path) -> None:
    cli.add("Likes tea")
    file = tmp_path / "remote.toml"
    file.write_text(
        'embedder = "openai:some-model"\nembedder_url = "http://127.0.0.1:9/v1"\nembedder_timeout_s = 1\n'
    )
    output = cli("doctor", "--config", str(file), code=5).stdout
    assert "fail  embedder" in output
    assert "to mend:" in output
    assert "ok    integrity" in output


def test_settings_that_cannot_be_read_are_the_finding(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "config.toml").write_text("port = [\n")
    assert "fail  settings" in cli("doctor", code=2).stdout


def test_a_home_where_a_file_stands_is_the_finding(cli: Cli) -> None:
    cli.home.write_text("I am a file")
    output = cli("doctor", code=5).stdout
    assert "fail  home" in output
    assert "--home" in output
