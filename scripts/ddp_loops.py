#!/usr/bin/env python3
"""Training loops of five shapes in plain PyTorch, timed by themselves: what a step found from the rhythm of calls is compared with.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. --loop is one of
  plain         DDP
  accumulation  four micro-batches a step, three of them under no_sync
  groups        DDP, and metrics averaged in a process group of their own
  evaluation    DDP, every 50 steps eight batches without gradients and their accuracy averaged
  sharded       parameters gathered, gradients reduce-scattered layer by layer (ZeRO 3, by FSDP)
--each FILE: rank 0 appends every step as it ends: launch, loop, step, milliseconds (an evaluation counts as no step).

    ddp_loops.py --loop accumulation --steps 200 --each steps.txt
"""
import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn

LAUNCH = time.time_ns()
WIDTH, LAYERS, BATCH = 2048, 12, 4096


def model_of(loop, device):
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 16)).to(device)
    if loop != "sharded":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


def train(loop, steps, each, device):
    model = model_of(loop, device)
    metrics = dist.new_group() if loop == "groups" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH, device=device)
    target = torch.randint(16, (BATCH,), device=device)
    micro = 4 if loop == "accumulation" else 1
    begin = time.perf_counter()
    for step in range(steps):
        for part in range(micro):
            quiet = model.no_sync() if micro > 1 and part + 1 < micro else contextlib.nullcontext()
            with quiet:
                loss = nn.functional.cross_entropy(model(data), target)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if metrics is not None:
            mean = loss.detach().clone()
            dist.all_reduce(mean, group=metrics)
        loss.item()  # as loops do that print it
        now = time.perf_counter()
        if each is not None:
            each.write(f"{LAUNCH} {loop} {step} {(now - begin) * 1e3:.4f}\n")
            each.flush()
        begin = now
        if loop == "evaluation" and step % 50 == 49:
            with torch.no_grad():
                right = sum((model(data).argmax(1) == target).sum() for _ in range(8))
            dist.all_reduce(right)
            right.item()
            begin = time.perf_counter()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--loop", choices=["plain", "accumulation", "groups", "evaluation", "sharded"], default="plain")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--each", default="")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    each = open(arguments.each, "a") if arguments.each and dist.get_rank() == 0 else None
    train(arguments.loop, arguments.steps, each, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
