"""Tests of the package, in folders that mirror it."""

import pytest

# Rewrite the asserts of helper modules too, so that a failure shows its values.
pytest.register_assert_rewrite("recollect.testing", "tests.support")
