#!/usr/bin/env python3
"""Counts the calls and bytes of one real step of LLaMA-7B, to hold `predict --traffic` against.

    torchrun --nproc-per-node 2 scripts/llm_step_calls.py KIND [--layers 32] [--sequence 512]

`fsdp` shards by PyTorch's fully_shard, a unit for each layer and one around them; `tensor` splits
layers as Megatron does, by two pairs of an identity and an all-reduce; `parallelize` has PyTorch's
parallelize_module split the same layers. Weights are random, 16 bits. What NCCL was called for is
read from PyTorch's profiler: a JSON line for each kind of call. Without GPUs, by Gloo.
"""
import argparse
import collections
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile

HIDDEN, INNER, HEADS, WORDS = 4096, 11008, 32, 32000
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = {"_allgather_base_": "allgather", "_reduce_scatter_base_": "reduce_scatter",
         "allreduce_": "allreduce"}


class ToAll(torch.autograd.Function):
    """An identity, whose gradient is summed over the tensor group."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class FromAll(torch.autograd.Function):
    """A sum over the tensor group, whose gradient passes."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Layer(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN // parts, bias=False)
        self.out = nn.Linear(HIDDEN // parts, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, 2 * INNER // parts, bias=False)
        self.down = nn.Linear(INNER // parts, HIDDEN, bias=False)

    def shared(self, x, block):
        return FromAll.apply(block(ToAll.apply(x))) if self.parts > 1 else block(x)

    def attention(self, x):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, -1, HIDDEN // HEADS).transpose(1, 2)
                   for y in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))

    def forward_block(self, x):
        a, b = self.gate(x).chunk(2, -1)
        return self.down(nn.functional.silu(a) * b)

    def forward(self, x):
        x = x + self.shared(self.norms[0](x), self.attention)
        return x + self.shared(self.norms[1](x), self.forward_block)


class Llama(nn.Module):
    """With a tensor group each rank has its part of the words at both ends."""

    def __init__(self, layers, parts):
        super().__init__()
        self.parts = parts
        self.words = WORDS // parts
        self.embedding = nn.Embedding(self.words, HIDDEN)
        self.layers = nn.ModuleList(Layer(parts) for _ in range(layers))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, self.words, bias=False)

    def forward(self, words):
        if self.parts == 1:
            x = self.embedding(words)
        else:
            own = words - dist.get_rank() * self.words
            mine = (own >= 0) & (own < self.words)
            x = FromAll.apply(self.embedding(own.clamp(0, self.words - 1)) * mine[..., None])
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(ToAll.apply(x) if self.parts > 1 else x)


def parallelize(model):
    """Splits as `tensor` does, by PyTorch's own library."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    plan = {"embedding": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1))}
    for i in range(len(model.layers)):
        for name in ("qkv", "gate"):
            plan[f"layers.{i}.{name}"] = ColwiseParallel()
        for name in ("out", "down"):
            plan[f"layers.{i}.{name}"] = RowwiseParallel()
    parallelize_module(model, init_device_mesh(DEVICE, (dist.get_world_size(),)), plan)


def build(kind, layers):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = Llama(layers, dist.get_world_size() if kind == "tensor" else 1)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    if kind == "parallelize":
        parallelize(model)
    return model


def traced(seen):
    """What the trace says of each communication: by whom it was seen, its name, elements, type."""
    path = f"/tmp/llm_step_{os.getpid()}.json"
    seen.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    os.unlink(path)
    counts = collections.Counter()
    for event in events:
        args = event.get("args", {})
        if "Collective name" in args:
            counts[tuple(str(x) for x in (event.get("cat"), args["Collective name"],
                                          args.get("In msg nelems"), args.get("Out msg nelems"),
                                          args.get("dtype")))] += 1
    return [[*key, count] for key, count in sorted(counts.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["fsdp", "tensor", "parallelize"])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=512)
    options = parser.parse_args()
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(7)
    model = build(options.kind, options.layers)
    words = torch.randint(WORDS, (1, options.sequence), device=DEVICE)

    def step():
        model(words).float().logsumexp(-1).mean().backward()
        model.zero_grad()

    step()
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEVICE == "cuda")
    with profile(activities=kinds, record_shapes=True) as seen:
        step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    names = collections.Counter(e.name for e in seen.events() if "c10d" in e.name)
    calls = collections.Counter()
    kernels = collections.Counter()
    for event in seen.events():
        if event.name.startswith("ncclDevKernel_"):
            kernels[event.name.split("_")[1]] += 1
        name = NAMES.get(event.name.removeprefix("c10d::"))
        if event.name.startswith("c10d::") and name:
            sizes = [torch.Size(shape).numel() for shape in event.input_shapes
                     if shape and isinstance(shape[0], int)]
            if not sizes:
                sizes = [torch.Size(shape[0]).numel() for shape in event.input_shapes if shape]
            calls[name, 2 * max(sizes, default=0)] += 1
    if dist.get_rank() == 0:
        for (name, size), count in sorted(calls.items()):
            print(json.dumps({"kind": options.kind, "ranks": dist.get_world_size(),
                              "layers": options.layers, "sequence": options.sequence,
                              "operation": name, "size_bytes": size, "calls": count}))
        print(json.dumps({"kind": options.kind, "kernels": kernels, "names": names,
                          "traced": traced(seen)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
