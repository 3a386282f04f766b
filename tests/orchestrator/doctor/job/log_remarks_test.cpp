// What NCCL's own log shows to be missing, case by case as users have asked in public: the lines
// are retyped in its form, hosts and numbers are others.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/job/job_logs.hpp"
#include "orchestrator/doctor/job/look_at_job.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string said(const std::string& host, int gpu, const std::string& message,
                 const std::string& kind = "INFO") {
  const auto number = std::to_string(gpu);
  return host + ":70" + number + ":81" + number + " [" + number + "] NCCL " + kind + " " + message +
         "\n";
}

std::vector<JobRemark> remarks_of(const std::string& text) {
  LoggedJob job;
  read_log_text(job, text);
  return remarks(job);
}

/// The one remark of a log, and that it says what to do.
void check_only(const std::string& text, const std::string& id, const std::string& fix) {
  const auto found = remarks_of(text);
  INFO(text);
  REQUIRE(found.size() == 1);
  CHECK(found.front().id == id);
  CHECK_THAT(found.front().fix, ContainsSubstring(fix));
}

}  // namespace

TEST_CASE("a /dev/shm without room for NCCL's segments is named with what gives room") {
  check_only(
      said("pod-a", 0,
           "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-k3JdQa to "
           "9637892 bytes") +
          said("pod-a", 0,
               "misc/shmutils.cc:87 Call to posix_fallocate failed : No space left on device",
               "WARN") +
          said("pod-a", 1,
               "Error while creating shared memory segment /dev/shm/nccl-k3JdQa (size 9637888)",
               "WARN"),
      "shm-full", "medium: Memory");
}

TEST_CASE("ranks whose sockets use unlike interfaces are told with the list for all") {
  const auto two = [](const std::string& second) {
    return said("node-1", 0, "Bootstrap : Using ens5:10.8.0.4<0>") +
           said("node-1", 1, "Bootstrap : Using ens5:10.8.0.4<0>") +
           said("node-2", 0,
                "NET/Socket : Using [0]" + second + ":172.17.0.1<0> [1]ens5:10.8.0.5<0>");
  };
  check_only(two("docker0"), "wrong-interface", "NCCL_SOCKET_IFNAME");
  CHECK_THAT(remarks_of(two("docker0")).front().says,
             ContainsSubstring("docker0 on node-2") &&
                 ContainsSubstring("a container bridge reaches no other host"));
  check_only(two("enp1s0"), "interfaces-differ", "mpirun -x");
  check_only(two("veth3a1"), "wrong-interface", "NCCL_SOCKET_IFNAME");
  CHECK(remarks_of(two("ens5")).empty());
}

TEST_CASE("a list that leaves no interface is told with how lists are written") {
  check_only(said("node-1", 0, "NCCL_SOCKET_IFNAME set by environment to =eth9") +
                 said("node-1", 0, "Bootstrap : no socket interface found", "WARN"),
             "no-interface", "\"=eth0\" is that one alone");
}

TEST_CASE("GPUDirect RDMA that a container lacks is told with the host's module") {
  check_only(said("dgx-1", 3, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"),
             "no-gpudirect", "modprobe nvidia-peermem");
}

TEST_CASE("a machine whose topology cannot be read is told with NCCL_TOPO_FILE") {
  check_only(said("vm-1", 0,
                  "Topology detection : could not read /sys/devices/pci0000:00/0000:00:08.0/../"
                  "max_link_speed, ignoring"),
             "no-topology", "NCCL_TOPO_FILE");
}

TEST_CASE("peer access that the driver refuses points at ACS and the IOMMU") {
  check_only(said("box", 0,
                  "P2P is disabled between connected GPUs 1 and 0. You can repress this message "
                  "with NCCL_IGNORE_DISABLED_P2P=1."),
             "p2p-off", "iommu=pt");
}

TEST_CASE("a first call that nobody ends over peer access points there, too") {
  std::string text;
  for (const int gpu : {0, 1}) {
    const auto other = std::to_string(1 - gpu), own = std::to_string(gpu);
    text += said("box", gpu,
                 "ncclCommInitRank comm 0x5" + own + " rank " + own + " nranks 2 cudaDev " + own +
                     " busId 1000 commId 0x9a - Init COMPLETE");
    text += said("box", gpu,
                 "Channel 00 : " + own + "[" + own + "] -> " + other + "[" + other +
                     "] via P2P/direct pointer");
    text += "[rank" + own + "]:[E] [PG ID 0 PG GUID 0(default_pg) Rank " + own +
            "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
            "NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing "
            "out.\n";
  }
  check_only(text, "p2p-hang", "NCCL_P2P_DISABLE=1");
  // Where one has not come, peer access is not why.
  const auto one = text.substr(0, text.find("[rank1]"));
  CHECK(remarks_of(one).empty());
}

TEST_CASE("ranks of one host that take the way through host memory or the network are told") {
  const auto hops = [](const std::string& way, const std::string& second_host) {
    return said("node-1", 0, "Channel 00/02 : 0[0] -> 1[1] via " + way) +
           said(second_host, 1, "Channel 00/02 : 1[1] -> 0[0] via " + way);
  };
  check_only(hops("SHM/direct/direct", "node-1"), "host-memory", "--gpus-per-task");
  check_only(hops("NET/Socket/0", "node-1"), "network-inside", "--gpus-per-task");
  CHECK(remarks_of(hops("P2P/CUMEM", "node-1")).empty());
  CHECK(remarks_of(hops("NET/Socket/0", "node-2")).empty());
  const auto received = said("node-1", 1, "Channel 00/0 : 0[0] -> 1[1] [receive] via NET/IB/0") +
                        said("node-1", 0, "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0");
  check_only(received, "network-inside", "one container for all ranks");
  // Numbers 0 and 1 are of the whole job on one host, and of a smaller communicator on two.
  const auto smaller = said("node-1", 0, "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0") +
                       said("node-2", 1, "Channel 00/0 : 0[0] -> 1[1] [receive] via NET/IB/0");
  CHECK(remarks_of(hops("SHM/direct/direct", "node-1") + smaller).empty());
  // Of two ways between a pair the faster one is there.
  CHECK(remarks_of(hops("P2P/CUMEM", "node-1") + received).empty());
}

TEST_CASE("memory that two containers cannot pass is told with the host's identity") {
  check_only(said("c-1", 0,
                  "transport/p2p.cc:275 Cuda failure 101 'invalid device ordinal' in "
                  "cuMemImportFromShareableHandle",
                  "WARN"),
             "host-id", "/etc/machine-id");
}

TEST_CASE("plugins that are not found, or of another version, are told") {
  check_only(said("p5-1", 0,
                  "NET/Plugin: Could not find: libnccl-net-ofi.so. Using internal net "
                  "plugin."),
             "no-plugin", "LD_LIBRARY_PATH");
  check_only(said("p5-1", 0, "TUNER/Plugin: Could not find: libnccl-ofi-tuner.so"), "no-tuner",
             "NCCL_TUNER_PLUGIN takes a path");
  const auto asked = said("p5-1", 0, "TUNER/Plugin: Plugin name set by env to libnccl-x.so") +
                     said("p5-1", 0, "TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.");
  check_only(asked, "no-tuner", "built for this NCCL");
  check_only(asked + said("p5-1", 0, "TUNER/Plugin: Using internal tuner plugin."), "no-tuner",
             "built for this NCCL");
  // An older version's symbol was found in the end: by that rank.
  const auto used = asked + said("p5-1", 0, "TUNER/Plugin: Using tuner plugin x");
  CHECK(remarks_of(used).empty());
  CHECK_THAT(
      remarks_of(used + said("p5-1", 1, "TUNER/Plugin: Could not find: libnccl-x.so")).at(0).says,
      ContainsSubstring("p5-1:701"));
}

TEST_CASE("a healthy job's log, in which NCCL looks in vain for plugins of its own, is content") {
  std::string text;
  for (const int gpu : {0, 1})
    for (const char* message :
         {"Bootstrap : Using eth0:10.8.0.4<0>", "cudaDriverVersion 12080",
          "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.",
          "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open "
          "shared object file: No such file or directory",
          "NET/Plugin: Failed to find ncclCollNetPlugin_v8 symbol.",
          "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.8.0.4<0>", "Using network IB",
          "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
          "TUNER/Plugin: Could not find: libnccl-tuner.so. Using internal tuner plugin.",
          "TUNER/Plugin: Could not find: libnccl-tuner.so",
          "TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.",
          "TUNER/Plugin: Failed to find ncclTunerPlugin_v3 symbol.",
          "TUNER/Plugin: Failed to find ncclTunerPlugin_v2 symbol, using internal tuner instead."})
      text += said("node-1", gpu, message);
  CHECK(remarks_of(text).empty());
}

TEST_CASE("a job that forbids tuners is told so, as no table acts there") {
  check_only(said("a3-1", 0, "NCCL_TUNER_PLUGIN set by environment to none"), "tuner-forbidden",
             "leave NCCL_TUNER_PLUGIN unset");
}

TEST_CASE("ranks of different versions are told where NCCL says so itself") {
  check_only(
      said("node-1", 0,
           "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22304", "WARN"),
      "versions-differ", "names each rank's file");
}

TEST_CASE("no card for RDMA, and memory that it may not lock, are told with the flags") {
  check_only(said("pod-a", 0, "NET/IB : No device found."), "no-rdma", "/dev/infiniband");
  check_only(
      said("pod-a", 0, "Call to ibv_reg_mr failed with error Cannot allocate memory", "WARN"),
      "memlock", "--ulimit memlock=-1");
  check_only(said("n", 1, "Call to ibv_create_cq failed with error Cannot allocate memory", "WARN"),
             "memlock", "LimitMEMLOCK");
}

TEST_CASE("two ranks that were given one GPU are told") {
  check_only(said("node-1", 0,
                  "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "WARN"),
             "one-gpu", "CUDA_VISIBLE_DEVICES");
}

TEST_CASE("an image without an ssh server is told with how to start ranks without one") {
  check_only("/bin/bash: line 1: /usr/sbin/sshd: No such file or directory\n", "no-sshd",
             "plm_rsh_agent");
  check_only("sh: 1: /usr/sbin/sshd: not found\n", "no-sshd", "kubectl exec");
  CHECK(remarks_of("Starting sshd: /usr/sbin/sshd -p 2222\n").empty());
}

TEST_CASE("a PMIx that the launcher does not understand is told with both ways out") {
  const std::string unpacked =
      "[nid20018:8214] UNPACK-PMIX-VALUE: UNSUPPORTED TYPE 104\n"
      "[nid20018:8214] PMIX ERROR: OUT-OF-RESOURCE in file base/bfrop_base_unpack.c at line 750\n"
      "[nid20019:3247] PMIX ERROR: OUT-OF-RESOURCE in file base/bfrop_base_unpack.c at line 750\n";
  check_only(unpacked, "pmix", "srun --mpi=list");
  CHECK_THAT(remarks_of(unpacked).front().says,
             ContainsSubstring("\"[nid20018:8214] PMIX ERROR") && ContainsSubstring(" and 1 more"));
  CHECK_THAT(remarks_of(unpacked).front().fix, ContainsSubstring("--userns=keep-id"));
  check_only("[lx0553:3042] OPAL ERROR: Unreachable in file pmix2x_client.c at line 109\n", "pmix",
             "PMIX_MCA_gds=hash");
  check_only("[nid20018:8214] UNPACK-PMIX-VALUE: UNSUPPORTED TYPE 104\n", "pmix", "ompi_info");
  CHECK_THAT(remarks_of(unpacked).front().says, ContainsSubstring("do not understand each other"));
  // A rank's death makes Open MPI say so, too.
  const std::string died =
      "[nid20018:8214] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2198\n";
  check_only(died, "pmix", "ompi_info");
  CHECK_THAT(remarks_of(died).front().says, ContainsSubstring("their versions may differ"));
  CHECK_THAT(remarks_of(died + unpacked).front().says,
             ContainsSubstring("do not understand each other"));
}

TEST_CASE("a crash in NCCL's RAS or in a profiler plugin is told with what leaves it out") {
  const std::string caught =
      "[h20-01:3755:0:3767] Caught signal 11 (Segmentation fault: address not mapped to object at "
      "address 0x48)\n==== backtrace (tid:   3767) ====\n"
      " 0 0x000000000003c050 __sigaction()  ???:0\n";
  const std::string in_ras =
      " 1 0x0000000000122927 rasMsgHandlePeersUpdate()  /opt/nccl/src/ras/peers.cc:431\n"
      " 2 0x0000000000125331 rasThreadMain(void*)()  /opt/nccl/src/ras/ras.cc:520\n";
  check_only(said("h20-01", 0, "RAS client listening socket at ::1<28028>") + caught + in_ras,
             "ras-crash", "NCCL_RAS_ENABLE=0");
  check_only(caught +
                 " 1 0x0000000000003ab1 exampleProfilerStopEvent()  "
                 "/opt/nccl/lib/libnccl-profiler-example.so:0\n",
             "profiler-crash", "NCCL_PROFILER_PLUGIN=none");
  check_only(
      "[h20-01:03755] *** Process received signal ***\n[h20-01:03755] Signal: Segmentation fault "
      "(11)\n[h20-01:03755] [ 3] /opt/lib/libnccl-profiler-example.so(+0x3ab1)[0x7f1b9ab1]\n",
      "profiler-crash", "built for this NCCL");
  // Whoever prints the stacks of ranks that live finds RAS's thread in each.
  CHECK(remarks_of(in_ras).empty());
  LoggedJob two_files;
  read_log_text(two_files, caught);
  read_log_text(two_files, in_ras);
  CHECK(remarks(two_files).empty());
  CHECK(remarks_of(caught + " 1 0x0000000000012292 ncclAllReduce()  ???:0\n").empty());
}

TEST_CASE("settings that NCCL has read are listed, and with how many where not by all") {
  LoggedJob job;
  read_log_text(job, said("node-1", 0, "NCCL_SOCKET_NTHREADS set by environment to 4.") +
                         said("node-1", 1, "NCCL_SOCKET_NTHREADS set by environment to 4.") +
                         said("node-1", 0, "NCCL_NSOCKS_PERTHREAD set by environment to 2.") +
                         said("node-1", 1, "NCCL_SOCKET_IFNAME set by environment to eth0"));
  CHECK(settings_read(job) == std::vector<std::string>{"NCCL_NSOCKS_PERTHREAD=2 (1 of 2 processes)",
                                                       "NCCL_SOCKET_IFNAME=eth0 (1 of 2 processes)",
                                                       "NCCL_SOCKET_NTHREADS=4"});
  LogLook look;
  look.settings = settings_read(job);
  CHECK_THAT(to_text(look), ContainsSubstring("  NCCL has read: NCCL_NSOCKS_PERTHREAD=2 (1 of 2"));
  CHECK(to_json(look).at("settings").size() == 3);
  // Each rank's own value of a setting is no list to read.
  for (int rank = 0; rank < 6; ++rank)
    read_log_text(
        job, said("node-1", rank % 2, "NCCL_HOSTID set by environment to " + std::to_string(rank)));
  CHECK(settings_read(job).front() == "NCCL_HOSTID: 6 different values");
  CHECK(settings_read(job).size() == 4);
  // What was typed wrongly is read by nobody, and is not there.
  LoggedJob silent;
  read_log_text(silent, said("node-1", 0, "Bootstrap : Using eth0:10.8.0.4<0>"));
  CHECK(settings_read(silent).empty());
}

TEST_CASE("a log's remarks stand below its verdict, and in its JSON") {
  LogLook look;
  look.remarks = remarks_of(said("a", 0, "NET/IB : No device found.") +
                            said("a", 1, "NET/IB : No device found."));
  CHECK_THAT(to_text(look),
             ContainsSubstring("  NOTE no-rdma: no InfiniBand or RoCE card is seen") &&
                 ContainsSubstring("\"a:700: NET/IB : No device found.\" and 1 more\n"
                                   "    fix: where there are cards"));
  CHECK(to_json(look).at("remarks").at(0).at("id") == "no-rdma");
  // Other text says nothing, however it looks.
  CHECK(
      remarks_of("NET/IB : No device found.\nChannel x -> via : y\nNCCL INFO Channel 00 : -> via\n")
          .empty());
}
