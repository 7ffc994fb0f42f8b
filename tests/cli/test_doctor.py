"""recollect doctor: checks, remedies, exit codes."""

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


def test_a_healthy_installation_passes_every_check(cli: Cli) -> None:
    cli.add("Likes tea")
    results = states(cli)
    assert set(results.values()) == {"ok"}
    expected = "versions settings home disk embedder ledger integrity vectors index"
    assert {*expected.split(), "full text"} <= set(results)
    output = cli("doctor").stdout
    assert all(name in output for name in ("recollect ", "Python ", "SQLite ", "apsw ", "numpy ", "schema "))
    assert output.endswith("All is well.\n")


def test_doctor_creates_no_ledger(cli: Cli) -> None:
    assert "none yet" in cli("doctor").stdout
    assert not cli.home.exists()


def test_vectors_of_another_model_are_a_warning_until_reembed(cli: Cli) -> None:
    with Memory(home=cli.home, embedder=FakeEmbedder()) as memory:
        memory.add("Likes tea", user_id="alex")
    output = cli("doctor").stdout
    assert "warn  vectors" in output
    assert "recollect reembed" in output
    assert cli("reembed").stdout == "Embedded 1 memory.\n"
    assert states(cli)["vectors"] == "ok"


def test_a_damaged_full_text_index_is_reported_and_mended(cli: Cli) -> None:
    cli.add("Likes tea")
    connection = apsw.Connection(str(cli.home / "recollect.db"))
    connection.execute("INSERT INTO terms (terms) VALUES ('delete-all')")
    connection.close()
    assert "recollect doctor --mend" in cli("doctor", code=6).stdout
    assert "rebuilt" in cli("doctor", "--mend").stdout
    assert states(cli)["integrity"] == "ok"


def test_other_checks_run_if_the_embedder_fails(cli: Cli, tmp_path: Path) -> None:
    cli.add("Likes tea")
    file = tmp_path / "remote.toml"
    file.write_text(
        'embedder = "openai:some-model"\nembedder_url = "http://127.0.0.1:9/v1"\nembedder_timeout_s = 1\n'
    )
    output = cli("doctor", "--config", str(file), code=5).stdout
    assert "fail  embedder" in output
    assert "to mend:" in output
    assert "ok    integrity" in output


def test_invalid_settings_are_reported(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "config.toml").write_text("port = [\n")
    assert "fail  settings" in cli("doctor", code=2).stdout


def test_a_file_in_place_of_the_home_folder_is_reported(cli: Cli) -> None:
    cli.home.write_text("I am a file")
    output = cli("doctor", code=5).stdout
    assert "fail  home" in output
    assert "--home" in output
