"""The first step of recall: deciding which messages are worth a search of memory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import ModuleType

import pytest

from recollect.lazy_pattern import LazyPattern
from recollect.model.result import RecallOutcome
from recollect.read import decide as decide_module
from recollect.read.decide import MIN_LIKELIHOOD, DecisionRule, SearchDecision, decide
from recollect.text import small_talk as small_talk_module
from recollect.text.small_talk import load_small_talk
from tests.support.linear_time import assert_linear, cpu_seconds

SMALL_TALK = {
    "en": [
        "hi",
        "Hello there!",
        "hey, what's up?",
        "Thank you so much!",
        "thx",
        "good night",
        "see you later",
        "OK.",
        "yes",
        "nope",
    ],
    "acknowledged": [
        "lol",
        "hmm",
        "sounds good",
        "got it, thanks",
        "that's right",
        "I don't know",
        "not sure to be honest",
    ],
    "de": ["Hallo!", "Guten Morgen", "Vielen Dank!", "Tschüss", "alles klar", "ja", "nein danke", "Wie geht's?"],
    "fr": ["Bonjour", "merci beaucoup", "au revoir !", "d'accord", "oui", "Ça va ?"],
    "es": ["¡Hola!", "muchas gracias", "adiós", "sí", "¿Cómo estás?", "vale"],
    "it": ["Ciao!", "grazie mille", "arrivederci", "va bene", "sì", "come stai?"],
    "pt": ["Olá", "muito obrigado", "tchau", "sim", "não", "tudo bem?"],
    "nl": ["hoi", "dank je wel", "tot ziens", "goedemorgen", "ja", "nee"],
    "pl": ["Cześć!", "dziękuję", "do widzenia", "tak", "nie", "dzień dobry"],
    "ru": ["Привет!", "Спасибо большое", "до свидания", "да", "нет", "как дела?"],
    "zh": ["你好", "谢谢！", "再见", "好的", "是的", "早上好", "谢谢你，再见"],
    "ja": ["こんにちは", "ありがとうございます！", "はい", "了解しました", "さようなら", "おはよう"],
    "ko": ["안녕하세요", "감사합니다!", "네", "아니요", "안녕히 계세요", "ㅋㅋㅋ"],
    "tr": ["Merhaba", "teşekkür ederim", "evet", "hayır", "görüşürüz", "günaydın"],
    "ar": ["مرحبا", "شكرا جزيلا", "نعم", "السلام عليكم", "مع السلامة"],
    "hi": ["नमस्ते", "धन्यवाद", "हाँ", "ठीक है", "शुक्रिया"],
}
DRESSED_UP = [
    "hi!! :)",
    "HELLO",
    "Thanks 🙏🙏",
    "ok 👍",
    "¡¡hola!!",
    "  yes  ",
    "h\u200bi",
    "\u202eok\u202c",
    "\ufeffthanks",
    "ｈｅｌｌｏ",
    "o\u00adk",
]
EMPTY_MESSAGES = ["", "   ", "\n\t", "👍", "❤️ 🎉", "...", "?!", ":-)", "\u200b\u200d", "\x00", "\ud83d", "___"]
GENERAL = [
    "What is the capital of France?",
    "who wrote the song yesterday once more",
    "When did the second world war end?",
    "how many planets are there in the solar system",
    "who won the world cup in 1998",
    "Which country has the largest population in Africa?",
    "the longest river in south america",
    "how does photosynthesis work",
]
COMMANDS = [
    "set a timer for ten minutes",
    "convert 10 miles to kilometers",
    "what's the weather like today?",
    "play some jazz",
    "flip a coin, please",
    "Can you tell me a joke?",
    "how do you spell rhythm",
    "what time is it in Tokyo",
    "what does ephemeral mean",
    "turn off the lights",
]
ABOUT_THE_ASSISTANT = ["are you a robot", "who made you", "how old are you", "what can you do?"]
# The rules that came before the model skipped these.
ONCE_SKIPPED = [
    "what temp do i keep the thermostat at?",
    "Where does the band rehearse?",
    "how long should your answers be?",
]
PERSONAL = [
    "What's my budget for the trip?",
    "Thanks, but what was my budget again?",
    "ok so where do I live?",
    "hi, do you remember me and my dog?",
    "What did you recommend for dinner?",
    "What did we talk about last week?",
    "Which of these did I already buy?",
    "set a timer for my usual eggs",
    "translate my last letter into French",
    "what's the weather like in my home town",
    "Who won our chess game?",
    "Wie heißt mein Hund?",
    "Quel est mon budget ?",
    "¿Cuál es mi presupuesto?",
    "Qual è il mio colore preferito?",
    "Qual é o meu orçamento?",
    "Wat is mijn budget?",
    "Jaki jest mój budżet?",
    "Какой у меня бюджет?",
    "我的预算是多少？",
    "私の予算はいくらですか",
    "내 예산이 얼마였지?",
    "benim bütçem ne kadar",
    "मेरा बजट क्या है?",
    "ما اسمي؟",
    "怎么才能给我的妈妈查天气",
]
DOUBTFUL = [
    "How much?",
    "and the other one?",
    "who?",
    "What do you think?",
    "What should I serve for dinner this weekend",
    "Can you suggest something to read?",
    "What did Sophia say?",
    "what did sophia say",
    "When did Caroline go to the museum?",
    "any news from Anna?",
    "Where is the spare key?",
    "what's the wifi password",
    "The meeting moved to Friday",
    "Call me Al",
    "Deploy payment-service to staging",
    "What was discussed at the meeting on March 20?",
    "Sister lives in Canada",
    "12",
    "Wo liegt der Schlüssel?",
    "昨日の会議はどうでしたか",
]

FIRST_PERSON = [
    "How much can I spend in Hawaii?",
    "Which food is dangerous for me?",
    "Which country should I visit?",
    "What currency do I need?",
    "Is fish safe for me?",
    "What wine can we afford in France?",
]
EVERYDAY = [
    "Who plays the violin?",
    "What is the name of the dog?",
    "Which city is home?",
    "what car?",
    "Which airport?",
    "Where in Italy?",
    "How expensive is Hawaii?",
    "How is Hawaii?",
    "Is it expensive to travel to Hawaii?",
    "Convert the Hawaii budget to euros",
    "what happened on Christmas?",
    "What was the name of the restaurant in Rome?",
]
FALSE_FRIENDS = [
    "und wie viel war es?",
    "Wo war das?",
    "Was war in Berlin?",
    "Wer war der King?",
    "Wo ist die Band, die so alt war?",
    "Warum ist der Film nur so lang?",
    "Combien de pain est-ce que tu as ?",
    "Quel est le nom de son film ?",
    "Qui est dans la cast ?",
    "¿Cuánto es a las once en el hotel?",
    "¿Quién es el director de la red?",
    "Come era il film in cui era?",
    "Wat was er ook alweer met de band?",
    "Hoe was het met de king?",
    "Quando é que o ator sale do metal?",
]


def assert_decided(texts: Iterable[str], *rules: DecisionRule, search: bool, **hint: bool) -> None:
    """Check that all these texts are searched, or none of them is, by one of the rules if there are any."""
    decisions = {text: decide(text, **hint) for text in texts}
    assert decisions
    assert not {
        text: each for text, each in decisions.items() if each.search != search or (rules and each.rule not in rules)
    }


def test_small_talk_is_skipped_in_many_languages() -> None:
    texts = [text for texts in SMALL_TALK.values() for text in texts]
    assert_decided(texts, DecisionRule.SMALL_TALK, search=False)


def test_punctuation_emoji_case_and_hidden_characters_do_not_disguise_small_talk() -> None:
    assert_decided(DRESSED_UP, DecisionRule.SMALL_TALK, search=False)


def test_a_message_without_words_is_skipped() -> None:
    assert_decided(EMPTY_MESSAGES, DecisionRule.NO_WORDS, search=False)


@pytest.mark.parametrize(
    "text",
    ["What is the capital of France?", "who wrote the song yesterday once more", "set a timer for ten minutes"],
)
def test_plain_general_knowledge_and_commands_are_skipped(text: str) -> None:
    decision = decide(text)
    assert not decision.search, decision
    assert decision.rule is DecisionRule.GENERAL_KNOWLEDGE


def test_most_general_knowledge_and_commands_are_skipped() -> None:
    texts = [*GENERAL, *COMMANDS, *ABOUT_THE_ASSISTANT]
    searched = [text for text in texts if decide(text).search]
    assert len(searched) <= 0.4 * len(texts), searched


def test_a_personal_message_is_searched() -> None:
    assert_decided([*ONCE_SKIPPED, *PERSONAL, *FIRST_PERSON], search=True)


def test_the_hint_of_the_caller_is_followed_for_a_personal_message() -> None:
    assert_decided(PERSONAL, DecisionRule.CALLER_FACT, search=False, is_fact=True)
    assert_decided(PERSONAL, DecisionRule.CALLER_TOOL, search=False, requires_tool=True)


def test_memory_is_searched_when_in_doubt() -> None:
    assert_decided(DOUBTFUL, DecisionRule.DOUBT, DecisionRule.PERSONAL, search=True)


def test_a_question_about_everyday_life_is_searched() -> None:
    assert_decided(EVERYDAY, search=True)


def test_words_of_another_language_are_not_read_as_english() -> None:
    assert_decided(FALSE_FRIENDS, search=True)


def test_a_foreign_name_does_not_make_an_english_question_foreign() -> None:
    assert not decide("what is the capital of El Salvador").search


def test_the_caller_can_say_that_it_is_a_fact_or_a_task_for_a_tool() -> None:
    text = "Deploy payment-service to staging"
    assert decide(text, is_fact=True).rule is DecisionRule.CALLER_FACT
    assert decide(text, requires_tool=True).rule is DecisionRule.CALLER_TOOL
    assert not decide(text, is_fact=True).search
    assert not decide(text, requires_tool=True).search


def test_the_caller_can_say_that_it_is_no_fact_or_needs_no_tool() -> None:
    assert not decide("what is the capital of France").search
    assert decide("what is the capital of France", is_fact=False).search
    assert not decide("set a timer").search
    assert decide("set a timer", requires_tool=False).search


def test_no_hint_makes_small_talk_worth_a_search() -> None:
    assert not decide("hello", is_fact=False, requires_tool=False).search


@pytest.mark.parametrize(
    "text",
    [
        "WHAT'S MY BUDGET",
        "what\u2019s m\u200by budget",
        "ｗｈａｔ ｉｓ ｍｙ ｂｕｄｇｅｔ",
        "what is my\x00budget",
        "what is \ud83d my budget",
    ],
)
def test_odd_characters_do_not_hide_a_personal_word(text: str) -> None:
    assert decide(text).rule is DecisionRule.PERSONAL


@pytest.mark.parametrize(
    "text", ["what is the \ud83d capital", "\ud800 who \udfff", "what\x00is\x00it", "？", "x" * 5000]
)
def test_any_text_gets_a_decision(text: str) -> None:
    assert isinstance(decide(text), SearchDecision)


def test_a_personal_word_counts_at_the_end_of_a_long_message() -> None:
    assert decide("lorem ipsum dolor " * 10_000 + "and what is my budget?").rule is DecisionRule.PERSONAL


def test_a_long_message_is_searched_unless_the_caller_says_otherwise() -> None:
    text = "the president won the world cup in the movie " * 10
    assert decide(text).rule is DecisionRule.LONG
    assert decide(text).search
    assert not decide(text, is_fact=True).search


def test_a_decision_says_how_likely_memory_is_needed() -> None:
    skipped = decide("what is the capital of france")
    assert skipped.reason == f"general knowledge or a command: {skipped.score:.2f} likely to need memory"
    assert 0 <= skipped.score < MIN_LIKELIHOOD
    searched = decide("Where does the band rehearse?")
    assert searched.reason == f"{searched.score:.2f} likely to need memory"
    assert MIN_LIKELIHOOD <= searched.score <= 1


def test_outcomes_are_the_words_operators_count_by() -> None:
    assert [*RecallOutcome] == ["used", "missing", "ignored", "disabled", "policy_blocked", "unavailable"]


def test_small_talk_in_one_run_of_characters_must_be_small_talk_to_its_end() -> None:
    assert load_small_talk().is_all_of(["谢谢再见"])
    assert not load_small_talk().is_all_of(["谢谢预算"])


WORST = [
    "a", "hi ", "who ", "i need to ", "1+", "1 + ", "A ", "Anna ", "你好", "好", "\u200b",
    "\u0301", "é", "ﷺ", "' ", "\ud800", "हि", "x" * 99 + " ",
]  # fmt: skip


def test_the_worst_of_100_kb_is_decided_in_linear_time() -> None:
    for unit in WORST:
        assert_linear(decide, unit)


@pytest.mark.parametrize("module", [small_talk_module, decide_module], ids=["small talk", "decide"])
def test_every_expression_takes_time_in_line_with_the_text(module: ModuleType) -> None:
    expressions = [value for value in vars(module).values() if isinstance(value, LazyPattern)]
    assert expressions
    for expression in expressions:
        for unit in ("a", "Aa", "A", "1", "1 ", "1+", "1 + ", "\u0301", "\u200b", "漢", "हि", " ", "_", "a\u0301"):
            for work in (partial(expression.sub, ""), expression.fullmatch, expression.findall):
                assert_linear(work, unit, end="!")


def test_a_normal_message_is_decided_at_once() -> None:
    text = "What is the name of that hiking trail in the park you were telling Anna about the other day?"
    assert min(cpu_seconds(lambda: decide(text)) for _ in range(20)) < 0.01
