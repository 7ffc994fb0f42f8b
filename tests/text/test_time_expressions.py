"""When a question speaks of, near which memories that is, and which a filter for it lets through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import InvalidInput
from recollect.model.query import matches, parse_filter
from recollect.text import time_words
from recollect.text.statement_dates import find_date
from recollect.text.time_expressions import Period, find_periods, nearness, parse_time_filter, period_filter
from tests.support.ledger_samples import memory
from tests.support.linear_time import assert_linear, cpu_seconds

# A Wednesday.
AT = datetime(2023, 5, 17, 15, 30, tzinfo=timezone(timedelta(hours=2)))
DAY_S = 86_400.0

ENGLISH = {
    "What did I do today?": "2023-05-17 2023-05-18",
    "yesterday": "2023-05-16 2023-05-17",
    "what did I eat the day before yesterday": "2023-05-15 2023-05-16",
    "Who comes tonight?": "2023-05-17T18 2023-05-18T06",
    "last night": "2023-05-16T18 2023-05-17T06",
    "this morning": "2023-05-17T04 2023-05-17T12",
    "yesterday evening": "2023-05-16T17 2023-05-17",
    "Friday night": "2023-05-12T18 2023-05-13T06",
    "this week": "2023-05-15 2023-05-22",
    "last week's plan": "2023-05-08 2023-05-15",
    "the previous week": "2023-05-08 2023-05-15",
    "over the past week": "2023-05-10 2023-05-18",
    "this past week": "2023-05-10 2023-05-18",
    "the week before last": "2023-05-01 2023-05-08",
    "last month": "2023-04-01 2023-05-01",
    "this month": "2023-05-01 2023-06-01",
    "in the past month": "2023-04-17 2023-05-18",
    "last year": "2022-01-01 2023-01-01",
    "this year": "2023-01-01 2024-01-01",
    "last weekend": "2023-05-13 2023-05-15",
    "this past weekend": "2023-05-13 2023-05-15",
    "this weekend": "2023-05-20 2023-05-22",
    "last quarter": "2023-01-01 2023-04-01",
    "last season": "2022-12-01 2023-03-01",
    "the last 3 days": "2023-05-14 2023-05-18",
    "past two weeks": "2023-05-03 2023-05-18",
    "in the last couple of weeks": "2023-04-26 2023-05-18",
    "over the last few months": "2022-12-17 2023-05-18",
    "in the past 24 hours": "2023-05-16T15:30 2023-05-17T15:30",
    "3 days ago": "2023-05-14 2023-05-15",
    "a few days ago": "2023-05-12 2023-05-16",
    "two weeks ago": "2023-04-30 2023-05-07",
    "two or three weeks ago": "2023-04-23 2023-05-07",
    "a couple of weeks back": "2023-04-23 2023-05-07",
    "about a month ago": "2023-04-02 2023-05-03",
    "a year ago": "2021-11-17 2022-11-17",
    "half a year ago": "2022-11-02 2022-12-03",
    "a year and a half ago": "2021-05-17 2022-05-17",
    "an hour ago": "2023-05-17T14 2023-05-17T15",
    "last Monday": "2023-05-15 2023-05-16",
    "this past Monday": "2023-05-15 2023-05-16",
    "on Monday": "2023-05-15 2023-05-16",
    "on Wednesday": "2023-05-10 2023-05-11",
    "on Thursday": "2023-05-11 2023-05-12",
    "this Monday": "2023-05-15 2023-05-16",
    "last March": "2023-03-01 2023-04-01",
    "last May": "2022-05-01 2022-06-01",
    "in March": "2023-03-01 2023-04-01",
    "what happened in may?": "2023-05-01 2023-06-01",
    "in June": "2022-06-01 2022-07-01",
    "my December trip": "2022-12-01 2023-01-01",
    "March 2022": "2022-03-01 2022-04-01",
    "early March": "2023-03-01 2023-03-11",
    "at the end of March": "2023-03-21 2023-04-01",
    "the first week of March": "2023-03-01 2023-04-01",
    "in 2021": "2021-01-01 2022-01-01",
    "In 2000 I moved": "2000-01-01 2001-01-01",
    "early 2022": "2022-01-01 2022-05-02",
    "mid-2022": "2022-05-02 2022-09-01",
    "late 2022": "2022-09-01 2023-01-01",
    "in the 90s": "1990-01-01 2000-01-01",
    "the early 1990s": "1990-01-01 1993-05-02",
    "the summer of 2022": "2022-06-01 2022-09-01",
    "last summer": "2022-06-01 2022-09-01",
    "this summer": "2023-06-01 2023-09-01",
    "in the fall": "2022-09-01 2022-12-01",
    "last winter": "2022-12-01 2023-03-01",
    "winter 2021": "2021-12-01 2022-03-01",
    "Q3 2022": "2022-07-01 2022-10-01",
    "on 7 May 2022": "2022-05-07 2022-05-08",
    "on the 7th of May": "2023-05-07 2023-05-08",
    "May 7th": "2023-05-07 2023-05-08",
    "May 18": "2022-05-18 2022-05-19",
    "May 7 2022": "2022-05-07 2022-05-08",
    "on may 7, 2022": "2022-05-07 2022-05-08",
    "Monday, May 8": "2023-05-08 2023-05-09",
    "Feb 29": "2020-02-29 2020-03-01",
    "on 2022-05-07": "2022-05-07 2022-05-08",
    "at 2022-05-07T10:00:00Z": "2022-05-07 2022-05-08",
    "13/5/2022": "2022-05-13 2022-05-14",
    "5/13/2022": "2022-05-13 2022-05-14",
    "5/5/2022": "2022-05-05 2022-05-06",
    "2022/05/07": "2022-05-07 2022-05-08",
    "the week of May 7": "2023-05-01 2023-05-08",
    "the week before May 7": "2023-04-30 2023-05-07",
    "two days after May 7th": "2023-05-09 2023-05-10",
    "the day after May 7th": "2023-05-08 2023-05-09",
    "between March and May": "2023-03-01 2023-06-01",
    "between November and February": "2022-11-01 2023-03-01",
    "from March to May 2021": "2021-03-01 2021-06-01",
    "between 2019 and 2021": "2019-01-01 2022-01-01",
    "May 7 - May 10, 2022": "2022-05-07 2022-05-11",
    "from Monday to Wednesday": "2023-05-08 2023-05-11",
    "before 2020": "- 2020-01-01",
    "before the summer of 2022": "- 2022-06-01",
    "until March": "- 2023-04-01",
    "since last week": "2023-05-08 -",
    "since Monday": "2023-05-15 -",
    "after May 7th": "2023-05-08 -",
    "after yesterday's meeting": "2023-05-16 2023-05-17",
    "recently": "2023-04-17 2023-05-18",
    "what have I read lately?": "2023-04-17 2023-05-18",
    "the other day": "2023-05-03 2023-05-18",
}
OTHER_LANGUAGES = {
    "Was habe ich gestern gesagt?": "2023-05-16 2023-05-17",
    "vorgestern": "2023-05-15 2023-05-16",
    "letzte Woche": "2023-05-08 2023-05-15",
    "vor zwei Wochen": "2023-04-30 2023-05-07",
    "vor ein paar Tagen": "2023-05-14 2023-05-16",
    "in den letzten drei Monaten": "2023-02-17 2023-05-18",
    "letztes Jahr": "2022-01-01 2023-01-01",
    "im März": "2023-03-01 2023-04-01",
    "im Mai 2022": "2022-05-01 2022-06-01",
    "am 7. Mai 2022": "2022-05-07 2022-05-08",
    "am 07.05.2022": "2022-05-07 2022-05-08",
    "letzten Montag": "2023-05-15 2023-05-16",
    "letzten Sommer": "2022-06-01 2022-09-01",
    "im Jahr 2021": "2021-01-01 2022-01-01",
    "seit Montag": "2023-05-15 -",
    "Ende März": "2023-03-21 2023-04-01",
    "Qu'est-ce que j'ai fait hier ?": "2023-05-16 2023-05-17",
    "avant-hier": "2023-05-15 2023-05-16",
    "aujourd’hui": "2023-05-17 2023-05-18",
    "la semaine dernière": "2023-05-08 2023-05-15",
    "le week-end dernier": "2023-05-13 2023-05-15",
    "l'an dernier": "2022-01-01 2023-01-01",
    "il y a un an": "2021-11-17 2022-11-17",
    "il y a deux semaines": "2023-04-30 2023-05-07",
    "il y a quelques jours": "2023-05-12 2023-05-16",
    "les trois derniers jours": "2023-05-14 2023-05-18",
    "en mars": "2023-03-01 2023-04-01",
    "le 7 mai 2022": "2022-05-07 2022-05-08",
    "l'été dernier": "2022-06-01 2022-09-01",
    "en fe\u0301vrier": "2023-02-01 2023-03-01",
    "en 2021": "2021-01-01 2022-01-01",
    "depuis mars": "2023-03-01 -",
    "¿Qué dije ayer?": "2023-05-16 2023-05-17",
    "anteayer": "2023-05-15 2023-05-16",
    "antes de ayer": "2023-05-15 2023-05-16",
    "la semana pasada": "2023-05-08 2023-05-15",
    "el fin de semana pasado": "2023-05-13 2023-05-15",
    "el año pasado": "2022-01-01 2023-01-01",
    "hace dos semanas": "2023-04-30 2023-05-07",
    "los últimos 3 días": "2023-05-14 2023-05-18",
    "en mayo de 2022": "2022-05-01 2022-06-01",
    "el 7 de mayo de 2022": "2022-05-07 2022-05-08",
    "el lunes pasado": "2023-05-15 2023-05-16",
    "entre marzo y mayo": "2023-03-01 2023-06-01",
    "antes de 2020": "- 2020-01-01",
}
NOTHING = [
    "What is my favourite colour?", "", "   ", "who may I ask?", "that may be true", "The last may be wrong",
    "may 7 people come?", "the march on Washington", "they march on", "march 3 miles",
    "the bill was 5. May I ask you", "What did April say?", "a gift from April", "Tell June and August",
    "what does Mars look like", "hold the mayo", "give me a second", "the second one", "I'm 30 years old",
    "it takes 3 weeks", "for two weeks", "it cost 2000 dollars", "in 2000 dollars", "in 2000 words",
    "after 2000 steps", "$2000", "in 2,000 rows", "version 2023.1", "upgrade to 3.11.2", "python 3.11",
    "at 10.0.0.2023", "7/5/2023", "31/02/2023", "February 30", "24/7", "call 555-2023-05", "at 20:23", "next week",
    "next Monday", "next May", "the coming weekend", "tomorrow", "in 3 days", "in two weeks", "nächste Woche",
    "la semaine prochaine", "la próxima semana", "every Monday", "Mondays", "each week", "a week", "last time",
    "my last day", "the last 3 meetings", "is this an apple?", "in her 30s", "the class of 2000",
    "Was ist hier passiert?", "Guten Tag", "j'ai été malade", "I fall asleep", "water from a spring",
    "in Spring Boot", "999 decades ago", "999 decades after 7 May 2022", "in 9999", "by 1/2/03",
    "read chapter 2023", "Q1 budget", "the last one an hour long",
]  # fmt: skip


def short_periods(text: str, at: datetime = AT) -> list[str]:
    """What was understood, as short local times."""
    return [f"{_short(each.start, at)} {_short(each.end, at)}" for each in find_periods(text, at=at)]


def _short(edge: datetime | None, at: datetime) -> str:
    if edge is None:
        return "-"
    assert edge.tzinfo is UTC
    return edge.astimezone(at.tzinfo).strftime("%Y-%m-%dT%H:%M").removesuffix(":00").removesuffix("T00")


def test_people_say_when() -> None:
    expected = {text: [when] for text, when in (ENGLISH | OTHER_LANGUAGES).items()}
    assert {text: short_periods(text) for text in expected} == expected


def test_case_and_what_stands_around_do_not_matter() -> None:
    texts = [text for text in ENGLISH if not any(word in text.lower() for word in ("may ", "march"))]
    expected = [short_periods(text) for text in texts]
    assert [short_periods(f"Hello there. {text.upper()}") for text in texts] == expected
    assert [short_periods(f"so, {text}, what was it?") for text in texts] == expected


def test_what_only_looks_like_time_is_not_read_as_time() -> None:
    assert {text: periods for text in NOTHING if (periods := short_periods(text))} == {}


def test_several_periods_are_given_in_order_with_their_words() -> None:
    text = "Was it last Monday, in March or April, or on 7 May 2022?"
    results = find_periods(text, at=AT)
    assert [each.phrase for each in results] == ["last Monday", "March", "April", "7 May 2022"]
    assert all(text[slice(*each.span)] == each.phrase for each in results)


def test_the_words_of_a_range_belong_to_it() -> None:
    (results,) = find_periods("What did we do between March and May 2022?", at=AT)
    assert results.phrase == "between March and May 2022"


@pytest.mark.parametrize(
    ("at", "when"),
    [
        # Said on 2 May, "in May" is the May that has just begun, not the one of a year ago.
        ("2023-05-02", "2023-05-01 2023-06-01"),
        ("2023-04-30", "2022-05-01 2022-06-01"),
    ],
)
def test_a_month_without_a_year_is_the_latest_that_has_begun(at: str, when: str) -> None:
    assert short_periods("in May", datetime.fromisoformat(at).replace(tzinfo=UTC)) == [when]


def test_a_day_is_a_day_in_the_zone_of_the_moment() -> None:
    late = datetime(2023, 5, 17, 23, 30, tzinfo=UTC)
    (here,), (there,) = (
        find_periods("yesterday", at=late.astimezone(ZoneInfo(zone))) for zone in ("UTC", "Asia/Tokyo")
    )
    assert here.start == datetime(2023, 5, 16, tzinfo=UTC)
    assert there.start == datetime(2023, 5, 16, 15, tzinfo=UTC)


def test_a_day_on_which_the_clock_changes_has_its_own_length() -> None:
    (day,) = find_periods("yesterday", at=datetime(2023, 3, 27, 9, tzinfo=ZoneInfo("Europe/Berlin")))
    assert day.start is not None
    assert day.end is not None
    assert day.end - day.start == timedelta(hours=23)


@pytest.mark.parametrize(
    ("at", "text", "when"),
    [
        ("2023-05-31", "a month ago", "2023-04-15 2023-05-16"),
        ("2024-02-29", "a year ago", "2022-08-28 2023-08-28"),
        ("2023-01-01", "last month", "2022-12-01 2023-01-01"),
        ("2023-01-15", "last winter", "2021-12-01 2022-03-01"),
        ("2023-01-15", "this winter", "2022-12-01 2023-03-01"),
        ("2023-05-21", "last weekend", "2023-05-13 2023-05-15"),
        ("2023-05-21", "this weekend", "2023-05-20 2023-05-22"),
        ("2023-05-15", "last week", "2023-05-08 2023-05-15"),
        ("2023-05-15", "last Sunday", "2023-05-14 2023-05-15"),
    ],
)
def test_edges_of_the_calendar_are_kept(at: str, text: str, when: str) -> None:
    assert short_periods(text, datetime.fromisoformat(at).replace(hour=12, tzinfo=UTC)) == [when]


@pytest.mark.parametrize("year", [1, 9999])
def test_the_ends_of_the_calendar_give_nothing_rather_than_an_error(year: int) -> None:
    for zone in (-12, 12):
        at = datetime(
            year, 1 if year == 1 else 12, 1 if year == 1 else 31, 12, tzinfo=timezone(timedelta(hours=zone))
        )
        for text in (*ENGLISH, *OTHER_LANGUAGES):
            find_periods(text, at=at)


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zone"):
        find_periods("yesterday", at=datetime(2023, 5, 17))


def test_a_question_after_or_before_a_long_paste_is_read() -> None:
    paste = "lorem ipsum dolor " * 5000
    text = f"See yesterday: {paste} What did I say last week?"
    assert [text[slice(*each.span)] for each in find_periods(text, at=AT)] == ["yesterday", "last week"]


VOCABULARY = sorted(
    {word for text in (*ENGLISH, *OTHER_LANGUAGES, *NOTHING) for word in text.split()}
    | {*time_words.COUNTS, *time_words.UNITS, *time_words.MONTHS, "-", "'", "7", "2023", "1.2.2023", "90s"}
)


def test_every_unit_can_be_read_beside_every_word() -> None:
    for unit, word in product(time_words.UNITS, VOCABULARY):
        find_periods(f"{word} {unit}", at=AT)
        find_periods(f"{unit} {word}", at=AT)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)))
def test_any_text_can_be_read(text: str) -> None:
    for result in find_periods(text, at=AT):
        assert text[slice(*result.span)] == result.phrase
        assert result.start is not None or result.end is not None
        assert result.start is None or result.end is None or result.start < result.end
        assert result.grain_s > 0


def test_a_question_is_read_at_once() -> None:
    question = "What did I tell you about the trip to Rome two weeks ago?"
    # Many times what it takes, so that a slow machine does not fail it.
    assert min(cpu_seconds(lambda: find_periods(question, at=AT)) for _ in range(100)) < 0.002


def test_long_texts_take_linear_time() -> None:
    for unit in (
     "last ", "2023-05-07", "2023 ", "1.", "1/", "may ", "3 or ", "or 3 ", "a an ", "week before ", "of the ", "' ",
     "- ", "\u0301", "last week ", "between March and ", "x", "\n", "7 de ", "hier ", "before the ", "9", "il y a ",
     "１",
    ):  # fmt: skip
        for chars in (100_000, 3_999):
            assert_linear(lambda text: find_periods(text, at=AT), unit, chars=chars)


def seconds(*texts: str) -> np.ndarray:
    return np.array([datetime.fromisoformat(text).replace(tzinfo=AT.tzinfo).timestamp() for text in texts])


def one(text: str) -> Period:
    (results,) = find_periods(text, at=AT)
    return results


def test_what_lies_in_the_period_is_as_near_as_can_be() -> None:
    near = nearness(one("yesterday"), seconds("2023-05-16", "2023-05-16T12:00", "2023-05-16T23:59"))
    assert near.tolist() == [1, 1, 1]
    assert near.dtype == np.float32


def test_nearness_falls_off_smoothly_on_both_sides() -> None:
    days = np.arange(-6, 7) * DAY_S
    near = nearness(one("yesterday"), seconds("2023-05-16T12:00")[0] + days)
    assert (np.diff(near[:7]) > 0).all()
    assert (np.diff(near[6:]) < 0).all()
    assert near[5] == pytest.approx(near[7])
    assert near[5] > 0.5
    assert near[0] < 0.01


@pytest.mark.parametrize(("text", "days"), [("yesterday", 1), ("last month", 15), ("in 2021", 182)])
def test_a_longer_period_is_meant_less_exactly(text: str, days: int) -> None:
    period = one(text)
    assert period.start is not None
    before = np.array([period.start.timestamp() - days * DAY_S, period.start.timestamp() - 4 * days * DAY_S])
    assert nearness(period, before).tolist() == [pytest.approx(0.6, abs=0.05), pytest.approx(0, abs=0.01)]


def test_a_range_is_meant_as_exactly_as_its_ends() -> None:
    assert one("between 2000 and 2020").grain_s == pytest.approx(366 * DAY_S)
    assert one("from Monday to Wednesday").grain_s == DAY_S


def test_an_open_period_is_near_to_all_on_its_open_side() -> None:
    times = seconds("1990-01-01", "2023-05-14T12:00", "2023-05-15", "2030-01-01")
    assert nearness(one("since Monday"), times).tolist() == [0, pytest.approx(0.88, abs=0.01), 1, 1]
    assert nearness(one("before 2020"), times).tolist() == [1, *[pytest.approx(0, abs=1e-9)] * 3]


def test_what_has_no_time_is_near_to_nothing() -> None:
    assert nearness(one("yesterday"), np.array([np.nan])).tolist() == [0]
    assert nearness(one("yesterday"), np.empty(0)).tolist() == []


IN_MARCH, IN_APRIL = datetime(2023, 3, 10, tzinfo=UTC), datetime(2023, 4, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "occurred", "created", "passes"),
    [
        ("in March", IN_MARCH, IN_APRIL, True),
        ("in March", IN_APRIL, IN_MARCH, False),
        ("in March", None, IN_MARCH, True),
        ("in March", None, IN_APRIL, False),
        ("since April", IN_APRIL, IN_MARCH, True),
        ("since April", IN_MARCH, IN_APRIL, False),
        ("since April", None, IN_APRIL, True),
        ("before April", IN_MARCH, IN_APRIL, True),
        ("before April", None, IN_MARCH, True),
        ("before April", None, IN_APRIL, False),
        ("before April", IN_APRIL, IN_MARCH, False),
    ],
)
def test_a_filter_goes_by_when_it_happened_and_else_by_when_it_was_made(
    text: str, occurred: datetime | None, created: datetime, passes: bool
) -> None:
    filter = parse_filter(period_filter(one(text)))
    assert matches(memory(occurred_at=occurred, created_at=created), filter) is passes


def test_a_filter_takes_the_first_instant_and_leaves_the_last() -> None:
    period = one("in March")
    for edge, passes in ((period.start, True), (period.end, False)):
        assert matches(memory(occurred_at=edge), period_filter(period)) is passes


@pytest.mark.parametrize(
    "text",
    [
        "The book club meets on the first monday of the month",
        "the second Friday of each month we play cards",
        "the last Friday of the month is pizza day",
        "I have choir on monday evenings",
        "on tuesday mornings I run",
        "every other wednesday we meet",
        "am ersten Montag im Monat ist Probe",
    ],
)
@pytest.mark.parametrize("ahead", [True, False])
def test_a_recurring_weekday_has_no_date(text: str, ahead: bool) -> None:
    assert find_date(text, at=datetime(2026, 11, 17, 12, tzinfo=UTC), ahead=ahead) is None


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("The appointment is on Thursday the 26th at 3pm", "2026-11-26"),
        ("it got pushed to Monday the 30th", "2026-11-30"),
        ("we met on Friday 13th", "2026-11-13"),
        ("The wedding is on 12 June next year", "2027-06-12"),
        ("The wedding is on June 12th next year", "2027-06-12"),
    ],
)
def test_a_day_with_its_number_is_that_day(text: str, day: str) -> None:
    date = find_date(text, at=datetime(2026, 11, 18, 12, tzinfo=UTC))
    assert date is not None
    assert f"{date.start:%Y-%m-%d}" == day


@pytest.mark.parametrize(
    ("question", "starts"),
    [
        ("Where are we going in August?", ["2026-08-01", "2027-08-01"]),
        ("What do I have on Friday?", ["2026-11-13", "2026-11-20"]),
        ("What did we do in August?", ["2026-08-01"]),
        ("Where are we going in August 2028?", ["2028-08-01"]),
        ("What is planned in August?", ["2026-08-01", "2027-08-01"]),
        ("Was mache ich im August?", ["2026-08-01", "2027-08-01"]),
        ("Friday of last week", ["2026-11-09", "2026-11-13"]),
    ],
)
def test_a_month_or_weekday_in_a_question_is_the_next_one_too_unless_it_asks_about_the_past(
    question: str, starts: list[str]
) -> None:
    periods = parse_time_filter(question, at=datetime(2026, 11, 17, 12, tzinfo=UTC), mode="prefer").periods
    assert sorted(f"{each.start:%Y-%m-%d}" for each in periods if each.start) == starts
