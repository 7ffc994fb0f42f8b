"""Twelve tasks whose way is not known beforehand: where something is, what must come first, which form is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agent import Tool
from recollect.errors import ToolFailed


@dataclass(frozen=True, slots=True)
class Task:
    """A question, the same in other words, the answer, and the tools of a fresh world."""

    name: str
    question: str
    rephrased: str
    answer: str
    tools: Callable[[], list[Tool]]


def _tool(name: str, about: str, takes: Mapping[str, Sequence[str]], does: Callable[..., str]) -> Tool:
    properties = {each: {"type": "string", "enum": list(values)} for each, values in takes.items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(takes)}

    async def run(arguments: Mapping[str, Any]) -> str:
        return does(**arguments)

    return Tool(name, about, schema, run=run)


def _search(name: str, about: str, parameter: str, places: Sequence[str], right: str, answer: str) -> list[Tool]:
    """It is in one of several places, and only looking tells in which."""

    def look(**options: str) -> str:
        if options.get(parameter) != right:
            raise ToolFailed("nothing about it here")
        return f"answer: {answer}"

    return [_tool(name, about, {parameter: places}, look)]


def _locked(does: str, opens: str, parameter: str, keys: Sequence[str], right: str, answer: str) -> list[Tool]:
    """It works only after something else, which takes the right key."""
    world = {"open": False}

    def act() -> str:
        if not world["open"]:
            raise ToolFailed(f"needs {opens} first")
        return f"answer: {answer}"

    def unlock(**options: str) -> str:
        if options.get(parameter) != right:
            raise ToolFailed("refused")
        world["open"] = True
        return "accepted"

    return [
        _tool(does, f"Do it: {does}.", {}, act),
        _tool(opens, f"What may have to come before: {opens}.", {parameter: keys}, unlock),
    ]


def _form(name: str, first: Mapping[str, Sequence[str]], right: Mapping[str, str], answer: str) -> list[Tool]:
    """It takes exactly one form of several."""

    def send(**options: str) -> str:
        wrong = [each for each, value in right.items() if options.get(each) != value]
        if wrong:
            raise ToolFailed(f"not accepted: {wrong[0]}")
        return f"answer: {answer}"

    return [_tool(name, f"Send it: {name}.", first, send)]


_FOLDERS = ("attic", "billing", "contracts", "drafts", "exports", "invoices", "legal", "mail", "notes", "payroll")
_REGIONS = ("africa", "asia", "europe", "north_america", "oceania", "south_america")
_CODES = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")
_DATES = ("2026/11/15", "15.11.2026", "11-15-2026", "2026-11-15")
_UNITS = ("EUR", "USD", "cents")
_FORMS = ("A1", "B7", "CN22", "CN23")

TASKS: tuple[Task, ...] = (
    Task(
        "warranty",
        "How long is the warranty of the coffee machine?",
        "Look up again how long the warranty of our coffee machine lasts",
        "24 months",
        lambda: _search("search_folder", "Search one folder.", "folder", _FOLDERS, "legal", "24 months"),
    ),
    Task(
        "landlord",
        "What is the phone number of the landlord of the Lyon office?",
        "I need the Lyon office landlord's phone number once more",
        "+33 4 01",
        lambda: _search("open_folder", "Open one folder.", "folder", _FOLDERS, "contracts", "+33 4 01"),
    ),
    Task(
        "salary",
        "When are salaries paid in December?",
        "On which day will the December salaries be paid?",
        "the 18th",
        lambda: _search("search_folder", "Search one folder.", "folder", _FOLDERS, "payroll", "the 18th"),
    ),
    Task(
        "supplier",
        "Which supplier delivers the blue paint?",
        "Tell me the supplier of blue paint",
        "Harlow & Sons",
        lambda: _search("list_suppliers", "List a region.", "region", _REGIONS, "oceania", "Harlow & Sons"),
    ),
    Task(
        "customer",
        "What is the customer number of Okafor Ltd?",
        "I lost the customer number of Okafor Ltd, find it",
        "C-0417",
        lambda: _search("list_customers", "List a region.", "region", _REGIONS, "south_america", "C-0417"),
    ),
    Task(
        "restart",
        "Restart the payment gateway",
        "The payment gateway must be restarted",
        "restarted",
        lambda: _locked("restart_gateway", "unlock_gateway", "code", _CODES, "foxtrot", "restarted"),
    ),
    Task(
        "archive",
        "Print the tax report from the archive",
        "Please print that tax report out of the archive",
        "printed",
        lambda: _locked("print_report", "open_archive", "code", _CODES, "delta", "printed"),
    ),
    Task(
        "door",
        "Let the electrician into the server room",
        "The electrician is here for the server room, let him in",
        "door open",
        lambda: _locked("open_door", "disarm_alarm", "code", _CODES, "hotel", "door open"),
    ),
    Task(
        "booking",
        "Book the large meeting room for the board",
        "Book the board's large meeting room",
        "booked",
        lambda: _form("book_room", {"date": _DATES}, {"date": "2026-11-15"}, "booked"),
    ),
    Task(
        "refund",
        "Refund the order of Mrs Tanaka",
        "Mrs Tanaka's order has to be refunded",
        "refunded",
        lambda: _form(
            "refund_order", {"date": _DATES, "unit": _UNITS}, {"date": "15.11.2026", "unit": "cents"}, "refunded"
        ),
    ),
    Task(
        "customs",
        "Declare the parcel to Norway at customs",
        "Make the customs declaration for the Norway parcel",
        "declared",
        lambda: _form(
            "declare",
            {"form": ("A1", "B7", "CN22", "CN23"), "unit": _UNITS},
            {"form": "CN23", "unit": "USD"},
            "declared",
        ),
    ),
    Task(
        "backup",
        "Where is the last backup of the wiki?",
        "Find the newest backup of the wiki",
        "exports/wiki-1114.tar",
        lambda: _search("open_folder", "Open one folder.", "folder", _FOLDERS, "exports", "exports/wiki-1114.tar"),
    ),
)
