"""A fact changes; the old value stays in history, and the change can be taken back."""

from recollect import Memory

with Memory() as memory:
    memory.add(user_id="alex", category="identity", key="city", value="Oslo")
    memory.acting_as("maria", why="moved in May").add(user_id="alex", category="identity", key="city", value="Lisbon")

    for line in memory.history(user_id="alex"):
        print(line.id, line.verb, line.by.why or "-", dict(line.after))

    memory.undo(user_id="alex")
    [city] = memory.get_all(user_id="alex", filters={"key": "city"})
    print("after undo:", city.value)
