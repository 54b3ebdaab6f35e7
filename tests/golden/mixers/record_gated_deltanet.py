"""Records the layer that gated_deltanet_test.cpp compares with: transformers' Qwen3NextGatedDeltaNet, its plain PyTorch code in
double precision. Written with transformers 5.24 and PyTorch 2.15.

usage: record_gated_deltanet.py OUT.h5
"""
import sys

import h5py
import numpy
import torch
from transformers.models.qwen3_next import modeling_qwen3_next as qwen
from transformers import Qwen3NextConfig

BATCH, LENGTH, WIDTH, HEADS, KEY_HEADS, KEY_WIDTH, VALUE_WIDTH = 2, 150, 24, 4, 2, 8, 12


def main():
    torch.manual_seed(1)
    config = Qwen3NextConfig(hidden_size=WIDTH, num_hidden_layers=1, layer_types=["linear_attention"], linear_num_value_heads=HEADS,
                             linear_num_key_heads=KEY_HEADS, linear_key_head_dim=KEY_WIDTH,
                             linear_value_head_dim=VALUE_WIDTH, linear_conv_kernel_dim=4, rms_norm_eps=1e-6)
    layer = qwen.Qwen3NextGatedDeltaNet(config, 0)
    layer = layer.double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name == "A_log":
                parameter.copy_(torch.log(torch.linspace(0.05, 2, HEADS)))
            elif name == "dt_bias":
                parameter.copy_(torch.linspace(-3, 0, HEADS))
            elif name == "norm.weight":
                parameter.copy_(1 + 0.1 * torch.randn(VALUE_WIDTH))
            else:
                parameter.normal_(0, 0.3)
            parameter.copy_(parameter.float())
    x = torch.randn(BATCH, LENGTH, WIDTH).double().requires_grad_()
    dy = torch.randn(BATCH, LENGTH, WIDTH).double()
    # The plain code computes the rule in fp32; here it stays in double.
    original = torch.Tensor.to
    torch.Tensor.to = lambda self, *a, **k: self if a and a[0] in (torch.float32, "float32") else original(self, *a, **k)
    torch.Tensor.float = lambda self: self
    y = layer(x)
    y.backward(dy)
    torch.Tensor.to = original

    weights = {name: (p.detach(), p.grad) for name, p in layer.named_parameters()}
    ratio = HEADS // KEY_HEADS
    group = 2 * KEY_WIDTH + 2 * ratio * VALUE_WIDTH

    def numbers(tensor):
        return numpy.ascontiguousarray(tensor.numpy(), dtype=numpy.float32)

    def named(index):  # 0: values, 1: gradients
        joined = weights["in_proj_qkvz.weight"][index].reshape(KEY_HEADS, group, WIDTH)
        cuts = [KEY_WIDTH, KEY_WIDTH, ratio * VALUE_WIDTH, ratio * VALUE_WIDTH]
        query, key, value, gate = (part.reshape(-1, WIDTH) for part in joined.split(cuts, 1))
        gates = weights["in_proj_ba.weight"][index].reshape(KEY_HEADS, 2 * ratio, WIDTH)
        strength, decay = (part.reshape(-1, WIDTH) for part in gates.split([ratio, ratio], 1))
        keys, values = KEY_HEADS * KEY_WIDTH, HEADS * VALUE_WIDTH
        convolutions = weights["conv1d.weight"][index].split([keys, keys, values], 0)
        return {"query/weight": query, "key/weight": key, "value/weight": value, "gate/weight": gate,
                "strength/weight": strength, "decay/weight": decay, "query_convolution/weight": convolutions[0],
                "key_convolution/weight": convolutions[1], "value_convolution/weight": convolutions[2],
                "log_rate": weights["A_log"][index], "decay_bias": weights["dt_bias"][index],
                "output_norm/weight": weights["norm.weight"][index], "output/weight": weights["out_proj.weight"][index]}

    with h5py.File(sys.argv[1], "w") as file:
        for key, value in dict(batch=BATCH, length=LENGTH, width=WIDTH, heads=HEADS, key_heads=KEY_HEADS,
                               key_width=KEY_WIDTH, value_width=VALUE_WIDTH).items():
            file.attrs[key] = value
        for name, tensor in dict(x=x.detach(), dy=dy, y=y.detach(), dx=x.grad).items():
            file[name] = numbers(tensor)
        for folder, index in (("parameters", 0), ("gradients", 1)):
            for name, tensor in named(index).items():
                file[f"{folder}/{name}"] = numbers(tensor)


main()
