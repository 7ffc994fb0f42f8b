"""The commands, their purposes and their modules, so that help is printed without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command: `module:attribute` inside recollect.cli.commands, and its purpose."""

    target: str
    summary: str


SECTIONS: Mapping[str, Mapping[str, CommandEntry]] = {
    "Store": {
        "add": CommandEntry("store:add", "Store a memory verbatim."),
        "remember": CommandEntry("store:remember", "Store a turn of a session, and learn from it."),
        "update": CommandEntry("store:update", "Change the text or the fields of a memory."),
        "forget": CommandEntry("store:forget", "Remove a memory, or all of them, from recall."),
        "restore": CommandEntry("store:restore", "Make a forgotten or superseded memory active again."),
        "undo": CommandEntry("store:undo", "Undo the last change, or a change by its number."),
        "erase": CommandEntry("store:erase", "Delete permanently, with everything derived from it."),
    },
    "Find": {
        "search": CommandEntry("query:search", "Find the memories that match a question, best first."),
        "recall": CommandEntry("query:recall", "Recall memories as a chat does, and print the block for the prompt."),
        "list": CommandEntry("query:list_", "List memories, newest first."),
        "show": CommandEntry("query:show", "Show all fields of a memory."),
        "graph": CommandEntry("query:graph", "Show what is related to a name, a key or a memory."),
        "history": CommandEntry("query:history", "List changes: who, when, why and the previous values."),
    },
    "Move": {
        "backup": CommandEntry("transfer:backup", "Make, verify and restore backups of everything."),
        "export": CommandEntry("transfer:export", "Write memories and turns as JSON Lines."),
        "import": CommandEntry("transfer:import_", "Import memories from an export or from another product."),
        "mirror": CommandEntry("storage:mirror", "Inspect and sync the memories that are Markdown files."),
    },
    "Coding agents": {
        "install": CommandEntry("coding:install", "Add memory to a coding agent or another client of MCP."),
        "uninstall": CommandEntry("coding:uninstall", "Remove memory from a client."),
        "hook": CommandEntry("coding:hook", "Answer a hook; coding agents run it."),
    },
    "Evaluate": {"eval": CommandEntry("eval:eval_", "Measure retrieval quality on your data.")},
    "Operate": {
        "stats": CommandEntry("admin:stats", "Count stored records, and tokens of the LLM."),
        "review": CommandEntry("maintenance:review", "List memories that wait for review, and decide."),
        "upkeep": CommandEntry("maintenance:upkeep", "Run maintenance on a user's memories now."),
        "sessions": CommandEntry("maintenance:sessions", "List sessions, or end one."),
        "end-run": CommandEntry("maintenance:end_run", "Record the result of an agent's run."),
        "jobs": CommandEntry("maintenance:jobs", "List background jobs, and replay or cancel them."),
        "worker": CommandEntry("maintenance:worker", "Run background jobs in this process."),
        "users": CommandEntry("admin:users", "List the users that have memories."),
        "keys": CommandEntry("admin:keys", "Create, list and revoke API keys of the server."),
        "reembed": CommandEntry("storage:reembed", "Switch to the embedding model of the settings now."),
        "partition": CommandEntry("storage:partition", "Partition the large tables of PostgreSQL by user."),
        "index": CommandEntry("storage:index", "Compare the vector database with the ledger, or rebuild it."),
        "doctor": CommandEntry("doctor:doctor", "Check the installation, and print a remedy for each problem."),
        "config": CommandEntry("config:config", "Show the settings in force and their sources."),
        "serve": CommandEntry("serve:serve", "Run the server."),
        "mcp": CommandEntry("mcp:mcp", "Serve MCP on standard input and output."),
        "ui": CommandEntry("serve:ui", "Open the web page in the browser."),
        "chat": CommandEntry("chat:chat", "Chat with a model that has memory."),
        "agent": CommandEntry("chat:agent", "Ask an agent that reasons and uses tools."),
        "completion": CommandEntry("config:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: Mapping[str, CommandEntry] = {name: entry for each in SECTIONS.values() for name, entry in each.items()}
