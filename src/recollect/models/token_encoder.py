"""The late-interaction encoder: one vector for each word piece of a text, in its context.

A small transformer (`encoder/weights.npz`, made by `scripts/encoder`), run with NumPy. A question and a passage are
compared piece by piece: for each piece of the question the most similar piece of the passage counts (MaxSim).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from recollect.aio.erasable_cache import erasable_cache
from recollect.frozen_dataclass import frozen_dataclass
from recollect.models.embedding import TOKEN_MODEL
from recollect.models.static_embedder import word_piece_ids

Floats = NDArray[np.float32]
TokenVectors = NDArray[np.int8]

ENCODER_FILE = Path(__file__).parent / "encoder" / "weights.npz"
DIMENSIONS = TOKEN_MODEL.dimensions
# Vectors have length one; int8 holds their components in steps of 1/127.
STEPS = 127
# Longer texts are encoded in windows of as many pieces as the network was trained on, and only their beginning.
_WINDOW = 62
_MAX_WINDOWS = 4
# More characters than the pieces of all windows have.
_MAX_CHARS = 32 * _WINDOW * _MAX_WINDOWS
_HEADS = 4
_BATCH_PIECES = 2_048
# So few are not faster in a batch.
_FEW_TEXTS = 4
# Matrices are stored as panels of so many columns. OpenBLAS multiplies a panel with the few rows of a question
# without copying it first, and reads it in order: half the time of the whole matrix.
_PANEL_COLUMNS = 64


@frozen_dataclass
class _Layer:
    qkv: Floats
    qkv_bias: Floats
    proj: Floats
    proj_bias: Floats
    up: Floats
    up_bias: Floats
    down: Floats
    down_bias: Floats


@frozen_dataclass
class _Network:
    pieces: NDArray[np.int8]
    piece_steps: Floats
    widen: Floats
    positions: Floats
    layers: tuple[_Layer, ...]
    out: Floats
    out_bias: Floats


@cache
def load_network(path: Path = ENCODER_FILE) -> _Network:
    """Read the weights once per process; matrices become float32, norms are folded into the matrices around them."""
    # OpenBLAS deadlocks if the process forks while its threads multiply, and for matrices of this size they cost more
    # than they save.
    threadpool_limits(1, user_api="blas")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}

    def panels_of(name: str, scales: Floats | float = 1.0) -> Floats:
        panels = _panels(arrays[f"{name}.weight"].T)
        panels *= (arrays[f"{name}.weight.steps"] * scales).reshape(len(panels), 1, -1)
        return panels

    def after_norm(name: str, norm: str, scales: Floats | float = 1.0) -> tuple[Floats, Floats]:
        panels = panels_of(name, scales)
        [shift] = _product(arrays[f"{norm}.bias"][None], panels)
        panels *= arrays[f"{norm}.weight"][:, None]
        return panels, np.asarray(arrays[f"{name}.bias"] * scales + shift, np.float32)

    def before_norm(name: str) -> tuple[Floats, Floats]:
        # A norm subtracts the mean of each row. Each part of the sum that it is applied to has none here.
        panels = panels_of(name)
        panels -= panels.mean(axis=(0, 2), keepdims=True)
        return panels, _centre(arrays[f"{name}.bias"])

    count = sum(name.endswith("qkv.bias") for name in arrays)
    width = arrays["positions"].shape[1]
    # The scale of the attention scores is in the columns that make the queries.
    scales = np.repeat(np.array([(width / _HEADS) ** -0.5, 1, 1], np.float32), width)
    layers = tuple(
        _Layer(
            *after_norm(f"layers.{at}.qkv", f"layers.{at}.norm1", scales),
            *before_norm(f"layers.{at}.proj"),
            *after_norm(f"layers.{at}.up", f"layers.{at}.norm2"),
            *before_norm(f"layers.{at}.down"),
        )
        for at in range(count)
    )
    widen, widen_bias = before_norm("widen")
    return _Network(
        arrays["pieces.weight"],
        arrays["pieces.weight.steps"],
        widen,
        _centre(arrays["positions"]) + widen_bias,
        layers,
        *after_norm("out", "norm"),
    )


def _centre(rows: Floats) -> Floats:
    """Subtract the mean of each row."""
    return np.ascontiguousarray(rows - rows.mean(axis=-1, keepdims=True), np.float32)


def encode_question(text: str) -> Floats:
    """Return the vectors of a question's word pieces, of its first window only."""
    return _encode_window(text[:_MAX_CHARS])


# A question is encoded to search for it, and as a turn to store it; one that a search encodes is stored later.
@erasable_cache(256)
def _encode_window(text: str) -> Floats:
    return _encode(load_network(), [word_piece_ids([text])[0][:_WINDOW]])[0]


def encode_passages(texts: Sequence[str]) -> list[TokenVectors]:
    """Return the vectors of each text's word pieces in int8, in the order of `texts`."""
    pieces = word_piece_ids([text[:_MAX_CHARS] for text in texts])
    if len(texts) <= _FEW_TEXTS and max(map(len, pieces), default=0) <= _WINDOW:
        return [np.rint(encode_question(text) * STEPS).astype(np.int8) for text in texts]
    network = load_network()
    windows: list[list[int]] = []
    owners: list[int] = []
    for owner, ids in enumerate(pieces):
        for start in range(0, min(len(ids), _WINDOW * _MAX_WINDOWS), _WINDOW):
            windows.append(ids[start : start + _WINDOW])
            owners.append(owner)
    parts: list[list[TokenVectors]] = [[] for _ in texts]
    # Windows of like length go together, so that little is padding.
    order = sorted(range(len(windows)), key=lambda at: len(windows[at]))
    vectors: dict[int, TokenVectors] = {}
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end - start + 1) * len(windows[order[end]]) <= _BATCH_PIECES:
            end += 1
        batch = order[start:end]
        for at, own in zip(batch, _encode(network, [windows[at] for at in batch]), strict=True):
            vectors[at] = np.rint(own * STEPS).astype(np.int8)
        start = end
    for at, owner in enumerate(owners):
        parts[owner].append(vectors[at])
    return [np.concatenate(part) if part else np.zeros((0, DIMENSIONS), np.int8) for part in parts]


def _encode(network: _Network, rows: Sequence[list[int]]) -> list[Floats]:
    """Run the network on rows of piece ids, padded to the longest."""
    lengths = [len(row) for row in rows]
    count, longest = len(rows), max(lengths)
    ids = np.zeros((count, longest), np.int64)
    for row, pieces in zip(ids, rows, strict=True):
        row[: len(pieces)] = pieces
    flat = ids.ravel()
    embedded = network.pieces[flat] * network.piece_steps[flat][:, None]
    x = _product(embedded, network.widen)
    x.reshape(count, longest, -1)[:] += network.positions[:longest]
    padding = None
    if min(lengths) < longest:
        padding = np.where(np.arange(longest) < np.array(lengths)[:, None], 0, -1e9).astype(np.float32)[:, None, None]
    for layer in network.layers:
        qkv = _product(_norm(x), layer.qkv)
        qkv += layer.qkv_bias
        x += _product(_attend(qkv, count, longest, padding), layer.proj)
        x += layer.proj_bias
        hidden = _product(_norm(x), layer.up)
        hidden += layer.up_bias
        np.maximum(hidden, 0, out=hidden)
        x += _product(hidden, layer.down)
        x += layer.down_bias
    out = _product(_norm(x), network.out)
    out += network.out_bias
    out /= np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
    out = out.reshape(count, longest, -1)
    return [own[:length] for own, length in zip(out, lengths, strict=True)]


def _attend(qkv: Floats, count: int, longest: int, padding: Floats | None) -> Floats:
    """Apply self-attention within each row."""
    q, k, v = qkv.reshape(count, longest, 3, _HEADS, -1).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2)
    if padding is not None:
        scores += padding
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    attended = np.empty((count, longest, *v.shape[1::2]), np.float32)
    np.matmul(scores, v, out=attended.swapaxes(1, 2))
    return attended.reshape(count * longest, -1)


def _norm(x: Floats) -> Floats:
    """Scale each row, of mean 0, to unit variance; the learned scale and shift are in the matrix that follows."""
    variance = np.einsum("ij,ij->i", x, x)[:, None]
    variance /= np.float32(x.shape[1])
    variance += np.float32(1e-5)
    return np.asarray(x / np.sqrt(variance, out=variance))


def _panels(matrix: NDArray[np.int8]) -> Floats:
    """Return the matrix in panels of columns, each contiguous, in float32."""
    rows, columns = matrix.shape
    return np.ascontiguousarray(matrix.reshape(rows, -1, gcd(columns, _PANEL_COLUMNS)).swapaxes(0, 1), np.float32)


def _product(x: Floats, panels: Floats) -> Floats:
    """Multiply rows with a matrix in panels."""
    count, _, columns = panels.shape
    result = np.empty((len(x), count, columns), np.float32)
    np.matmul(x, panels, out=result.swapaxes(0, 1))
    return result.reshape(len(x), -1)
