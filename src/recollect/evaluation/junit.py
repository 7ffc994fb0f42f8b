"""The outcome of recipes in the XML that build servers read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from recollect.evaluation.files import new_file
from recollect.evaluation.recipe_run import RecipeCheck, RecipeReport

# XML 1.0 has no way to write these.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_junit(path: Path, reports: Sequence[RecipeReport]) -> None:
    """Write one suite a recipe and one case an expectation."""
    root = ElementTree.Element("testsuites", {"name": "recollect recipes", **_counts(reports)})
    for report in reports:
        name = f"{report.recipe.name} ({report.recipe.file})"
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(name), **_counts([report])})
        for check in report.checks:
            _add_case(suite, report, check)
    ElementTree.indent(root)
    with new_file(path) as out:
        out.write('<?xml version="1.0" encoding="utf-8"?>\n')
        out.write(ElementTree.tostring(root, encoding="unicode") + "\n")


def _add_case(suite: ElementTree.Element, report: RecipeReport, check: RecipeCheck) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(report.recipe.name),
        name=_clean(f"step {check.step}: {check}"),
        file=_clean(str(report.recipe.file)),
        time=f"{check.taken_s:.6f}",
    )
    if not check.passed:
        failure = ElementTree.SubElement(case, "failure", message=_clean(complaint(check)), type="Recall")
        lines = [f"{place}. {each.score:.2f}  {each.text}" for place, each in enumerate(check.recalled, 1)]
        failure.text = _clean("\n".join(lines))


def complaint(check: RecipeCheck) -> str:
    """What is wrong, in a sentence."""
    if not check.recalled:
        return "nothing was recalled"
    if len(check.recalled) == 1:
        return f"{check.expected} is {'' if check.at else 'not '}the one that was recalled"
    place = f"number {check.at} of" if check.at else "not among"
    return f"{check.expected} is {place} the {len(check.recalled)} recalled"


def _counts(reports: Sequence[RecipeReport]) -> dict[str, str]:
    checks = [check for report in reports for check in report.checks]
    # The time of a question counts once, however much is expected of it.
    times = {(id(report), check.step): check.taken_s for report in reports for check in report.checks}
    return {
        "tests": str(len(checks)),
        "failures": str(sum(not check.passed for check in checks)),
        "errors": "0",
        "time": f"{sum(times.values()):.6f}",
    }


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
