"""Times training steps and attention of PyTorch on a GPU, to be set beside `tools/gpu_check run training kernels`.

The models are transformers' GPT-2 124M and a Qwen2 of 1.5B, and the TTT authors' 125M models, with random tokens: autocast
to bf16, SDPA attention, gradients clipped, fused AdamW; torch.compile but for TTT. Medians of the last steps.

usage: gpu_peers.py [attention] [gpt2] [qwen2] [ttt=CHECKOUT]     CHECKOUT: of ttt-lm-pytorch
"""
import os
import statistics
import sys
import time

import torch


def step_times(model, vocabulary, sequences, length, micro_sequences, compiled, steps, warmup):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    call = torch.compile(model) if compiled else model
    micro_batches = sequences // micro_sequences
    times = []
    for _ in range(steps + warmup):
        tokens = torch.randint(0, vocabulary, (sequences, length), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        total = torch.zeros((), device="cuda")
        for part in tokens.split(micro_sequences):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = call(input_ids=part, labels=part, use_cache=False, return_dict=True).loss / micro_batches
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total.item()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warmup:])


def time_model(name, model, vocabulary, sequences, length, micro_sequences, compiled=True, steps=30, warmup=8):
    model = model.cuda().train()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    seconds = step_times(model, vocabulary, sequences, length, micro_sequences, compiled, steps, warmup)
    print(f"{name:34} {sequences * length / seconds:12.0f} tokens/s {1e3 * seconds:9.2f} ms "
          f"{torch.cuda.max_memory_allocated() / 2**30:7.2f} GiB (all: {time.perf_counter() - begin:.0f} s)", flush=True)


def gpt2():
    import transformers

    config = transformers.GPT2Config(attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    time_model("gpt2-124m 32 x 1024", transformers.GPT2LMHeadModel(config), 50257, 32, 1024, 32)


def qwen2():
    import transformers

    config = transformers.Qwen2Config(vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
                                      num_attention_heads=12, num_key_value_heads=2, tie_word_embeddings=True,
                                      max_position_embeddings=1024, attn_implementation="sdpa")
    time_model("llama-style 1.5B 32 x 1024", transformers.Qwen2ForCausalLM(config), 151936, 32, 1024, 8,
               steps=8, warmup=3)


def ttt(checkout):
    sys.path.insert(0, os.path.abspath(checkout))
    import ttt as authors

    # As transformers 5 wants it.
    authors.TTTForCausalLM._tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    for kind in ("linear", "mlp"):
        config = authors.TTTConfig(**authors.TTT_STANDARD_CONFIGS["125m"], vocab_size=32000, ttt_layer_type=kind,
                                   ttt_base_lr=1.0 if kind == "linear" else 0.1, mini_batch_size=16)
        time_model(f"ttt-{kind}-125m 16 x 2048", authors.TTTForCausalLM(config), 32000, 16, 2048, 8, compiled=False,
                   steps=3, warmup=1)


def median_microseconds(run, repetitions=20, launches=20):
    times = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / launches)
    return statistics.median(times[2:])


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shapes = [(64, 512, 12, 12, 64), (32, 1024, 12, 12, 64), (8, 4096, 12, 12, 64), (8, 2048, 12, 12, 96),
              (8, 2048, 16, 4, 128), (8, 2048, 16, 16, 128)]
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for batch, length, heads, key_heads, width in shapes:
            def tensor(count):
                values = torch.randn(batch, length, count, width, device="cuda", dtype=torch.bfloat16)
                return values.transpose(1, 2).requires_grad_()

            q, k, v = tensor(heads), tensor(key_heads), tensor(key_heads)
            flop = 2.0 * batch * heads * length * length * width  # causal, two products
            try:
                with sdpa_kernel(backend):
                    call = lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=heads != key_heads)
                    out = call()
                    forward = median_microseconds(call)
                    gradient = torch.randn_like(out)
                    backward = median_microseconds(
                        lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
            except RuntimeError as error:
                print(f"{backend.name} {batch} x {length}, {heads}/{key_heads} heads of {width}: {str(error)[:90]}")
                continue
            print(f"{backend.name:18} {batch} x {length}, {heads}/{key_heads} heads of {width}: forward {forward:8.1f} us "
                  f"{flop / forward * 1e-6:6.1f} TFLOP/s, backward {backward:8.1f} us "
                  f"{2.5 * flop / backward * 1e-6:6.1f} TFLOP/s", flush=True)


def main():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for part in sys.argv[1:] or ["attention", "gpt2", "qwen2"]:
        name, _, value = part.partition("=")
        known = {"attention": attention, "gpt2": gpt2, "qwen2": qwen2, "ttt": lambda: ttt(value)}
        if name not in known:
            sys.exit(__doc__)
        known[name]()


main()
