"""A rank of a PyTorch DDP job that meets a fault (scripts/live_gpu_jobs.py).  ddp_rank.py KIND FAULTY_RANK FOLDER

NCCL with a GPU each, or Gloo where the machine has none. A step: a batch, forward, backward with DDP's all-reduces, the optimiser,
an all-reduce of the loss; every fifth step prints it and the time. Touches no GPU before FOLDER/start is there, so that the next job can load
while another is looked at. Ready after five steps; the faulty rank misbehaves once FOLDER/go is there.
"""
import contextlib
import os
import queue
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

kind, faulty, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank = int(os.environ["RANK"])
open(f"{folder}/loaded.{rank}", "w").close()
while not os.path.exists(folder + "/start"):
    time.sleep(0.02)
gpu = torch.cuda.is_available()
WIDTH, BATCH = (4096, 256) if gpu else (256, 16)


def meets_fault():
    return rank == faulty and os.path.exists(folder + "/go")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 10 ** 6

    def __getitem__(self, index):
        if kind == "slow-worker" and meets_fault():
            time.sleep(0.3)
        if kind == "stuck-worker" and meets_fault():
            open(folder + "/pipe").read()
        return torch.full((BATCH, WIDTH), 1.0 / (1 + index % 7))


def batches():
    if kind in ("slow-worker", "stuck-worker", "workers"):
        while True:
            yield from torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=2)
    rows = Rows()
    draw = random.Random(rank)
    for index in range(10 ** 9):
        if kind == "slow-loader" and meets_fault():
            time.sleep(0.3)
        elif kind == "python-work" and meets_fault():
            sum(i * i for i in range(3000000))
        elif kind == "lock" and meets_fault():
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        elif kind == "queue" and meets_fault():
            queue.Queue().get()
        elif kind == "uneven":
            time.sleep(draw.choice([0.0, 0.0, 0.02, 0.05]))
        elif kind == "long-steps":
            time.sleep(2)
        yield rows[index]


def report(device, loss, step):
    """The mean loss of all ranks."""
    mean = loss.detach().reshape(1).clone()
    if kind == "other-collective" and meets_fault():
        dist.all_gather([torch.zeros(1, device=device) for _ in range(dist.get_world_size())], mean)
    elif kind == "other-count" and meets_fault():
        dist.all_reduce(torch.zeros(64 << 20 if gpu else 1 << 20, device=device))
    elif kind == "one-more-call" and meets_fault():
        dist.all_reduce(mean)
        dist.all_reduce(torch.zeros(1 << 20, device=device))
    else:
        dist.all_reduce(mean)
    if step % 5 == 0:
        sys.stdout.write(f"{step} {mean.item()} {time.monotonic()}\n")  # at once, as two ranks write here
        sys.stdout.flush()


def on_rank_0(model):
    """Others wait at the barrier, as after a checkpoint or an evaluation."""
    if rank == 0 and kind == "checkpoint":
        torch.save(model.state_dict(), folder + "/checkpoint")
    until = time.time() + 2
    while rank == 0 and kind == "evaluation" and time.time() < until:
        with torch.no_grad():
            model.module(torch.ones(BATCH, WIDTH, device=next(model.parameters()).device)).sum().item()
    dist.barrier()


def small_calls(device):
    word = torch.zeros(1024, device=device)
    for step in range(10 ** 9):
        dist.all_reduce(word)
        if step % 1000 == 0:
            print(step, word[0].item(), flush=True)
        if step == 2000:
            open(f"{folder}/ready.{rank}", "w").close()


def main():
    device = torch.device("cpu")
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    if kind == "small-calls":
        small_calls(device)
    layers = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    heavy = torch.ones(8192 if gpu else 512, 8192 if gpu else 512, device=device)
    every = {"checkpoint": 200, "evaluation": 1000}.get(kind, 0)
    for step, batch in enumerate(batches()):
        batch = batch.to(device)
        if kind == "more-work" and meets_fault():
            for _ in range(10):
                heavy @ heavy
        for part in range(8 if kind == "accumulation" else 1):
            with model.no_sync() if kind == "accumulation" and part < 7 else contextlib.nullcontext():
                loss = model(batch).square().mean()
                loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        report(device, loss, step)
        if step == (1 if kind == "long-steps" else 5):
            open(f"{folder}/ready.{rank}", "w").close()
        if every and step % every == every - 1:
            on_rank_0(model)


main()
