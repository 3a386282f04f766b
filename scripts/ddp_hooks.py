#!/usr/bin/env python3
"""Time to a target accuracy of PyTorch DDP with one of its own communication hooks: ResNet-18 in the CIFAR layout on the
images of train/data/dataset.cpp ("generated-hard"), sample by sample. Knows nothing of any tuner.

Started once per rank with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; rank 0 prints one JSON line:
{"hook", "seed", "reached", "seconds", "steps", "accuracy", "step_ms", "mean_ms", "ranks", "accuracies"}. seconds: training
alone, without looking at the accuracy; until the target, or until the end. mean_ms: of all steps but the first eight; whole
averaging periods. accuracies: steps and accuracy at each look.

    ddp_hooks.py --hook powersgd --target 0.58 --epochs 3 --seed 1
"""
import argparse
import json
import os
import statistics
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

from ddp_steps import resnet

SIDE, CLASSES, COARSE, SIGNAL, ONE_WRONG_OF = 32, 10, 8, numpy.float32(0.06), 4


def stirred(z):
    z = z + numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def normal(bits):
    low = numpy.uint64(0xFFFF)
    total = (bits & low) + (bits >> numpy.uint64(16) & low) + (bits >> numpy.uint64(32) & low) + (bits >> numpy.uint64(48))
    return (total.astype(numpy.float32) - numpy.float32(131070)) / numpy.float32(37837)


def images(count):
    """Pixels [count, 3, 32, 32] and labels, as GeneratedImages makes them."""
    with numpy.errstate(over="ignore"):
        index = numpy.arange(count, dtype=numpy.uint64)
        kind = stirred(index) % numpy.uint64(CLASSES)
        dice = stirred(index ^ numpy.uint64(0x5DEECE66D1234567))
        told = numpy.where(dice % numpy.uint64(ONE_WRONG_OF) == 0, dice // numpy.uint64(ONE_WRONG_OF) % numpy.uint64(CLASSES), kind)
        cells = numpy.arange(3 * COARSE * COARSE, dtype=numpy.uint64)
        patterns = normal(stirred(numpy.arange(CLASSES, dtype=numpy.uint64)[:, None] * numpy.uint64(1000003) + cells[None, :]))
        pixels = numpy.empty((count, 3, SIDE, SIDE), numpy.float32)
        noise = stirred(index ^ numpy.uint64(0xABCDEF0123456789))
        block = SIDE // COARSE
        for c in range(3):
            for y in range(SIDE):
                for x in range(SIDE):
                    noise = stirred(noise)
                    cell = (c * COARSE + y // block) * COARSE + x // block
                    pixels[:, c, y, x] = SIGNAL * patterns[kind.astype(numpy.int64), cell] + normal(noise)
    return torch.from_numpy(pixels), torch.from_numpy(told.astype(numpy.int64))


def images_of(arguments, rank, count):
    """The same from arguments.images, where an earlier run has left them."""
    path = arguments.images and f"{arguments.images}.{count}"
    if path and os.path.exists(path):
        return torch.load(path)
    made = images(count)
    if path and rank == 0:
        torch.save(made, f"{path}.{os.getpid()}")
        os.replace(f"{path}.{os.getpid()}", path)
    return made


def hooked(model, hook, optimizer, arguments):
    """The optimizer that goes with the hook, which the model has afterwards."""
    if hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=arguments.rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook == "post-local":
        alone, _ = dist.new_subgroups(group_size=1)
        model.register_comm_hook(PostLocalSGDState(None, alone, arguments.local_after), post_localSGD_hook)
        averager = PeriodicModelAverager(period=arguments.local_steps, warmup_steps=arguments.local_after)
        return PostLocalSGDOptimizer(optim=optimizer, averager=averager)
    return optimizer


def accuracy(model, pixels, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(pixels[at:at + 512]).argmax(1) == labels[at:at + 512]).sum().item() for at in range(0, len(labels), 512))
    model.train()
    return right / len(labels)


def train(arguments, device, rank, ranks):
    held_out = min(arguments.samples, max(512, arguments.samples // 8))
    pixels, labels = (each.to(device) for each in images_of(arguments, rank, arguments.samples + held_out))
    torch.manual_seed(arguments.seed)
    bare = resnet([2, 2, 2, 2], 1, True).to(device)
    model = nn.parallel.DistributedDataParallel(bare, gradient_as_bucket_view=True, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9,
                                fused=True if device.type == "cuda" and arguments.hook != "post-local" else None)
    optimizer = hooked(model, arguments.hook, optimizer, arguments)
    per_epoch = arguments.samples // (ranks * arguments.batch)
    look_every = max(1, per_epoch // arguments.looks)
    times, found, reached, curve = [], 0.0, False, []
    for epoch in range(arguments.epochs):
        # The same order on every rank.
        order = torch.randperm(arguments.samples, generator=torch.Generator().manual_seed(1000 * arguments.seed + epoch)).to(device)
        for step in range(per_epoch):
            at = (step * ranks + rank) * arguments.batch
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            own = order[at:at + arguments.batch]
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(pixels[own]), labels[own]).backward()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            if (step + 1) % look_every:
                continue
            seen = torch.tensor([accuracy(bare, pixels[arguments.samples:], labels[arguments.samples:])], device=device)
            dist.broadcast(seen, 0)
            found = seen.item()
            curve.append([len(times), found])
            if found >= arguments.target:
                reached = True
                break
        if reached:
            break
    if rank == 0:
        whole = times[8:8 + (len(times) - 8) // arguments.local_steps * arguments.local_steps]
        print(json.dumps({"hook": arguments.hook, "seed": arguments.seed, "reached": reached, "seconds": round(sum(times), 4),
                          "steps": len(times), "accuracy": found, "step_ms": round(1e3 * statistics.median(times), 4),
                          "mean_ms": round(1e3 * statistics.mean(whole), 4) if whole else None, "ranks": ranks,
                          "accuracies": curve}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hook", default="none", choices=["none", "bf16", "fp16", "powersgd", "post-local"])
    parser.add_argument("--target", type=float, default=0.58)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--looks", type=int, default=8)
    parser.add_argument("--samples", type=int, default=49152)
    parser.add_argument("--images", help="begin of a file's name: images are kept there for the next run")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--local-after", type=int, default=64)
    parser.add_argument("--local-steps", type=int, default=8)
    arguments = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(arguments, device, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
