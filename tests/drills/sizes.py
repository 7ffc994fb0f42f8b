"""Sizes of the drills: the short form of every test run, and the long form of `make drill`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of one form of all drills."""

    processes: int
    jobs_of_each_user: int
    kills: int
    killed_writes: int
    longest_life_s: float
    server_kills: int
    crash_stride: int
    opening_stride: int
    cuts: int
    cut_lives: int
    writes_of_each_writer: int
    writes_of_each_writer_on_postgres: int
    increments_of_each_writer: int
    failing_writes: int
    small_disk_mb: int
    cancellations: int
    store_away_s: float


SHORT = Sizes(
    processes=4,
    jobs_of_each_user=5,
    kills=8,
    killed_writes=100,
    longest_life_s=0.2,
    server_kills=1,
    crash_stride=8,
    opening_stride=24,
    cuts=20,
    cut_lives=2,
    writes_of_each_writer=20,
    writes_of_each_writer_on_postgres=5,
    increments_of_each_writer=1,
    failing_writes=100,
    small_disk_mb=6,
    cancellations=300,
    store_away_s=3.0,
)

LONG = Sizes(
    processes=8,
    jobs_of_each_user=25,
    kills=200,
    killed_writes=100_000,
    longest_life_s=2.5,
    server_kills=20,
    crash_stride=1,
    opening_stride=1,
    cuts=2_000,
    cut_lives=80,
    writes_of_each_writer=1_000,
    writes_of_each_writer_on_postgres=250,
    increments_of_each_writer=20,
    failing_writes=5_000,
    small_disk_mb=12,
    cancellations=10_000,
    store_away_s=60.0,
)
