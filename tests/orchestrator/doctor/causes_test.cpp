#include "orchestrator/doctor/causes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/prove.hpp"
#include "orchestrator/launch/post_mortem.hpp"
#include "tests/orchestrator/doctor/symptoms.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using namespace dynamiccl::testing;

TEST_CASE("one container without faults shows no cause") { CHECK(ids(healthy()).empty()); }

TEST_CASE("refused CMA is found with the reasons, and a capability fixes it") {
  auto symptoms = healthy();
  symptoms.profile = profiles().at("single-docker-no-cma");
  for (auto& facts : symptoms.facts) {
    facts["cma"] = {{"allowed", false}, {"outcome", "process_vm_readv: Operation not permitted"}};
    facts["process"]["capabilities"]["sys_ptrace"] = false;
  }
  symptoms.looks[0].used = "shm";
  symptoms.looks[1].used = "tcp";
  REQUIRE(ids(symptoms) == Ids{"cma-blocked"});
  const auto finding = only(symptoms, "cma-blocked");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("Operation not permitted, no CAP_SYS_PTRACE, a seccomp filter"));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("(openmpi: shm, mpich: tcp)"));
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi, Backend::mpich});
  CHECK_THAT(finding.fix.flag, ContainsSubstring("--cap-add SYS_PTRACE"));
  REQUIRE(finding.fix.profile);
  CHECK(finding.fix.profile->capabilities.front().name == "SYS_PTRACE");
  CHECK(proving_backend(symptoms, finding) == Backend::mpich);
  // The user's own filter goes, where the capability is there already.
  symptoms.profile = profiles().at("single-docker");
  symptoms.profile.security_options = {"seccomp=/f.json"};
  CHECK(only(symptoms, "cma-blocked").fix.profile->security_options.empty());
  // Yama on the machine itself is nothing a profile can fix.
  symptoms.profile = profiles().at("bare-metal");
  for (auto& facts : symptoms.facts) facts["cma"]["yama_ptrace_scope"] = 3;
  CHECK_THAT(only(symptoms, "cma-blocked").symptom.evidence,
             ContainsSubstring("ptrace_scope is 3"));
  CHECK_FALSE(only(symptoms, "cma-blocked").fix.profile);
}

TEST_CASE("ranks dealt to nodes in turn are found, and numbering them node by node fixes it") {
  auto symptoms = cross();
  const auto place = [&](std::vector<int> nodes) {
    symptoms.facts.clear();
    for (int node : nodes) symptoms.facts.push_back(rank_in(node));
    for (auto& seen : symptoms.looks) seen.facts = symptoms.facts;
  };
  place({1, 2, 1, 2});
  symptoms.looks[0].mca["rmaps_base_ranking_policy"] = "node";
  const auto dealt = only(symptoms, "dealt-ranks");
  CHECK_THAT(dealt.symptom.evidence,
             ContainsSubstring("4 hops of a ring cross a link; numbered node by node, 2 would") &&
                 ContainsSubstring("(rmaps_base_ranking_policy = node: the launcher)"));
  CHECK_THAT(dealt.fix.flag, ContainsSubstring("-ppn RANKS_PER_NODE"));
  REQUIRE(dealt.fix.profile);
  const auto& settings = dealt.fix.profile->backend_settings.at(Backend::openmpi);
  CHECK(std::any_of(settings.begin(), settings.end(), [](const auto& setting) {
    return setting.name == "rmaps_base_ranking_policy" && setting.value == "slot";
  }));
  CHECK(proving_backend(symptoms, dealt) == Backend::openmpi);
  // In order, or a node for each rank, there is nothing to renumber.
  for (const std::vector<int>& in_order : {std::vector{1, 1, 2, 2}, {1, 2}, {1, 1, 2, 3}}) {
    place(in_order);
    CHECK_FALSE(ids(symptoms).contains("dealt-ranks"));
  }
}

TEST_CASE("containers apart on one machine show both what parts them and the bridge") {
  const auto symptoms = cross();
  REQUIRE(ids(symptoms) == Ids{"ipc-apart", "bridge"});
  const auto memory = only(symptoms, "ipc-apart");
  CHECK(memory.fix.profile->ipc == Sharing::shared);
  CHECK(memory.fix.profile->pid == Sharing::shared);
  const auto network = only(symptoms, "bridge");
  CHECK(network.fix.profile->network == Sharing::host);
  for (const auto& setting : network.fix.profile->backend_settings.at(Backend::openmpi))
    CHECK(setting.value.find("{subnet}") == std::string::npos);
  CHECK(proving_backend(symptoms, network) == Backend::gloo);
  auto capped = symptoms;
  capped.profile.link_bits_per_s = 3e8;
  CHECK_THAT(only(capped, "capped-link").symptom.evidence, ContainsSubstring("300 Mbit/s"));
}

namespace {

/// Two containers with one IPC namespace and /dev/shm, and PID namespaces of their own.
Symptoms sharing_memory() {
  auto symptoms = cross();
  symptoms.profile = profiles().at("cross-docker-shared-ipc");
  for (auto& facts : symptoms.facts) facts["shm"]["device"] = facts["namespaces"]["ipc"] = 1;
  return symptoms;
}

}  // namespace

TEST_CASE("shared memory without a shared PID namespace keeps CMA off") {
  auto symptoms = sharing_memory();
  symptoms.looks[1].used = symptoms.looks[1].asked = "shm";
  REQUIRE(ids(symptoms) == Ids{"pid-apart", "bridge"});
  const auto finding = only(symptoms, "pid-apart");
  CHECK(finding.fix.profile->pid == Sharing::shared);
  CHECK(finding.fix.profile->backend_settings.at(Backend::mpich).empty());
  CHECK(starts_by_luck(symptoms, symptoms.looks[1]));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("mpich starts by luck"));
  // As the profile has it: kept off shared memory, it starts, and one namespace still is the fix.
  symptoms.looks[1].used = symptoms.looks[1].asked = "tcp";
  CHECK_FALSE(starts_by_luck(symptoms, symptoms.looks[1]));
  CHECK_FALSE(starts_by_luck(symptoms, symptoms.looks[0]));
  const auto kept_off = only(symptoms, "pid-apart");
  CHECK(kept_off.symptom.backends == std::vector{Backend::mpich});
  CHECK_THAT(kept_off.symptom.evidence, !ContainsSubstring("luck"));
  // A folder at /dev/shm alone: UCX shares nothing over two IPC namespaces.
  symptoms.profile = profiles().at("cross-docker-folder");
  for (std::size_t i = 0; i < symptoms.facts.size(); ++i)
    symptoms.facts[i]["namespaces"]["ipc"] = i;
  CHECK_FALSE(ids(symptoms).contains("pid-apart"));
}

TEST_CASE("whether MPICH starts is told where single copies are refused, too") {
  auto symptoms = sharing_memory();
  for (auto& facts : symptoms.facts) facts["cma"]["allowed"] = false;
  auto& mpich = symptoms.looks[1];
  mpich.used = mpich.asked = "shm";
  CHECK(ids(symptoms).contains("pid-apart"));
  mpich.used = "";
  mpich.failure = library_words_clause("x initial_address_exchange Endpoint timeout");
  CHECK(ids(symptoms).contains("pid-apart"));
}

TEST_CASE("what keeps MPICH off shared memory is no fault of a launch that failed") {
  auto symptoms = sharing_memory();
  auto& mpich = symptoms.looks[1];
  mpich.environment["UCX_TLS"] = "tcp,self";
  mpich.asked = "tcp";
  for (const char* failure : {"", "timed out after 60 s"}) {
    mpich.failure = failure;
    mpich.used = *failure == '\0' ? "tcp" : "";
    CHECK_FALSE(ids(symptoms).contains("slow-setting"));
  }
}

TEST_CASE("a failed launch is laid to separate PID namespaces where the library says so") {
  auto symptoms = sharing_memory();
  auto& mpich = symptoms.looks[1];
  mpich.used = "";
  mpich.asked = "shm";
  mpich.failure = "no usable transports/devices";
  CHECK_FALSE(ids(symptoms).contains("pid-apart"));
  mpich.failure = library_words_clause("x initial_address_exchange Endpoint timeout");
  CHECK(only(symptoms, "pid-apart").symptom.backends == std::vector{Backend::mpich});
  mpich.asked = "tcp";
  CHECK_FALSE(ids(symptoms).contains("pid-apart"));
}

TEST_CASE("PID namespaces of Apptainer's are mended, and settings that suit them stay") {
  auto symptoms = cross();
  symptoms.profile = profiles().at("singularity-apart");
  for (auto& facts : symptoms.facts) facts["shm"]["device"] = 1;
  for (auto& look : symptoms.looks) {
    look.used = look.asked = "tcp";
    look.many_hosts = false;
  }
  CHECK_FALSE(ids(symptoms).contains("pid-apart"));
  symptoms.profile = profiles().at("singularity");
  symptoms.profile.pid = Sharing::private_;
  symptoms.looks[1].used = symptoms.looks[1].asked = "shm";
  CHECK(only(symptoms, "pid-apart").fix.profile->pid == Sharing::host);
}

TEST_CASE("a small /dev/shm matters to ranks that share it") {
  auto symptoms = healthy();
  for (auto& facts : symptoms.facts) facts["shm"]["size_bytes"] = 1 << 20;
  symptoms.looks[1].failure = "MPI_Init";
  REQUIRE(ids(symptoms) == Ids{"small-shm"});
  const auto finding = only(symptoms, "small-shm");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("holds 1 MiB"));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("MPICH gives up"));
  CHECK(finding.fix.profile->shm_size == Bytes(1U << 30));
  auto alone = cross();
  for (auto& facts : alone.facts) facts["shm"]["size_bytes"] = 1 << 20;
  CHECK_FALSE(ids(alone).contains("small-shm"));
}

TEST_CASE("ranks that share a core by binding, by quota and by number are told apart") {
  auto bound = cross();
  bound.profile = profiles().at("cross-docker-bound");
  for (auto& facts : bound.looks[0].facts) facts["process"]["affinity"] = {0};
  const auto finding = only(bound, "one-core");
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi});
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("rank 0 on core 0; rank 1 on core 0"));
  for (const auto& setting : finding.fix.profile->backend_settings.at(Backend::openmpi))
    CHECK(setting.name != "hwloc_base_binding_policy");
  bound.profile = profiles().at("cross-docker-one-core");
  CHECK(only(bound, "one-core").fix.profile->cpus.empty());

  auto quota = cross();
  quota.profile = profiles().at("cross-docker-half-core");
  for (auto& facts : quota.facts) facts["cgroup"]["cpu_limit_cores"] = 0.5;
  CHECK_FALSE(only(quota, "cpu-quota").fix.profile->cpu_limit);
  for (auto& facts : quota.facts) facts["cgroup"]["cpu_limit_cores"] = 1.0;
  CHECK_FALSE(ids(quota).contains("cpu-quota"));

  auto crowd = healthy();
  crowd.ranks = 4;
  crowd.facts = {rank_in(1), rank_in(1), rank_in(1), rank_in(1)};
  for (auto& seen : crowd.looks) seen.facts = crowd.facts;
  REQUIRE(ids(crowd) == Ids{"oversubscribed"});
  CHECK_THAT(only(crowd, "oversubscribed").symptom.evidence,
             ContainsSubstring("4 ranks on 2 CPUs"));
}

TEST_CASE("the reference BLAS is found in the environment and has no proof by a collective") {
  auto symptoms = healthy();
  symptoms.facts[1]["libraries"]["blas"] = "reference";
  const auto finding = only(symptoms, "reference-blas");
  CHECK_THAT(finding.fix.flag, ContainsSubstring("libopenblas"));
  CHECK_FALSE(proving_backend(symptoms, finding));
}

TEST_CASE("user namespaces between ranks forbid CMA, one container for all fixes it") {
  auto symptoms = healthy();
  symptoms.profile = profiles().at("singularity-userns");
  symptoms.facts[1]["namespaces"]["user"] = 2;
  symptoms.looks[0].used = symptoms.looks[1].used = "shm";
  REQUIRE(ids(symptoms) == Ids{"user-apart"});
  const auto fixed = only(symptoms, "user-apart").fix.profile;
  CHECK(fixed->launcher == LauncherPlace::inside);
  CHECK(fixed->ranks_per_container == 0);
}

TEST_CASE("temporary buffers that are faulted anew are found by counts, and kept by a setting") {
  auto symptoms = healthy();
  symptoms.profile = profiles().at("bare-metal");
  CallPages pages;
  pages.size = Bytes{std::uint64_t{64} << 20};
  pages.faults = 8193;
  pages.libc = "glibc 2.36";
  symptoms.looks[0].pages = symptoms.looks[1].pages = symptoms.looks[2].pages = pages;
  symptoms.looks[1].pages->faults = 12;  // no temporary buffer
  symptoms.looks[2].pages->kept = true;  // maps memory itself
  REQUIRE(ids(symptoms) == Ids{"faulted-buffers"});
  auto finding = only(symptoms, "faulted-buffers");
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi});
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("all-reduce of 64 MiB") &&
                 ContainsSubstring("openmpi: 8193, 0.50 of the message's pages") &&
                 ContainsSubstring("glibc 2.36"));
  CHECK(proving_backend(symptoms, finding) == Backend::openmpi);
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& setting : finding.fix.profile->backend_settings.at(Backend::openmpi))
      found.insert(profile_text(setting.scope, setting.name) + "=" + setting.value);
    return found;
  };
  CHECK(names() == Ids{"malloc.keep=true"});
  CHECK_FALSE(finding.fix.profile->backend_settings.contains(Backend::mpich));
  // Huge pages too, where the kernel gives them to those who ask.
  symptoms.host["cpu"]["transparent_huge_pages"] = "madvise";
  finding = only(symptoms, "faulted-buffers");
  CHECK(names() == Ids{"malloc.keep=true", "malloc.huge_pages=true"});
  CHECK_THAT(finding.fix.flag, ContainsSubstring("GLIBC_TUNABLES=glibc.malloc.hugetlb=1:") &&
                                   ContainsSubstring("malloc.keep = true"));
  // Its proof reads back as it is.
  EnvironmentProfile base;
  base.name = "bare-metal";
  const auto experiment = parse_experiment(proof_experiment(symptoms, finding, Backend::openmpi, 3),
                                           "proof", {}, {{"bare-metal", base}});
  CHECK(experiment.profiles.at("bare-metal-fixed").backend_settings.at(Backend::openmpi).size() ==
        finding.fix.profile->backend_settings.at(Backend::openmpi).size());
  // A fixed one shows it no more.
  symptoms.looks[0].pages->faults = 3;
  CHECK(ids(symptoms).empty());
}

TEST_CASE("a GPU machine's containers show the boundary with every flag that fixes it") {
  auto symptoms = cross();
  symptoms.host["gpu"] = {{"usable", 4}, {"nvml", {{"p2p", {{"self", "nvlink"}}}}}};
  const auto finding = only(symptoms, "gpu-boundary");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("foretold transport NET"));
  for (const char* flag : {"--uts=host", "--ipc=host", "--network=host", "CUDA_VISIBLE_DEVICES"})
    CHECK_THAT(finding.fix.flag, ContainsSubstring(flag));
  REQUIRE(finding.fix.profile);
  CHECK(finding.fix.profile->gpus == GpuVisibility::all);
  // Beside it, for those who may not take the namespaces down: a line for each runtime, and what
  // all nodes would bring and cost.
  const auto sockets = only(symptoms, "gpu-sockets");
  for (const char* part :
       {"Docker: docker run --volume /dev/shm/job:/dev/shm", "--env NCCL_HOSTID=one-host",
        "--env NCCL_P2P_DISABLE=1", "--env NCCL_CUMEM_HOST_ENABLE=0", "Compose: volumes: [",
        "Kubernetes: volumes: [{name: job, hostPath:", "{name: NCCL_HOSTID, value: \"one-host\"}",
        "Apptainer: apptainer exec --nv --bind /dev/shm/job:/dev/shm",
        "Slurm with pyxis: srun --container-mounts=/dev/shm/job:/dev/shm",
        "LD_PRELOAD=/opt/libdynamiccl-onehost.so", "DYNAMICCL_SHARED_FOLDER=/run/job",
        "NVIDIA_VISIBLE_DEVICES=all", "can then use all GPUs", "NCCL 2.22 and later"})
    CHECK_THAT(sockets.fix.flag, ContainsSubstring(part));
  REQUIRE(sockets.fix.profile);
  CHECK(sockets.fix.profile->gpus == GpuVisibility::one_per_rank);
  auto fixed = symptoms;
  fixed.profile = *sockets.fix.profile;
  CHECK_FALSE(ids(fixed).contains("gpu-sockets"));
  // With all nodes there the library alone reaches them.
  auto all = symptoms;
  all.profile = profiles().at("cross-docker-all-gpus");
  const auto library = only(all, "gpu-sockets");
  CHECK_THAT(library.fix.flag, !ContainsSubstring("NCCL_HOSTID"));
  CHECK(library.fix.profile->gpus == GpuVisibility::all);
  // Nobody's boundary: the settings ask for sockets.
  auto asked = symptoms;
  asked.profile = profiles().at("bare-metal");
  asked.profile.environment = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}};
  CHECK_FALSE(ids(asked).contains("gpu-sockets"));
}

TEST_CASE("usable IMEX channels are foretold, and nothing is proposed beside them") {
  auto symptoms = cross();
  symptoms.host["gpu"] = {{"usable", 4}, {"nvml", {{"p2p", {{"self", "nvlink"}}}}}};
  CHECK(imex_line(symptoms).empty());
  symptoms.facts[0]["gpu"]["imex_channels"] = 1;
  CHECK(imex_line(symptoms).empty());
  CHECK(ids(symptoms).contains("gpu-sockets"));
  symptoms.facts[1]["gpu"]["imex_channels"] = 1;
  CHECK_THAT(imex_line(symptoms), ContainsSubstring("IMEX channels are usable"));
  CHECK_FALSE(ids(symptoms).contains("gpu-sockets"));
}

TEST_CASE("a shared folder that ranks cannot use is named with what to type") {
  auto symptoms = cross();
  symptoms.profile = profiles().at("cross-docker-one-host");
  const json well = {{"path", "/run/job"},    {"trouble", "none"},     {"why", ""},
                     {"filesystem", "tmpfs"}, {"owner", 0U},           {"mode", 0700U},
                     {"user", 1000U},         {"size_bytes", 1U << 30}};
  for (auto& facts : symptoms.facts) {
    facts["shm"]["folder"] = {{"device", 51}, {"inode", 9}};
    facts["shm"]["meeting"] = well;
  }
  CHECK_FALSE(ids(symptoms).contains("shared-folder"));
  const std::string line = folder_line(symptoms);
  for (const char* part : {"/run/job", "tmpfs", "mode 700", "the same for all ranks"})
    CHECK_THAT(line, ContainsSubstring(part));
  CHECK(folder_line(cross()).empty());

  const std::vector<std::pair<const char*, const char*>> fixes{
      {"missing", "docker run --volume /dev/shm/job:/run/job"},
      {"not a folder", "rm /run/job"},
      {"forbidden", "chown 1000 /run/job"},
      {"too long", "a shorter path"},
      {"not writable", "without :ro"},
      {"full", "df -i /run/job"},
      {"no sockets", "a folder in memory"},
      {"not memory", "a folder in memory"}};
  for (const auto& [trouble, fix] : fixes) {
    INFO(trouble);
    auto bad = symptoms;
    bad.facts[1]["shm"]["meeting"]["trouble"] = trouble;
    bad.facts[1]["shm"]["meeting"]["why"] = "as it is";
    const auto finding = only(bad, "shared-folder");
    CHECK_THAT(finding.symptom.evidence, ContainsSubstring("/run/job: as it is"));
    CHECK_THAT(finding.fix.flag, ContainsSubstring(fix));
    CHECK(folder_line(bad).empty());
  }

  auto apart = symptoms;
  apart.facts[1]["shm"]["folder"]["inode"] = 10;
  CHECK_THAT(only(apart, "shared-folder").symptom.evidence,
             ContainsSubstring("2 different folders"));
  auto unequal = symptoms;
  unequal.facts[0]["gpu"]["usable"] = 1;
  unequal.facts[1]["gpu"]["usable"] = 2;
  CHECK_THAT(only(unequal, "shared-folder").symptom.evidence,
             ContainsSubstring("see 1 and 2 GPUs"));
  CHECK_THAT(only(unequal, "shared-folder").fix.flag, ContainsSubstring("--gpus all"));
  auto users = symptoms;
  users.facts[1]["shm"]["meeting"]["user"] = 1001U;
  CHECK_THAT(only(users, "shared-folder").fix.flag, ContainsSubstring("--user UID:GID"));
  auto small = symptoms;
  for (auto& facts : small.facts) facts["shm"]["meeting"]["size_bytes"] = std::uint64_t{8} << 20;
  CHECK_THAT(only(small, "shared-folder").fix.flag, ContainsSubstring("mount -o remount,size="));
  // A tmpfs without a limit, and no folder at all.
  for (auto& facts : small.facts) facts["shm"]["meeting"]["size_bytes"] = 0U;
  CHECK_FALSE(ids(small).contains("shared-folder"));
  for (auto& facts : unequal.facts) facts["shm"].erase("meeting");
  CHECK_FALSE(ids(unequal).contains("shared-folder"));
}

TEST_CASE("facts of any shape are met without throwing") {
  for (const json& odd : {json(), json(7), json("x"), json::object(), json::array({1})}) {
    auto symptoms = cross();
    symptoms.host = odd;
    symptoms.facts = {odd, odd};
    for (auto& seen : symptoms.looks) seen.facts = symptoms.facts;
    CHECK_NOTHROW(find_causes(symptoms));
  }
}

TEST_CASE("every cause has an id of its own and says how it is proved") {
  Ids seen;
  for (const Cause& cause : all_causes()) {
    CAPTURE(cause.id);
    CHECK(seen.insert(std::string(cause.id)).second);
    CHECK(cause.title.size() > 10);
    CHECK_FALSE(cause.proof().backends.empty());
  }
}

TEST_CASE("the asked transport follows profile and settings") {
  const auto asked = [](const char* name, Backend backend,
                        const std::map<std::string, std::string>& settings) {
    const auto& profile = profiles().at(name);
    return asked_transport(profile, backend, settings,
                           profile.kind == EnvironmentKind::cross_docker);
  };
  CHECK(asked("bare-metal", Backend::openmpi, {}) == "cma");
  CHECK(asked("bare-metal", Backend::openmpi, {{"btl", "tcp,self"}}) == "tcp");
  CHECK(asked("bare-metal", Backend::openmpi, {{"btl_vader_single_copy_mechanism", "none"}}) ==
        "shm");
  CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", "tcp,self"}}) == "tcp");
  CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", "^cma"}}) == "shm");
  CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", "posix,self"}}) == "shm");
  CHECK(asked("bare-metal", Backend::gloo, {}) == "tcp");
  CHECK(asked("cross-docker", Backend::mpich, {}) == "tcp");
  CHECK(asked("cross-docker-shared-ipc", Backend::mpich, {}) == "shm");
  CHECK(asked("cross-docker-pod", Backend::mpich, {}) == "cma");
  CHECK(asked("cross-docker-shared-ipc", Backend::openmpi, {}) == "tcp");
  CHECK(asked("singularity-userns", Backend::mpich, {}) == "shm");
  for (const char* left_out : {"^sm", "^shm,ib", "^mm,cma", "^posix,sysv,cma"})
    CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", left_out}}) == "tcp");
  for (const char* left_out : {"^ib", "^posix", "^mm", "^posix,sysv"})
    CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", left_out}}) == "cma");
  for (const char* alone : {"all", "sm", "mm,cma", "posix,cma", "cma,tcp"})
    CHECK(asked("bare-metal", Backend::mpich, {{"UCX_TLS", alone}}) == "cma");
}

TEST_CASE("a proof is an experiment of both profiles that reads back as they are") {
  auto symptoms = cross();
  const auto finding = only(symptoms, "ipc-apart");
  const auto text = proof_experiment(symptoms, finding, Backend::mpich, 5);
  EnvironmentProfile base;
  base.name = "bare-metal";
  const auto experiment = parse_experiment(text, "proof", {}, {{"bare-metal", base}});
  CHECK(experiment.protocol.launches == 5);
  REQUIRE(experiment.profiles.size() == 2);
  CHECK(to_json(experiment.profiles.at("cross-docker")) == to_json(symptoms.profile));
  auto fixed = *finding.fix.profile;
  fixed.name = "cross-docker-fixed";
  CHECK(to_json(experiment.profiles.at("cross-docker-fixed")) == to_json(fixed));
}
