"""A rank of Open MPI in Python (scripts/live_jobs.py): the like of rank.c.  python_rank.py KIND FAULTY_RANK FOLDER"""
import ctypes
import os
import sys
import time

kind, faulty, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, double, total = (ctypes.byref(ctypes.c_char.in_dll(mpi, name))
                        for name in ("ompi_mpi_comm_world", "ompi_mpi_double", "ompi_mpi_op_sum"))
mpi.MPI_Init(None, None)
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
numbers, sums = (ctypes.c_double * 4096)(), (ctypes.c_double * 4096)()


def collate(rows):
    return sum(i * i for i in range(rows))


def load_for_ever():
    while True:
        collate(1000)


step = 0
while True:
    if step == 5:
        open(f"{folder}/ready.{rank}", "w").close()
    collate(60000)
    if rank == faulty and os.path.exists(folder + "/go"):
        if kind == "python-circle":
            load_for_ever()
        elif kind == "python-sleep":
            time.sleep(600)
        elif kind == "python-slow":
            collate(1500000)
        elif kind == "python-loader":
            time.sleep(0.2)
    mpi.MPI_Allreduce(numbers, sums, 4096, double, total, world)
    step += 1
