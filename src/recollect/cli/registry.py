"""Which commands there are, what each is for and where it lives; so that help can be printed without loading any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command as the overview names it: `module:attribute` inside recollect.cli.commands, and its purpose."""

    target: str
    summary: str


SECTIONS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Keep": {
        "add": CommandEntry("store:add", "Keep a memory, word for word."),
        "remember": CommandEntry("store:remember", "Keep what was said, as a turn of a session, and learn from it."),
        "update": CommandEntry("store:update", "Change the words or the fields of a memory."),
        "forget": CommandEntry("forget:forget", "Take a memory, or all of them, out of recall."),
        "restore": CommandEntry("forget:restore", "Make a forgotten or superseded memory active again."),
        "undo": CommandEntry(
            "forget:undo", "Take back the last thing that someone did or said, or a change by its number."
        ),
        "erase": CommandEntry("forget:erase", "Remove something for good, with all that was derived from it."),
    },
    "Find": {
        "search": CommandEntry("query:search", "Find the memories that fit a question, best first."),
        "recall": CommandEntry("query:recall", "Ask memory as a chat would, and show what goes into the prompt."),
        "list": CommandEntry("query:list_", "List memories, newest first."),
        "show": CommandEntry("query:show", "Show all there is to know about one memory."),
        "history": CommandEntry("query:history", "Tell what happened: who, when, why and what was before."),
    },
    "Move": {
        "backup": CommandEntry("transfer:backup", "Make, verify and restore backups of everything."),
        "export": CommandEntry("transfer:export", "Write memories and turns out as JSON Lines."),
        "import": CommandEntry(
            "transfer:import_", "Bring in memories: what export wrote, or what another product keeps."
        ),
        "mirror": CommandEntry("mirror:mirror", "Show and check the memories that are Markdown files."),
    },
    "Measure": {
        "eval": CommandEntry("eval:eval_", "Measure how well it finds, on data of yours."),
    },
    "Look after": {
        "stats": CommandEntry("admin:stats", "Count what is kept, and what the LLM cost."),
        "review": CommandEntry("maintenance:review", "List what waits for a person to look at it, and decide."),
        "upkeep": CommandEntry("maintenance:upkeep", "Put a user's memories in order now."),
        "sessions": CommandEntry("sessions:sessions", "List sessions, or end one."),
        "end-run": CommandEntry("sessions:end_run", "Keep what an agent's run came to."),
        "jobs": CommandEntry("maintenance:jobs", "Show the work behind the answers, and set right what failed."),
        "worker": CommandEntry("maintenance:worker", "Do the work behind the answers, as a process of its own."),
        "users": CommandEntry("admin:users", "Name everyone who has memories."),
        "keys": CommandEntry("admin:keys", "Make, list and revoke the keys of the server."),
        "reembed": CommandEntry("storage:reembed", "Change to the embedding model that the settings name, now."),
        "partition": CommandEntry("storage:partition", "Split the large tables of a PostgreSQL database by user."),
        "index": CommandEntry("storage:index", "Compare the vector database with the ledger, or fill it anew."),
        "doctor": CommandEntry("doctor:doctor", "Check that everything works, and say how to mend what does not."),
        "config": CommandEntry("config:config", "Show the settings in force and where they come from."),
        "serve": CommandEntry("serve:serve", "Run the server."),
        "chat": CommandEntry("chat:chat", "Chat with a model that remembers."),
        "agent": CommandEntry("chat:agent", "Put a question to an agent that reasons and uses tools."),
        "completion": CommandEntry("config:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: Mapping[str, CommandEntry] = {name: listed for each in SECTIONS.values() for name, listed in each.items()}
