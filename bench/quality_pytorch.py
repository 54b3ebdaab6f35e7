"""Trains the model of bench/quality's case "attention" in PyTorch, in fp32 on the CPU, in the same setting: a GPT with learned
positions, a tied head and no biases, windows of 64 bytes that do not overlap, each once in a pass, in a random order.

Prints {"step":…,"validation_loss":…} every 250 steps: the mean over all whole windows of the validation text.

usage: quality_pytorch.py TRAIN VALIDATION SEED STEPS
"""
import json
import math
import sys

import torch
from torch import nn

from gpt_pytorch import Model, loss_of

WIDTH, LAYERS, HEADS, HIDDEN, VOCABULARY, LENGTH, BATCH = 128, 4, 4, 512, 256, 64, 12
WARMUP, PEAK, FINAL = 100, 1e-3, 1e-4


def windows_of(path):
    with open(path, "rb") as file:
        tokens = torch.tensor(list(file.read()), dtype=torch.long)
    count = (len(tokens) - 1) // LENGTH
    inputs, targets = tokens[: count * LENGTH], tokens[1 : count * LENGTH + 1]
    return inputs.view(count, LENGTH), targets.view(count, LENGTH)


def learning_rate(step, steps):
    if step <= WARMUP:
        return PEAK * step / WARMUP
    return FINAL + (PEAK - FINAL) * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))) / 2


def main():
    train, validation, seed, steps = windows_of(sys.argv[1]), windows_of(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Model(WIDTH, LAYERS, HEADS, HIDDEN, VOCABULARY, LENGTH, bias=False)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), eps=1e-8)
    order = torch.empty(0, dtype=torch.long)
    for step in range(1, steps + 1):
        if len(order) < BATCH:
            order = torch.cat([order, torch.randperm(len(train[0]))])
        chosen, order = order[:BATCH], order[BATCH:]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, train[0][chosen], train[1][chosen]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 250 == 0:
            with torch.no_grad():
                total = sum(
                    loss_of(model, ids, targets).item() * len(ids)
                    for ids, targets in zip(validation[0].split(256), validation[1].split(256))
                )
            print(json.dumps({"step": step, "validation_loss": total / len(validation[0])}, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
