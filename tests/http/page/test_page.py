"""The page's files are served without credentials, with a strict policy, and nothing else is."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from recollect.http.page import page_files
from tests.support.auth_samples import serving

# preact/standalone.module.js of htm 3.1.1, as the package registry has it.
PREACT_SHA256 = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"
# Of all files together, compressed.
MAX_TOTAL_BYTES = 150_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("home"), auth="keys") as client:
        yield client


def test_the_page_is_open_and_has_a_strict_policy(client: TestClient) -> None:
    for path in ("/", *(f"/page/{name}" for name in page_files())):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), path
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"] != "application/octet-stream", path
        assert client.head(path).headers["etag"] == answer.headers["etag"]
        assert client.post(path).status_code == 405
    assert client.get("/").headers["content-type"].startswith("text/html")


def test_links_of_the_page_are_relative_so_that_it_works_below_any_path(client: TestClient) -> None:
    text = client.get("/").text
    assert "<base" not in text
    for attribute in ('src="/', 'href="/', 'src="http', 'href="http', "<script>", "<style", "style="):
        assert attribute not in text, attribute


def test_an_unchanged_file_is_not_sent_again(client: TestClient) -> None:
    for encoding in ("gzip", "identity"):
        headers = {"Accept-Encoding": encoding}
        answer = client.get("/", headers=headers)
        again = client.get("/", headers={**headers, "If-None-Match": f'"other", W/{answer.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]
        assert client.get("/", headers={**headers, "If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_files_are_compressed_for_clients_that_accept_it(
    client: TestClient, accepted: str, is_compressed: bool
) -> None:
    file = page_files()["index.html"]
    with client.stream("GET", "/", headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
        assert (answer.headers.get("content-encoding") == "gzip") is is_compressed
        assert answer.headers["vary"] == "Accept-Encoding"
    assert (gzip.decompress(raw) if is_compressed else raw) == file.content


@pytest.mark.parametrize(
    "path",
    [
        "page.py",
        "../page.py",
        "..%2fpage.py",
        "%2e%2e/page.py",
        "/index.html",
        "",
        "index.html/",
        "a\\b",
    ],
)
def test_nothing_outside_of_the_folder_is_served(client: TestClient, path: str) -> None:
    answer = client.get(f"/page/{path}")
    assert answer.status_code in (401, 404), answer.text
    assert "import" not in answer.text


def test_all_modules_of_the_first_view_are_asked_for_at_once() -> None:
    files, needed, left = page_files(), set[str](), ["app.js", "views/timeline.js"]
    while left:
        name = left.pop()
        needed.add(name)
        imported = re.findall(r'^import .* from "(.+?)";', files[name].content.decode(), re.MULTILINE)
        left += {posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in imported} - needed
    preloaded = re.findall(r'"modulepreload" href="page/(.+?)"', files["index.html"].content.decode())
    assert sorted([*preloaded, "app.js"]) == sorted(needed)


def test_every_file_has_a_known_type() -> None:
    assert "index.html" in page_files()
    assert all(file.media_type != "application/octet-stream" for file in page_files().values())


def test_the_library_of_the_page_is_the_published_one_and_has_its_licenses() -> None:
    files = page_files()
    assert hashlib.sha256(files["vendor/preact.js"].content).hexdigest() == PREACT_SHA256
    text = files["vendor/LICENSE"].content.decode()
    assert "Copyright (c) 2015-present Jason Miller" in text
    assert "Copyright 2018 Google Inc." in text


def test_the_files_are_small() -> None:
    sizes = {name: len(file.compressed or file.content) for name, file in page_files().items()}
    assert sum(sizes.values()) < MAX_TOTAL_BYTES, sizes
    assert max(len(file.content) for file in page_files().values()) < 40_000
