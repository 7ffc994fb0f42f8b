"""Traits of texts and questions, in several languages and in linear time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

from recollect.lazy_pattern import LazyPattern
from recollect.model.ids import new_id
from recollect.model.memory import QUOTES_MEMORY, Category, MemoryRecord, MemoryType
from recollect.model.scope import Level, Scope
from recollect.models import traits
from recollect.models.traits import Trait, compute_traits, fold_name, speaker_name, trait_flags, trait_word_count
from recollect.read import newest_model, question
from recollect.read.question import analyze_question, find_mentioned, without_names
from recollect.text import stopwords
from recollect.text.stopwords import drop_conversation_words
from tests.support.ledger_samples import ODD_TEXTS
from tests.support.linear_time import assert_linear

NOON = datetime(2026, 3, 15, 12, tzinfo=UTC)


def memory(content: str, *, category: Category = Category.FACT, **detail: Any) -> MemoryRecord:
    return MemoryRecord(
        id=new_id(),
        scope=Scope("ann"),
        level=Level.USER,
        type=MemoryType.SEMANTIC,
        category=category,
        content=content,
        created_at=NOON,
        updated_at=NOON,
        detail=detail,
    )


def turn(content: str, **detail: Any) -> MemoryRecord:
    return memory(content, category=Category.TURN, **detail)


def traits_in(content: str) -> Trait:
    return trait_flags(compute_traits(memory(content)))


WITH_TRAIT = [
    (Trait.ASKS, "Where is my key?"),
    (Trait.ASKS, "And you said (what?)"),
    (Trait.ASKS, 'She asked "why?"  \n'),
    (Trait.ASKS, "鍵はどこですか？"),
    (Trait.ASKS, "أين مفتاحي؟"),
    (Trait.INSTRUCTION, "Always answer in French."),
    (Trait.INSTRUCTION, "Please never use tables"),
    (Trait.INSTRUCTION, "Keep it short from now on"),
    (Trait.INSTRUCTION, "Don’t mention prices"),
    (Trait.INSTRUCTION, "Bitte immer auf Deutsch antworten"),
    (Trait.INSTRUCTION, "À partir de maintenant, réponds en français"),
    (Trait.INSTRUCTION, "Siempre responde en español"),
    (Trait.INSTRUCTION, "Sempre in italiano"),
    (Trait.INSTRUCTION, "Altijd kort antwoorden"),
    (Trait.INSTRUCTION, "Zawsze odpowiadaj po polsku"),
    (Trait.INSTRUCTION, "Всегда отвечай по-русски"),
    (Trait.INSTRUCTION, "从现在起用中文回答"),
    (Trait.INSTRUCTION, "今後は日本語でお願いします"),
    (Trait.INSTRUCTION, "항상 한국어로 대답해 줘"),
    (Trait.PREFERS, "I prefer tea to coffee"),
    (Trait.PREFERS, "My favourite colour is green"),
    (Trait.PREFERS, "I can’t stand olives"),
    (Trait.PREFERS, "Ich trinke lieber Tee"),
    (Trait.PREFERS, "Mein Lieblingsessen ist Pizza"),
    (Trait.PREFERS, "Je préfère le thé"),
    (Trait.PREFERS, "Me gusta el té"),
    (Trait.PREFERS, "Mi piace il tè"),
    (Trait.PREFERS, "Gosto de chá"),
    (Trait.PREFERS, "Я люблю чай"),
    (Trait.PREFERS, "我喜欢绿茶"),
    (Trait.PREFERS, "緑茶が好きです"),
    (Trait.PREFERS, "저는 녹차를 좋아해요"),
    (Trait.TELLS_TIME, "We met yesterday"),
    (Trait.TELLS_TIME, "It was in 2019"),
    (Trait.TELLS_TIME, "On TUESDAY we fly"),
    (Trait.TELLS_TIME, "Wir treffen uns nächste Woche"),
    (Trait.TELLS_TIME, "On se voit demain"),
    (Trait.TELLS_TIME, "Nos vemos mañana"),
    (Trait.TELLS_TIME, "Ci vediamo domani"),
    (Trait.TELLS_TIME, "昨天我们见面了"),
    (Trait.TELLS_TIME, "어제 만났어요"),
    (Trait.COUNTS, "There are 3 of them"),
    (Trait.COUNTS, "٣ كتب"),
    (Trait.FIRST_PERSON, "I’m from Oslo"),
    (Trait.FIRST_PERSON, "Das ist mein Hund"),
    (Trait.FIRST_PERSON, "J'ai un chien"),
    (Trait.FIRST_PERSON, "Это моя собака"),
    (Trait.FIRST_PERSON, "私は学生です"),
]
WITHOUT_TRAIT = [
    (Trait.ASKS, "Where? In the drawer."),
    (Trait.ASKS, "The key is in the drawer"),
    (Trait.INSTRUCTION, "She always answers in French"),
    (Trait.INSTRUCTION, "Nevertheless it rained"),
    (Trait.PREFERS, "The train was on time"),
    (Trait.TELLS_TIME, "The agony of defeat"),
    (Trait.TELLS_TIME, "It costs 20199 euros"),
    (Trait.COUNTS, "There are three of them"),
    (Trait.FIRST_PERSON, "Italy is in Europe"),
]


@pytest.mark.parametrize(("trait", "text"), WITH_TRAIT)
def test_traits_are_recognised_in_several_languages(trait: Trait, text: str) -> None:
    assert trait in traits_in(text)


@pytest.mark.parametrize(("trait", "text"), WITHOUT_TRAIT)
def test_similar_words_have_no_trait(trait: Trait, text: str) -> None:
    assert trait not in traits_in(text)


def test_only_turns_have_a_speaker() -> None:
    assert trait_flags(compute_traits(turn("tea", role="user"))) == Trait.TURN | Trait.USER
    assert trait_flags(compute_traits(turn("tea", role="assistant"))) == Trait.TURN | Trait.ASSISTANT
    assert trait_flags(compute_traits(turn("tea", role="tool"))) == Trait.TURN
    assert trait_flags(compute_traits(turn("tea", role=["user"]))) == Trait.TURN
    assert trait_flags(compute_traits(memory("tea", role="user"))) == Trait.NONE
    quoting = replace(turn("tea", role="assistant"), metadata={QUOTES_MEMORY: True})
    assert trait_flags(compute_traits(quoting)) == Trait.TURN | Trait.ASSISTANT | Trait.QUOTES_MEMORY
    assert speaker_name(turn("tea", name="  Ann   LEE ")) == fold_name("ann lee") == "ann lee"
    assert (
        speaker_name(memory("tea", name="Ann"))
        == speaker_name(turn("tea", name=7))
        == speaker_name(turn("tea"))
        == ""
    )
    assert len(speaker_name(turn("tea", name="x" * 500))) <= 100


@pytest.mark.parametrize(
    ("text", "count"),
    [("tea", 1), ("green tea", 2), ("one\ntwo three", 3), ("a " * 70_000 + "a", 0xFFFF), ("我喜欢喝绿茶吗", 3)],
    ids=["one", "two", "lines", "more than can be kept", "without spaces"],
)
def test_words_are_counted_next_to_the_traits(text: str, count: int) -> None:
    report = compute_traits(turn(text, role="user"))
    assert trait_word_count(report) == count
    assert Trait.TURN | Trait.USER in trait_flags(report)
    assert report < 2**63


def test_traits_of_long_texts_are_found_at_the_beginning_and_questions_at_the_end() -> None:
    assert traits_in("I prefer tea. " + "x" * 100_000 + " or not?") >= Trait.PREFERS | Trait.ASKS


@pytest.mark.parametrize("text", [*ODD_TEXTS.values(), "", " ", "\0", "\ud800", "?" * 9, "\U0010ffff" * 9])
def test_traits_of_any_characters_can_be_computed(text: str) -> None:
    report = compute_traits(turn(text, role=text, name=text))
    assert 0 <= report < 2**63
    assert isinstance(speaker_name(turn(text, name=text)), str)
    request = analyze_question(text)
    assert all(name for name in request.names)
    assert find_mentioned(text, [text, "ann", ""]) in ([], [text], [text, "ann"])
    assert isinstance(without_names(text, [text]), str)
    assert drop_conversation_words(text) == text or drop_conversation_words(text)


# What made expressions of these kinds slow before: runs that begin a match again and again, and almost end it.
_WORST = (
    "a", " ", "\n", "!", ".", "'", "0", "0,", "0:.", "A", "Aa", "Aa ", "a'", "a'a'", "é", "’", "\u0301", "我", "_",
    "\t", ". ", "! \"", "please ", "s'il te ", "s'il vous plaît, ", "what", "what ", "what a ", "how many ", "neu",
    "neua", "cambi", "cambi ", "suggest", "lieblings", "vorschl", "i really ", "i'm not a fan ", "in the ",
    "à partir de ", "remember ", "no ", "nicht ", "mein", "unser", "so, ", "(\"'",
)  # fmt: skip


def expressions(*modules: ModuleType) -> list[Any]:
    return [
        pytest.param(value, id=f"{module.__name__.rpartition('.')[2]}.{name}")
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, LazyPattern)
    ]


@pytest.mark.parametrize("expression", expressions(traits, stopwords, question, newest_model))
def test_regular_expressions_take_linear_time(expression: re.Pattern[str]) -> None:
    for worst in _WORST:
        assert_linear(lambda text: expression.sub("", text), worst, end="\x00")


def test_analysing_a_text_takes_linear_time() -> None:
    for worst in _WORST:
        for look in (lambda text: compute_traits(turn(text)), analyze_question, drop_conversation_words):
            assert_linear(look, worst)


QUESTIONS = [
    ("asks_when", "When did I move?"),
    ("asks_when", "Wann bin ich umgezogen?"),
    ("asks_when", "Когда я переехал?"),
    ("asks_when", "我什么时候搬家的"),
    ("asks_count", "How many cats do I have?"),
    ("asks_count", "Wie viele Katzen habe ich?"),
    ("asks_count", "Combien de chats ai-je ?"),
    ("asks_count", "Сколько у меня кошек?"),
    ("asks_count", "고양이가 몇 마리야"),
    ("is_to_assistant", "What did you recommend?"),
    ("is_to_assistant", "Was hast du empfohlen?"),
    ("asks_advice", "Can you suggest a hotel?"),
    ("asks_advice", "Soll ich das kaufen?"),
    ("asks_advice", "推荐一家餐厅"),
    ("is_personal", "What is my name?"),
    ("is_personal", "Wie heißt mein Hund?"),
    ("is_personal", "Какой мой любимый чай?"),
    ("is_about_past", "Where did I live before?"),
    ("is_about_past", "Wo habe ich früher gewohnt?"),
    ("is_about_present", "What’s my address?"),
    ("is_about_present", "How many cats do I have?"),
    ("is_about_present", "Wo wohne ich?"),
]


@pytest.mark.parametrize(("kind", "text"), QUESTIONS)
def test_questions_are_classified(kind: str, text: str) -> None:
    assert getattr(analyze_question(text), kind)


def test_a_statement_is_no_question() -> None:
    seen = analyze_question("Snow fell on the hills")
    assert not any(getattr(seen, kind) for kind, _ in QUESTIONS)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Where does Melanie work? Ask Tom.", ("Melanie", "Tom")),
        ("Melanie works where?", ()),
        ("Who told José about Zürich?", ("José", "Zürich")),
        ("что любит моя собака?", ()),
        ("Что любит Маша?", ("Маша",)),
        ("où est-il allé cet été ?", ()),
        ("我最喜欢的，绿茶还是红茶", ()),
    ],
)
def test_names_are_capitalised_words_inside_a_sentence(text: str, names: tuple[str, ...]) -> None:
    assert analyze_question(text).names == names


def test_speakers_are_mentioned_by_their_full_or_first_name() -> None:
    existing = ["ann lee", "bo", "jean-luc", "o'neil"]
    assert find_mentioned("What did Ann say?", existing) == ["ann lee"]
    assert find_mentioned("What did Ann's sister, not Anna, say?", existing) == ["ann lee"]
    assert find_mentioned("Was it Jean-Luc or O’Neil?", existing) == ["jean-luc", "o'neil"]
    assert find_mentioned("Anna and Leeland know boats", existing) == []
    assert find_mentioned("Is Bo here?", existing) == ["bo"]
    assert without_names("What did Ann Lee's dog eat?", ["ann lee"]) == "What did dog eat?"
    assert without_names("Ann Lee?", ["ann lee"]) == "Ann Lee?"


def test_words_about_the_conversation_are_dropped_from_a_question() -> None:
    assert drop_conversation_words("Can you tell me what I mentioned about the kitchen budget?") != ""
    assert "mentioned" not in drop_conversation_words("What have I mentioned about the kitchen budget?")
    assert "budget" in drop_conversation_words("What have I mentioned about the kitchen budget?")
    assert drop_conversation_words("What did you say?") == "What did you say?"


@pytest.mark.parametrize("text", ["How old is my dog?", "What is my first name?", "When does my course start?"])
def test_a_question_about_the_present_is_not_about_the_past(text: str) -> None:
    assert not analyze_question(text).is_about_past
