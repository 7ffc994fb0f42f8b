"""Store the messages of one session, and find them in another."""

from recollect import Memory

with Memory() as memory:
    memory.remember(
        [
            {"role": "user", "content": "My sister Mona plays the violin in an orchestra"},
            {"role": "assistant", "content": "Which orchestra does she play in?"},
        ],
        user_id="alex",
        session_id="monday",
    )
    hits = memory.search("What instrument does my sister play?", user_id="alex", session_id="friday", limit=1)
    print(hits[0].record.scope.session, "->", hits[0].memory)
