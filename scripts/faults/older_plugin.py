#!/usr/bin/env python3
"""What a build of the NCCL plugin does with hostile files, loaded as NCCL loads it: to see of an older one that it did otherwise.

    scripts/faults/older_plugin.py LIBRARY     (needs root for the other user; no NCCL, no GPU)
"""

import ctypes
import glob
import os
import stat
import subprocess
import sys
import tempfile

Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
kAllReduce, kAlgorithms, kProtocols, kMebibyte = 4, 7, 3, 1 << 20


class PluginV5(ctypes.Structure):
    """ncclTuner_v5_t, as tuner/nccl/nccl_tuner_abi.hpp has it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("init", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_size_t,
                                  ctypes.c_size_t, Log, ctypes.c_void_p, ctypes.c_void_p)),
        ("get_coll_info", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int,
                                           ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                           ctypes.POINTER(ctypes.c_int))),
        ("finalize", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    ]


@Log
def say(_level, _flags, _file, _line, _format, text):
    print("   says:", (text or b"").decode()[:200], flush=True)


def job(library, cut_by):
    """One process of a job: joins, has the region cut, asks for a setting."""
    plugin = PluginV5.in_dll(ctypes.CDLL(library), "ncclTunerPlugin_v5")
    context = ctypes.c_void_p()
    print("   init:", plugin.init(ctypes.byref(context), 7, 2, 1, say, None, None), flush=True)
    for region in glob.glob(os.environ.get("DYNAMICCL_TUNER_FOLDER", "/nowhere") + "/*"):
        print("   region file of mode", oct(stat.S_IMODE(os.stat(region).st_mode)), flush=True)
        user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"] if cut_by == "other" else []
        if cut_by:
            print("   truncate exits with", subprocess.run([*user, "truncate", "-s", "0", region]).returncode, flush=True)
    costs = (ctypes.c_float * (kAlgorithms * kProtocols))(*[1.0] * (kAlgorithms * kProtocols))
    channels = ctypes.c_int(0)
    result = plugin.get_coll_info(context, kAllReduce, kMebibyte, 1, costs, kAlgorithms, kProtocols, 0, ctypes.byref(channels))
    print("   setting:", result, "channels:", channels.value, flush=True)


def main():
    library = os.path.realpath(sys.argv[1])
    if len(sys.argv) > 2:
        job(library, sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.mkfifo(folder + "/pipe")
        for item, cut_by, name in (("a pipe as table", "", "DYNAMICCL_TUNER_TABLE=pipe"),
                                   ("its region is cut by another user", "other", "DYNAMICCL_TUNER_FOLDER=others"),
                                   ("its region is cut by its own user", "own", "DYNAMICCL_TUNER_FOLDER=own")):
            variable, _, value = name.partition("=")
            if not os.path.exists(f"{folder}/{value}"):
                os.mkdir(f"{folder}/{value}", 0o755)
            print("##", item, flush=True)
            try:
                ended = subprocess.run([sys.executable, __file__, library, cut_by], timeout=8,
                                       env={**os.environ, variable: f"{folder}/{value}"})
                print("   exit", ended.returncode)
            except subprocess.TimeoutExpired:
                print("   hangs (8 s)")


if __name__ == "__main__":
    main()
