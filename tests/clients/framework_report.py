"""What an adapter must do in every framework: its script passes how to ask, and prints the report."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from recollect import Memory
from recollect.errors import InvalidInput

home, BUDGET, QUESTION = sys.argv[1:]


def print_report(ask: Callable[[Memory, str, str, str], str], project: str | None = None) -> None:
    """Ask through the framework, as users and in sessions; `project` is where it stores."""
    with Memory(home=Path(home)) as memory:
        report: dict[str, object] = {
            "first": ask(memory, "alex", "monday", BUDGET),
            "next_session": ask(memory, "alex", "tuesday", QUESTION),
            "other_user": ask(memory, "kim", "monday", QUESTION),
        }
        turns = memory.sessions.turns(user_id="alex", project_id=project, session_id="monday")
        report["stored"] = [str(turn.role) for turn in turns]
    with Memory(home=Path(home)) as memory:
        report["after_restart"] = ask(memory, "alex", "wednesday", QUESTION)
        try:
            ask(memory, " ", "monday", QUESTION)
        except InvalidInput as error:
            report["invalid_user"] = str(error)
    report["memory_closed"] = ask(memory, "alex", "thursday", QUESTION)
    print(json.dumps(report))
