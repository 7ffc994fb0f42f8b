"""The comparison with other products: ours alone, on little data, and how the others' failures are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peer_products import PRODUCTS, PeerError, Product, StoreWorker, install
from benchmarks.peer_store import write_vectors
from benchmarks.small import OPTIONS


def test_ours_is_measured_as_a_store_and_as_a_proxy(tmp_path: Path) -> None:
    peers.main([*OPTIONS["peers"].split(), "--folder", str(tmp_path)])
    results = json.loads((tmp_path / "results.json").read_text())
    stores, proxies = results["Stores"], results["Proxies"]
    assert [results["not_installed"], stores["failures"], proxies["failures"]] == [{}, {}, {}]
    assert {"search among 50, ms", "add to 50, ms of CPU", "installed, MiB"} < stores["rows"].keys()
    assert {"added to a chat, ms", "chats a second, 2 clients"} < proxies["rows"].keys()
    assert proxies["rows"]["chat, ms"].keys() == {"no proxy", "memory off", "memory read", "read and write"}
    assert all(figures["recollect"] > 0 for figures in stores["rows"].values())
    assert "| search among 50, ms |" in (tmp_path / "results.md").read_text()


def test_a_product_that_is_not_installed_is_reported() -> None:
    product = Product(name="none", title="None", distribution="no-such-distribution", requirements=())
    with pytest.raises(PeerError, match=r"not installed: .*no-such-distribution"):
        install(product, None)


def test_a_store_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    [ours] = [product for product in PRODUCTS if product.name == peers.OURS]
    write_vectors(tmp_path / "data", [], b"")
    with (
        StoreWorker(install(ours, None), "no-such-store", tmp_path / "store", tmp_path / "data") as worker,
        pytest.raises(PeerError, match="search: KeyError: 'no-such-store'"),
    ):
        worker.run("search", ["Where is Ana?"])


def test_a_table_has_ratios_to_ours_and_names_what_failed() -> None:
    table = peers.Table({"recollect": "recollect", "fast": "recollect", "broken": "recollect"})
    table.put("search, ms", "recollect", 4.0)
    table.put("search, ms", "fast", 1.0)
    table.failures["broken"] = "no disk"
    assert table.markdown().splitlines() == [
        "| | recollect | fast | broken |",
        "|---|---|---|---|",
        "| search, ms | 4 | 1 (0.25×) | failed |",
        "",
        "Not measured: broken, no disk",
    ]
