"""Trains the 125M model of a checkout of ttt-lm-pytorch on random tokens, in fp32 on the CPU: one sequence a step,
clipped gradients, AdamW. Prints a line for every step, with its milliseconds. bench_peers starts it.

usage: ttt_lm_pytorch.py CHECKOUT linear|mlp LENGTH THREADS STEPS
"""
import sys
import time

import torch


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
    for step in range(steps):
        tokens = torch.randint(0, vocabulary, (1, length))
        start = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value = loss.item()
        print(f"step {step}: loss {value:.4f} (took {1e3 * (time.perf_counter() - start):.3f} ms)", flush=True)


main()
