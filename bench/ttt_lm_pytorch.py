"""Trains the 125M model of a checkout of ttt-lm-pytorch on random tokens, in fp32 on the CPU: one sequence a step,
clipped gradients, AdamW. Prints a line for every step, with its milliseconds. bench_peers starts it.

usage: ttt_lm_pytorch.py CHECKOUT linear|mlp LENGTH THREADS STEPS
"""
import sys

import torch

import gpt_pytorch


def main():
    checkout, kind, length, threads, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    sys.path.insert(0, checkout)
    import ttt

    torch.manual_seed(1)
    torch.set_num_threads(threads)
    vocabulary = 50257
    config = ttt.TTTConfig(
        **ttt.TTT_STANDARD_CONFIGS["125m"],
        vocab_size=vocabulary,
        ttt_layer_type=kind,
        ttt_base_lr=1.0 if kind == "linear" else 0.1,
        mini_batch_size=16,
    )
    model = ttt.TTTForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    gpt_pytorch.time_steps(
        steps,
        lambda: torch.randint(0, vocabulary, (1, length)),
        lambda tokens: model(input_ids=tokens, labels=tokens).loss,
        list(model.parameters()),
        optimizer,
    )


main()
