"""What the rules learn is told whole and in plain English: lists to their end, amounts with what they are for."""

from __future__ import annotations

import pytest
from test_rules import learn, only


@pytest.mark.parametrize(
    ("said", "content", "key"),
    [
        ("I have a budget of $2,000 for the bike.", "User's budget for the bike is $2,000", "budget_bike"),
        ("I have $500 budgeted for the hotel", "User's budget for the hotel is $500", "budget_hotel"),
        ("I've got a budget of $900 for 2027", "User's budget for 2027 is $900", "budget_2027"),
        ("My budget is 300 for now, maybe 400.", "User's budget is 300", None),
        (
            "The budget is 500 for the flights and 300 for the hotel.",
            "The budget is 500 for the flights and 300 for the hotel",
            None,
        ),
        (
            "My budget is $500 per night for the hotel.",
            "User's budget for the hotel is $500 per night",
            "budget_hotel",
        ),
        ("My budget for the trip is $900 for the three", "User's budget for the trip is $900", None),
        ("My budget is 300, give or take", "User's budget is 300", None),
        ("My travel budget is 5 000 euros", "User's travel budget is 5 000 euros", None),
    ],
)
def test_an_amount_is_told_with_its_unit_and_what_it_is_for(said: str, content: str, key: str | None) -> None:
    learned = only(said)
    assert (learned.content, learned.key) == (content, key)


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("My hobbies are chess, pottery and running.", "User's hobbies are chess, pottery and running"),
        ("My hobbies are chess and running, it keeps me fit.", "User's hobbies are chess and running"),
        ("My hobby is chess.", "User's hobby is chess"),
        ("My kids are Mia and Noah.", "User's kids are Mia and Noah"),
        ("My children's names are Mia, Noah and Tom.", "User's children's names are Mia, Noah and Tom"),
        (
            "My shifts are 9 to 5 on Monday, and 10 to 6 on Friday",
            "User's shifts are 9 to 5 on Monday, and 10 to 6 on Friday",
        ),
        ("My skills are Python, SQL and Excel.", "User's skills are Python, SQL and Excel"),
        ("My languages are Dutch, French and English.", "User's languages are Dutch, French and English"),
        ("My favorite foods are pizza and tacos.", "User's favorite foods are pizza and tacos"),
        ("My address is 12 King Street, Leeds LS1 2AB.", "User's address is 12 King Street, Leeds LS1 2AB"),
        ("My address is 12 King Street, please come by", "User's address is 12 King Street"),
        (
            "I speak Portuguese, some Dutch and a little Arabic.",
            "User speaks Portuguese, some Dutch and a little Arabic",
        ),
    ],
)
def test_a_list_is_told_to_its_end(said: str, content: str) -> None:
    assert only(said).content == content


@pytest.mark.parametrize(
    "said",
    [
        "My skills are limited",
        "My kids are loud",
        "My hobbies are getting expensive",
        "My kids are at school",
        "My plans are unclear",
    ],
)
def test_what_things_are_like_is_no_list_of_them(said: str) -> None:
    assert learn(said) == []


def test_what_someone_else_does_stays_with_them() -> None:
    assert only("My niece is 5 and loves playing outside").content == "My niece is 5 and loves playing outside"


def test_of_two_traits_in_one_breath_each_is_kept() -> None:
    assert [each.content for each in learn("I'm left-handed and colour-blind.")] == [
        "User is left-handed",
        "User is colour-blind",
    ]
    assert [(each.key, each.value) for each in learn("I'm vegan and diabetic.")] == [
        ("diet", "vegan"),
        (None, None),
    ]


@pytest.mark.parametrize("said", ["My boss is now Miriam.", "My boss is called Miriam", "My boss is Miriam Weber"])
def test_who_someones_boss_is_has_one_key(said: str) -> None:
    *_, boss = learn("My boss is called Stefan.", said)
    assert (boss.key, boss.content) == ("boss_name", f"User's boss is named {boss.value}")


@pytest.mark.parametrize("said", ["My boss is German", "My wife is Head Chef", "My mom is OK", "My dad is Catholic"])
def test_what_they_are_is_no_name(said: str) -> None:
    assert [each.key for each in learn(said)] == [None]


@pytest.mark.parametrize(
    ("said", "then", "content"),
    [
        ("My flight is on Tuesday.", "Sorry, on Wednesday.", "My flight is on Wednesday (2024-02-14)"),
        ("My flight is on Tuesday.", "Sorry, tomorrow.", "My flight is tomorrow (2024-02-12)"),
        ("My flight is at 7 pm.", "Correction: it's at 8 pm.", "My flight is at 8 pm"),
        (
            "My flight is on Tuesday at 7 pm.",
            "Correction: it's at 8 pm.",
            "My flight is on Tuesday (2024-02-13) at 8 pm",
        ),
        (
            "My flight is on Tuesday at 7 pm.",
            "Sorry, I meant Friday.",
            "My flight is on Friday (2024-02-16) at 7 pm",
        ),
        (
            "The meeting is on Monday at 3 pm",
            "The meeting is now at 4 pm.",
            "The meeting is on Monday (2024-02-12) at 4 pm",
        ),
        ("The meeting is on Monday at 3 pm", "The interview is now at 4 pm.", "The interview is now at 4 pm"),
    ],
)
def test_another_time_takes_the_place_of_the_part_that_it_changes(said: str, then: str, content: str) -> None:
    assert learn(said, then)[-1].content == content


def test_a_corrected_deadline_keeps_no_preposition_in_its_value() -> None:
    *_, deadline = learn("The deadline for the report is March 3", "Sorry, on March 5")
    assert (deadline.key, deadline.value) == ("deadline_report", "March 5")
