"""Whether two statements say the same: what differs in anything that matters is never merged."""

from __future__ import annotations

import time

import pytest

from recollect.write.settling.differs import differs
from recollect.write.settling.kin import kin
from recollect.write.settling.lexicon import entry, lexicon
from recollect.write.settling.quantity import number_in, spelt_number
from recollect.write.settling.reader import read
from recollect.write.settling.same import MAX_CHARS, SameLimits, compare, likeness, ready, said_again

APART = """
User's budget is $5|User's budget is $5 million
User earns 50k|User earns 50
User uses Python 3.10|User uses Python 3.1
User has two cats and three dogs|User has three cats and two dogs
User's phone number is 555-1234|User's phone number is 555-1243
User weighs 80 kg|User weighs 80 lbs
The fee is €20|The fee is $20
User's appointment is at 9|User's appointment is at 9:30
User is taking the train at 6 am|User is taking the train at 6 pm
The deadline is 2026-03-15|The deadline is 2026-03-16
The deadline is May 3|The deadline is March 3
User swims on Monday|User swims on Mondays
User sees a therapist weekly|User sees a therapist monthly
User met Anna|User met Anna and Ben
User likes Java|User likes JavaScript
User takes vitamin D|User takes vitamin B
User's email is a@b.example|User's email is a@c.example
User's site is https://a.example/x|User's site is https://a.example/y
User can eat dairy|User can't eat dairy
User has a son|User has no son
User likes tea but not coffee|User likes coffee but not tea
User doesn't drink coffee and doesn't smoke|User drinks coffee and smokes
User likes opera|User dislikes opera
User doesn't eat meat|User doesn't eat red meat
User eats fish|User eats everything except fish
User eats fish|User eats only fish
User hardly ever drinks|User drinks
User agrees with the plan|User disagrees with the plan
User is happy with the job|User is unhappy with the job
User's sister is a nurse|User's brother is a nurse
User is pregnant|User's partner is pregnant
Bob likes tea|User likes tea
User likes green tea with milk|User's guests like green tea with milk
Anna loves Tom|Tom loves Anna
User gave Sam a book|Sam gave the user a book
User borrowed Sam's car|Sam borrowed user's car
User moved from Berlin to Paris|User moved from Paris to Berlin
User prefers email to phone calls|User prefers phone calls to email
Use tabs instead of spaces|Use spaces instead of tabs
The meeting is before lunch|The meeting is after lunch
User moved in with Jonas|User moved out with Jonas
User lives in Berlin|User used to live in Berlin
User lives in Berlin|User lived in Berlin
User is a teacher|User was a teacher
User has a cat|User had a cat
User has a cat|User wants a cat
User is moving to Berlin|User is thinking about moving to Berlin
User finished the report|User almost finished the report
User stopped taking aspirin|User takes aspirin
User paid the invoice|User must pay the invoice
User's girlfriend is Mia|User's ex-girlfriend is Mia
User's landlord is Sam|User is Sam's landlord
Always lint before you commit|Always commit before you lint
The release moved from May 3 to May 10|The release moved from May 10 to May 3
Rivet was bought by Oracle|Rivet bought Oracle
The boat was sold to Sam|Sam sold the boat to the user
User got a watch from his parents|User gave his parents a watch
User speaks fluent Turkish and some German|User speaks some Turkish and fluent German
User is learning Spanish|User is teaching Spanish
User is a maths teacher|User taught maths
The car is his|The car is mine
On Mondays the user bakes bread|On Mondays the baker bakes bread
User sleeps badly|User sleeps well
Reports are due by noon|Reports are due after noon
The logs are in eu-west-1|The logs are in eu-west-2
User aims for the top|User loves the top
User lives in Oslo|User stays in Oslo
Ich wohne in Berlin|Ich wohne nicht mehr in Berlin
User paid $500|User was paid $500
User hates interrupting|User hates being interrupted
User owes the bank 500 euros|The bank owes the user 500 euros
User is older than Anna|Anna is older than the user
User rents a garage from Tom|User rents a garage to Tom
User borrowed a tent from Oscar|Oscar borrowed a tent from the user
User's landlady is Mrs. Petrov|User's landlady is Mrs. Petrovic
User is good at maths but bad at spelling|User is bad at maths but good at spelling
User has two brothers and one sister|User has two sisters and one brother
User has been married for ten years|User was married for ten years
User has a spaniel|User had a spaniel
Answer in German|Klaus wants answers in German
The invoice must be paid by Friday|The invoice was paid by Friday
User edits podcasts for a living|User edits podcasts as a hobby
User likes tea and coffee|User likes tea more than coffee
In 2022 Siemens acquired the user's company|User's company acquired Siemens in 2022
User's phone is a Pixel|The user's office phone is a Pixel
User eats everything but olives|User eats everything including olives
Ich mag Kaffee|Ich mag keinen Kaffee
Me gusta el té|No me gusta el té
Je n'aime pas le thé|J'aime le thé
Mi piace il tè|Non mi piace il tè
Я ем мясо|Я не ем мясо
我吃肉|我不吃肉
私は肉を食べます|私は肉を食べません
My commute takes 45 minutes|My commute takes 45 hours
User swims every two weeks|User swims twice a week
The rent was raised to 900 euros|The rent was raised by 900 euros
User needs the report|User needed the report
User has to renew the visa|User had to renew the visa
User works from home|User worked from home
User works some Saturdays|User works every Saturday
User is away from May to July|User is away from July to May
User moves from a house into a flat|User moves from a flat into a house
User's pass is valid until June 2027|User's pass is valid from June 2027
User leaves for Oslo on Monday|User comes from Oslo on Monday
User writes mostly in Rust and sometimes in Go|User writes mostly in Go and sometimes in Rust
I cook dinner and my husband does the dishes|My husband cooks dinner while I do the dishes
Olivia is the emergency contact of the user|Olivia's emergency contact is the user
Our wedding is in Verona|Their wedding is in Verona
The spare key is under the doormat|The spare key is on the doormat
User does volunteer work at a shelter|User works at a shelter
User is a mentor to two interns|Two interns mentor the user
"""

ALIKE = """
The budget for the Hawaii trip is $10,000|User's budget for the trip to Hawaii is 10k dollars
The rent is €1,450 a month|The monthly rent is 1450 euros
User ran 5 km|User ran five kilometres
The venue costs twelve thousand dollars|The venue costs $12,000
User was born on 4 July 1988|User was born on July 4th, 1988
The flight is at 7 pm|The flight is at 19:00
User doesn't like opera|User dislikes opera
User cannot swim|The user can't swim
My sister Anna is a nurse|Anna, the user's sister, is a nurse
User's favourite colour is green|Green is the user's favorite color
The boat was sold to Henrik by the user|User sold the boat to Henrik
User sold her car|I sold my car
The wedding will take place on 21 June|The wedding is on June 21
User has one cat|User has a cat
I AM ALLERGIC TO PEANUTS|User has a peanut allergy
The team is led by Ines|Ines manages the team
On weekdays I get up at 6:30 am|User wakes up at 6:30 in the morning on weekdays
User was promoted in May|User received a promotion in May
User goes for a run on Sundays|Every Sunday I run
User doesn't drink coffee|User drinks no coffee
User avoids pork|User does not eat pork
User is a yoga teacher in Bonn|I teach yoga in Bonn
Because of his pills the user avoids grapefruit|User avoids grapefruit because of his pills
Refunds over $250 need approval|Refunds of more than 250 dollars require approval
User flew from Rome to Oslo|I flew to Oslo from Rome
My cousin Rafael works in Seville as a nurse|Rafael, the user's cousin, works as a nurse in Seville
Backups are kept for 35 days|We store backups for 35 days
User owes Priya 200 euros|I owe Priya 200 EUR
User's grandmother died in May|User's grandmother passed away in May
User speaks German fluently|User speaks fluent German
Henry bought the boat from the user|User sold the boat to Henry
User let Carlos borrow the drill|User lent Carlos the drill
Anna is younger than the user|User is older than Anna
I'm married to a nurse|User's spouse is a nurse
User's company was acquired by Siemens in 2022|In 2022 Siemens acquired the user's company
Please keep your answers short|User wants short answers
User wakes up at half past six|User wakes up at 6:30
User is currently unemployed|User is unemployed
A visa is also required for India|A visa is required for India
The report is due on Friday at noon|The report is due on Friday at 12 pm
User needs to go to Rome some day|User has to go to Rome some day
The drive takes an hour and a half|The drive takes 90 minutes
User is 1.78 m tall|User is 178 cm tall
User no longer eats meat|User has stopped eating meat
Italian food is something the user likes|User likes Italian food
User prefers cats to dogs|I like cats more than dogs
User and Nadia went to school together|Nadia and I went to school together
A woman wears sun glasses|A woman wears sunglasses
User has a dog called Rex who is a beagle|User has a beagle called Rex
L'utilisateur travaille à Lyon|Je travaille à Lyon
"""


def pairs(text: str) -> list[tuple[str, ...]]:
    return [tuple(line.split("|")) for line in text.strip().splitlines()]


@pytest.mark.parametrize(("one", "other"), pairs(APART))
def test_what_differs_is_never_the_same_whatever_the_embedding_says(one: str, other: str) -> None:
    for alike in (compare(one, other), compare(other, one)):
        assert alike.differs
        assert not said_again(alike, 1.0, limits=SameLimits(0.0, 0.0))
    assert differs(one, other)


@pytest.mark.parametrize(("one", "other"), pairs(ALIKE))
def test_the_same_in_other_words_differs_in_nothing(one: str, other: str) -> None:
    assert differs(one, other) == differs(other, one) == ""
    assert compare(one, other).words == 1


def test_words_that_are_kin_stand_for_each_other_and_opposites_never_do() -> None:
    known = kin()
    assert "lend" in known["loan"]
    assert "loan" in known["lend"]
    assert all(word not in others for word, others in known.items())
    for one, others in lexicon().apart.items():
        assert not {entry(other).verb for other in others} & known.get(entry(one).verb, frozenset())


def test_near_equal_letters_are_enough_where_nothing_differs() -> None:
    alike = compare("The project deadline is March 15th", "The project deadline is March 15th!")
    assert alike.letters > 0.8
    assert said_again(alike, 0.0, limits=SameLimits()) == "letters"
    assert compare("User likes strong tea", "User likes green hills").differs == "what is said"


def test_a_fuller_wording_is_the_same_only_if_its_meaning_is_near() -> None:
    alike = compare("User has a golden retriever", "User has a young golden retriever")
    assert (alike.differs, round(alike.words, 2)) == ("", 0.67)
    assert said_again(alike, 0.95, limits=SameLimits()) == "meaning"
    assert not said_again(alike, 0.88, limits=SameLimits())
    assert not said_again(alike, 0.95, limits=SameLimits(meaning=0.97))


def test_what_is_too_long_is_the_same_only_as_itself() -> None:
    long = "User likes tea. " * 200
    assert len(long) > MAX_CHARS
    assert compare(long, long.upper()).letters == 1
    assert compare(long, long + "x").differs == "its length"


@pytest.mark.parametrize(
    ("word", "after", "numbers", "time"),
    [
        ("10,000", "", ("10000",), ""),
        ("10k", "", ("10000",), ""),
        ("2.5m", "", ("2500000",), ""),
        ("2.5", "million", ("2500000",), ""),
        ("3,5", "", ("3.5",), ""),
        ("10.00", "", ("10",), ""),
        ("007", "", ("7",), ""),
        ("15th", "", ("15",), ""),
        ("3/4", "", ("3", "4"), ""),
        ("7pm", "", (), "t1140"),
        ("12", "am", (), "t0"),
        ("19:00", "", (), "t1140"),
    ],
)
def test_numbers_are_compared_by_what_they_say(word: str, after: str, numbers: tuple[str, ...], time: str) -> None:
    found = number_in(word, after)
    assert (found.numbers, found.time) == (numbers, time)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("twelve thousand five hundred", "12500"),
        ("twenty five", "25"),
        ("two hundred and", "200"),
        ("three million", "3000000"),
        ("five six", "5"),
    ],
)
def test_spelt_numbers_are_numbers(words: str, number: str) -> None:
    assert spelt_number(words.split())[0] == number


def test_a_month_is_told_from_an_everyday_word() -> None:
    assert read("User may march in March").times == {"m3"}
    assert read("The exam is on 3 may").times == {"m5"}


@pytest.mark.parametrize(
    "text",
    ["a'", "1,", "A", "1.:,'", "'", "a.a@", "not ", "going to ", "two hundred ", "a. ", "$", "2024-01-01", "9", "不"],
)
def test_the_worst_of_texts_take_no_time(text: str) -> None:
    whole = text * (100_000 // len(text))
    compare("a b", "c d")
    for each in (whole, whole[:MAX_CHARS]):
        began = time.process_time()
        compare(each, each + "x")
        assert time.process_time() - began < 0.25


def test_comparing_texts_made_ready_is_cheap() -> None:
    one, other = (
        ready("User's flight to Lisbon leaves on Friday at 7 am"),
        ready("The Lisbon flight departs Friday at 7"),
    )
    likeness(one, other)
    # The best of several runs: how busy the machine is says nothing about the code.
    best = 1.0
    for _ in range(20):
        began = time.process_time()
        for _ in range(200):
            likeness(one, other)
        best = min(best, (time.process_time() - began) / 200)
    assert best < 200e-6


def test_a_text_is_read_once_while_it_is_compared_often() -> None:
    text = "User keeps 3 red kites in Oslo"
    first = ready(text)
    before = repr(first)
    compare(text, "User keeps no red kites in Rome")
    assert ready(text) is first
    assert repr(ready(text)) == before


def test_long_texts_are_not_held() -> None:
    text = "x " * MAX_CHARS
    assert ready(text) is not ready(text)
    assert ready(text) == ready(text)
