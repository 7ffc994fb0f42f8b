"""What the rules must not learn: questions, suppositions, stories, quotes, pasted text, other people's traits."""

from __future__ import annotations

import pytest
from test_rules import learn, only

from recollect.model.memory import Category


@pytest.mark.parametrize(
    "said",
    [
        "What's my name?",
        "Do you know that I live in Rome?",
        "Where do I live",
        "Should I say my name is Bob?",
    ],
)
def test_a_question_states_nothing(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "If I were rich, I would live in Monaco",
        "If I live in Rome, my rent is $2,000.",
        "Imagine I live in Rome and my name is Bob.",
        "Suppose my budget is $500.",
        "I wish I lived in Rome",
        "I'd love to live in Rome",
        "I would like a coffee",
    ],
)
def test_a_supposition_or_a_wish_states_nothing(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "Write a story where the hero is lonely. My name is Bob and I live in Rome.",
        "Let's roleplay. My name is Bob.",
        "Act as a doctor. I am allergic to nuts.",
        "Translate this: I live in Berlin.",
        "Please proofread my letter. My name is Bob.",
        "Pretend you know me. I love sushi.",
    ],
)
def test_a_story_a_part_or_a_text_to_work_on_states_nothing_of_the_user(said: str) -> None:
    assert learn(said) == []


def test_what_was_said_before_a_text_to_work_on_still_counts() -> None:
    assert only("My name is Ann. Translate this: I live in Berlin.").value == "Ann"


@pytest.mark.parametrize(
    "said",
    [
        'She said, "I love sushi and my name is Anna".',
        "My boss told me, I love sushi",
        "> My name is Bob\n> I live in Rome",
        "Bob: I live in Rome\nAnn: I love sushi",
        "```\nI love sushi\n```",
        "2024-02-11 10:00:00 INFO my name is worker-1",
    ],
)
def test_the_words_of_others_and_pasted_lines_state_nothing(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "yeah right, I just love Mondays",
        "I just love it when the build breaks.",
        "Oh great, I love waiting",
        "My name is God, just kidding",
    ],
)
def test_a_joke_states_nothing(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said",
    [
        "I love it!",
        "I like the idea of using a calendar",
        "I prefer the second option",
        "I like your suggestions",
        "I'm tired",
        "I am German",
        "I'm sure",
        "I live in a small apartment",
        "I can't wait to see it",
        "I have a question",
        "My question is 5 words long",
        "Never mind",
        "Always wanted to see Rome",
        "Please use the following code",
        "Hello there!",
        "Thanks, that works.",
    ],
)
def test_what_says_nothing_lasting_is_not_learned(said: str) -> None:
    assert learn(said) == []


def test_what_a_friend_likes_is_a_fact_about_the_friend() -> None:
    friend = only("My friend likes jazz")
    assert (friend.content, friend.category, friend.key) == ("My friend likes jazz", "fact", None)


def test_nothing_is_learned_from_nothing() -> None:
    assert learn() == []
    assert learn("...", "\n\n", "🙂") == []


def test_the_middle_of_a_long_message_is_taken_for_pasted_text() -> None:
    filler = "The quick brown fox jumps over the lazy dog. " * 400
    facts = learn(f"My name is Ann. {filler} I live in Rome. {filler} I love jazz.")
    assert [fact.content for fact in facts] == ["User's name is Ann", "User loves jazz"]


@pytest.mark.parametrize(
    "said",
    [
        "I love the color",
        "I love the color of the walls!",
        "I love that idea",
        "I like it",
        "I love it!",
        "I love the blue",
        "I love the personal touch",
        "I really like the vibe of it",
        "I adore the ring",
        "I love the Caprese Omelet idea",
        "I hate the ending",
    ],
)
def test_what_is_said_of_something_just_shown_is_no_preference(said: str) -> None:
    assert learn(said) == []


@pytest.mark.parametrize(
    "said", ["I love the Beatles", "I love the ocean", "I hate the cold", "I love the smell of rain"]
)
def test_what_is_known_to_everybody_is_one(said: str) -> None:
    [learned] = learn(said)
    assert learned.category is Category.PREFERENCE


@pytest.mark.parametrize(
    "said",
    [
        "Average wedding budget is $30,000",
        "Typical budget for Hawaii is $5,000",
        "Sarah's budget is $500",
        "Budget: $500",
        "Hawaii budget is 20% higher",
        "What if the Hawaii budget is $12,000",
    ],
)
def test_a_budget_that_is_nobodys_in_particular_is_not_theirs(said: str) -> None:
    assert learn(said) == []
