"""A rank of PyTorch DDP over Gloo: RANK, WORLD_SIZE and STORE, a file that is not there yet.  ddp_gloo.py WIDTH STEPS"""
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.distributed as dist

torch.set_num_threads(1)
width = int(sys.argv[1]) if len(sys.argv) > 1 else 700
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
                            torch.nn.Linear(width, 10))
model = torch.nn.parallel.DistributedDataParallel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(16, width), torch.randint(0, 10, (16,))
for s in range(steps + 5):
    if s == 5:
        dist.barrier()
        t = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
dist.barrier()
if dist.get_rank() == 0:
    print("%.4f ms a step, check %.6g" % ((time.perf_counter() - t) * 1e3 / steps, float(loss)))
