"""Trains GPT-2 124M in PyTorch on random tokens on the CPU: torch.compile in its default mode, SDPA attention, autocast
for bf16, clipped gradients, fused AdamW. Prints a line for every step, with its milliseconds. bench_peers starts it.

usage: gpt2_pytorch.py BATCH LENGTH THREADS STEPS fp32|bf16
"""
import sys

import torch

import gpt_pytorch

VOCABULARY = 50257


def main():
    batch, length, threads, steps = map(int, sys.argv[1:5])
    in_bf16 = sys.argv[5] == "bf16"
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    model = gpt_pytorch.Model(
        width=768, layers=12, heads=12, hidden=3072, vocabulary=VOCABULARY, context=1024, bias=True
    )
    compiled = torch.compile(gpt_pytorch.loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_bf16):
            return compiled(model, *tokens)

    tokens = lambda: torch.randint(0, VOCABULARY, (2, batch, length))
    gpt_pytorch.time_steps(steps, tokens, loss, list(model.parameters()), optimizer)


main()
