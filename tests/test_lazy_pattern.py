"""Patterns that are compiled when first used."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

import pytest

import recollect
from recollect.lazy_pattern import LazyPattern, lazy_pattern


def test_a_lazy_pattern_has_the_methods_of_a_compiled_one() -> None:
    pattern = lazy_pattern("(A+)b", re.IGNORECASE)
    for _ in range(2):
        assert pattern.findall("aaB ab") == ["aa", "a"]
        assert pattern.sub("-", "xAbx") == "x-x"
    assert pattern.groups == 1


@pytest.mark.parametrize("package", ["text", "read", "write", "models", "model", "ledger", "quotes", "sessions"])
def test_every_lazy_pattern_compiles(package: str) -> None:
    folder = f"{recollect.__path__[0]}/{package}"
    modules = [import_module(f"recollect.{package}.{each.name}") for each in pkgutil.iter_modules([folder])]
    patterns = [value for module in modules for value in vars(module).values() if isinstance(value, LazyPattern)]
    for pattern in patterns:
        assert pattern.groups >= 0
    assert patterns or package == "model"
