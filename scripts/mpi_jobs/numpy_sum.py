"""A job of mpi4py whose step makes its arrays anew.  numpy_sum.py DOUBLES STEPS"""
import sys
import time

import numpy as np
from mpi4py import MPI
n = int(sys.argv[1]) if len(sys.argv) > 1 else 900000
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 150
w = MPI.COMM_WORLD
x = np.ones(n)
for s in range(steps + 5):
    if s == 5:
        w.Barrier()
        t = time.perf_counter()
    g = x * 1.0001
    o = np.empty_like(g)
    w.Allreduce(g, o, op=MPI.SUM)
    x = o / w.size
w.Barrier()
if w.rank == 0:
    print("%.4f ms a step, check %.6g" % ((time.perf_counter() - t) * 1e3 / steps, x.sum()))
