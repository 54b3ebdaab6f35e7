"""A GPT in PyTorch as the benchmarks' models are: learned positions, pre-norm LayerNorm, GELU in its tanh form, SDPA
attention, a tied head. Also how a peer's training steps are timed."""
import math
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads, hidden, bias):
        super().__init__()
        self.width, self.heads = width, heads
        self.mixer_norm, self.mlp_norm = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, self.width // self.heads).transpose(1, 2)
            for part in self.qkv(self.mixer_norm(x)).split(self.width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, self.width))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Model(nn.Module):
    """Logits of token ids [batch, length]."""

    def __init__(self, width, layers, heads, hidden, vocabulary, context, bias):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, bias) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=bias)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            into_residual = name.endswith(("output.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if into_residual else 0.02)

    def forward(self, ids):
        x = self.embedding(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.T


def loss_of(model, ids, targets):
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def time_steps(steps, tokens, loss, parameters, optimizer):
    """Trains on tokens() with loss(tokens); prints the lines that bench_peers reads."""
    for step in range(steps):
        some = tokens()
        start = time.perf_counter()
        value = loss(some)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        value = value.item()
        print(f"step {step}: loss {value:.4f} (took {1e3 * (time.perf_counter() - start):.3f} ms)", flush=True)
