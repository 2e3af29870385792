#!/usr/bin/env python3
"""The PyTorch side of scripts/bench/train, which starts it with a description of model, batch and settings.

It trains the model that Argosy trains: the same parameters, initial weights, batch and optimizer (fused AdamW). It reads one JSON
object a line, {"do": "time", "warm": 2, "steps": 20} or {"do": "curve", "steps": 50, "precision": "fp32"}, and answers with one. A
curve starts at the initial weights.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import torch
import torch.nn.functional as F
from torch import Tensor


def initial_weights(path: str) -> dict[str, Tensor]:
    """All parameters of an Argosy checkpoint, by name."""
    weights: dict[str, Tensor] = {}

    def read(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = torch.from_numpy(item[:])

    with h5py.File(path) as file:
        file.visititems(read)
    return weights


class Model(torch.nn.Module):
    """Llama's or Marian's shape, on parameters with Argosy's names; q, k, v and gate, up are stacked."""

    def __init__(self, sizes: dict[str, Any], weights: dict[str, Tensor], positions: int, dropout: float = 0) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()
        self.p = torch.nn.ParameterDict({name: torch.nn.Parameter(value.clone()) for name, value in weights.items()})
        self.heads, self.width, self.is_lm = sizes["heads"], sizes["width"], sizes["type"] == "decoder"
        self.encoder_layers = 0 if self.is_lm else sizes["encoder"]["layers"]
        self.decoder_layers = sizes["decoder"]["layers"]
        size = self.width // self.heads if self.is_lm else self.width
        angle = torch.arange(positions, dtype=torch.float64)[:, None] / 10000.0 ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], 1).float())
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()], 1).float())
        self.register_buffer("sinusoids", torch.cat([angle.sin(), angle.cos()], 1).float())

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.p[name + "/weight"], None if self.is_lm else self.p[name + "/bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        gamma = self.p[name + "/gamma"]
        if self.is_lm:
            return F.rms_norm(x, (self.width,), gamma, 1e-5)
        return F.layer_norm(x, (self.width,), gamma, self.p[name + "/beta"], 1e-5)

    def split(self, x: Tensor, parts: int) -> list[Tensor]:
        """[rows, length, parts·width] → parts tensors [rows, heads, length, head size]"""
        rows, length, _ = x.shape
        return list(x.view(rows, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0))

    def rotate(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cos.to(x.dtype) + torch.cat([-second, first], -1) * self.sin.to(x.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, out: str) -> Tensor:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.linear(mixed.transpose(1, 2).flatten(2), out)

    def self_attention(self, x: Tensor, layer: str, causal: bool) -> Tensor:
        q, k, v = self.split(self.linear(x, layer + "/self_attention/linear_0"), 3)
        if self.is_lm:
            q, k = self.rotate(q), self.rotate(k)
        return self.attend(q, k, v, causal, layer + "/self_attention/linear_1")

    def cross_attention(self, x: Tensor, memory: Tensor, layer: str) -> Tensor:
        (q,) = self.split(self.linear(x, layer + "/attention/linear_0"), 1)
        k, v = self.split(self.linear(memory, layer + "/attention/linear_1"), 2)
        return self.attend(q, k, v, False, layer + "/attention/linear_2")

    def feed_forward(self, x: Tensor, layer: str) -> Tensor:
        up = self.linear(x, layer + "/ffn/linear_0")
        if self.is_lm:
            gate, up = up.chunk(2, -1)
            return self.linear(F.silu(gate) * up, layer + "/ffn/linear_1")
        return self.linear(F.silu(up), layer + "/ffn/linear_1")

    def embed(self, ids: Tensor, start: int) -> Tensor:
        x = F.embedding(ids, self.p["decoder/embeddings/weight"], padding_idx=start)
        return x * self.width**0.5 + self.sinusoids[: ids.shape[1]]

    def llama(self, ids: Tensor) -> Tensor:
        """Pre-norm"""
        x = self.drop(F.embedding(ids, self.p["decoder/embeddings/weight"]))
        for layer in (f"decoder/layer_{i}" for i in range(self.decoder_layers)):
            x = x + self.drop(self.self_attention(self.norm(x, layer + "/self_attention/layer_norm"), layer, True))
            x = x + self.drop(self.feed_forward(self.norm(x, layer + "/ffn/layer_norm"), layer))
        return F.linear(self.norm(x, "decoder/layer_norm"), self.p["decoder/projection/weight"])

    def marian(self, source: Tensor, target: Tensor, start: int) -> Tensor:
        """Post-norm; embeddings and output share their matrix"""
        memory = self.embed(source, start)
        for layer in (f"encoder/layer_{i}" for i in range(self.encoder_layers)):
            memory = self.norm(memory + self.self_attention(memory, layer, False), layer + "/self_attention/layer_norm")
            memory = self.norm(memory + self.feed_forward(memory, layer), layer + "/ffn/layer_norm")
        x = self.embed(target, start)
        for layer in (f"decoder/layer_{i}" for i in range(self.decoder_layers)):
            x = self.norm(x + self.self_attention(x, layer, True), layer + "/self_attention/layer_norm")
            x = self.norm(x + self.cross_attention(x, memory, layer), layer + "/attention/layer_norm")
            x = self.norm(x + self.feed_forward(x, layer), layer + "/ffn/layer_norm")
        return F.linear(x, self.p["decoder/embeddings/weight"], self.p["decoder/projection/bias"])

    def forward(self, source: Tensor | None, target: Tensor, labels: Tensor, start: int) -> Tensor:
        logits = self.llama(target) if source is None else self.marian(source, target, start)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class Trainer:
    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.weights = initial_weights(task["weights"])
        batch = task["batch"]
        self.source = torch.tensor(batch["source"]) if batch["source"] else None
        self.target, self.labels, self.start = torch.tensor(batch["target"]), torch.tensor(batch["labels"]), batch["start"]
        self.model = Model(task["model"], self.weights, self.target.shape[1])
        self.loss: Callable[..., Tensor] = torch.compile(self.model) if task["compile"] else self.model
        self.begin()

    def begin(self) -> None:
        """At the initial weights, with a new optimizer."""
        with torch.no_grad():
            for name, value in self.weights.items():
                self.model.p[name].copy_(value)
        of = self.task["optimizer"]
        parameters = list(self.model.parameters())
        groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": of["weight_decay"]},
                  {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.task["lr"], betas=(of["beta1"], of["beta2"]), eps=of["epsilon"], fused=True)
        self.max_norm = of["max_grad_norm"]

    def step(self, precision: str) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = self.loss(self.source, self.target, self.labels, self.start)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        return loss.detach()

    def time(self, warm: int, steps: int) -> dict[str, Any]:
        for _ in range(warm):
            self.step(self.task["precision"])
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak: compiling is not counted
        times_ms = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step(self.task["precision"])
            times_ms.append((time.perf_counter() - begin) * 1e3)
        status = Path("/proc/self/status").read_text()
        peak_kib = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        return {"step_ms": times_ms, "peak_rss_mib": peak_kib / 1024}

    def curve(self, steps: int, precision: str) -> dict[str, Any]:
        self.begin()
        return {"losses": [float(self.step(precision)) for _ in range(steps)]}


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(f"usage: peer_train.py TASK.json\n\n{__doc__}", end="")
        sys.exit(0 if len(sys.argv) == 2 else 2)
    task = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    torch.set_num_threads(task["threads"])
    trainer = Trainer(task)
    answer: dict[str, Any] = {"parameters": sum(p.numel() for p in trainer.model.parameters()), "torch": torch.__version__}
    print(json.dumps(answer), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = trainer.curve(request["steps"], request["precision"]) if request["do"] == "curve" else trainer.time(request["warm"], request["steps"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
