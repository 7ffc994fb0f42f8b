"""The late-interaction encoder: one vector a word piece, the same alone and in a batch."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from recollect.models.token_encoder import DIMENSIONS, ENCODER_FILE, STEPS, encode_passages, encode_question

SHA256 = "fc987b0eeac2ed3f1379924692f6a9390a27093f4cfe7ee5a34e094adbd320b6"
TEXTS = [
    "Melanie: I painted a sunrise over the lake for my sister",
    "The office line is 030 4455120",
    "ok",
    "Wir sind am Samstag nach Mechelen gezogen, endlich mit Garten",
]


def score(question: str, passage: str) -> float:
    [vectors] = encode_passages([passage])
    return float((encode_question(question) @ vectors.T.astype(np.float32) / STEPS).max(axis=1).mean())


def test_the_shipped_weights_are_the_trained_ones_and_small() -> None:
    content = ENCODER_FILE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256
    assert len(content) <= 8_000_000


def test_every_piece_has_a_vector_of_length_one() -> None:
    vectors = encode_question("What did Melanie paint?")
    assert vectors.shape == (5, DIMENSIONS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(5), abs=1e-5)


def test_a_text_has_the_same_vectors_alone_and_in_a_batch() -> None:
    for text, together in zip(TEXTS, encode_passages(TEXTS), strict=True):
        [alone] = encode_passages([text])
        assert alone.shape == together.shape
        assert np.abs(alone.astype(int) - together.astype(int)).max() <= 1, text


@pytest.mark.parametrize("text", ["", " ", "🎨🎨", "\ud800", "\x00"])
def test_texts_without_known_pieces_are_encoded_too(text: str) -> None:
    [vectors] = encode_passages([text])
    assert vectors.shape[1] == DIMENSIONS
    assert np.isfinite(encode_question(text)).all()


def test_only_the_beginning_of_a_very_long_text_is_encoded() -> None:
    [vectors] = encode_passages(["tea " * 200_000])
    assert len(vectors) == 4 * 62


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("What did Melanie paint for her sister?", TEXTS[0], "Caroline: I went to the support group for my sister"),
        ("what's the number of the office?", TEXTS[1], "my wife's number is 0160 9918844"),
        ("who cuts my hair?", "Amir is my barber now", "the dog had its nails cut"),
    ],
)
def test_the_passage_that_answers_matches_better(question: str, right: str, wrong: str) -> None:
    assert score(question, right) > score(question, wrong)
