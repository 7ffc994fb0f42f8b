"""A ledger file that is deleted, moved or replaced while in use: nothing more is acknowledged, nothing is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from recollect import Memory
from recollect.errors import StoreUnavailable

TAILS = ("", "-wal", "-shm")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def memory(home: Path) -> Iterator[Memory]:
    with Memory(home=home) as memory:
        memory.add("I live in Porto", user_id="ann")
        yield memory


def texts(memory: Memory) -> set[str]:
    return {each.content for each in memory.get_all(user_id="ann")}


def database(home: Path) -> Path:
    return home / "recollect.db"


def other_ledger(folder: Path) -> Path:
    with Memory(home=folder) as other:
        other.add("I live in Rome", user_id="ann")
    return database(folder)


def rescued(home: Path) -> list[Path]:
    return sorted(home.glob("recollect.db.rescued-*"))


@pytest.mark.parametrize("tails", [("",), TAILS])
def test_what_a_deleted_ledger_had_is_saved_and_can_be_put_back(
    home: Path, memory: Memory, tails: tuple[str, ...]
) -> None:
    for tail in tails:
        os.unlink(f"{database(home)}{tail}")
    with pytest.raises(StoreUnavailable, match=r"recollect\.db was deleted while in use.*rename .*rescued-"):
        memory.add("I like tea", user_id="ann")
    with pytest.raises(StoreUnavailable, match="was deleted"):
        memory.search("Where do I live?", user_id="ann")
    memory.close()
    [copy] = rescued(home)
    assert list(home.glob("recollect.db*")) == [copy]
    # No empty ledger takes its place unnoticed.
    with pytest.raises(StoreUnavailable, match=f"its content is in {copy}: rename"):
        Memory(home=home).open()
    copy.rename(database(home))
    with Memory(home=home) as later:
        assert texts(later) == {"I live in Porto"}


def test_closing_saves_a_ledger_that_nobody_used_since_it_was_deleted(home: Path, memory: Memory) -> None:
    database(home).unlink()
    memory.close()
    assert len(rescued(home)) == 1


def move(home: Path) -> Callable[[], None]:
    away = home.with_name("away")
    os.rename(database(home), away)
    return lambda: os.rename(away, database(home))


def move_home(home: Path) -> Callable[[], None]:
    away = home.with_name("away")
    os.rename(home, away)
    return lambda: os.rename(away, home)


@pytest.mark.parametrize("move_away", [move, move_home])
def test_a_ledger_that_comes_back_is_used_without_a_restart(
    home: Path, memory: Memory, move_away: Callable[[Path], Callable[[], None]]
) -> None:
    move_back = move_away(home)
    with pytest.raises(StoreUnavailable, match=r"was moved or unmounted while in use.*put it back"):
        memory.add("I like tea", user_id="ann")
    assert not database(home).exists()
    move_back()
    memory.add("I like coffee", user_id="ann")
    assert texts(memory) == {"I live in Porto", "I like coffee"}
    memory.close()
    assert rescued(home) == []
    with Memory(home=home) as later:
        assert texts(later) == {"I live in Porto", "I like coffee"}


def test_a_ledger_put_in_place_of_another_is_used_after_a_restart(home: Path, memory: Memory, tmp_path: Path) -> None:
    os.replace(other_ledger(tmp_path / "other"), database(home))
    with pytest.raises(StoreUnavailable, match=r"was replaced by another file while in use.*restart to use the new"):
        memory.add("I like tea", user_id="ann")
    memory.close()
    # The log of the former ledger is not applied to the new one.
    with Memory(home=home) as later:
        assert texts(later) == {"I live in Rome"}
    connection = apsw.Connection(str(database(home)))
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    connection.close()
    [copy] = rescued(home)
    copy.replace(database(home))
    with Memory(home=home) as former:
        assert texts(former) == {"I live in Porto"}


def test_an_older_or_another_ledger_copied_over_the_file_is_noticed(
    home: Path, memory: Memory, tmp_path: Path
) -> None:
    memory.close()
    older = shutil.copyfile(database(home), tmp_path / "older.db")
    for source in (older, other_ledger(tmp_path / "other")):
        with Memory(home=home) as later:
            later.add(f"I have read {source.name}", user_id="ann")
        shutil.copyfile(database(home), tmp_path / "newest.db")
        with Memory(home=home) as later:
            assert texts(later)
            shutil.copyfile(source, database(home))
            with pytest.raises(StoreUnavailable, match=r"was overwritten while in use.*recollect restore"):
                later.add("I like tea", user_id="ann")
            with pytest.raises(StoreUnavailable, match="was overwritten"):
                texts(later)
        shutil.copyfile(tmp_path / "newest.db", database(home))


def test_a_removed_log_is_noticed_and_its_content_is_in_the_file(home: Path, memory: Memory) -> None:
    os.unlink(f"{database(home)}-wal")
    with pytest.raises(StoreUnavailable, match=r"recollect\.db-wal was removed while in use.*restart"):
        memory.add("I like tea", user_id="ann")
    memory.close()
    with Memory(home=home) as later:
        assert "I live in Porto" in texts(later)


def test_checkpoints_of_other_processes_are_no_replacement(home: Path, memory: Memory) -> None:
    for number in range(20):
        memory.add(f"I have {number} cats named Tom{number}", user_id="ann")
        with Memory(home=home) as other:
            other.add(f"I have {number} dogs named Rex{number}", user_id="ann")
    assert len(texts(memory)) == 41
