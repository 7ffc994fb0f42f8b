"""Text to search terms."""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Iterator

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from recollect.ledger import tokenizer as rules
from recollect.ledger.tokenizer import (
    MAX_QUERY_TERMS,
    MAX_TERM_CHARS,
    MAX_TERMS,
    STOP_WORDS,
    query_terms,
    spelling_terms,
    terms_of,
)
from tests.support.linear_time import assert_linear

WORST = [
    "a", "a'", "'", "1", "1,", "1.", ",", "a1", "_", "ab ", "the ", " ",
    "茶", "茶a", "का", "ा", "का'", "\u0301", "e\u0301", "ﷺ", "ชา", "차", "👩🏽‍🚀", "a\u200b", "a\n", "a\u2019b", "İ",
    "aB", "a_", "a-", "a.", "A1", "aBC", "1.1.", "a_b-",
]  # fmt: skip


@pytest.mark.parametrize("end", ["", "!"], ids=["as is", "bang"])
def test_the_worst_texts_take_time_in_proportion_to_their_length(end: str) -> None:
    for unit in WORST:
        assert_linear(terms_of, unit, end=end)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("The quick brown foxes", ["quick", "brown", "fox"]),
        ("running runs RAN", ["run", "run", "ran"]),
        ("user's dog", ["user", "dog"]),
        ("don't", []),
        ("10,000 and 3.14", ["10000", "3.14"]),
        ("1,2,3", ["123"]),
        ("Café ÉCOLE", ["cafe", "ecol"]),
        ("ｆｕｌｌ", ["full"]),
        ("℡ ㎏ Ⅷ", ["tel", "kg", "viii"]),
        ("绿茶", ["绿茶"]),
        ("喝绿茶", ["喝绿", "绿茶"]),
        ("茶", ["茶"]),
        ("snake_case", ["snake", "case", "snakecas"]),
        ("e-mail: a@b.example", ["e", "mail", "b", "exampl", "email", "bexampl"]),
        ("getUserById", ["getuserbyid", "get", "user", "id"]),
        ("get_user_by_id", ["get", "user", "id", "getuserbyid"]),
        ("userIDs parseJSON", ["userid", "parsejson", "user", "id", "pars", "json"]),
        ("OAuth2Token", ["oauth", "2", "token", "oauth2token", "auth"]),
        ("src/text/__init__.py", ["src", "text", "init", "py", "initpi"]),
        ("--dry-run", ["dri", "run", "dryrun"]),
        ("E501 b12", ["e", "501", "b", "12", "e501", "b12"]),
        ("v2.3.1", ["v", "2.3.1", "v2.3.1", "v2", "2.3"]),
        ("2026-05-06 10-20", ["2026", "05", "06", "10", "20"]),
        ("👩🏽‍🚀 \u202e \u200b", []),
        ("\ud800 tea \0", ["tea"]),
    ],
)
def test_a_text_has_these_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("CAFÉ", "cafe\u0301"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ΌΣΟΣ", "όσος"),
        ("тёща", "ТЕЩА"),
        ("שָׁלוֹם", "שלום"),
        ("ａｂｃ１２３", "abc123"),
        ("ﬁne", "fine"),
        ("Ⅷ", "viii"),
    ],
)
def test_words_are_the_same_however_they_are_written(one: str, two: str) -> None:
    assert terms_of(one) == terms_of(two) != []


@given(st.text(max_size=60))
def test_terms_are_bounded_and_the_same_in_any_case_of_ascii(text: str) -> None:
    terms = terms_of(text)
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in terms)
    assert not set(terms) & {"", " "}
    assert terms_of(text) == terms
    if text.isascii():
        assert terms_of(text.upper()) == terms_of(text.lower())
        # The parts of camelCase come in addition.
        assert set(terms_of(text.lower())) <= set(terms)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("getUserById", "get_user_by_id raises KeyError"),
        ("get-user-by-id", "getUserById raises KeyError"),
        ("getuserbyid", "get_user_by_id raises KeyError"),
        ("user by id", "getUserById raises KeyError"),
        ("e501", "ruff E501 is ignored"),
        ("dryrun", "pass --dry-run first"),
        ("select.py", "see src/recollect/write/select.py"),
        ("python 3.11", "pinned to Python 3.11.7"),
        ("naiveUser", "naïve_user is the default"),
    ],
)
def test_a_name_is_found_in_another_spelling_and_by_its_parts(query: str, text: str) -> None:
    assert set(query_terms(query)) - spelling_terms(query) <= set(terms_of(text)) or spelling_terms(query) & set(
        terms_of(text)
    )
    assert set(query_terms(query)) & set(terms_of(text))


@given(st.text(max_size=60))
def test_a_term_is_one_word_for_every_full_text(text: str) -> None:
    for term in terms_of(text):
        assert all(char.isalnum() or char == "." or ord(char) > 127 for char in term)
        assert term == term.lower() or not term.isascii()


def test_a_text_has_no_more_terms_than_the_limit() -> None:
    assert len(terms_of("tea " * (MAX_TERMS + 10))) == MAX_TERMS
    assert len(terms_of("茶" * (MAX_TERMS + 10))) == MAX_TERMS


def test_a_question_has_distinct_terms_in_order_up_to_a_limit() -> None:
    assert query_terms("tea milk tea TEA") == ["tea", "milk"]
    assert (
        len(query_terms(" ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(200))))
        == MAX_QUERY_TERMS
    )


def test_stop_words_are_no_terms() -> None:
    assert terms_of(" ".join(STOP_WORDS)) == []


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    importlib.reload(rules)


@pytest.mark.usefixtures("read_again")
def test_the_rules_change_with_unicode_and_with_the_stemmer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {rules.TERMS_RULES}
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")
    seen.add(importlib.reload(rules).TERMS_RULES)
    monkeypatch.setattr(Stemmer, "version", lambda: "99.0.0")
    seen.add(importlib.reload(rules).TERMS_RULES)
    assert len(seen) == 3
