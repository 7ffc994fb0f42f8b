"""Imported by the process that servers of tests are forked from: what each of them would load, it loads once."""

from __future__ import annotations

from recollect.http.app import warm_up_learning

warm_up_learning()
