#!/usr/bin/env python3
"""What a build of the NCCL plugin does with hostile files, loaded as NCCL loads it: to see of an older one that it did otherwise.

    scripts/faults/older_plugin.py LIBRARY     (needs root for the other user; no NCCL, no GPU)
"""

import ctypes
import glob
import mmap
import os
import stat
import struct
import subprocess
import sys
import tempfile

Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
kAllReduce, kAlgorithms, kProtocols, kMebibyte = 4, 7, 3, 1 << 20


class PluginV5(ctypes.Structure):
    """ncclTuner_v5_t, as plugin/tuner/nccl_tuner_abi.hpp has it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("init", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_size_t,
                                  ctypes.c_size_t, Log, ctypes.c_void_p, ctypes.c_void_p)),
        ("get_coll_info", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int,
                                           ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                           ctypes.POINTER(ctypes.c_int))),
        ("finalize", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    ]


class Region:
    """What another process of this user can write to a communicator's file (plugin/agreement/region.hpp, version 1)."""

    kRanks, kWord, kTables, kTableBytes, kSlots, kSlotBytes, kAcked = 12, 64, 192, 976, 2176, 5824, 8
    kFunctions, kBins, kLanes = 5, 48, (1, 2, 3, 5)

    def __init__(self, path):
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            assert size >= self.kSlots + self.kSlotBytes, f"{path} has {size} bytes, no region of this version"
            # Its last page whole: what lies there behind the file's end is shared too.
            self.memory = mmap.mmap(file.fileno(), size)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
            self.bytes = (ctypes.c_char * (-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)).from_address(address)

    def write(self, at, text):
        self.bytes[at : at + len(text)] = text

    def checksum(self, table):
        lanes, most = list(self.kLanes), (1 << 64) - 1
        for at in range(0, len(table), 32):
            for i, part in enumerate(struct.unpack_from("<4Q", table, at)):
                lanes[i] = ((lanes[i] ^ part) * 0x9E3779B97F4A7C15 + (lanes[i] >> 29)) & most
        total = 0
        for lane in lanes:
            total = ((total ^ lane ^ (lane >> 32)) * 0xFF51AFD7ED558CCD) & most
        return total | 1

    def propose(self, channels, boundary):
        """As a leader does: a table of this many channels for every call from number `boundary` on."""
        epoch, prepared = 2, 1
        table = bytes([0xFF, 0xFF, channels, 0]) * (self.kFunctions * self.kBins)
        self.write(self.kTables, struct.pack("<QII", self.checksum(table), epoch, 0) + table)
        self.write(self.kWord, struct.pack("<Q", epoch << 44 | prepared << 42 | boundary))
        return epoch

    def more_ranks(self, ranks, epoch):
        """Says that there are so many, of which the second has acknowledged."""
        self.write(self.kSlots + self.kSlotBytes + self.kAcked, struct.pack("<I", epoch))
        self.write(self.kRanks, struct.pack("<I", ranks))


@Log
def say(_level, _flags, _file, _line, _format, text):
    print("   says:", (text or b"").decode()[:200], flush=True)


def job(library, cut_by):
    """One process of a job: joins, has the region cut or written to, asks for a setting."""
    plugin = PluginV5.in_dll(ctypes.CDLL(library), "ncclTunerPlugin_v5")
    context = ctypes.c_void_p()
    ranks = 1 if cut_by in ("channels", "ranks") else 2  # one agrees with itself
    print("   init:", plugin.init(ctypes.byref(context), 7, ranks, 1, say, None, None), flush=True)
    if cut_by in ("channels", "ranks"):
        region = Region(glob.glob(os.environ["DYNAMICCL_TUNER_FOLDER"] + "/*")[0])
        epoch = region.propose(255 if cut_by == "channels" else 8, boundary=3)
        if cut_by == "ranks":
            region.more_ranks(1 << 20, epoch)
        cut_by = ""
    for region in glob.glob(os.environ.get("DYNAMICCL_TUNER_FOLDER", "/nowhere") + "/*"):
        print("   region file of mode", oct(stat.S_IMODE(os.stat(region).st_mode)), flush=True)
        user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"] if cut_by == "other" else []
        if cut_by:
            print("   truncate exits with", subprocess.run([*user, "truncate", "-s", "0", region]).returncode, flush=True)
    for call in range(6):
        costs = (ctypes.c_float * (kAlgorithms * kProtocols))(*[1.0] * (kAlgorithms * kProtocols))
        channels = ctypes.c_int(0)
        result = plugin.get_coll_info(context, kAllReduce, kMebibyte, 1, costs, kAlgorithms, kProtocols, 0, ctypes.byref(channels))
    print("   setting:", result, "channels:", channels.value, "from call", call, flush=True)


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
                                   ("its region is cut by its own user", "own", "DYNAMICCL_TUNER_FOLDER=own"),
                                   ("a process of its own user proposes 255 channels", "channels", "DYNAMICCL_TUNER_FOLDER=channels"),
                                   ("a process of its own user says there are more ranks", "ranks", "DYNAMICCL_TUNER_FOLDER=ranks")):
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
