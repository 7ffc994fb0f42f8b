"""What the rules must not make of ordinary sentences: ages, homes and ailments that nobody has."""

from __future__ import annotations

import pytest
from test_rules import SUNDAY, learn, only

from recollect.model.learned import Learned


def after(*said: str) -> dict[str, str | None]:
    """The last value of each key that was learned."""
    return {each.key: each.value for each in learn(*said) if each.key}


@pytest.mark.parametrize(
    "said",
    [
        "I'm 1.85 m tall.",
        "I'm 1,85 m tall.",
        "I'm 6.2 ft tall",
        "I'm 2.5 hours away",
        "I am 12.5% Irish",
        "I'm 4.0 GPA student",
        "Ich bin 1,85 m groß.",
    ],
)
def test_the_digits_before_a_decimal_point_are_no_age(said: str) -> None:
    assert after("I'm 34 years old.", said) == {"age": "34"}


def test_nor_is_the_height_of_someone() -> None:
    assert [each.key for each in learn("My son Tim is 5.5 feet tall.")] == [None]


@pytest.mark.parametrize("said", ["I'm 34.", "I'm 34, by the way.", "I'm 34!", "I am 34 years old; don't tell."])
def test_an_age_ends_with_its_sentence(said: str) -> None:
    assert after(said) == {"age": "34"}


@pytest.mark.parametrize(
    "said",
    ["I'm from Monday on holiday", "I'm from Tuesday to Thursday in Berlin", "I live in sin with Tom"],
)
def test_a_day_or_a_way_to_live_is_no_place(said: str) -> None:
    assert after(said) == {}


@pytest.mark.parametrize(
    "said",
    [
        "I live in Paris during the summer",
        "I live in Paris in winter.",
        "I live in Paris on weekends",
        "I live in Paris from January",
        "I live in Paris half of the year",
        "I moved to Paris for two months",
        "I live in Paris next year",
        "Next year I live in Paris",
    ],
)
def test_where_someone_is_for_a_time_or_not_yet_is_not_their_home(said: str) -> None:
    assert after("I live in Ghent", said) == {"location": "Ghent"}


@pytest.mark.parametrize(
    ("home", "then"),
    [
        ("Ich wohne in Bonn", "Ich wohne in Paris im Sommer"),
        ("Vivo en Bonn", "Vivo en París en verano"),
        ("J'habite à Bonn", "J'habite à Paris en été"),
    ],
)
def test_nor_is_it_in_other_languages(home: str, then: str) -> None:
    assert after(home, then) == {"location": "Bonn"}


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("I live in Paris for now", "Paris"),
        ("I have lived in Paris for two years", "Paris"),
        ("I live in Paris since March", "Paris"),
        ("I moved to Paris last summer", "Paris"),
        ("i live in leeds with my mum", "leeds"),
        ("I live in The Hague", "The Hague"),
        ("I live in Paris but next year I move to Rome", "Paris"),
    ],
)
def test_where_someone_is_since_a_time_is_their_home(said: str, place: str) -> None:
    assert after("I live in Ghent", said) == {"location": place}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("My blood type is A+.", "A+"),
        ("My blood type is A-.", "A-"),
        ("My blood type is AB-, by the way.", "AB-"),
        ("My blood type is A –", "A"),
    ],
)
def test_the_sign_of_a_blood_type_belongs_to_it(said: str, value: str) -> None:
    assert after(said) == {"blood_type": value}


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("I'm intolerant to lactose", "User is intolerant to lactose"),
        ("I'm very sensitive to gluten", "User is sensitive to gluten"),
        ("I have a lactose intolerance", "User has lactose intolerance"),
        ("I'm allergic to nuts", "User is allergic to nuts"),
        ("My allergies are nuts, eggs and milk.", "User is allergic to nuts, eggs and milk"),
    ],
)
def test_what_someone_does_not_tolerate_is_an_allergy_only_if_they_call_it_one(said: str, content: str) -> None:
    learned: Learned = only(said, at=SUNDAY)
    assert (learned.content, learned.category.value) == (content, "constraint")


@pytest.mark.parametrize(
    "said",
    [
        "In my novel, I live in Paris and I'm 34.",
        "The rent went up to 950 in Berlin",
        "My address is wrong",
        "My job is stressful",
        "I'm intolerant to stupidity",
    ],
)
def test_stories_other_peoples_money_and_mere_opinions_are_no_facts(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize("said", ["My hometown is New Orleans", "My university is Great Lakes College"])
def test_a_name_may_begin_like_an_opinion(said: str) -> None:
    assert list(after(said).values()) == [said.rpartition(" is ")[2]]


@pytest.mark.parametrize("said", ["My allergies are really bad today", "I have low intolerance for noise"])
def test_how_bad_it_is_names_no_allergy(said: str) -> None:
    assert learn(said) == []
