"""Recall memories for a question, and print each candidate with its score and its outcome."""

import tempfile

from recollect import Memory

with tempfile.TemporaryDirectory() as home, Memory(home=home) as memory:
    memory.add("The budget for the Hawaii trip is $10,000", user_id="alex")
    memory.add("Alex prefers window seats", user_id="alex", category="preference")
    memory.add(user_id="alex", category="identity", key="name", value="Alex", importance=0.9)

    recalled = memory.recall("What's the budget for my trip to Hawaii?", user_id="alex", trace=True)
    print(recalled.outcome, "-", recalled.reason)
    print(recalled.context.text)
    for candidate in recalled.candidates:
        print(f"{candidate.relevance:.2f} {candidate.decision:30} {candidate.memory}")

    # Small talk is not searched for.
    print(memory.recall("thanks a lot!", user_id="alex").outcome)
