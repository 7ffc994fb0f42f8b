"""Store facts, and search them by meaning."""

from recollect import Memory

with Memory() as memory:
    memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    memory.add("Alex is allergic to peanuts", user_id="alex")

    for question in ("How much can I spend in Hawaii?", "Which food is dangerous for Alex?"):
        best = memory.search(question, user_id="alex", limit=1)[0]
        print(f"{question}\n  {best.memory}  ({best.score:.2f})")
