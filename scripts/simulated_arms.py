#!/usr/bin/env python3
"""All-reduce by every algorithm of SimGrid's SMPI on three topologies, as CSV.

    scripts/simulated_arms.py OUTPUT.csv [--ranks 64,256] [--bytes 1024,32768,1048576,16777216] [--jobs N]
                              [--programs FOLDER]

A plain MPI program compiled by smpicc runs under smpirun (Debian: libsimgrid-dev), so that the
rules of all libraries work, which crash in replays of traces. The second of two calls counts: in
the first, those that know of nodes make communicators of them. Nothing is computed, no TCP window,
none of SMPI's factors of an old cluster: links of 12.5 GB/s and 1 us, two to a switch. What takes
more than 60 s of processor time has no time. What messages hold is neither summed nor copied,
which changes no simulated time and took most of the real one. --programs keeps what was compiled,
and takes what is there of the same source, for machines without smpicc.
benchmarks/simulated_search.cpp searches what this writes.
"""
import argparse
import concurrent.futures
import hashlib
import os
import re
import resource
import subprocess
import tempfile

PROGRAM = r"""
#include <mpi.h>
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static void nothing(void* from, void* to, int* count, MPI_Datatype* type) {
  (void)from, (void)to, (void)count, (void)type;
}
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  long bytes = atol(argv[1]);
  int rank;
  MPI_Op op;
  MPI_Op_create(nothing, 1, &op);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float* from = SMPI_SHARED_MALLOC(bytes);
  float* to = SMPI_SHARED_MALLOC(bytes);
  MPI_Allreduce(from, to, bytes / 4, MPI_FLOAT, op, MPI_COMM_WORLD);
  double left = 100 - MPI_Wtime();
  struct timespec pause = {(time_t)left, (long)(1e9 * (left - (time_t)left))};
  nanosleep(&pause, NULL);
  MPI_Barrier(MPI_COMM_WORLD);
  double time = MPI_Wtime(), longest;
  MPI_Allreduce(from, to, bytes / 4, MPI_FLOAT, op, MPI_COMM_WORLD);
  time = MPI_Wtime() - time;
  MPI_Reduce(&time, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("time=%.12g\n", longest);
  SMPI_SHARED_FREE(from);
  SMPI_SHARED_FREE(to);
  MPI_Finalize();
  return 0;
}
"""

# What the program itself loads into the simulator. Buffers of all ranks are one piece of memory, and
# temporary ones are never touched, so that they need none.
NO_COPIES = os.path.join(os.path.dirname(__file__), "../orchestrator/launch/no_copies.c")

ALGORITHMS = """ompi mpich default lr rab1 rab2 rab_rdb rdb rab smp_binomial smp_binomial_pipeline
smp_rdb smp_rsag smp_rsag_lr smp_rsag_rab redbcast ompi_ring_segmented mvapich2 mvapich2_rs
mvapich2_two_level impi""".split()

SECONDS = 60

SHAPES = {
    ("fat-tree", 64): ("FAT_TREE", "2;8,8;1,4;1,2"),
    ("fat-tree", 256): ("FAT_TREE", "2;16,16;1,8;1,2"),
    ("torus", 64): ("TORUS", "4,4,4"),
    ("torus", 256): ("TORUS", "8,8,4"),
    ("dragonfly", 64): ("DRAGONFLY", "4,2;2,2;4,1;2"),
    ("dragonfly", 256): ("DRAGONFLY", "4,2;4,2;4,1;4"),
}


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def platform(folder, shape, ranks):
    topology, parameters = SHAPES[shape, ranks]
    return write(
        f"{folder}/{shape}-{ranks}.xml",
        "<?xml version='1.0'?>\n"
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        f'<platform version="4.1"><cluster id="c" prefix="h" suffix="" radical="0-{ranks - 1}" '
        f'speed="100Gf" bw="12.5GBps" lat="1us" topology="{topology}" '
        f'topo_parameters="{parameters}" sharing_policy="SPLITDUPLEX" loopback_bw="40GBps" '
        'loopback_lat="0.2us"/></platform>\n',
    )


def compiled(folder):
    """@returns the paths of both programs"""
    os.makedirs(folder, exist_ok=True)
    made = []
    for name, text, command in (
        ("allreduce", PROGRAM, ["smpicc", "-O1"]),
        ("no_copies", read(NO_COPIES), ["gcc", "-O2", "-shared", "-fPIC"]),
    ):
        # Of an older source there may be another.
        path = f"{folder}/{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}.part"
            subprocess.run([*command, write(path + ".c", text), "-o", part], check=True)
            os.replace(part, path)
        made.append(os.path.abspath(path))
    return made


def simulate(programs, xml, hosts, ranks, size, algorithm):
    """@returns microseconds as text, and why there are none"""
    program, library = programs
    command = ["smpirun", "-np", str(ranks), "-platform", xml, "-hostfile", hosts]
    command += ["-no-privatize", "-wrapper", f"env LD_PRELOAD={library}"]
    command += ["--cfg=smpi/simulate-computation:no", f"--cfg=smpi/allreduce:{algorithm}"]
    command += ["--cfg=network/TCP-gamma:0", "--cfg=smpi/lat-factor:0:1"]
    command += ["--cfg=smpi/bw-factor:0:1", "--cfg=contexts/guard-size:0"]
    command += ["--log=root.thres:critical", program, str(size)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    found = re.search(r"time=(\S+)", done.stdout)
    if found:
        return f"{float(found.group(1)) * 1e6:.6f}", ""
    return "", f"ended with {done.returncode}"


def numbers(text):
    return [int(word) for word in text.split(",")]


def cells(options):
    for shape, ranks in SHAPES:
        for size in options.bytes if ranks in options.ranks else []:
            yield from ((shape, ranks, size, algorithm) for algorithm in ALGORITHMS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--ranks", type=numbers, default=[64, 256])
    parser.add_argument("--bytes", type=numbers, default=[1024, 32768, 1048576, 16777216])
    parser.add_argument("--jobs", type=int, default=1, help="simulations at once")
    parser.add_argument("--programs", help="folder of the compiled programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(options.output, "w", encoding="ascii") as out:
        programs = compiled(options.programs or folder)
        machines = {key: platform(folder, *key) for key in SHAPES}
        hosts = {
            ranks: write(f"{folder}/hosts{ranks}", "".join(f"h{i}\n" for i in range(ranks)))
            for _, ranks in SHAPES
        }

        def one(cell):
            shape, ranks, size, algorithm = cell
            return simulate(programs, machines[shape, ranks], hosts[ranks], ranks, size, algorithm)

        out.write("machine,ranks,bytes,algorithm,us,reason\n")
        asked = list(cells(options))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for cell, (time, reason) in zip(asked, pool.map(one, asked)):
                out.write(",".join(map(str, cell)) + f",{time},{reason}\n")
                out.flush()


if __name__ == "__main__":
    main()
