"""Change a fact, list its history, and undo the change."""

from recollect import Memory

with Memory() as memory:
    memory.add(user_id="alex", category="identity", key="city", value="Oslo")
    memory.acting_as("maria", why="moved in May").add(user_id="alex", category="identity", key="city", value="Lisbon")

    for line in memory.history(user_id="alex"):
        print(line.id, line.verb, line.by.why or "-", dict(line.after))

    memory.undo(user_id="alex")
    [city] = memory.get_all(user_id="alex", filters={"key": "city"})
    print("after undo:", city.value)
