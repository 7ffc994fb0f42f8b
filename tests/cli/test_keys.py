"""recollect keys: creation, rights, expiry, revocation."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from recollect.model.times import now
from tests.support.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def test_a_key_stands_alone_on_stdout_so_that_a_script_can_take_it(cli: Cli) -> None:
    output = cli("keys", "add", "--user", "alex")
    assert output.stdout.startswith("rk_")
    assert len(output.stdout.strip()) == 46
    assert "Shown only once" in output.stderr
    assert output.stdout.strip() not in cli("keys", "list").output
    assert output.stdout.strip() not in cli("keys", "list", "--json").output


def test_a_program_gets_all_of_it_in_one_document(cli: Cli) -> None:
    made = cli.json("keys", "add", "--everyone", "--project", "shop", "--write", "--expires", "90d", "--name", "app")
    assert made.pop("key").startswith("rk_")
    assert [made[name] for name in ("name", "user_id", "project_id")] == ["app", None, "shop"]
    assert [made[name] for name in ("admin", "read", "write")] == [False, False, True]
    ends = datetime.fromisoformat(made["expires_at"])
    assert timedelta(days=89) < ends - now() < timedelta(days=91)
    assert cli.json("keys", "list")["results"] == [made]


def test_the_user_may_stand_before_the_command(cli: Cli) -> None:
    assert cli.json("--user", "alex", "keys", "add")["user_id"] == "alex"
    assert cli.json("keys", "list", "--user", "sam")["results"] == []
    assert len(cli.json("keys", "list", "--user", "alex")["results"]) == 1


def test_the_list_tells_what_has_ended(cli: Cli) -> None:
    assert "There are no keys" in cli("keys", "list").stdout
    cli("keys", "add", "--user", "alex", "--name", "phone")
    cli("keys", "add", "--admin")
    cli("keys", "revoke", "phone")
    listed = cli("keys", "list").stdout
    assert "revoked" in listed
    assert "admin, read, write" in listed


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "--everyone"),
        (["--project", "shop"], "--everyone"),
        (["--user", "alex", "--admin"], "neither a user"),
        (["--user", "alex", "--everyone"], "not both"),
        (["--user", "alex", "--expires", "soon"], "how long from now"),
        (["--user", "alex", "--expires", "2020-01-01"], "must be in the future"),
        (["--user", "alex", "--expires", "999999w"], "calendar"),
        (["--user", "alex", "--name", "a\nb"], "control character"),
    ],
)
def test_an_invalid_key_is_not_created(cli: Cli, options: list[str], problem: str) -> None:
    assert problem in cli.error("keys", "add", *options, code=2)
    assert cli.json("keys", "list")["results"] == []


def test_a_key_is_revoked_by_its_id_or_a_name_that_is_clear(cli: Cli) -> None:
    ids = [cli.json("keys", "add", "--user", "alex")["id"] for _ in range(2)]
    assert ids[0] in cli.error("keys", "revoke", "alex", code=2)
    assert cli.json("keys", "revoke", ids[0])["revoked_at"]
    assert cli.json("keys", "revoke", "alex")["id"] == ids[1]
    assert "recollect keys list" in cli.error("keys", "revoke", "alex", code=3)
