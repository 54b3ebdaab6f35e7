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
from torch.nn import functional

WIDTH, LAYERS, HEADS, HIDDEN, VOCABULARY, LENGTH, BATCH = 128, 4, 4, 512, 256, 64, 12
WARMUP, PEAK, FINAL = 100, 1e-3, 1e-4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixer_norm, self.mlp_norm = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.mixer_norm(x)).split(WIDTH, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            into_residual = name.endswith(("output.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if into_residual else 0.02)

    def forward(self, ids):
        x = self.embedding(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T


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


def loss_of(model, ids, targets):
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def main():
    train, validation, seed, steps = windows_of(sys.argv[1]), windows_of(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Model()
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
