"""Train the late-interaction encoder: a small transformer that reproduces a ColBERT model's token vectors.

    python -m scripts.encoder.train DATA.npz TEACHER_FOLDER OUT.npz [--seconds 300] [--measure EVAL.npz ...]

Needs torch with a GPU, onnx and tokenizers. Three steps: token vectors of the teacher, centred and reduced to 96
dimensions; training (token cosine, then also the ranking of documents by the teacher, then also answered questions);
export in int8. `--measure` prints Recall@10 of MaxSim alone on sets that are not trained on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from scripts.encoder.teacher import Bert

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH = 62
OUT = 96
TABLE = Path(__file__).parents[2] / "src" / "recollect" / "models" / "table"


# --- data ---------------------------------------------------------------------------------------------------------


def padded(data: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    lengths = data[f"{name}_lengths"].astype(np.int64)
    out = np.zeros((len(lengths), LENGTH), np.int64)
    out[np.arange(LENGTH) < lengths[:, None]] = data[f"{name}_ids"]
    return out, lengths


class Texts:
    """Texts as padded rows of piece ids on the GPU, with the teacher's vectors once they are made."""

    def __init__(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self.ids = torch.tensor(ids.astype(np.int32), device=DEVICE)
        self.lengths = torch.tensor(lengths, device=DEVICE)
        self.vectors: Tensor | None = None

    def take(self, at: Tensor) -> tuple[Tensor, Tensor]:
        longest = max(int(self.lengths[at].max()), 1)
        mask = torch.arange(longest, device=DEVICE) < self.lengths[at][..., None]
        return self.ids[at][..., :longest].long(), mask


# --- teacher ------------------------------------------------------------------------------------------------------


class Teacher:
    """The teacher's token vectors: made of length one, centred, reduced to OUT dimensions, made of length one."""

    def __init__(self, folder: Path) -> None:
        own = {piece: at for at, piece in enumerate((TABLE / "vocab.txt").read_text("utf-8").split())}
        theirs = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        self.ids = torch.zeros(len(own), dtype=torch.long, device=DEVICE)
        for piece, at in own.items():
            self.ids[at] = theirs[piece]
        self.cls, self.sep = theirs["[CLS]"], theirs["[SEP]"]
        self.bert = Bert(folder / "model.onnx", DEVICE)
        self.mean = self.basis = None

    def _hidden(self, texts: Texts, at: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors of the pieces of some texts, without those of [CLS] and [SEP]."""
        ids, mask = texts.take(at)
        rows = torch.full((len(at), ids.shape[1] + 2), self.sep, device=DEVICE)
        rows[:, 0] = self.cls
        rows[:, 1:-1] = torch.where(mask, self.ids[ids], self.sep)
        length = mask.sum(dim=1, keepdim=True) + 2
        hidden = self.bert(rows, torch.arange(rows.shape[1], device=DEVICE) < length)
        return F.normalize(hidden[:, 1:-1], dim=-1), mask

    def fit(self, texts: Texts) -> None:
        """Find the mean and the main directions on a sample."""
        hidden, mask = self._hidden(texts, torch.arange(min(4096, len(texts.ids)), device=DEVICE))
        sample = hidden[mask]
        self.mean = sample.mean(dim=0)
        _, _, basis = torch.linalg.svd(sample[:60_000] - self.mean, full_matrices=False)
        self.basis = basis[:OUT].T

    def vectors(self, texts: Texts) -> Tensor:
        """Vectors of all pieces, padded to LENGTH."""
        out = torch.zeros(len(texts.ids), LENGTH, OUT, device=DEVICE, dtype=torch.float16)
        order = texts.lengths.argsort()
        for start in range(0, len(order), 1024):
            at = order[start : start + 1024]
            hidden, _ = self._hidden(texts, at)
            out[at, : hidden.shape[1]] = F.normalize((hidden - self.mean) @ self.basis, dim=-1).half()
        return out


# --- student ------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.proj(y.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Contextual vectors of documents and questions, and context-free vectors of questions."""

    def __init__(self, vocabulary: int, *, layers: int, width: int = 256, narrow: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.pieces = nn.Embedding(vocabulary, narrow)
        self.widen = nn.Linear(narrow, width)
        self.positions = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, OUT)
        self.weigh = nn.Linear(width, 1)
        self.alone1, self.alone2 = nn.Linear(narrow, width), nn.Linear(width, OUT)
        self.alone_weigh = nn.Linear(narrow, 1)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.widen(self.pieces(ids)) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        return F.normalize(self.out(x).float(), dim=-1), F.softplus(self.weigh(x).float().squeeze(-1))

    def alone(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pieces(ids)
        vectors = F.normalize(self.alone2(F.relu(self.alone1(x))).float(), dim=-1)
        return vectors, F.softplus(self.alone_weigh(x).float().squeeze(-1))


def maxsim(q: Tensor, q_mask: Tensor, weights: Tensor | None, d: Tensor, d_mask: Tensor) -> Tensor:
    """Scores of questions [n, m, k] against documents [n, c, l, k] of their own: [n, c]."""
    similar = torch.einsum("nmk,nclk->ncml", q, d).masked_fill(~d_mask[:, :, None, :], -1)
    best = similar.max(dim=-1).values
    weight = q_mask.float() if weights is None else weights * q_mask
    return (best * weight[:, None, :]).sum(-1) / weight.sum(-1, keepdim=True).clamp_min(1e-6)


def encode_all(model: Encoder, texts: Texts, batch: int = 2048) -> tuple[Tensor, Tensor]:
    vectors = torch.zeros(len(texts.ids), LENGTH, OUT, device=DEVICE, dtype=torch.float16)
    weights = torch.zeros(len(texts.ids), LENGTH, device=DEVICE)
    for start in range(0, len(texts.ids), batch):
        at = torch.arange(start, min(start + batch, len(texts.ids)), device=DEVICE)
        ids, mask = texts.take(at)
        v, w = model(ids, mask)
        vectors[at, : ids.shape[1]], weights[at, : ids.shape[1]] = v.half(), w
    return vectors, weights


@torch.no_grad()
def measure(model: Encoder | None, path: Path, teacher: Teacher | None = None) -> str:
    """Recall@10 of MaxSim alone: with contextual questions, with context-free ones, or by the teacher."""
    data = dict(np.load(path))
    docs, questions = (Texts(*padded(data, name)) for name in ("documents", "questions"))
    mask = lambda t: torch.arange(LENGTH, device=DEVICE) < t.lengths[:, None]  # noqa: E731
    ways: dict[str, tuple[Tensor, Tensor | None]] = {}
    if model is None:
        assert teacher is not None
        d = teacher.vectors(docs)
        ways["teacher"] = (teacher.vectors(questions), None)
    else:
        d, _ = encode_all(model, docs)
        q, w = encode_all(model, questions)
        alone, alone_w = model.alone(questions.ids.long())
        ways = {"contextual": (q, None), "weighted": (q, w), "alone": (alone.half(), alone_w)}
    offsets, group, counts = data["group_offsets"], data["question_group"], data["answer_counts"]
    answers = np.split(data["answers"], np.cumsum(counts)[:-1])
    lines = []
    for name, (vectors, weights) in ways.items():
        recalls, firsts = [], []
        for at in range(len(group)):
            first, last = offsets[group[at]], offsets[group[at] + 1]
            scores = maxsim(
                vectors[at][None].float(), mask(questions)[at][None], None if weights is None else weights[at][None],
                d[first:last][None].float(), mask(docs)[first:last][None],
            )[0]  # fmt: skip
            best = (scores.argsort(descending=True).cpu().numpy() + first)[:10]
            recalls.append(np.isin(answers[at], best).mean())
            firsts.append(best[0] in answers[at])
        lines.append(f"{name} R@10 {np.mean(recalls):.4f} first {np.mean(firsts):.4f}")
    return f"{path.stem}: " + "; ".join(lines)


# --- training -----------------------------------------------------------------------------------------------------


def candidates(data: dict[str, np.ndarray], at: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Documents for each question: one that answers it first, then others of its group and of any group."""
    starts = np.concatenate(([0], np.cumsum(data["answer_counts"])))
    rows = np.empty((len(at), count), np.int64)
    for row, question in zip(rows, at, strict=True):
        own = data["answers"][starts[question] : starts[question + 1]]
        group = data["question_group"][question]
        first, last = data["group_offsets"][group], data["group_offsets"][group + 1]
        near = rng.integers(first, last, count)
        row[:] = np.where(rng.random(count) < 0.75, near, rng.integers(0, data["group_offsets"][-1], count))
        clash = np.isin(row, own)
        row[clash] = rng.integers(0, data["group_offsets"][-1], int(clash.sum()))
        row[0] = rng.choice(own)
    return rows


def train(data: dict[str, np.ndarray], teacher: Teacher, seconds: float, layers: int, sets: list[Path]) -> Encoder:
    rng = np.random.default_rng(1)
    started = time.time()
    texts = {name: Texts(*padded(data, name)) for name in ("chunks", "documents", "questions")}
    teacher.fit(texts["chunks"])
    for part in texts.values():
        part.vectors = teacher.vectors(part)
    print(f"teacher: {time.time() - started:.0f} s", flush=True)
    for path in sets:
        print(measure(None, path, teacher), flush=True)
    model = Encoder(len(teacher.ids), layers=layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    chunks, documents, questions = texts["chunks"], texts["documents"], texts["questions"]
    unseen = torch.arange(min(4096, len(chunks.ids) // 10), device=DEVICE)
    begun, step, sums = time.time(), 0, torch.zeros(4, device=DEVICE)
    while (share := (time.time() - begun) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 500) * max(0.02, (1 - share))
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            at = torch.tensor(rng.integers(len(unseen), len(chunks.ids), 1024), device=DEVICE)
            ids, mask = chunks.take(at)
            target = chunks.vectors[at][:, : ids.shape[1]].float()
            vectors, _ = model(ids, mask)
            token = (1 - (vectors * target).sum(-1))[mask].mean()
            alone, _ = model.alone(ids)
            token_alone = (1 - (alone * target).sum(-1))[mask].mean()
            loss = token + 0.2 * token_alone
            rank = rank_alone = torch.zeros((), device=DEVICE)
            if share > 0.25 and step % 2:
                # Real questions against documents of their conversation; the teacher's order, later the answers too.
                picked = rng.integers(0, len(questions.ids), 64)
                docs = torch.tensor(candidates(data, picked, 24, rng), device=DEVICE)
                picked = torch.tensor(picked, device=DEVICE)
                q_ids, q_mask = questions.take(picked)
                d_ids, d_mask = documents.take(docs)
                q, q_weights = model(q_ids, q_mask)
                d, _ = model(d_ids.flatten(0, 1), d_mask.flatten(0, 1))
                d = d.view(*d_ids.shape, OUT)
                teach = maxsim(
                    questions.vectors[picked][:, : q_ids.shape[1]].float(), q_mask, None,
                    documents.vectors[docs][:, :, : d_ids.shape[2]].float(), d_mask,
                )  # fmt: skip
                goal = F.softmax(teach / 0.03, dim=-1)
                if share > 0.6:
                    right = torch.zeros_like(goal)
                    right[:, 0] = 1
                    goal = 0.5 * goal + 0.5 * right
                scores = maxsim(q, q_mask, q_weights, d, d_mask)
                rank = F.cross_entropy(scores / 0.03, goal)
                a, a_weights = model.alone(q_ids)
                rank_alone = F.cross_entropy(maxsim(a, q_mask, a_weights, d.detach(), d_mask) / 0.03, goal)
                loss = loss + 0.05 * rank + 0.05 * rank_alone
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        sums += torch.stack((token, token_alone, rank, rank_alone)).detach()
        if step % 1000 == 0:
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                ids, mask = chunks.take(unseen)
                cosine = (
                    (model(ids, mask)[0] * chunks.vectors[unseen][:, : ids.shape[1]].float()).sum(-1)[mask].mean()
                )
            losses = ", ".join(f"{each:.4f}" for each in (sums / 1000).tolist())
            print(f"{share:4.0%} step {step} unseen cosine {cosine:.4f} losses {losses}", flush=True)
            sums.zero_()
    model.eval()
    for path in sets:
        print(measure(model, path), flush=True)
    return model


def quantize(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole steps from -127 to 127 for each row, and what a step is worth."""
    steps = np.maximum(np.abs(weights).max(axis=1), 1e-8) / 127
    return np.rint(weights / steps[:, None]).astype(np.int8), steps.astype(np.float32)


def export(model: Encoder, path: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in model.state_dict().items():
        weights = tensor.float().cpu().numpy()
        if weights.ndim == 2 and name != "positions" and len(weights) > 1:
            arrays[name], arrays[f"{name}.steps"] = quantize(weights)
        else:
            arrays[name] = weights.astype(np.float32)
    # Not compressed: it would save 6% and take 40 ms of each start.
    np.savez(path, **arrays)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--measure", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = train(dict(np.load(args.data)), Teacher(args.teacher), args.seconds, args.layers, args.measure)
    export(model, args.out)


if __name__ == "__main__":
    main()
