#!/usr/bin/env python3
"""Trains matrices with the optimizers of PyTorch and transformers on gradients that a formula makes.

usage: optimizer_judge.py TASK OUT

TASK is a JSON file: {"matrices": [{"first", "rows", "columns", "decays", "hidden"}], "initial": [numbers], "steps", "lr"}; a matrix has
its numbers in `initial` from `first` on, and a vector has one column. OUT becomes {CASE: [numbers after the steps]}. Exit code 77: no
PyTorch or transformers.
"""
import json
import math
import sys

try:
    import numpy
    import torch
    from transformers.optimization import Adafactor
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

BETAS, EPSILON, DECAY, MOMENTUM = (0.9, 0.98), 1e-8, 0.1, 0.95


def gradient(matrix, step, shape):
    """As gradient_of() in optimizer_judge_test.cpp makes them."""
    with numpy.errstate(over="ignore"):
        count = int(numpy.prod(shape))
        h = (numpy.uint32(matrix * 0x9E3779B1 & 0xFFFFFFFF) + numpy.uint32(step * 0x85EBCA77 & 0xFFFFFFFF)
             + numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(0xC2B2AE3D))
        h = (h ^ (h >> numpy.uint32(15))) * numpy.uint32(0x2C1B3C6D)
        h = (h ^ (h >> numpy.uint32(12))) * numpy.uint32(0x297A2D39)
        h ^= h >> numpy.uint32(15)
    values = (h >> numpy.uint32(8)).astype(numpy.float32) * numpy.float32(2**-24) - numpy.float32(0.5)
    return torch.from_numpy(values * numpy.float32(5 if step % 10 == 0 else 1)).reshape(shape)


class MuonInFp32:
    """The formula of torch.optim.Muon with adjust_lr_fn "match_rms_adamw", all in fp32."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = parameters, lr
        self.momenta = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self):
        for parameter, momentum in zip(self.parameters, self.momenta):
            momentum.lerp_(parameter.grad, 1 - MOMENTUM)
            x = parameter.grad.lerp(momentum, MOMENTUM)
            rows, columns = x.shape
            if rows > columns:
                x = x.T
            x = x / x.norm().clamp(min=1e-7)
            for _ in range(5):
                square = x @ x.T
                x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
            if rows > columns:
                x = x.T
            parameter.mul_(1 - self.lr * DECAY)
            parameter.sub_(x, alpha=self.lr * 0.2 * math.sqrt(max(rows, columns)))


def adamw(parameters, decays, lr):
    groups = [{"params": [p for p, d in zip(parameters, decays) if d], "weight_decay": DECAY},
              {"params": [p for p, d in zip(parameters, decays) if not d], "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, betas=BETAS, eps=EPSILON)


def adafactor(parameters, decays, lr):
    groups = [{"params": [p for p, d in zip(parameters, decays) if d], "weight_decay": DECAY},
              {"params": [p for p, d in zip(parameters, decays) if not d], "weight_decay": 0.0}]
    return Adafactor(groups, lr=lr, scale_parameter=False, relative_step=False)


def optimizers(case, parameters, matrices, lr):
    decays = [matrix["decays"] for matrix in matrices]
    if case == "adamw":
        return [adamw(parameters, decays, lr)]
    if case == "adafactor":
        return [adafactor(parameters, decays, lr)]
    if case == "adafactor relative":
        return [Adafactor(parameters, scale_parameter=True, relative_step=True, warmup_init=False)]
    hidden = [p for p, matrix in zip(parameters, matrices) if matrix["hidden"]]
    rest = [(p, matrix["decays"]) for p, matrix in zip(parameters, matrices) if not matrix["hidden"]]
    muon = MuonInFp32(hidden, lr) if case == "muon fp32" else torch.optim.Muon(
        hidden, lr=lr, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw")
    return [muon, adamw(*zip(*rest), lr)]


def trained(case, task):
    matrices, initial = task["matrices"], torch.tensor(task["initial"], dtype=torch.float32)
    shapes = [(m["rows"], m["columns"]) if m["columns"] > 1 else (m["rows"],) for m in matrices]
    parameters = [torch.nn.Parameter(initial[m["first"]:m["first"] + m["rows"] * m["columns"]].reshape(shape).clone())
                  for m, shape in zip(matrices, shapes)]
    used = optimizers(case, parameters, matrices, task["lr"])
    for step in range(1, task["steps"] + 1):
        for index, parameter in enumerate(parameters):
            parameter.grad = gradient(index, step, parameter.shape)
        for optimizer in used:
            optimizer.step()
    result = initial.clone()
    for matrix, parameter in zip(matrices, parameters):
        result[matrix["first"]:matrix["first"] + parameter.numel()] = parameter.detach().flatten()
    return result.tolist()


def main():
    task_file, out = sys.argv[1:]
    with open(task_file, encoding="utf-8") as file:
        task = json.load(file)
    torch.set_num_threads(1)
    cases = ["adamw", "adafactor", "adafactor relative", "muon fp32", "muon"]
    with open(out, "w", encoding="utf-8") as file:
        json.dump({case: trained(case, task) for case in cases}, file)


if __name__ == "__main__":
    main()
