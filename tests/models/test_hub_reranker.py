"""Cross-encoders of the hubs' libraries: what a reranker made of one promises, and the libraries themselves."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recollect import AsyncMemory
from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models import hub
from recollect.models.embedding import Reranker
from recollect.models.hub import BATCH, MAX_CHARACTERS, MAX_WAITING, HubReranker, Score
from recollect.models.neural import CROSS_ENCODER, OnnxModel, find_files
from recollect.read.rerank import rerank
from recollect.wiring import open_reranker

QUESTION = "What is Ana allergic to?"
ANSWER = "Ana is allergic to peanuts."
IRRELEVANT = ["Ana: We moved to Lisbon in March.", "Ben: The bus was late again.", "Ana: I had lunch with Ben."]
ODD_TEXTS = ["", " \n\t", "🦄🦄", "\ud800", "\x00", "ꙮ" * 50, "a" * 200_000, "日本語のテキスト", "[SEP] [PAD] [CLS]"]
LIBRARIES = {"sentence-transformers": "sentence_transformers", "fastembed": "fastembed"}


def small_model() -> Score:
    """The cross-encoder of the neural extra, answering plain numbers as the hubs' libraries do."""
    folder = find_files(CROSS_ENCODER, required_by="a test")
    network = OnnxModel(folder, network_sha256=CROSS_ENCODER.network_sha256, max_tokens=64)
    return lambda query, texts: [network.run((query, text))[0] for text in texts]


def numbers(*values: Any) -> Callable[[], Score]:
    """A model that answers these numbers, or as many zeros as were asked for when it is tried out."""
    return lambda: lambda query, texts: values if query != "probe" else [0.0] * len(texts)


class Gate:
    """A model whose loading, or whose work, waits until it is let through."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.loads, self.batches = 0, 0

    def load(self) -> Score:
        self.loads += 1
        self.wait()
        return lambda query, texts: [0.0] * len(texts)

    def load_slow_model(self) -> Score:
        def score(query: str, texts: list[str]) -> list[float]:
            if query != "probe":
                self.batches += 1
                self.wait()
            return [0.0] * len(texts)

        return score

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(60)

    async def arrival(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 60)


async def dropped(work: asyncio.Task[Any]) -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


class TestScores:
    @pytest.fixture
    async def reranker(self) -> AsyncIterator[HubReranker]:
        reranker = HubReranker("test:model", load=small_model)
        yield reranker
        await reranker.close()

    async def test_the_text_that_answers_scores_highest_in_its_own_place(self, reranker: Reranker) -> None:
        scores = await reranker.rerank(QUESTION, [*IRRELEVANT * BATCH, ANSWER, *IRRELEVANT])
        assert len(scores) == len(IRRELEVANT) * (BATCH + 1) + 1
        assert scores.index(max(scores)) == len(IRRELEVANT) * BATCH
        assert max(scores) > 0.9 > 20 * sorted(scores)[-2]
        assert reranker.name == "test:model"

    async def test_odd_texts_and_questions_get_scores(self, reranker: Reranker) -> None:
        for query in (QUESTION, "", "\ud800", "why " * 10_000):
            scores = await reranker.rerank(query, ODD_TEXTS)
            assert len(scores) == len(ODD_TEXTS)
            assert all(0.0 <= score <= 1.0 for score in scores)

    async def test_no_texts_are_not_worth_loading_a_model(self) -> None:
        gate = Gate()
        reranker = HubReranker("test:model", load=gate.load)
        assert list(await reranker.rerank(QUESTION, [])) == []
        assert gate.loads == 0
        await reranker.close()

    async def test_logits_of_any_size_become_chances(self) -> None:
        reranker = HubReranker("test:model", load=numbers(-1e9, -2.0, 0.0, 2.0, 1e9))
        least, low, even, high, most = await reranker.rerank(QUESTION, ["text"] * 5)
        assert 0.0 <= least < 1e-300
        assert (even, most) == (0.5, 1.0)
        assert low == pytest.approx(1 - high) == pytest.approx(1 / (1 + math.e**2))
        await reranker.close()

    async def test_the_model_gets_small_batches_of_texts_it_can_read(self) -> None:
        inputs: list[list[str]] = []
        request: set[str] = set()

        def score(query: str, texts: list[str]) -> list[float]:
            request.add(query)
            inputs.append(texts)
            return [0.0] * len(texts)

        reranker = HubReranker("test:model", load=lambda: score)
        await reranker.rerank("why\ud800", ["x" * 100_000] * (2 * BATCH + 1))
        assert request == {"probe", "why"}, "half a character is an error in most tokenizers"
        assert [len(batch) for batch in inputs[1:]] == [BATCH, BATCH, 1]
        assert {len(text) for batch in inputs[1:] for text in batch} == {MAX_CHARACTERS}
        await reranker.close()

    @pytest.mark.parametrize("values", [(0.5,), (0.5, 0.5, 0.5), ((0.1, 0.9), (0.2, 0.8)), (0.5, math.nan), (1, "a")])
    async def test_an_answer_that_is_not_one_number_for_each_text_is_refused(self, values: Any) -> None:
        reranker = HubReranker("test:model", load=numbers(*values))
        with pytest.raises(ModelUnavailable, match="test:model"):
            await reranker.rerank(QUESTION, ["a", "b"])
        await reranker.close()


class TestLoading:
    async def test_a_model_is_loaded_once_however_many_ask(self) -> None:
        gate = Gate()
        reranker = HubReranker("test:model", load=gate.load)
        requests = [asyncio.create_task(reranker.rerank(QUESTION, ["text"])) for _ in range(5)]
        await gate.arrival()
        gate.open.set()
        assert await asyncio.gather(*requests) == [[0.5]] * 5
        assert gate.loads == 1
        await reranker.close()

    async def test_once_one_gave_up_waiting_for_the_model_no_other_waits_and_afterwards_it_is_there(self) -> None:
        gate = Gate()
        reranker = HubReranker("test:model", load=gate.load)
        first = await rerank(QUESTION, ["text"], reranker=reranker, limit=1, timeout_s=0.05)
        assert first.note == "not reranked: test:model took more than 0.05 s"
        start = time.perf_counter()
        second = await rerank(QUESTION, ["text"], reranker=reranker, limit=1, timeout_s=60)
        assert second.note == "not reranked: the reranker 'test:model' is still being loaded"
        assert time.perf_counter() - start < 30
        gate.open.set()
        assert await patiently(reranker) == [0.5]
        assert gate.loads == 1
        await reranker.close()

    async def test_a_failed_load_is_told_to_all_and_tried_again_after_a_while(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries: list[int] = []

        def load() -> Score:
            tries.append(1)
            if len(tries) == 1:
                raise OSError("no route to the hub")
            return small_model()

        reranker = HubReranker("test:model", load=load)
        for _ in range(3):
            with pytest.raises(ModelUnavailable, match="'test:model' could not be loaded: no route to the hub"):
                await reranker.rerank(QUESTION, ["text"])
        assert len(tries) == 1
        monkeypatch.setattr(hub, "RETRY_S", 0.0)
        assert len(await reranker.rerank(QUESTION, ["text"])) == 1
        assert len(tries) == 2
        await reranker.close()

    async def test_a_model_for_other_work_is_not_taken(self) -> None:
        reranker = HubReranker("test:model", load=lambda: lambda query, texts: [[0.1, 0.2, 0.7]] * len(texts))
        with pytest.raises(ModelUnavailable, match=r"could not be loaded: .* one score for each text"):
            await reranker.rerank(QUESTION, ["text"])
        await reranker.close()


class TestWork:
    async def test_the_event_loop_stays_free_and_a_cancelled_call_begins_no_further_batch(self) -> None:
        gate = Gate()
        reranker = HubReranker("test:model", load=gate.load_slow_model)
        work = asyncio.create_task(reranker.rerank(QUESTION, ["text"] * 4 * BATCH))
        await gate.arrival()
        await dropped(work)
        gate.open.set()
        assert await reranker.rerank(QUESTION, ["text"]) == [0.5]
        assert gate.batches == 2, "one of the cancelled call, one of the last"
        await reranker.close()

    async def test_work_is_refused_while_too_much_waits_and_taken_again_afterwards(self) -> None:
        gate = Gate()
        reranker = HubReranker("test:model", load=gate.load_slow_model)
        work = asyncio.create_task(reranker.rerank(QUESTION, ["text"] * MAX_WAITING))
        await gate.arrival()
        with pytest.raises(ModelUnavailable, match=f"busy with {MAX_WAITING} texts"):
            await reranker.rerank(QUESTION, ["text"])
        gate.open.set()
        assert await work == [0.5] * MAX_WAITING
        assert await reranker.rerank(QUESTION, ["text"]) == [0.5]
        await reranker.close()

    async def test_once_closed_it_is_unavailable(self) -> None:
        reranker = HubReranker("test:model", load=small_model)
        await reranker.rerank(QUESTION, ["text"])
        await reranker.close()
        await reranker.close()
        with pytest.raises(ModelUnavailable, match="closed"):
            await reranker.rerank(QUESTION, ["text"])


class TestNames:
    @pytest.mark.parametrize("library", LIBRARIES)
    def test_a_library_that_is_not_installed_names_its_extra(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, library: str
    ) -> None:
        monkeypatch.setitem(sys.modules, LIBRARIES[library], None)
        with pytest.raises(MissingExtra, match=rf"pip install 'recollect\[{library}\]'"):
            HubReranker.named(f"{library}:some-model")
        # In a service it is done without, and told once.
        assert open_reranker(Settings(reranker=f"{library}:some-model")) is None
        [record] = caplog.records
        assert f"recollect[{library}]" in record.getMessage()

    @pytest.mark.parametrize("name", ["", "fastembed", "fastembed:", "model2vec:x", ":x"])
    def test_a_name_without_a_known_library_is_a_wrong_setting(self, name: str) -> None:
        with pytest.raises(InvalidSettings, match="sentence-transformers:NAME, fastembed:NAME"):
            HubReranker.named(name)

    @pytest.mark.parametrize("name", ["fastembed", "sentence-transformers:", "model2vec:x"])
    def test_a_wrong_setting_is_refused_with_all_choices(self, name: str) -> None:
        with pytest.raises(
            InvalidSettings, match=r"neural, auto, sentence-transformers:NAME, fastembed:NAME or http:MODEL"
        ):
            open_reranker(Settings(reranker=name))


class TestFastembed:
    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("fastembed", reason="the fastembed extra is not part of the development install")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    async def test_a_folder_with_a_real_model_is_loaded_and_ranks(self) -> None:
        folder = find_files(CROSS_ENCODER, required_by="a test")
        for _ in range(2):
            reranker = open_reranker(Settings(reranker=f"fastembed:{folder}"))
            assert isinstance(reranker, HubReranker)
            best, *rest = await reranker.rerank(QUESTION, [ANSWER, *IRRELEVANT])
            assert best > 0.9 > 20 * max(rest)
            assert len(await reranker.rerank("\ud800", ODD_TEXTS)) == len(ODD_TEXTS)
            await reranker.close()

    @pytest.mark.parametrize("there", [True, False])
    async def test_a_recall_is_better_with_the_model_and_works_without(
        self, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
        name = str(find_files(CROSS_ENCODER, required_by="a test")) if there else "no-such/model"
        settings = Settings(home=tmp_path, reranker=f"fastembed:{name}", rerank_timeout_s=60, recall_timeout_s=60)
        async with AsyncMemory(settings=settings) as memory:
            for text in (ANSWER, *IRRELEVANT):
                await memory.add(text, user_id="ana")
            recalled = await memory.recall(QUESTION, user_id="ana", trace=True)
        assert recalled.outcome == "used"
        assert recalled.hits[0].record.content == ANSWER
        assert ("rerank" in recalled.candidates[0].scores) is there
        assert any(note.startswith("not reranked: ") for note in recalled.notes) is not there

    @pytest.mark.parametrize("name", ["no-such/model", "Xenova/ms-marco-MiniLM-L-6-v2"])
    async def test_a_model_that_cannot_be_had_is_unavailable(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
        reranker = HubReranker.named(f"fastembed:{name}")
        with pytest.raises(ModelUnavailable, match="could not be loaded"):
            await reranker.rerank(QUESTION, ["text"])
        await reranker.close()


class TestSentenceTransformers:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        why = "the sentence-transformers extra is not part of the development install"
        pytest.importorskip("sentence_transformers", reason=why)

    async def test_a_folder_with_a_model_is_loaded_and_scores_as_the_model_itself(self, tmp_path: Path) -> None:
        import torch

        model, tokenizer = saved_model(tmp_path, labels=1)
        reranker = open_reranker(Settings(reranker=f"sentence-transformers:{tmp_path}"))
        assert isinstance(reranker, HubReranker)
        texts = [ANSWER, *IRRELEVANT * BATCH]
        scores = await reranker.rerank(QUESTION, texts)
        pairs = tokenizer([QUESTION] * len(texts), texts, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            expected = torch.sigmoid(model(**pairs).logits[:, 0]).tolist()
        assert scores == pytest.approx(expected, abs=1e-5)
        assert len(set(expected)) > len(IRRELEVANT)
        assert len(await reranker.rerank("\ud800", ODD_TEXTS)) == len(ODD_TEXTS)
        await reranker.close()

    async def test_a_model_of_several_labels_is_not_taken(self, tmp_path: Path) -> None:
        saved_model(tmp_path, labels=3)
        reranker = HubReranker.named(f"sentence-transformers:{tmp_path}")
        with pytest.raises(ModelUnavailable, match="one score for each text"):
            await reranker.rerank(QUESTION, ["text"])
        await reranker.close()

    async def test_a_model_that_cannot_be_had_is_unavailable(self, tmp_path: Path) -> None:
        reranker = HubReranker.named(f"sentence-transformers:{tmp_path / 'nothing here'}")
        with pytest.raises(ModelUnavailable, match="could not be loaded"):
            await reranker.rerank(QUESTION, ["text"])
        await reranker.close()


def saved_model(folder: Path, *, labels: int) -> tuple[Any, Any]:
    """A BERT of two layers that has learned nothing, with the words of a real one, as its library saves it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = find_files(CROSS_ENCODER, required_by="a test") / "vocab.txt"
    tokenizer = BertTokenizerFast(vocab=str(words), model_max_length=64)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=labels,
        initializer_range=1.0,
    )
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


async def patiently(reranker: Reranker) -> Sequence[float]:
    """The score of a text, once the model is loaded."""
    for _ in range(6_000):
        try:
            return await reranker.rerank(QUESTION, ["text"])
        except ModelUnavailable:
            await asyncio.sleep(0.01)
    raise AssertionError("the model was never loaded")
