"""Imported by the process that servers of tests are forked from: what each of them would load, it loads once."""

from __future__ import annotations

from recollect.http.app import warm_up_learning
from tests.support.patient_search import encode_all_rows

encode_all_rows()
warm_up_learning()
