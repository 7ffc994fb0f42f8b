"""Which commands there are, what each is for and where it lives; so that help can be printed without loading any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the overview names it: `module:attribute` inside recollect.cli.commands, and its purpose."""

    where: str
    purpose: str


SECTIONS: Mapping[str, Mapping[str, Listed]] = {
    "Keep": {
        "add": Listed("add:add", "Keep a memory, word for word."),
        "remember": Listed("remember:remember", "Keep what was said, as a turn of a session, and learn from it."),
        "update": Listed("update:update", "Change the words or the fields of a memory."),
        "forget": Listed("forget:forget", "Take a memory, or all of them, out of recall."),
        "restore": Listed("restore:restore", "Make a forgotten or superseded memory active again."),
        "undo": Listed("undo:undo", "Take back the last thing that someone did or said, or a change by its number."),
        "erase": Listed("erase:erase", "Remove something for good, with all that was derived from it."),
    },
    "Find": {
        "search": Listed("search:search", "Find the memories that fit a question, best first."),
        "recall": Listed("recall:recall", "Ask memory as a chat would, and show what goes into the prompt."),
        "list": Listed("list_:list_", "List memories, newest first."),
        "show": Listed("show:show", "Show all there is to know about one memory."),
        "history": Listed("history:history", "Tell what happened: who, when, why and what was before."),
    },
    "Move": {
        "backup": Listed("backup:backup", "Make, verify and restore backups of everything."),
        "export": Listed("export:export", "Write memories and turns out as JSON Lines."),
        "import": Listed("import_:import_", "Bring in memories: what export wrote, or what another product keeps."),
        "mirror": Listed("mirror:mirror", "Show and check the memories that are Markdown files."),
    },
    "Measure": {
        "eval": Listed("eval_:eval_", "Measure how well it finds, on data of yours."),
    },
    "Look after": {
        "stats": Listed("stats:stats", "Count what is kept, and what the LLM cost."),
        "review": Listed("review:review", "List what waits for a person to look at it, and decide."),
        "upkeep": Listed("upkeep:upkeep", "Put a user's memories in order now."),
        "sessions": Listed("sessions:sessions", "List sessions, or end one."),
        "end-run": Listed("end_run:end_run", "Keep what an agent's run came to."),
        "jobs": Listed("jobs:jobs", "Show the work behind the answers, and set right what failed."),
        "worker": Listed("worker:worker", "Do the work behind the answers, as a process of its own."),
        "users": Listed("users:users", "Name everyone who has memories."),
        "keys": Listed("keys:keys", "Make, list and revoke the keys of the server."),
        "reembed": Listed("reembed:reembed", "Change to the embedding model that the settings name, now."),
        "partition": Listed("partition:partition", "Split the large tables of a PostgreSQL database by user."),
        "index": Listed("index:index", "Compare the vector database with the ledger, or fill it anew."),
        "doctor": Listed("doctor:doctor", "Check that everything works, and say how to mend what does not."),
        "config": Listed("config:config", "Show the settings in force and where they come from."),
        "serve": Listed("serve:serve", "Run the server."),
        "chat": Listed("chat:chat", "Chat with a model that remembers."),
        "agent": Listed("agent:agent", "Put a question to an agent that reasons and uses tools."),
        "completion": Listed("completion:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: Mapping[str, Listed] = {name: listed for each in SECTIONS.values() for name, listed in each.items()}
