"""The breaker opens after failures, permits one probe at a time, and closes on success."""

from __future__ import annotations

from recollect.aio.breaker import Breaker, Permit


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def opened() -> tuple[Breaker, Clock]:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(5):
        breaker.record_failure()
    assert breaker.is_open
    return breaker, clock


def test_the_breaker_opens_after_five_consecutive_failures() -> None:
    breaker = Breaker(Clock())
    for _ in range(4):
        breaker.record_failure()
    assert breaker.permit() is Permit.CALL
    breaker.record_failure()
    assert breaker.permit() is Permit.DENY


def test_a_success_resets_consecutive_failures() -> None:
    breaker = Breaker(Clock())
    for _ in range(4):
        breaker.record_failure()
    breaker.record_success()
    for _ in range(4):
        breaker.record_failure()
    assert not breaker.is_open


def test_the_breaker_opens_when_half_of_the_last_twenty_calls_failed() -> None:
    breaker = Breaker(Clock())
    for _ in range(9):
        breaker.record_success()
        breaker.record_failure()
    breaker.record_success()
    # Nine of nineteen; the tenth of twenty is half of them.
    assert not breaker.is_open
    breaker.record_failure()
    assert breaker.is_open


def test_old_failures_do_not_count() -> None:
    breaker = Breaker(Clock())
    for _ in range(4):
        breaker.record_failure()
    for _ in range(20):
        breaker.record_success()
    for _ in range(3):
        for _ in range(3):
            breaker.record_failure()
        for _ in range(4):
            breaker.record_success()
    assert not breaker.is_open


def test_one_probe_is_permitted_after_five_seconds() -> None:
    breaker, clock = opened()
    clock.at += 4.999
    assert breaker.permit() is Permit.DENY
    clock.at += 0.001
    assert [breaker.permit() for _ in range(100)] == [Permit.PROBE, *[Permit.DENY] * 99]


def test_a_successful_probe_closes_the_breaker() -> None:
    breaker, clock = opened()
    clock.at += 5
    breaker.record_success(breaker.permit())
    assert [breaker.permit() for _ in range(3)] == [Permit.CALL] * 3
    # It starts anew: four failures are not yet a row of five.
    for _ in range(4):
        breaker.record_failure()
    assert not breaker.is_open


def test_a_failed_probe_keeps_the_breaker_open_for_five_seconds() -> None:
    breaker, clock = opened()
    clock.at += 5
    probe = breaker.permit()
    clock.at += 0.3
    breaker.record_failure(probe)
    clock.at += 4.9
    assert breaker.permit() is Permit.DENY
    clock.at += 0.1
    assert breaker.permit() is Permit.PROBE


def test_late_outcomes_of_earlier_calls_are_ignored() -> None:
    breaker, clock = opened()
    breaker.record_success()
    for _ in range(20):
        breaker.record_failure()
    assert breaker.permit() is Permit.DENY
    clock.at += 5
    assert breaker.permit() is Permit.PROBE


def test_an_unreported_probe_does_not_block_the_breaker() -> None:
    breaker, clock = opened()
    clock.at += 5
    assert breaker.permit() is Permit.PROBE
    clock.at += 5
    assert breaker.permit() is Permit.PROBE


def test_a_caller_that_yields_leaves_the_probe_to_others_for_five_seconds() -> None:
    breaker, clock = opened()
    clock.at += 5
    assert breaker.permit(yields=True) is Permit.DENY
    assert breaker.permit() is Permit.PROBE
    breaker.record_failure(Permit.PROBE)
    # Nobody else probes.
    clock.at += 10
    assert breaker.permit(yields=True) is Permit.PROBE
    breaker.record_success(Permit.PROBE)
    assert breaker.permit(yields=True) is Permit.CALL
