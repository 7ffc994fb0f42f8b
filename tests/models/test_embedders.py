"""The embedders keep the promises of `recollect.models.embedding`, and their own."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.errors import InvalidInput, InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models import http_client, openai_embedder
from recollect.models.embedder_wrappers import CachedEmbedder, unit_rows
from recollect.models.embedding import Embedder
from recollect.models.hub import HubEmbedder
from recollect.models.openai_embedder import OpenAIEmbedder
from recollect.models.static_embedder import BUNDLED_TABLE, StaticEmbedder, load_tokenizer, word_piece_ids
from recollect.testing.fake_embedder import FakeEmbedder
from recollect.testing.scripted_llm import ScriptedLLM
from tests.support.llm_faults import hang, html_page, http_error, no_body, reset, truncated
from tests.support.loop_time import assert_loop_runs

KEY = "sk-very-secret-0123456789"
ODD_TEXTS = [
    "",
    " \n\t",
    "🦄🦄",
    "\ud800",
    "\x00",
    "ꙮ" * 50,
    "a" * 200_000,
    "日本語のテキスト",
    "[UNK] [PAD] [CLS]",
]


def assert_unit_rows(vectors: Any, *, rows: int, dimensions: int) -> None:
    assert vectors.shape == (rows, dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


class TestStaticEmbedder:
    @pytest.fixture
    def embedder(self) -> StaticEmbedder:
        return StaticEmbedder()

    async def test_its_identity_is_what_it_answers(self, embedder: StaticEmbedder) -> None:
        vectors = await embedder.embed(["one", "two words", "three words here"])
        assert embedder.model.name.startswith("recollect-static-")
        assert_unit_rows(vectors, rows=3, dimensions=embedder.model.dimensions)

    def test_words_are_split_into_pieces_as_by_the_tokenizer(self) -> None:
        tokenizer = load_tokenizer()
        chars = "".join(map(chr, range(128)))
        texts = [
            *("Anna's e-mail: anna_k@example.com, 3.5% of $1,000!", "two\nlines\n", "a" * 101, "unbelievably  long"),
            *(f"ab{char}Cd" for char in chars),
        ]
        expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        assert word_piece_ids(texts) == expected
        # From the cache, and changed by nobody.
        assert word_piece_ids(texts) == expected

    async def test_texts_that_mean_the_same_are_closer_than_texts_that_do_not(self, embedder: StaticEmbedder) -> None:
        other = "The quarterly tax report is due."
        same = [
            ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
            ("I am allergic to peanuts.", "Nuts make me sick."),
            ("We moved to Berlin in March.", "They relocated to Germany this spring."),
        ]
        for one, two in same:
            vectors = await embedder.embed([one, two, other])
            assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.1

    async def test_a_text_has_the_same_vector_alone_and_in_a_batch(self, embedder: StaticEmbedder) -> None:
        texts = [f"sentence number {number} about the {number % 7} seas" for number in range(500)]
        batch = await embedder.embed(texts)
        for at in (0, 1, 250, 499):
            np.testing.assert_array_equal(batch[at], (await embedder.embed([texts[at]]))[0])

    async def test_no_texts_are_no_rows(self, embedder: StaticEmbedder) -> None:
        assert (await embedder.embed([])).shape == (0, embedder.model.dimensions)

    async def test_odd_texts_still_get_a_vector(self, embedder: StaticEmbedder) -> None:
        vectors = await embedder.embed(ODD_TEXTS)
        assert_unit_rows(vectors, rows=len(ODD_TEXTS), dimensions=embedder.model.dimensions)
        for text, vector in zip(ODD_TEXTS, vectors, strict=True):
            np.testing.assert_array_equal(vector, (await embedder.embed([text]))[0])

    async def test_texts_without_a_known_token_are_told_apart(self, embedder: StaticEmbedder) -> None:
        unicorn, repeated, robot = await embedder.embed(["🦄", " 🦄 ", "🤖"])
        assert unicorn @ repeated > 0.999
        assert unicorn @ robot < 0.3

    async def test_a_repeated_text_points_the_same_way_however_long(self, embedder: StaticEmbedder) -> None:
        once, often = await embedder.embed(["red apples ", "red apples " * 2_000])
        assert once @ often > 0.9999

    async def test_a_megabyte_costs_no_more_than_its_beginning(self, embedder: StaticEmbedder) -> None:
        await embedder.embed(["warm up"])
        took = []
        for _ in range(3):
            start = time.process_time()
            await embedder.embed(["word " * 210_000, "x" * (1 << 20), "🦄 " * 262_144])
            took.append(time.process_time() - start)
        assert min(took) < 10

    async def test_a_large_batch_leaves_the_event_loop_free(self, embedder: StaticEmbedder) -> None:
        texts = ["a fairly ordinary sentence about the weather"] * 20_000
        await asyncio.to_thread(assert_loop_runs, lambda: embedder.embed(texts))

    async def test_a_short_query_is_answered_in_a_fraction_of_a_millisecond(self, embedder: StaticEmbedder) -> None:
        took = []
        for _ in range(200):
            start = time.perf_counter()
            await embedder.embed(["Where did we go last summer?"], role="query")
            took.append(time.perf_counter() - start)
        # Ten times what an idle machine needs; the best, since how busy it is says nothing about the code.
        assert min(took) < 0.001

    async def test_it_embeds_again_after_it_was_closed(self, embedder: StaticEmbedder) -> None:
        before = await embedder.embed(["hello"])
        await embedder.close()
        np.testing.assert_array_equal(before, await embedder.embed(["hello"]))

    def test_a_folder_without_a_table_is_a_wrong_setting(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match="no readable table"):
            StaticEmbedder(tmp_path)

    async def test_a_table_with_a_missing_part_is_a_wrong_setting(self, tmp_path: Path) -> None:
        (tmp_path / "table.json").write_text('{"name": "broken", "dimensions": 4}')
        with pytest.raises(InvalidSettings, match="no readable table"):
            await StaticEmbedder(tmp_path).embed(["hello"])

    def test_the_table_ships_with_the_licence_of_its_origin(self) -> None:
        assert "Apache" in (BUNDLED_TABLE / "NOTICE").read_text(encoding="utf-8")


class TestCachedEmbedder:
    async def test_the_same_text_twice_in_a_batch_is_paid_for_once(self) -> None:
        inner = FakeEmbedder()
        vectors = await CachedEmbedder(inner).embed(["one", "two", "one"])
        assert inner.texts_embedded == 2
        np.testing.assert_array_equal(vectors, await FakeEmbedder().embed(["one", "two", "one"]))

    async def test_only_new_texts_are_asked_for_in_one_call(self) -> None:
        inner = FakeEmbedder()
        cached = CachedEmbedder(inner)
        await cached.embed(["one", "two"])
        vectors = await cached.embed(["three", "two", "four", "one"])
        assert (inner.calls, inner.texts_embedded) == (2, 4)
        np.testing.assert_array_equal(vectors, await FakeEmbedder().embed(["three", "two", "four", "one"]))

    async def test_a_question_and_a_passage_are_two_entries(self) -> None:
        inner = FakeEmbedder()
        cached = CachedEmbedder(inner)
        await cached.embed(["one"], role="query")
        await cached.embed(["one"], role="passage")
        assert inner.roles == ["query", "passage"]

    async def test_the_text_used_longest_ago_is_forgotten_first(self) -> None:
        inner = FakeEmbedder()
        cached = CachedEmbedder(inner, max_entries=2)
        await cached.embed(["one"])
        await cached.embed(["two"])
        await cached.embed(["one"])
        await cached.embed(["three"])
        assert len(cached) == 2
        calls = inner.calls
        await cached.embed(["one"])
        assert inner.calls == calls
        await cached.embed(["two"])
        assert inner.calls == calls + 1

    async def test_a_batch_larger_than_the_cache_is_answered_whole(self) -> None:
        texts = [str(number) for number in range(50)]
        cached = CachedEmbedder(FakeEmbedder(), max_entries=3)
        np.testing.assert_array_equal(await cached.embed(texts), await FakeEmbedder().embed(texts))
        assert len(cached) == 3

    async def test_what_a_caller_does_to_its_vectors_stays_with_the_caller(self) -> None:
        cached = CachedEmbedder(FakeEmbedder())
        first = await cached.embed(["one"])
        first[:] = 0
        assert_unit_rows(await cached.embed(["one"]), rows=1, dimensions=64)

    async def test_a_failure_is_not_remembered(self) -> None:
        inner = FakeEmbedder(fail_with=ModelUnavailable("down"))
        cached = CachedEmbedder(inner)
        with pytest.raises(ModelUnavailable):
            await cached.embed(["one"])
        inner.fail_with = None
        assert_unit_rows(await cached.embed(["one"]), rows=1, dimensions=64)

    async def test_no_texts_ask_nothing_and_odd_texts_are_fine(self) -> None:
        inner = FakeEmbedder()
        cached = CachedEmbedder(inner)
        assert (await cached.embed([])).shape == (0, 64)
        assert inner.calls == 0
        assert_unit_rows(await cached.embed(ODD_TEXTS), rows=len(ODD_TEXTS), dimensions=64)

    async def test_closing_it_closes_the_inner_one(self) -> None:
        inner = FakeEmbedder()
        await CachedEmbedder(inner).close()
        assert inner.closed

    def test_a_cache_of_nothing_is_a_wrong_setting(self) -> None:
        with pytest.raises(InvalidSettings):
            CachedEmbedder(FakeEmbedder(), max_entries=0)


class TestOpenAIEmbedder:
    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedLLM]:
        monkeypatch.setattr(http_client, "FIRST_PAUSE_S", 0.01)
        with ScriptedLLM(dimensions=32) as server:
            yield server

    @pytest.fixture
    async def embedder(self, server: ScriptedLLM) -> AsyncIterator[OpenAIEmbedder]:
        embedder = await OpenAIEmbedder(
            server.base_url, KEY, model="small", batch_size=4, timeout_s=60
        ).with_dimensions()
        server.clear()
        yield embedder
        await embedder.close()

    async def test_connecting_learns_the_dimensions(self, embedder: OpenAIEmbedder) -> None:
        assert (embedder.model.name, embedder.model.dimensions) == ("small", 32)

    async def test_dimensions_that_are_given_are_asked_for_and_cost_no_probe(self, server: ScriptedLLM) -> None:
        embedder = await OpenAIEmbedder(server.base_url, KEY, model="small", dimensions=16).with_dimensions()
        assert not server.requests
        assert_unit_rows(await embedder.embed(["hello"]), rows=1, dimensions=16)
        assert server.requests[0].json["dimensions"] == 16
        await embedder.close()

    async def test_the_identity_is_unknown_before_the_first_answer(self, server: ScriptedLLM) -> None:
        embedder = OpenAIEmbedder(server.base_url, KEY, model="small")
        with pytest.raises(InvalidSettings, match="with_dimensions"):
            _ = embedder.model
        await embedder.embed(["hello"])
        assert embedder.model.dimensions == 32
        await embedder.close()

    async def test_texts_go_in_batches_and_come_back_in_order(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder
    ) -> None:
        texts = [f"text {number}" for number in range(10)]
        vectors = await embedder.embed(texts)
        assert [len(request.json["input"]) for request in server.requests] == [4, 4, 2]
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        np.testing.assert_allclose(vectors, await FakeEmbedder(32).embed(texts), atol=1e-6)

    async def test_plain_numbers_are_as_good_as_base64_and_rows_may_be_out_of_order(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder
    ) -> None:
        rows = [{"index": 1, "embedding": [0.0] * 31 + [2.0]}, {"index": 0, "embedding": [3.0] + [0.0] * 31}]
        server.fault(http_error(200, {"data": rows}))
        first, second = await embedder.embed(["a", "b"])
        assert (first[0], second[31]) == (1.0, 1.0)

    async def test_odd_texts_and_no_texts_are_fine(self, server: ScriptedLLM, embedder: OpenAIEmbedder) -> None:
        assert (await embedder.embed([])).shape == (0, 32)
        assert_unit_rows(await embedder.embed(ODD_TEXTS), rows=len(ODD_TEXTS), dimensions=32)
        sent = [text for request in server.requests for text in request.json["input"]]
        assert all(sent)
        assert max(map(len, sent)) <= openai_embedder.MAX_CHARACTERS

    @pytest.mark.parametrize("fault", [http_error(429), http_error(503), reset()], ids=lambda fault: fault.name)
    async def test_a_passing_fault_is_tried_again(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder, fault: Any
    ) -> None:
        server.fault(fault, times=2)
        assert_unit_rows(await embedder.embed(["hello"]), rows=1, dimensions=32)
        assert len(server.requests) == 3

    async def test_a_fault_that_stays_is_given_up_on(self, server: ScriptedLLM, embedder: OpenAIEmbedder) -> None:
        server.fault(http_error(500), times=None)
        with pytest.raises(ModelUnavailable, match="500"):
            await embedder.embed(["hello"])
        assert len(server.requests) == http_client.TRIES

    async def test_the_pause_a_server_asks_for_is_kept(self, server: ScriptedLLM, embedder: OpenAIEmbedder) -> None:
        server.fault(http_error(429, headers={"Retry-After": "0.3"}))
        start = time.perf_counter()
        await embedder.embed(["hello"])
        assert time.perf_counter() - start >= 0.3

    async def test_a_pause_beyond_patience_is_reported_at_once(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder
    ) -> None:
        server.fault(http_error(429, headers={"Retry-After": "3600"}))
        with pytest.raises(ModelUnavailable, match="429"):
            await embedder.embed(["hello"])
        assert len(server.requests) == 1

    async def test_a_server_that_falls_silent_is_left_after_the_timeout(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder
    ) -> None:
        server.fault(hang(after_bytes=20), times=None)
        hasty = OpenAIEmbedder(server.base_url, KEY, model="small", timeout_s=1.0)
        start = time.perf_counter()
        with pytest.raises(ModelUnavailable, match=r"did not answer in 1 s"):
            await hasty.embed(["hello"])
        assert time.perf_counter() - start < 20
        assert len(server.requests) <= 1
        await hasty.close()

    async def test_a_server_that_is_not_there_is_unavailable(self, server: ScriptedLLM) -> None:
        server.stop()
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            await OpenAIEmbedder(server.base_url, KEY, model="small").with_dimensions()

    @pytest.mark.parametrize(
        "fault",
        [
            html_page(),
            no_body(),
            truncated(),
            http_error(200, []),
            http_error(200, {"data": None}),
            http_error(200, {"data": []}),
            http_error(200, {"data": [{"index": 0}]}),
            http_error(200, {"data": [{"index": 7, "embedding": [1.0]}]}),
            http_error(200, {"data": [{"index": "x", "embedding": [1.0]}]}),
            http_error(200, {"data": [{"index": 0, "embedding": "not base64!"}]}),
            http_error(200, {"data": [{"index": 0, "embedding": "AAA="}]}),
            http_error(200, {"data": [{"index": 0, "embedding": ["a", "b"]}]}),
            http_error(200, {"data": [{"index": 0, "embedding": []}]}),
            http_error(200, '{"data": [{"index": 0, "embedding": [NaN, 1.0]}]}'),
            http_error(200, "[" * 100_000),
        ],
    )
    async def test_a_malformed_answer_is_a_clear_error(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder, fault: Any
    ) -> None:
        server.fault(fault, times=None)
        with pytest.raises(ModelUnavailable, match="answered no embeddings"):
            await embedder.embed(["hello"])

    async def test_vectors_of_another_size_are_refused(self, server: ScriptedLLM, embedder: OpenAIEmbedder) -> None:
        server.dimensions = 48
        with pytest.raises(InvalidSettings, match=r"48 dimensions.*32 were expected"):
            await embedder.embed(["hello"])

    @pytest.mark.parametrize(
        ("status", "error"),
        [(400, InvalidInput), (401, InvalidSettings), (403, InvalidSettings), (404, InvalidSettings)],
    )
    async def test_a_refusal_is_not_tried_again_and_never_shows_the_key(
        self, server: ScriptedLLM, embedder: OpenAIEmbedder, status: int, error: type[Exception]
    ) -> None:
        server.fault(http_error(status, f"bad key {KEY}"), times=None)
        with pytest.raises(error) as raised:
            await embedder.embed(["hello"])
        assert len(server.requests) == 1
        assert KEY not in str(raised.value)
        assert KEY not in repr(embedder)

    async def test_a_password_in_the_url_is_never_shown(self, server: ScriptedLLM) -> None:
        url = server.base_url.replace("http://", "http://someone:hunter2@")
        server.fault(http_error(500), times=None)
        with pytest.raises(ModelUnavailable) as raised:
            await OpenAIEmbedder(url, model="small").with_dimensions()
        assert "hunter2" not in str(raised.value)

    @pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host/v1", "http://", "http://a b:x/"])
    def test_a_url_that_cannot_work_is_a_wrong_setting(self, url: str) -> None:
        with pytest.raises(InvalidSettings):
            OpenAIEmbedder(url, model="small")


class TestHubEmbedder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A model2vec model of five words, as the library itself saves it."""
        import model2vec
        import tokenizers

        words = {"[UNK]": 0, "red": 1, "apples": 2, "blue": 3, "sky": 4}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
        model2vec.StaticModel(vectors, tokenizer, normalize=False).save_pretrained(tmp_path)
        return tmp_path

    async def test_a_model2vec_folder_is_loaded_and_embeds(self, folder: Path) -> None:
        embedder: Embedder = await HubEmbedder.load(f"model2vec:{folder}")
        assert embedder.model.dimensions == 8
        vectors = await embedder.embed(["red apples", "apples red", "blue sky"], role="query")
        assert_unit_rows(vectors, rows=3, dimensions=8)
        assert vectors[0] @ vectors[1] > 0.999 > vectors[0] @ vectors[2]
        await embedder.close()

    async def test_texts_the_model_knows_nothing_of_still_get_a_vector(self, folder: Path) -> None:
        embedder = await HubEmbedder.load(f"model2vec:{folder}")
        assert_unit_rows(await embedder.embed(["", "🦄"]), rows=2, dimensions=8)
        assert (await embedder.embed([])).shape == (0, 8)
        await embedder.close()

    async def test_a_model_that_cannot_be_loaded_is_unavailable(self, tmp_path: Path) -> None:
        with pytest.raises(ModelUnavailable, match="could not be loaded"):
            await HubEmbedder.load(f"model2vec:{tmp_path / 'nothing here'}")

    @pytest.mark.parametrize(
        ("library", "module"),
        [
            ("model2vec", "model2vec"),
            ("sentence-transformers", "sentence_transformers"),
            ("fastembed", "fastembed"),
        ],
    )
    async def test_a_library_that_is_not_installed_names_its_extra(
        self, monkeypatch: pytest.MonkeyPatch, library: str, module: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match=rf"recollect\[{library}\]"):
            await HubEmbedder.load(f"{library}:some-model")

    @pytest.mark.parametrize("name", ["", "model2vec", "model2vec:", "word2vec:x", ":x"])
    async def test_a_name_without_a_known_library_is_a_wrong_setting(self, name: str) -> None:
        with pytest.raises(InvalidSettings, match="model2vec:NAME"):
            await HubEmbedder.load(name)


class TestUnitRows:
    def test_numbers_that_are_not_finite_are_never_passed_on(self) -> None:
        for bad in (np.nan, np.inf):
            with pytest.raises(ModelUnavailable):
                unit_rows(np.array([[1.0, bad]]), ["text"])

    def test_what_was_given_is_left_alone(self) -> None:
        inputs = np.array([[3.0, 4.0]], dtype=np.float32)
        np.testing.assert_allclose(unit_rows(inputs, ["text"]), [[0.6, 0.8]])
        assert inputs.tolist() == [[3.0, 4.0]]


def test_a_table_card_is_plain_json() -> None:
    assert set(json.loads((BUNDLED_TABLE / "table.json").read_text())) >= {"name", "dimensions"}
