"""The names that a memory mentions."""

from __future__ import annotations

import pytest

from recollect.text.names import MentionKind, find_mentions, fold_label, name_candidates


def named(content: str, kind: MentionKind = MentionKind.NAME, **fact: str) -> list[str]:
    return [each.label for each in find_mentions(content, **fact) if each.kind is kind]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("my sister Zoë lives in New York", ["Zoë", "New York"]),
        ("we met Jean-Luc at the ZKM, then Bob", ["Jean-Luc", "ZKM", "Bob"]),
        ("моя сестра Анна живёт в Москве", ["Анна", "Москве"]),
        ("η αδελφή μου λέγεται Ελένη", ["Ελένη"]),
        ("sees Dr. Weber on Mondays in March", ["Dr"]),
        ("likes tea", []),
        ("妹は東京に住んでいる", []),
        ("I AM NOT SHOUTING AT ALL", []),
        ("it's 'Robert'); DROP TABLE mentions;--", ["Robert", "TABLE"]),
    ],
)
def test_names_are_capitalised_words_inside_sentences(content: str, names: list[str]) -> None:
    assert named(content) == names


def test_the_first_word_of_a_sentence_may_be_a_name() -> None:
    assert named("Anna works. Prefers tea", MentionKind.OPENING) == ["Anna", "Prefers"]
    assert named("In Berlin it rains") == ["Berlin"]
    assert named("In Berlin it rains", MentionKind.OPENING) == ["In Berlin", "In"]


def test_a_name_of_several_words_has_parts() -> None:
    assert named("met Anna Schmidt, and Anna", MentionKind.PART) == ["Schmidt"]
    assert named("met Anna Schmidt, and Anna") == ["Anna Schmidt", "Anna"]


def test_a_keyed_fact_mentions_its_key_and_the_name_it_begins_with() -> None:
    assert named("home: Oslo", MentionKind.KEY, key="home", value="Oslo") == ["home"]
    assert named("home: Oslo", key="home", value="Oslo") == ["Oslo"]
    assert named("x", MentionKind.KEY, key="k" * 5_000, value="v") == []


def test_names_are_compared_without_case_accents_and_hyphens() -> None:
    assert fold_label("  JEAN-Luc   Zoe\u0308 ") == fold_label("jean luc Zoë") == "jean luc zoe"
    [mention] = find_mentions("met Zoe\u0308")
    assert (mention.name, mention.label) == ("zoe", "Zoë")


def test_a_long_text_mentions_a_limited_number_of_names() -> None:
    mentions = find_mentions(" ".join(f"and Person{n}" for n in range(100_000)))
    assert len(mentions) == 64
    assert all(len(each.name) <= 100 for each in find_mentions(f"met {'X' * 1_000_000}"))


def test_all_short_sequences_of_words_can_be_names() -> None:
    assert name_candidates("i met anna in New-York") >= {"anna", "new york", "met anna", "in new york"}
