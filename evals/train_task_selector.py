"""Train the model that selects sentences of tasks without an LLM, and print held-out figures.

    python -m evals.train_task_selector

Reads `evals/data/coding.jsonl`: messages of users and answers of assistants in sessions with coding agents, with the
stretches worth remembering, and everyday answers without any. Prints figures by five-fold cross-validation and of the
rows with `held_out`, trains on the others and writes `selector_task.npz` into the package. The figures are of the
model alone; statements that the general selector is sure of come in addition. Needs scikit-learn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from evals.train_selector import (
    DATA,
    FOLDS,
    PACKAGE,
    Labelled,
    Row,
    Statements,
    fit,
    label,
    matrix,
    read_rows,
    report,
    selected_stretches,
    to_model,
)
from recollect.model.turn import Role
from recollect.models.linear_text import TextInput, save_model
from recollect.write import select
from recollect.write.select import StatementSpan

C = 3.0


def sentences(rows: Sequence[Row]) -> tuple[Statements, np.ndarray]:
    """Return the sentences of messages as statements, and whether each is worth remembering."""
    by_row: dict[int, list[Labelled]] = defaultdict(list)
    for each in label(rows):
        by_row[each.row].append(each)
    of: list[Labelled] = []
    statements: list[StatementSpan] = []
    inputs: list[TextInput] = []
    for own in by_row.values():
        by_sentence = {id(each.sentence): each for each in own}
        found, features = select.task_inputs([each.sentence for each in own])
        of += [by_sentence[id(each.sentence)] for each in found]
        statements += found
        inputs += features
    data = Statements(of, statements, matrix(inputs, select.BUCKETS))
    return data, np.array([which >= 0 for which in selected_stretches(data)])


def main() -> None:
    """Train, measure and write."""
    rows = read_rows(DATA / "coding.jsonl")
    models = []
    for role in (Role.ASSISTANT, Role.USER):
        own = [row for row in rows if row["source"].endswith(f"-{role}")]
        used = [row for row in own if not row.get("held_out")]
        used = [used[at] for at in np.random.default_rng(0).permutation(len(used))]
        data, labels = sentences(used)
        fold = np.array([each.row % FOLDS for each in data.of])
        odds = np.zeros(len(labels))
        for number in range(FOLDS):
            model = fit(data.x[fold != number], labels[fold != number], C)
            odds[fold == number] = model.predict_proba(data.x[fold == number])[:, 1]
        report(f"{role}, by cross-validation", used, data, odds)
        models.append(fit(data.x, labels, C))
        held_out = [row for row in own if row.get("held_out")]
        unseen, _ = sentences(held_out)
        report(f"{role}, held out", held_out, unseen, models[-1].predict_proba(unseen.x)[:, 1])
    save_model(
        PACKAGE / "selector_task.npz", to_model([*map(str, (Role.ASSISTANT, Role.USER))], models, select.BUCKETS)
    )


if __name__ == "__main__":
    main()
