#!/usr/bin/env python3
"""All-reduces of several sizes in turn, over and over, by plain PyTorch: a job whose calls differ.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. A round makes 20 calls of 4 KiB, 20 of
64 KiB, 8 of 1 MiB, one of 16 MiB, one of 64 MiB, float32, each waited for; sums are checked in every fiftieth round. --each
FILE: rank 0 appends for every round and size: launch, size, round, median milliseconds of a call; and "round", its
whole time, and when it ended (seconds since 1970). --sweep MS: instead, twenty sizes from 4 B to 64 MiB one after the
other, each for MS milliseconds; rank 0 prints SIZE_BYTES and the median over calls of the slowest rank's microseconds.

    nccl_sizes.py --steps 50
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

CALLS = {4 << 10: 20, 64 << 10: 20, 1 << 20: 8, 16 << 20: 1, 64 << 20: 1}


def sweep(budget_ms):
    for size in [4, 16, 64, 256, 1024, 4096] + [8192 << i for i in range(14)]:
        data = torch.ones(size // 4, device="cuda")

        def timed(data=data):
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            dist.all_reduce(data)
            torch.cuda.synchronize()
            return (time.perf_counter() - begin) * 1e6

        one = statistics.median(timed() for _ in range(5))
        calls = torch.tensor([min(2000, max(5, int(budget_ms * 1e3 / max(one, 1))))], device="cuda")
        dist.broadcast(calls, 0)
        data.fill_(1)
        times = torch.tensor([timed() for _ in range(int(calls.item()))], device="cuda")
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(size, f"{times.median().item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--each", default="")
    parser.add_argument("--sweep", type=float, default=0)
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl")
    if arguments.sweep:
        sweep(arguments.sweep)
        dist.destroy_process_group()
        return
    each = open(arguments.each, "a") if arguments.each and dist.get_rank() == 0 else None
    launch = time.time_ns()
    data = {size: torch.ones(size // 4, device="cuda") for size in CALLS}
    for step in range(arguments.steps):
        torch.cuda.synchronize()
        round_begin = time.perf_counter()
        for size, calls in CALLS.items():
            times = []
            for _ in range(calls):
                begin = time.perf_counter()
                dist.all_reduce(data[size])
                torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) * 1e3)
            if each is not None:
                each.write(f"{launch} {size} {step} {statistics.median(times):.4f}\n")
        if each is not None:
            each.write(f"{launch} round {step} {(time.perf_counter() - round_begin) * 1e3:.3f} {time.time():.3f}\n")
            each.flush()
        if step % 50 == 0:
            for size, calls in CALLS.items():
                assert bool((data[size] == dist.get_world_size() ** calls).all()), f"{size} bytes: a wrong sum"
        for tensor in data.values():
            tensor.fill_(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
