"""The fake embedder: deterministic unit vectors that are close if texts share words."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from recollect.errors import ModelUnavailable
from recollect.testing.fake_embedder import FakeEmbedder, embed_words


def test_a_vector_is_the_same_in_every_process_and_release() -> None:
    signs = "".join("+" if value > 0 else "-" for value in embed_words(["hawaii"], 16)[0])
    assert signs == "+-+++--+++--++--"


def test_similarity_grows_with_the_number_of_shared_words() -> None:
    texts = ["my budget for hawaii", "FOR hawaii, my budget!", "my budget for trips", "my coat", "quiet lamps"]
    rows = embed_words(texts, 64)
    same, reordered, most, some, none = (float(rows[0] @ row) for row in rows)
    assert same == pytest.approx(1.0) == reordered
    assert same > most > some > none


@pytest.mark.parametrize("text", ["", "?!", "\x00", "\ud800", "🌺", "left right"])
@pytest.mark.parametrize("dimensions", [1, 64])
def test_every_text_has_a_unit_vector(text: str, dimensions: int) -> None:
    assert np.linalg.norm(embed_words([text], dimensions)[0]) == pytest.approx(1.0, abs=1e-6)


def test_calls_are_counted_and_fail_on_request() -> None:
    embedder = FakeEmbedder(fail_with=ModelUnavailable("the embedder is away"))
    with pytest.raises(ModelUnavailable, match="away"):
        asyncio.run(embedder.embed(["a"]))
    embedder.fail_with = None
    assert asyncio.run(embedder.embed(["a", "b"], role="query")).shape == (2, 64)
    assert (embedder.calls, embedder.texts_embedded, embedder.roles) == (2, 2, ["passage", "query"])
