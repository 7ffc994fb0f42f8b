from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from recollect.errors import ModelUnavailable
from recollect.models.embedding import Embedder
from recollect.testing.fake_embedder import FakeEmbedder, embed_words, openai_embeddings


def embed(embedder: FakeEmbedder, *texts: str) -> np.ndarray:
    return asyncio.run(embedder.embed(texts))


def test_it_is_an_embedder_with_a_name_and_a_dimension() -> None:
    embedder: Embedder = FakeEmbedder(32, name="little")
    assert (embedder.model.name, embedder.model.dimensions) == ("little", 32)
    assert FakeEmbedder().model.dimensions == 64


def test_rows_are_float32_of_length_one_in_the_order_of_the_texts() -> None:
    rows = embed(FakeEmbedder(48), "red fox", "blue whale", "red fox")
    assert rows.shape == (3, 48)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    assert (rows[0] == rows[2]).all()
    assert not (rows[0] == rows[1]).all()


def test_a_vector_is_the_same_in_every_process_and_release() -> None:
    signs = "".join("+" if value > 0 else "-" for value in embed_words(["hawaii"], 16)[0])
    assert signs == "+-+++--+++--++--"


@pytest.mark.parametrize("dimensions", [64, 256])
def test_similarity_grows_with_the_words_that_are_shared(dimensions: int) -> None:
    rows = embed_words(
        ["my budget for hawaii", "my budget for hawaii trips", "my budget rose", "quiet green lamps"],
        dimensions,
    )
    same, most, some, none = (float(rows[0] @ row) for row in rows)
    assert same == pytest.approx(1.0)
    assert same > most > some > none


def test_case_punctuation_order_and_repetition_do_not_matter() -> None:
    rows = embed_words(["Hawaii, budget!", "budget hawaii", "BUDGET budget hawaii"], 64)
    assert (rows == rows[0]).all()


@pytest.mark.parametrize("text", ["", " ", "?!", "\x00", "\ud800", "🌺", "x" * 1_000_000])
@pytest.mark.parametrize("dimensions", [1, 7, 64])
def test_every_text_has_a_unit_vector(text: str, dimensions: int) -> None:
    row = embed_words([text], dimensions)[0]
    assert np.isfinite(row).all()
    assert np.linalg.norm(row) == pytest.approx(1.0, abs=1e-6)


def test_words_that_cancel_each_other_still_give_a_unit_vector() -> None:
    # In one dimension every word is plus or minus one, so half of all pairs sum to nothing.
    rows = embed_words([f"left{n} right{n}" for n in range(40)], 1)
    assert (np.abs(rows) == 1.0).all()


def test_no_texts_give_no_rows_of_the_right_width() -> None:
    assert embed(FakeEmbedder(8)).shape == (0, 8)


def test_calls_texts_and_roles_are_counted() -> None:
    embedder = FakeEmbedder()
    embed(embedder, "a", "b", "c")
    asyncio.run(embedder.embed(["d"], role="query"))
    assert (embedder.calls, embedder.texts_embedded, embedder.roles) == (2, 4, ["passage", "query"])


def test_it_fails_as_told_until_told_otherwise() -> None:
    embedder = FakeEmbedder(fail_with=ModelUnavailable("the embedder is away"))
    with pytest.raises(ModelUnavailable, match="away"):
        embed(embedder, "a")
    assert (embedder.calls, embedder.texts_embedded) == (1, 0)
    embedder.fail_with = None
    assert embed(embedder, "a").shape == (1, 64)


def test_a_delay_holds_the_answer_back_without_stopping_the_loop() -> None:
    async def many_at_once() -> float:
        embedder = FakeEmbedder(delay_s=0.2)
        began = time.monotonic()
        await asyncio.gather(*(embedder.embed(["a"]) for _ in range(100)))
        return time.monotonic() - began

    # One after the other they would take 20 s.
    assert 0.2 <= asyncio.run(many_at_once()) < 10


def test_closing_is_noticed() -> None:
    embedder = FakeEmbedder()
    assert not embedder.closed
    asyncio.run(embedder.close())
    assert embedder.closed


def test_fewer_than_one_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one dimension"):
        FakeEmbedder(0)


@pytest.mark.parametrize("given", [None, 7, [], {}, [None], ["a", None], [[1], 2.5]])
def test_an_openai_request_without_texts_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="'input' must be"):
        openai_embeddings({"input": given}, 64)


@pytest.mark.parametrize("dimensions", [0, -1, 1.5, "64", True])
def test_an_openai_request_with_an_odd_dimension_is_refused(dimensions: object) -> None:
    with pytest.raises(ValueError, match="'dimensions' must be"):
        openai_embeddings({"input": "a", "dimensions": dimensions}, 64)


def test_token_numbers_are_embedded_like_words() -> None:
    one = openai_embeddings({"input": [1, 2, 3]}, 64)["data"]
    many = openai_embeddings({"input": [[1, 2, 3], "hawaii"]}, 64)["data"]
    assert [row["index"] for row in many] == [0, 1]
    assert one[0]["embedding"] == many[0]["embedding"] == embed_words(["1 2 3"], 64)[0].tolist()
