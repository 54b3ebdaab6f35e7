"""Trains GPT-2 124M in PyTorch on random tokens on the CPU: torch.compile in its default mode, SDPA attention, autocast
for bf16, clipped gradients, fused AdamW. Prints a line for every step, with its milliseconds. bench_peers starts it.

usage: gpt2_pytorch.py BATCH LENGTH THREADS STEPS fp32|bf16
"""
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT = 768, 12, 12, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixer_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

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
        self.embedding, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    batch, length, threads, steps = map(int, sys.argv[1:5])
    in_bf16 = sys.argv[5] == "bf16"
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    model = Model()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(steps):
        ids, targets = torch.randint(0, VOCABULARY, (2, batch, length))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_bf16):
            loss = compiled(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value = loss.item()
        print(f"step {step}: loss {value:.4f} (took {1e3 * (time.perf_counter() - start):.3f} ms)", flush=True)


main()
