#!/usr/bin/env python3
"""Times training steps of plain PyTorch DDP on random data: knows nothing of any tuner.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; rank 0 prints one JSON
line per model: {"model", "median_ms", "mean_ms", "steps", "ranks"}.

    ddp_steps.py --models resnet18,resnet50,bert-base,bert-large --steps 20 --warmup 5
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

BATCH = {"resnet18": 32, "resnet50": 64, "bert-base": 64, "bert-large": 8}


class Block(nn.Module):
    """ResNet's basic (expansion 1) and bottleneck (expansion 4) block."""

    def __init__(self, inputs, width, stride, expansion):
        super().__init__()
        out = width * expansion
        if expansion == 1:
            shapes = [(inputs, width, 3, stride), (width, out, 3, 1)]
        else:
            shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        layers = []
        for i, (a, b, kernel, step) in enumerate(shapes):
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b)]
            if i + 1 < len(shapes):
                layers.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*layers)
        same = stride == 1 and inputs == out
        self.skip = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def resnet(depths, expansion):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            width = 64 << stage
            layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, expansion))
            inputs = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Bert(nn.Module):
    """BERT's encoder with its masked-word head (tied to nothing, as large as the original's)."""

    def __init__(self, layers, width, heads, words=30522):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(128, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(self.encoder(self.words(tokens) + self.places))


def make(name, device):
    batch = BATCH[name]
    if name.startswith("resnet"):
        model = resnet([2, 2, 2, 2], 1) if name == "resnet18" else resnet([3, 4, 6, 3], 4)
        data = torch.randn(batch, 3, 224, 224, device=device)
        target = torch.randint(1000, (batch,), device=device)
    else:
        model = Bert(12, 768, 12) if name == "bert-base" else Bert(24, 1024, 16)
        data = torch.randint(30522, (batch, 128), device=device)
        target = data.flatten()
    return model.to(device), data, target


def measure(name, device, steps, warmup):
    torch.manual_seed(1)
    model, data, target = make(name, device)
    if dist.get_world_size() > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    times = []
    for step in range(warmup + steps):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(data).view(target.numel(), -1), target)
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if step >= warmup:
            times.append((time.perf_counter() - begin) * 1e3)
    slowest = torch.tensor(times, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(BATCH))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--label", default="")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda" if cuda else "cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    for name in arguments.models.split(","):
        times = measure(name, device, arguments.steps, arguments.warmup)
        if dist.get_rank() == 0:
            print(json.dumps({"label": arguments.label, "model": name,
                              "median_ms": round(statistics.median(times), 3),
                              "mean_ms": round(statistics.fmean(times), 3), "steps": len(times),
                              "ranks": dist.get_world_size()}), flush=True)
        if cuda:
            torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
