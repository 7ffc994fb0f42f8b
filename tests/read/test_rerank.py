"""The second look at the best candidates: the step, and rerankers behind HTTP, good and bad."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from recollect.config.settings import Settings
from recollect.errors import InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models.embedding import Reranker
from recollect.models.http_reranker import MAX_CHARACTERS, HttpReranker
from recollect.read.rerank import RerankResult, rerank
from recollect.wiring import open_reranker

KEY = "sk-very-secret-0123456789"
QUERY = "Where does Ana live?"
TEXTS = ["Ben likes tea.", "Ana moved to Lisbon.", "It rained."]
SCORES = [0.02, 0.97, 0.01]
BY_RANK = [1, 0, 2]

Answer = tuple[int, Any]


def as_documents(body: dict[str, Any]) -> Answer:
    """Cohere, Jina and those who follow them: best first."""
    if "documents" not in body or not body.get("model"):
        return 422, {"message": "documents and model are required"}
    assert body["top_n"] == len(body["documents"])
    return 200, {"id": "x", "results": [{"index": at, "relevance_score": SCORES[at]} for at in BY_RANK]}


def as_texts(body: dict[str, Any]) -> Answer:
    """TEI."""
    if "texts" not in body:
        return 422, "Failed to deserialize the JSON body into the target type: missing field `texts`"
    return 200, [{"index": at, "score": SCORES[at]} for at in BY_RANK]


def scores(*values: Any, indices: Sequence[Any] = (0, 1, 2)) -> Answer:
    rows = zip(indices, values, strict=True)
    return 200, {"results": [{"index": at, "relevance_score": value} for at, value in rows]}


class Server:
    """A real server on loopback that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], Answer] = as_documents
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.pause_s = 0.0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(body)
                server.paths.append(self.path)
                server.keys.append(self.headers["Authorization"])
                status, answer = server.answer(body)
                time.sleep(server.pause_s)
                sent = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                with suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(sent)))
                    self.end_headers()
                    self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
async def reranker(server: Server) -> AsyncIterator[HttpReranker]:
    reranker = HttpReranker(server.url, KEY, model="rerank-1", timeout_s=60)
    yield reranker
    await reranker.close()


class TestHttpReranker:
    @pytest.mark.parametrize("shape", [as_documents, as_texts])
    async def test_both_shapes_of_the_api_are_understood(
        self, server: Server, reranker: HttpReranker, shape: Callable[[dict[str, Any]], Answer]
    ) -> None:
        server.answer = shape
        assert list(await reranker.rerank(QUERY, TEXTS)) == SCORES
        request = len(server.requests)
        assert list(await reranker.rerank(QUERY, TEXTS)) == SCORES
        assert len(server.requests) == request + 1, "the shape is found out once"
        assert server.requests[-1]["query"] == QUERY
        assert server.requests[-1].get("documents", server.requests[-1].get("texts")) == TEXTS
        assert set(server.keys) == {f"Bearer {KEY}"}

    @pytest.mark.parametrize(
        ("path", "asked"),
        [
            ("", "/rerank"),
            ("/", "/rerank"),
            ("/v1", "/v1/rerank"),
            ("/b/rerank", "/b/rerank"),
            ("/rerank/", "/rerank"),
        ],
    )
    async def test_the_address_may_name_the_server_or_the_endpoint(
        self, server: Server, path: str, asked: str
    ) -> None:
        reranker = HttpReranker(server.url + path, model="m")
        await reranker.rerank(QUERY, TEXTS)
        await reranker.close()
        assert server.paths == [asked]
        assert server.keys == [None]

    async def test_no_texts_are_not_worth_a_request(self, server: Server, reranker: HttpReranker) -> None:
        assert list(await reranker.rerank(QUERY, [])) == []
        assert server.requests == []

    async def test_numbers_a_hair_outside_are_moved_inside(self, server: Server, reranker: HttpReranker) -> None:
        server.answer = lambda body: scores(1.0000001, -0.0000001, 1)
        assert list(await reranker.rerank(QUERY, TEXTS)) == [1.0, 0.0, 1.0]

    async def test_logits_become_chances_then_and_ever_after(self, server: Server, reranker: HttpReranker) -> None:
        server.answer = lambda body: scores(-11.0, 7.5, -10_000)
        low, high, lowest = await reranker.rerank(QUERY, TEXTS)
        assert lowest == 0.0 < low < 0.001
        assert 0.999 < high < 1.0
        server.answer = lambda body: scores(0.0, 0.5, 0.5)
        assert (await reranker.rerank(QUERY, TEXTS))[0] == 0.5

    async def test_odd_texts_can_be_sent(self, server: Server, reranker: HttpReranker) -> None:
        assert list(await reranker.rerank("\ud800", ["", "\ud83d", "x" * 100_000])) == SCORES
        empty, _, long = server.requests[-1]["documents"]
        assert empty == " "
        assert len(long) == MAX_CHARACTERS

    @pytest.mark.parametrize(
        "answer",
        [
            scores(0.1, 0.2, math.nan),
            scores(0.1, 0.2, math.inf),
            scores(0.1, 0.2, None),
            scores(0.1, 0.2, "0.3"),
            scores(0.1, 0.2, True),
            scores(0.1, 0.2, 0.3, indices=(0, 1, 3)),
            scores(0.1, 0.2, 0.3, indices=(0, 1, 1)),
            scores(0.1, 0.2, 0.3, indices=(0, 1, -1)),
            scores(0.1, 0.2, 0.3, indices=(0, 1, "2")),
            scores(0.1, 0.2, 0.3, indices=(0, 1, None)),
            scores(0.1, 0.2, indices=(0, 1)),
            scores(0.1, 0.2, 0.3, 0.4, indices=(0, 1, 2, 2)),
            (200, {"results": [{"relevance_score": 0.5}] * 3}),
            (200, {"results": [0.1, 0.2, 0.3]}),
            (200, {"results": "none"}),
            (200, {"error": "overloaded"}),
            (200, {}),
            (200, []),
            (200, "null"),
            (200, "<html><body>Welcome</body></html>"),
            (200, ""),
            (200, "[" * 100_000),
            (200, "1" * 5_000),
        ],
        ids=lambda answer: str(answer[1])[:60],
    )
    async def test_an_answer_that_is_not_one_score_for_each_text_is_refused(
        self, server: Server, reranker: HttpReranker, answer: Answer
    ) -> None:
        server.answer = lambda body: answer
        with pytest.raises(ModelUnavailable, match="answered no scores: ") as raised:
            await reranker.rerank(QUERY, TEXTS)
        assert "Error" not in str(raised.value)

    @pytest.mark.parametrize(
        ("status", "error", "says"),
        [
            (401, InvalidSettings, "API key was refused"),
            (403, InvalidSettings, "API key was refused"),
            (404, InvalidSettings, "rerank-1"),
            (400, InvalidInput, "no such thing"),
            (422, InvalidInput, "no such thing"),
            (500, ModelUnavailable, "answered 500"),
            (302, ModelUnavailable, "redirects"),
        ],
    )
    async def test_a_refusal_says_what_it_means_and_never_the_key(
        self, server: Server, reranker: HttpReranker, status: int, error: type[Exception], says: str
    ) -> None:
        server.answer = lambda body: (status, f"no such thing: {KEY}")
        with pytest.raises(error, match=says) as caught:
            await reranker.rerank(QUERY, TEXTS)
        assert KEY not in str(caught.value)

    async def test_of_two_refusals_the_one_of_the_usual_shape_is_told(
        self, server: Server, reranker: HttpReranker
    ) -> None:
        server.answer = lambda body: (400, "too many" if "documents" in body else "what is texts?")
        with pytest.raises(InvalidInput, match="too many"):
            await reranker.rerank(QUERY, TEXTS)

    async def test_a_slow_server_is_given_up_in_time(self, server: Server) -> None:
        server.pause_s = 40.0
        reranker = HttpReranker(server.url, model="m", timeout_s=0.1)
        start = time.perf_counter()
        with pytest.raises(ModelUnavailable, match=r"0\.1 s"):
            await reranker.rerank(QUERY, TEXTS)
        assert time.perf_counter() - start < 20
        await reranker.close()

    async def test_a_server_that_is_not_there_is_unavailable(self, server: Server) -> None:
        server.stop()
        reranker = HttpReranker(server.url, model="m", timeout_s=5)
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            await reranker.rerank(QUERY, TEXTS)
        await reranker.close()

    @pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host", "http://"])
    def test_an_address_that_is_none_is_a_wrong_setting(self, url: str) -> None:
        with pytest.raises(InvalidSettings):
            HttpReranker(url, model="m")


class Scripted:
    """A reranker that does as it is told."""

    name = "scripted"

    def __init__(self, answer: Callable[[Sequence[str]], Any]) -> None:
        self.answer = answer
        self.seen: list[Sequence[str]] = []

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        self.seen.append(texts)
        answer = self.answer(texts)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return answer  # type: ignore[no-any-return]

    async def close(self) -> None: ...


async def reranked(answer: Callable[[Sequence[str]], Any], *, timeout_s: float = 60) -> RerankResult:
    return await rerank(QUERY, TEXTS, reranker=Scripted(answer), limit=20, timeout_s=timeout_s)


class TestStep:
    async def test_only_the_first_candidates_are_looked_at_again(self) -> None:
        scripted: Reranker = Scripted(lambda texts: [0.5] * len(texts))
        results = await rerank(QUERY, TEXTS, reranker=scripted, limit=2, timeout_s=60)
        assert results == RerankResult((0.5, 0.5))
        assert scripted.seen == [TEXTS[:2]]  # type: ignore[attr-defined]

    async def test_without_a_reranker_or_candidates_there_is_nothing_to_say(self) -> None:
        assert await rerank(QUERY, TEXTS, reranker=None, limit=5, timeout_s=1) == RerankResult()
        scripted = Scripted(lambda texts: [])
        assert await rerank(QUERY, [], reranker=scripted, limit=5, timeout_s=1) == RerankResult()
        assert scripted.seen == []

    async def test_a_reranker_that_is_too_slow_has_no_opinion(self) -> None:
        start = time.perf_counter()
        results = await reranked(lambda texts: 60.0, timeout_s=0.05)
        assert time.perf_counter() - start < 20
        assert results == RerankResult(note="not reranked: scripted took more than 0.05 s")

    @pytest.mark.parametrize(
        "error", [ModelUnavailable("away"), InvalidSettings("no key"), ValueError("a bug"), ZeroDivisionError()]
    )
    async def test_a_reranker_that_fails_has_no_opinion(self, error: Exception) -> None:
        results = await reranked(lambda texts: error)
        assert results.scores == ()
        assert results.note.startswith("not reranked: ")
        assert str(error) in results.note

    @pytest.mark.parametrize(
        "answer", [[], [0.5], [0.5] * 4, [0.1, 0.2, math.nan], [0.1, 0.2, 1.5], [0.1, 0.2, -1], ["a"] * 3, None]
    )
    async def test_an_answer_that_is_not_one_score_for_each_is_no_opinion(self, answer: Any) -> None:
        results = await reranked(lambda texts: answer)
        assert results.scores == ()
        assert results.note.startswith("not reranked: scripted")

    async def test_who_cancels_the_recall_cancels_the_second_look(self) -> None:
        work = asyncio.create_task(reranked(lambda texts: 30.0))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work


class TestWiring:
    async def test_an_http_reranker_is_opened_from_the_settings(self, server: Server) -> None:
        settings = Settings(reranker="http:rerank-1", reranker_url=server.url, reranker_api_key=KEY)
        opened = open_reranker(settings)
        assert opened is not None
        results = await rerank(QUERY, TEXTS, reranker=opened, limit=10, timeout_s=60)
        assert results == RerankResult(tuple(SCORES))
        assert server.requests[0]["model"] == opened.name == "rerank-1"
        await opened.close()

    def test_none_is_none(self) -> None:
        assert open_reranker(Settings()) is None

    @pytest.mark.parametrize("name", ["http", "http:", "neural:x", "cohere", "none:x", "http:model"])
    def test_a_name_that_is_not_known_or_has_no_address_is_a_wrong_setting(self, name: str) -> None:
        with pytest.raises(InvalidSettings, match="reranker"):
            open_reranker(Settings(reranker=name))
