"""Export all memories as JSON Lines, and import them into another store; a second import changes nothing."""

import json
import tempfile
from pathlib import Path

from recollect import Memory

with Memory() as memory:
    memory.add("The demo is on 3 June", user_id="alex", tags=["dates"])
    lines = [json.dumps(line) for line in memory.export()]

with tempfile.TemporaryDirectory() as folder, Memory(home=Path(folder)) as other:
    print(other.import_(map(json.loads, lines)))
    print(other.import_(map(json.loads, lines)))
