"""The groups of routes in OpenAPI, in the order in which the page shows them."""

from __future__ import annotations

_API_TAGS = (
    ("memories", "Memories, one at a time and in lists."),
    ("search and recall", "Finding memories, and having them ready for a prompt."),
    ("turns and sessions", "What was said: remembering it, reading it again, and the sessions it was said in."),
    ("history and undo", "What happened to memories, and taking it back."),
    ("reviews", "Memories that wait for a person's approval."),
    ("jobs", "What is learned behind the answers."),
    ("changes", "What happens to memories, as it happens."),
    ("export and import", "All of a user's memories as JSON lines."),
    ("erasing", "Removing for good, with a receipt."),
    ("usage and upkeep", "How much there is, what it cost, and putting it in order."),
    ("admin", "What concerns everyone; for admin keys."),
)
_COMPAT_TAGS = (
    ("proxy", "Chats as OpenAI's clients have them, with memory."),
    ("responses", "OpenAI's Responses API, with memory."),
    ("conversations", "OpenAI's Conversations API."),
    ("memory", "Memories of a user and their projects: /v1/memory."),
    ("sessions", "What is remembered of a session: /api/sessions."),
    ("react", "Facts, episodes and conversations for a reasoning agent: /api/react."),
    ("agent", "An agent that reasons, acts with tools and remembers: /v1/agent."),
    ("mem0 platform", "For clients of mem0's platform; what they send and we do not know is passed over."),
    ("mem0 server", "For clients of the server that mem0 users run themselves."),
    ("health", "Is it up, is it ready, what is it."),
)
TAGS = [
    *({"name": name, "description": f"Recollect's own API. {description}"} for name, description in _API_TAGS),
    *({"name": name, "description": description} for name, description in _COMPAT_TAGS),
]
