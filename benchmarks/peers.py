"""Measure Recollect next to other memories and proxies, each in an environment of its own (`make bench-peers`).

All are measured in turn, in rounds, so that other load on the machine meets all of them. Figures are medians, ratios
are to Recollect in the same run. A product that cannot be installed or fails is reported with the reason.
Environments stay in `build/peers`, where the results are written as JSON and as Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.corpus import questions, sentences
from benchmarks.harness import cpu_seconds, fill, free_port, module_process, running_service, wait_for_port
from benchmarks.peer_products import (
    PRODUCTS,
    Environment,
    PeerError,
    StoreWorker,
    install,
    running_proxy,
    search_once,
)
from benchmarks.peer_store import IN_MEMORY, write_vectors
from benchmarks.proxy import Clients, Target
from benchmarks.proxy_load import Load
from recollect.models.static_embedder import StaticEmbedder

OURS = "recollect"
_MODES = {"memory off": {"x-memory": "off"}, "memory read": {"x-memory": "read"}, "read and write": {}}
# The mode of ours that does the same.
_COMPARED = {"litellm": "memory off", "agent-cli": "read and write"}
_USERS = [f"user-{number}" for number in range(4)]
_WARMUP = 5
# A server is idle again when it uses less than this share of a core.
_IDLE_SHARE, _SETTLE_S, _MAX_SETTLE_S = 0.1, 0.2, 20.0
_STARTED = time.monotonic()


@dataclass(slots=True)
class Table:
    """Figures by row and column; `bases` names for each column the one of ours that its ratios refer to."""

    bases: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def put(self, row: str, column: str, value: float) -> None:
        """Set a figure."""
        self.rows.setdefault(row, {})[column] = value

    @contextmanager
    def reporting(self, column: str) -> Iterator[None]:
        """Report a failure of a product in the block instead of raising it."""
        try:
            yield
        except PeerError as error:
            self.failures.setdefault(column, str(error))
            _progress(f"{column}: {error}")

    def markdown(self) -> str:
        """Return the table, and the failures below it."""
        lines = ["| " + "".join(f"| {self.labels.get(each, each)} " for each in self.bases) + "|"]
        lines.append("|---" * (len(self.bases) + 1) + "|")
        for row, figures in self.rows.items():
            lines.append(f"| {row} " + "".join(f"| {self._cell(figures, each)} " for each in self.bases) + "|")
        failures = [f"Not measured: {column}, {reason}" for column, reason in self.failures.items()]
        return "\n".join([*lines, *([""] if failures else []), *failures])

    def _cell(self, figures: Mapping[str, float], column: str) -> str:
        if column not in figures:
            return "failed" if column in self.failures else ""
        value, base = figures[column], figures.get(self.bases[column], 0.0)
        ratio = "" if self.bases[column] == column or base <= 0 else f" ({_rounded(value / base)}×)"
        return _rounded(value) + ratio


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def _progress(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _STARTED), 60)
    print(f"[{minutes:2}:{seconds:02}] {text}", file=sys.stderr, flush=True)


def install_all(names: Sequence[str], folder: Path | None) -> tuple[list[Environment], dict[str, str]]:
    """Install the products; return their environments, and the reasons of those that have none."""
    environments, failures = [], {}
    for product in PRODUCTS:
        if product.name in names:
            _progress(f"installing {product.name}")
            try:
                environments.append(install(product, folder))
            except PeerError as error:
                failures[product.name] = str(error)
                _progress(f"{product.name}: {error}")
    return environments, failures


async def _write_data(folder: Path, size: int, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Write texts and questions with their vectors; return the texts, with some more to add, and the questions."""
    texts = list(islice(sentences(size), size + _WARMUP + args.calls * args.rounds))
    count = _WARMUP + args.calls * args.rounds
    # No question twice, because Recollect caches some results.
    asked = list(islice(dict.fromkeys(islice(questions(size), 4 * count)), count))
    embedder = StaticEmbedder()
    vectors = np.vstack([await embedder.embed(texts), await embedder.embed(asked, role="query")])
    write_vectors(folder, [*texts, *asked], vectors.astype(np.float32).tobytes())
    return texts, asked


def measure_stores(environments: Sequence[Environment], home: Path, args: argparse.Namespace) -> Table:
    """Measure searches and adds with each number of memories, then the start of a process."""
    stores = {store: each for each in environments for store in each.product.stores}
    labels = {store: f"{each.product.stores[store]} {each.version}" for store, each in stores.items()}
    table = Table(dict.fromkeys(stores, OURS), labels)
    for size in args.sizes:
        folder = home / f"{size}"
        texts, asked = asyncio.run(_write_data(folder / "data", size, args))
        with ExitStack() as parts:
            workers = {}
            for store, each in stores.items():
                with table.reporting(store):
                    worker = parts.enter_context(StoreWorker(each, store, folder / store, folder / "data"))
                    took_s = worker.run("fill", texts[:size])
                    workers[store] = worker
                    _progress(f"{store}: stored {size:,} memories in {took_s:.1f} s")
            _measure_in_turn(table, f"search among {size:,}", workers, ("search", asked), args.rounds)
            _measure_in_turn(table, f"add to {size:,}", workers, ("add", texts[size:]), args.rounds)
        if size == args.sizes[0]:
            _measure_start(table, stores, folder, asked[0], args.rounds)
    for store, each in stores.items():
        _put_sizes(table, store, each)
    return table


def _put_sizes(table: Table, column: str, environment: Environment) -> None:
    table.put("installed packages", column, environment.packages)
    table.put("installed, MiB", column, environment.mib)


def _measure_in_turn(
    table: Table,
    row: str,
    workers: Mapping[str, StoreWorker],
    work: tuple[str, Sequence[str]],
    rounds: int,
) -> None:
    """Let every store do the same work, divided into rounds, after some that is not counted."""
    command, texts = work
    batches = [texts[:_WARMUP], *(texts[_WARMUP + number :: rounds] for number in range(rounds))]
    wall_s: dict[str, list[float]] = {}
    cpu_s: dict[str, list[float]] = {}
    for number, batch in enumerate(batches):
        for store, worker in workers.items():
            if store in table.failures:
                continue
            with table.reporting(store):
                taken = worker.run(command, batch)
                if number:
                    wall_s.setdefault(store, []).extend(taken["wall_s"])
                    cpu_s.setdefault(store, []).extend(taken["cpu_s"])
    for store in wall_s:
        table.put(f"{row}, ms", store, median(wall_s[store]) * 1e3)
        table.put(f"{row}, ms of CPU", store, median(cpu_s[store]) * 1e3)
    _progress(f"{row}: " + ", ".join(f"{store} {median(taken) * 1e3:.1f} ms" for store, taken in wall_s.items()))


def _measure_start(table: Table, stores: Mapping[str, Environment], folder: Path, question: str, rounds: int) -> None:
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for store, each in stores.items():
            if store in table.failures or store in IN_MEMORY:
                continue
            with table.reporting(store):
                cpu_s = search_once(each, store, folder / store, folder / "data", question)
                taken.setdefault(store, []).append(cpu_s)
    for store, samples in taken.items():
        table.put("a process that opens and searches once, s of CPU", store, min(samples))
    _progress("start: " + ", ".join(f"{store} {min(samples):.2f} s" for store, samples in taken.items()))


def measure_proxies(environments: Sequence[Environment], home: Path, args: argparse.Namespace) -> Table:
    """Measure the start of each proxy, then chats through it with each number of clients."""
    table = Table({"no proxy": "no proxy"})
    with ExitStack() as parts:
        clients = parts.enter_context(Clients())
        upstream_port = free_port()
        upstream = parts.enter_context(module_process("benchmarks.proxy_upstream", str(upstream_port)))
        wait_for_port(upstream_port, upstream)
        targets = {"no proxy": (Target(name="no proxy", port=upstream_port), upstream.pid)}
        for each in environments:
            if each.product.proxy is None:
                continue
            name = each.product.name
            columns = list(_MODES) if name == OURS else [name]
            table.bases |= {column: _COMPARED.get(column, column) for column in columns}
            for column in columns:
                mode = f", {column}" if name == OURS else ""
                table.labels[column] = f"{each.product.title} {each.version}{mode}"
            with table.reporting(columns[0]):
                _fill_proxy(each, home / name, args.sizes[0])
                url = f"http://127.0.0.1:{upstream_port}/v1"
                server = parts.enter_context(running_proxy(each, home / name, url))
                _progress(f"{name}: proxy started in {server.start_s:.1f} s")
                for column in columns:
                    _put_sizes(table, column, each)
                    target = Target(name=column, port=server.port, headers=_MODES.get(column, {}), users=_USERS)
                    targets[column] = target, server.process
                    table.put("start until the first answer, s", column, server.start_s)
                    table.put("start until the first answer, s of CPU", column, server.start_cpu_s)
        for count in args.clients:
            _measure_chats(table, clients, targets, count, args)
    return table


def _fill_proxy(environment: Environment, home: Path, memories: int) -> None:
    """Store memories where the proxy will look for them."""
    if environment.product.name == OURS:
        asyncio.run(_fill_users(home, memories))
    elif environment.product.stores:
        texts = list(islice(sentences(1), memories))
        write_vectors(home / "data", texts, StaticEmbedder().encode(texts).astype(np.float32).tobytes())
        [store] = environment.product.stores
        with StoreWorker(environment, store, home, home / "data") as worker:
            worker.run("fill", texts)


async def _fill_users(home: Path, memories: int) -> None:
    async with running_service(home=home) as service:
        for number, user in enumerate(_USERS):
            await fill(service, user, memories, seed=number)
            while service.search_deps.late is not None and await service.search_deps.late.flush(user):
                pass


def _measure_chats(
    table: Table,
    clients: Clients,
    targets: Mapping[str, tuple[Target, int]],
    count: int,
    args: argparse.Namespace,
) -> None:
    """Measure all targets in turn with so many clients, the first time after a round that is not counted."""
    results: dict[str, list[dict[str, float]]] = {}
    for number in range(0 if count == args.clients[0] else 1, args.rounds + 1):
        for at, (column, (target, process)) in enumerate(targets.items()):
            if column in table.failures:
                continue
            load = Load(
                port=target.port, headers=target.headers, users=target.users, clients=count,
                # Not the same texts for our three modes.
                seed=number * len(targets) + at,
                seconds=args.seconds if number else min(args.seconds, 0.5), stream=False, model="quick",
            )  # fmt: skip
            with table.reporting(column):
                result = _chat(clients, load, process)
                if number:
                    results.setdefault(column, []).append(result)
    for column, rounds in results.items():
        middle = {name: median(each[name] for each in rounds) for name in rounds[0]}
        if count == 1:
            pairs = zip(rounds, results["no proxy"], strict=False)
            table.put("chat, ms", column, middle["ms"])
            if column != "no proxy":
                table.put("added to a chat, ms", column, median(one["ms"] - bare["ms"] for one, bare in pairs))
        else:
            table.put(f"chats a second, {count} clients", column, middle["rate"])
        if any(each["without_memory"] for each in rounds):
            table.put(f"chats without memory, %, {count} clients", column, middle["without_memory"])
        if count == args.clients[0]:
            table.put("CPU time of a chat, background work included, ms", column, middle["cpu_ms"])
        _progress(f"{count} clients, {column}: {middle['ms']:.1f} ms, {middle['rate']:,.0f}/s")


def _chat(clients: Clients, load: Load, process: int) -> dict[str, float]:
    """Run a load, wait until the server has done its background work, and return the figures."""
    before_s = cpu_seconds(process)
    clients.begin(load)
    result = clients.end()
    if result["failed"] or not result["whole_s"]:
        raise PeerError(f"{load.clients} clients: {(result['failed'] or ['no answer'])[0]}")
    deadline, cpu_s = time.monotonic() + _MAX_SETTLE_S, cpu_seconds(process)
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_S)
        before, cpu_s = cpu_s, cpu_seconds(process)
        if cpu_s - before < _IDLE_SHARE * _SETTLE_S:
            break
    return {
        "ms": median(result["whole_s"]) * 1e3,
        "rate": len(result["whole_s"]) / result["seconds"],
        "cpu_ms": (cpu_s - before_s) / result["asked"] * 1e3,
        "without_memory": 100 * len(result["troubles"]) / result["asked"],
    }


def write_results(tables: Mapping[str, Table], failures: Mapping[str, str], folder: Path) -> str:
    """Write the results as JSON and as Markdown; return the Markdown."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, load average {os.getloadavg()[1]:.1f}"
    date = datetime.now(UTC).date().isoformat()
    parts = [f"{date}, {machine}"]
    parts += [f"{title}\n\n{table.markdown()}" for title, table in tables.items()]
    parts += [f"Not measured: {name}, {reason}" for name, reason in failures.items()]
    text = "\n\n".join(parts) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(text)
    report = {"date": date, "machine": machine, "not_installed": failures}
    report |= {title: asdict(table) for title, table in tables.items()}
    (folder / "results.json").write_text(json.dumps(report, indent=2) + "\n")
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Install the products, measure their stores and proxies, and print and write the tables."""
    names = [product.name for product in PRODUCTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("products", nargs="*", default=names, help=f"default: {' '.join(names)}")
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="of environments and results")
    parser.add_argument("--here", action="store_true", help="use this interpreter instead of installing anything")
    parser.add_argument(
        "--sizes", type=_numbers, default=[1000, 10_000], help="memories of a store; a user of a proxy has the first"
    )
    parser.add_argument("--calls", type=int, default=30, help="searches of a round, and adds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=_numbers, default=[1, 10, 100], help="concurrent clients of the proxies")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round of chats")
    args = parser.parse_args(arguments)
    if unknown := set(args.products) - set(names):
        parser.error(f"unknown product {', '.join(unknown)}; there are {', '.join(names)}")
    folder = args.folder.resolve()
    environments, failures = install_all(args.products, None if args.here else folder)
    tables: dict[str, Table] = {}
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as home:
        for title, measure in (("Stores", measure_stores), ("Proxies", measure_proxies)):
            tables[title] = measure(environments, Path(home) / title, args)
            text = write_results(tables, failures, folder)
    print(text)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
