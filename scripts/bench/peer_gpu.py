#!/usr/bin/env python3
"""Trains a language model of the Llama shape with PyTorch on one GPU: the peer of the trainings of scripts/gpu_check, which starts it.

fp32 weights, bf16 products by autocast, torch.compile, fused AdamW, clipping: PyTorch at its fastest for that precision. Ids are random,
and each row is one document. With --equal-bits two runs give the same bits, as Argosy's always do; attention is then LibTorch's flash
attention, which is the fastest that PyTorch has with that promise. It prints one JSON object: the median time of a step, tokens a second,
and peak memory.

It needs torch alone.
example: scripts/bench/peer_gpu.py --width 1024 --ff 2816 --heads 16 --kv-heads 8 --layers 24 --rows 8 --length 2048 --equal-bits
"""

import argparse
import json
import os
import statistics

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # equal bits

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o, self.size = o, o.width // o.heads
        new = lambda to, of: torch.nn.Parameter(torch.randn(to, of) * 0.02)
        self.qkv, self.out = new((o.heads + 2 * o.kv_heads) * self.size, o.width), new(o.width, o.width)
        self.up, self.down = new(2 * o.ff, o.width), new(o.width, o.ff)
        self.norms = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(o.width)) for _ in range(2)])

    def forward(self, x, cos, sin):
        o = self.o
        heads = F.linear(F.rms_norm(x, (o.width,), self.norms[0], 1e-5), self.qkv).unflatten(2, (-1, self.size)).transpose(1, 2)
        q, k, v = heads.split((o.heads, o.kv_heads, o.kv_heads), 1)
        turn = lambda t: t * cos + torch.cat([-t[..., self.size // 2 :], t[..., : self.size // 2]], -1) * sin
        mixed = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=o.heads != o.kv_heads)
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), self.out)
        gate, up = F.linear(F.rms_norm(x, (o.width,), self.norms[1], 1e-5), self.up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.embedding, self.head = (torch.nn.Parameter(torch.randn(o.vocab, o.width) * 0.02) for _ in range(2))
        self.blocks = torch.nn.ModuleList([Block(o) for _ in range(o.layers)])
        self.norm = torch.nn.Parameter(torch.ones(o.width))
        size = o.width // o.heads
        angle = torch.arange(o.length)[:, None] / 10000.0 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("cos", torch.cat([angle.cos()] * 2, 1).bfloat16())
        self.register_buffer("sin", torch.cat([angle.sin()] * 2, 1).bfloat16())

    def forward(self, ids, labels):
        x = F.embedding(ids, self.embedding).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(x, labels)

    def loss(self, x, labels):
        logits = F.linear(F.rms_norm(x, (self.o.width,), self.norm, 1e-5), self.head)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"width": 1024, "ff": 2816, "heads": 16, "kv-heads": 8, "layers": 24, "vocab": 2000, "rows": 8, "length": 2048,
                          "steps": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="(%(default)s)")
    parser.add_argument("--equal-bits", action="store_true", help="only operations that give the same bits each time")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    o = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    if o.equal_bits:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        backends = [torch.nn.attention.SDPBackend.FLASH_ATTENTION]
    else:
        backends = [torch.nn.attention.SDPBackend.CUDNN_ATTENTION, torch.nn.attention.SDPBackend.FLASH_ATTENTION]
    with torch.device("cuda"):
        model = Model(o)
        ids = torch.randint(0, o.vocab, (o.rows, o.length + 1))
    if not o.eager:  # by parts: all blocks have one code
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16), torch.nn.attention.sdpa_kernel(backends, set_priority=True):
            loss = model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    times = []
    for number in range(3 + o.steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        loss = step()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end))
    ms = statistics.median(times)
    print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "equal_bits": o.equal_bits, "compiled": not o.eager,
                      "parameters": sum(p.numel() for p in model.parameters()), "loss": loss.item(), "step_ms": ms,
                      "tokens_per_s": 1e3 * o.rows * o.length / ms, "peak_bytes": torch.cuda.max_memory_allocated()}))


main()
