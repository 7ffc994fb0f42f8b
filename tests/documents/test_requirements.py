"""The requirements of the documents are listed completely, and each has tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from scripts.print_docs import Requirement, read_requirements, requirements_page
from tests.support.paths import ROOT

TESTS = ROOT / "tests"
PAGES = ROOT / "docs" / "documents"
DOCUMENTS = read_requirements()

of_each_document = pytest.mark.parametrize(("document", "requirements"), DOCUMENTS.items(), ids=DOCUMENTS)


@cache
def read_tests(path: Path) -> set[str]:
    """Return the names of the tests in a file, with their class if they have one."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        members = [(f"{node.name}::", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        names |= {
            f"{path.name}::{prefix}{each.name}"
            for prefix, each in members
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
        }
    return names


def joined(text: str) -> str:
    return " ".join(text.split())


@of_each_document
def test_requirements_are_numbered_without_gaps(document: str, requirements: list[Requirement]) -> None:
    number = document.partition("-")[0]
    expected = [f"{number}.{position:02}" for position in range(1, len(requirements) + 1)]
    assert [row.id for row in requirements] == expected


@of_each_document
def test_a_requirement_works_or_has_a_reason_that_is_on_the_page(
    document: str, requirements: list[Requirement]
) -> None:
    page = joined((PAGES / f"{document.partition('-')[2]}.md").read_text(encoding="utf-8"))
    assert {row.status for row in requirements} <= {"works", "differs"}
    assert [row.id for row in requirements if (row.status == "differs") != bool(row.reason)] == []
    assert [row.id for row in requirements if joined(row.reason) not in page] == []


@of_each_document
def test_a_requirement_has_tests_that_exist(document: str, requirements: list[Requirement]) -> None:
    assert [row.id for row in requirements if not (row.tests and row.section and row.text)] == []
    missing = []
    for test in {test for row in requirements for test in row.tests}:
        file, _, name = test.partition("::")
        path = TESTS / file if "/" in file else TESTS / "documents" / file
        if not path.exists() or f"{path.name}::{name}" not in read_tests(path):
            missing.append(test)
    assert missing == []


@of_each_document
def test_every_test_of_a_document_belongs_to_a_requirement(document: str, requirements: list[Requirement]) -> None:
    files = (TESTS / "documents").glob(f"test_{document.partition('-')[0]}_*.py")
    tests = {name for path in files for name in read_tests(path)}
    assert tests
    assert tests - {test for row in requirements for test in row.tests} == set()


def test_every_page_of_a_document_has_requirements() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {"requirements"}
    assert pages == {document.partition("-")[2] for document in DOCUMENTS}


def test_the_page_of_requirements_is_current() -> None:
    assert (PAGES / "requirements.md").read_text(encoding="utf-8") == requirements_page()
