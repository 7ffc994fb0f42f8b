"""Searches whose order does not depend on how busy the machine is."""

from __future__ import annotations

from functools import partial

from recollect import wiring
from recollect.read.late_interaction import LateInteraction


def encode_all_rows() -> None:
    """Let searches of this process encode all new rows that they need, not only as many as they can in 30 ms."""
    wiring.LateInteraction = partial(LateInteraction, on_demand_s=60)  # type: ignore[misc, assignment]
