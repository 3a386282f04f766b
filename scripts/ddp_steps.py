#!/usr/bin/env python3
"""Times training steps of plain PyTorch DDP on random data: knows nothing of any tuner.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; rank 0 prints one JSON
line per model and bucket size: {"model", "bucket_mb", "median_ms", "mean_ms", "steps", "ranks"}; bucket_mb 0 is a rank
by itself. With --workers also how often such a process was started.

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

LAUNCH = time.time_ns()  # containers' processes have the same numbers
BATCH = {"resnet18": 32, "resnet18-cifar": 32, "resnet50": 64, "bert-medium": 8, "bert-base": 64,
         "bert-large": 8, "decoder-300m": 4}
BERTS = {"bert-medium": (8, 512, 8), "bert-base": (12, 768, 12), "bert-large": (24, 1024, 16)}  # layers, width, heads


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


def resnet(depths, expansion, cifar=False):
    """CIFAR: 32 x 32 images, a 3 x 3 stem without pooling, 10 classes (He et al.)."""
    layers = [nn.Conv2d(3, 64, 3 if cifar else 7, 1 if cifar else 2, 1 if cifar else 3, bias=False),
              nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if not cifar:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            width = 64 << stage
            layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, expansion))
            inputs = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10 if cifar else 1000))


class Layer(nn.Module):
    """The encoder layer of train/torch/models.cpp, operation by operation: [sequence, batch, width], post-norm."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        s, b, h = x.shape
        # [3, batch, heads, sequence, width of a head]
        parts = self.inputs(x).view(s, b, 3, self.heads, h // self.heads).permute(2, 1, 3, 0, 4)
        seen = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=self.causal)
        y = self.norm1(x + self.output(seen.permute(2, 0, 1, 3).reshape(s, b, h)))
        return self.norm2(y + self.narrow(nn.functional.gelu(self.wide(y))))


class Bert(nn.Module):
    """BERT's encoder and masked-word head (decoder tied to the embedding), without dropout: the model of
    train/torch/models.cpp."""

    def __init__(self, layers, width, heads, words=30522):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(512, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.encoder = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.dense = nn.Linear(width, width)
        self.dense_norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))
        for table in (self.words, self.places, self.types):
            nn.init.normal_(table.weight, 0, 0.02)

    def forward(self, tokens):
        place = torch.arange(tokens.size(1), device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(place).unsqueeze(0) + self.types(torch.zeros_like(tokens)))
        x = self.encoder(x.transpose(0, 1)).transpose(0, 1).flatten(0, 1)
        x = self.dense_norm(nn.functional.gelu(self.dense(x)))
        return nn.functional.linear(x, self.words.weight, self.bias)


class Decoder(nn.Module):
    """A causal decoder of 310 M parameters on 512 tokens, in mixed precision (bf16), as language models are trained."""

    def __init__(self, layers=20, width=1024, heads=16, words=30522):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.layers = nn.Sequential(*[Layer(width, heads, causal=True) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        with torch.autocast(tokens.device.type, torch.bfloat16):
            x = self.layers(x.transpose(0, 1)).transpose(0, 1).flatten(0, 1)
            return self.head(x).float()


class Batches(torch.utils.data.IterableDataset):
    """An epoch of one loading process: batches made on the CPU like those that make() puts on the GPU."""

    def __init__(self, data, target, count):
        self.floats, self.shape, self.target = data.is_floating_point(), tuple(data.shape), target.cpu()
        self.count = count

    def __iter__(self):
        for _ in range(self.count):
            yield (torch.randn(self.shape, device="cpu") if self.floats
                   else torch.randint(30522, self.shape, device="cpu")), self.target


class Loader:
    """Batches without end from processes that PyTorch forks next to the running job, anew for every epoch."""

    def __init__(self, data, target, workers, epoch):
        self.device, self.started, self.workers = data.device, 0, workers
        self.loader = torch.utils.data.DataLoader(Batches(data, target, epoch), batch_size=None, num_workers=workers,
                                                  pin_memory=data.device.type == "cuda")
        self.batches = iter(())

    def next(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            self.started += self.workers
            batch = next(self.batches)
        return [part.to(self.device, non_blocking=True) for part in batch]


def make(name, device, batch):
    torch.set_default_device(device)
    if name.startswith("resnet"):
        cifar = name == "resnet18-cifar"
        model = resnet([3, 4, 6, 3], 4) if name == "resnet50" else resnet([2, 2, 2, 2], 1, cifar)
        side = 32 if cifar else 224
        data = torch.randn(batch, 3, side, side, device=device)
        target = torch.randint(10 if cifar else 1000, (batch,), device=device)
    elif name == "decoder-300m":
        model = Decoder()
        data = torch.randint(30522, (batch, 512), device=device)
        target = data.flatten()
    else:
        model = Bert(*BERTS[name])
        data = torch.randint(30522, (batch, 128), device=device)
        target = data.flatten()
    return model.to(device), data, target


def measure(name, device, arguments, bucket_mb):
    """Steps of one model, milliseconds, of the slowest rank. bucket_mb: DDP's, or 0: every rank by itself."""
    steps, warmup = arguments.steps, arguments.warmup
    each = open(arguments.each, "a") if arguments.each and dist.get_rank() == 0 else None
    torch.manual_seed(1)
    model, data, target = make(name, device, arguments.batch or BATCH[name])
    loader = None
    if arguments.workers:
        torch.set_default_device("cpu")  # forked processes must not touch the GPU
        loader = Loader(data, target, arguments.workers, arguments.epoch)
    if bucket_mb:
        model = nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=arguments.best, broadcast_buffers=not arguments.best, bucket_cap_mb=bucket_mb)
    if name == "decoder-300m":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=arguments.momentum,
                                    fused=True if arguments.best and device.type == "cuda" else None)
    times = []
    begun = time.monotonic()
    for step in range(warmup + steps):
        if arguments.seconds and step % 20 == 0 and any_says(time.monotonic() - begun > arguments.seconds, device):
            break
        if loader is not None:
            data, target = loader.next()
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
        if each is not None:
            each.write(f"{LAUNCH} {name} {step} {(time.perf_counter() - begin) * 1e3:.3f} {time.time():.3f}\n")
            each.flush()
    slowest = torch.tensor(times, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist(), 0 if loader is None else loader.started


def any_says(said, device):
    """Whether any rank says so: all of them end with the same step."""
    any_rank = torch.tensor([1.0 if said else 0.0], device=device)
    dist.all_reduce(any_rank, op=dist.ReduceOp.MAX)
    return any_rank.item() > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="resnet18,resnet50,bert-base,bert-large")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0,
                        help="the steps of a model end after so many seconds; the line says how many there were")
    parser.add_argument("--batch", type=int, default=0, help="of a rank; default: the model's own")
    parser.add_argument("--workers", type=int, default=0,
                        help="batches come from so many processes, which PyTorch's DataLoader forks")
    parser.add_argument("--epoch", type=int, default=25, help="batches of such a process before the next one is forked")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--precision", choices=["fp32", "tf32"], default="fp32")
    parser.add_argument("--buckets", default="25", help="DDP's bucket caps in MB, e.g. 25,100: each is measured")
    parser.add_argument("--alone", action="store_true", help="also each rank by itself, without DDP")
    parser.add_argument("--best", action="store_true",
                        help="what costs DDP least: gradients as views of the buckets, buffers not broadcast, fused "
                             "optimizer; default: as it comes")
    parser.add_argument("--label", default="")
    parser.add_argument("--each", default="", help="file to which rank 0 appends every step as it ends: launch, model, "
                                                   "number, milliseconds, and when it ended (seconds since 1970)")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    gpu = int(os.environ.get("LOCAL_RANK", "0"))
    if cuda:
        torch.cuda.set_device(gpu)
        torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = arguments.precision == "tf32"
    device = torch.device("cuda", gpu) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    buckets = [int(word) for word in arguments.buckets.split(",")] if dist.get_world_size() > 1 else []
    if arguments.alone or not buckets:
        buckets.append(0)
    for name in arguments.models.split(","):
        for bucket_mb in buckets:
            times, started = measure(name, device, arguments, bucket_mb)
            if dist.get_rank() == 0 and times:
                workers = {"workers": arguments.workers, "workers_started": started} if arguments.workers else {}
                print(json.dumps({"label": arguments.label, "model": name, "bucket_mb": bucket_mb,
                                  "median_ms": round(statistics.median(times), 3),
                                  "mean_ms": round(statistics.fmean(times), 3), "steps": len(times),
                                  "ranks": dist.get_world_size(), **workers}), flush=True)
            if cuda:
                torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
