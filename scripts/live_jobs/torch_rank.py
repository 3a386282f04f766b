"""A rank of PyTorch DDP over Gloo (scripts/live_jobs.py): the like of rank.c.  torch_rank.py KIND FAULTY_RANK FOLDER"""
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
import torch.distributed as dist

kind, faulty, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
torch.manual_seed(rank)
rows = torch.randn(64, 512)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def evaluate(seconds):
    end = time.time() + seconds
    with torch.no_grad():
        while time.time() < end:
            model.module(rows)


step = 0
while True:
    if step == 5:
        open(f"{folder}/ready.{rank}", "w").close()
    if rank == faulty and os.path.exists(folder + "/go"):
        if kind == "slow-loader":
            time.sleep(0.25)
        elif kind == "stuck-sleep":
            time.sleep(600)
        elif kind == "more-work":
            evaluate(0.25)
        elif kind == "other-collective":
            dist.barrier()
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    step += 1
    if kind == "evaluation" and step % 100 == 0:
        if rank == 0:
            evaluate(1.5)
        dist.barrier()
    if kind == "checkpoint" and step % 40 == 0 and rank == 0:
        torch.save(model.state_dict(), folder + "/model.pt")
