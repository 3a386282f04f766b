#include "orchestrator/doctor/causes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/prove.hpp"
#include "tests/orchestrator/doctor/patients.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using namespace dynamiccl::testing;

TEST_CASE("one container without faults shows no cause") { CHECK(ids(healthy()).empty()); }

TEST_CASE("refused CMA is found with the reasons, and a capability mends it") {
  auto patient = healthy();
  patient.profile = profiles().at("single-docker-no-cma");
  for (auto& facts : patient.facts) {
    facts["cma"] = {{"allowed", false}, {"outcome", "process_vm_readv: Operation not permitted"}};
    facts["process"]["capabilities"]["sys_ptrace"] = false;
  }
  patient.looks[0].used = "shm";
  patient.looks[1].used = "tcp";
  REQUIRE(ids(patient) == Ids{"cma-blocked"});
  const auto finding = only(patient, "cma-blocked");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("Operation not permitted, no CAP_SYS_PTRACE, a seccomp filter"));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("(openmpi: shm, mpich: tcp)"));
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi, Backend::mpich});
  CHECK_THAT(finding.mend.flag, ContainsSubstring("--cap-add SYS_PTRACE"));
  REQUIRE(finding.mend.profile);
  CHECK(finding.mend.profile->capabilities.front().name == "SYS_PTRACE");
  CHECK(proving_backend(patient, finding) == Backend::mpich);
  // The user's own filter goes, where the capability is there already.
  patient.profile = profiles().at("single-docker");
  patient.profile.security_options = {"seccomp=/f.json"};
  CHECK(only(patient, "cma-blocked").mend.profile->security_options.empty());
  // Yama on the machine itself is nothing a profile can mend.
  patient.profile = profiles().at("bare-metal");
  for (auto& facts : patient.facts) facts["cma"]["yama_ptrace_scope"] = 3;
  CHECK_THAT(only(patient, "cma-blocked").symptom.evidence, ContainsSubstring("ptrace_scope is 3"));
  CHECK_FALSE(only(patient, "cma-blocked").mend.profile);
}

TEST_CASE("containers apart on one machine show both what parts them and the bridge") {
  const auto patient = cross();
  REQUIRE(ids(patient) == Ids{"ipc-apart", "bridge"});
  const auto memory = only(patient, "ipc-apart");
  CHECK(memory.mend.profile->ipc == Sharing::shared);
  CHECK(memory.mend.profile->pid == Sharing::shared);
  const auto network = only(patient, "bridge");
  CHECK(network.mend.profile->network == Sharing::host);
  for (const auto& setting : network.mend.profile->backend_settings.at(Backend::openmpi))
    CHECK(setting.value.find("{subnet}") == std::string::npos);
  CHECK(proving_backend(patient, network) == Backend::gloo);
  auto capped = patient;
  capped.profile.link_bits_per_s = 3e8;
  CHECK_THAT(only(capped, "capped-link").symptom.evidence, ContainsSubstring("300 Mbit/s"));
}

TEST_CASE("shared memory without a shared PID namespace keeps CMA off") {
  auto patient = cross();
  patient.profile = profiles().at("cross-docker-shared-ipc");
  for (auto& facts : patient.facts) facts["shm"]["device"] = facts["namespaces"]["ipc"] = 1;
  patient.looks[1].used = patient.looks[1].asked = "shm";
  REQUIRE(ids(patient) == Ids{"pid-apart", "bridge"});
  const auto finding = only(patient, "pid-apart");
  CHECK(finding.mend.profile->pid == Sharing::shared);
  CHECK(finding.mend.profile->backend_settings.at(Backend::mpich).empty());
}

TEST_CASE("a small /dev/shm matters to ranks that share it") {
  auto patient = healthy();
  for (auto& facts : patient.facts) facts["shm"]["size_bytes"] = 1 << 20;
  patient.looks[1].failure = "MPI_Init";
  REQUIRE(ids(patient) == Ids{"small-shm"});
  const auto finding = only(patient, "small-shm");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("holds 1 MiB"));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("MPICH gives up"));
  CHECK(finding.mend.profile->shm_size == Bytes(1U << 30));
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
  for (const auto& setting : finding.mend.profile->backend_settings.at(Backend::openmpi))
    CHECK(setting.name != "mca:hwloc_base_binding_policy");
  bound.profile = profiles().at("cross-docker-one-core");
  CHECK(only(bound, "one-core").mend.profile->cpus.empty());

  auto quota = cross();
  quota.profile = profiles().at("cross-docker-half-core");
  for (auto& facts : quota.facts) facts["cgroup"]["cpu_limit_cores"] = 0.5;
  CHECK_FALSE(only(quota, "cpu-quota").mend.profile->cpu_limit);
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
  auto patient = healthy();
  patient.facts[1]["libraries"]["blas"] = "reference";
  const auto finding = only(patient, "reference-blas");
  CHECK_THAT(finding.mend.flag, ContainsSubstring("libopenblas"));
  CHECK_FALSE(proving_backend(patient, finding));
}

TEST_CASE("user namespaces between ranks forbid CMA, one container for all mends it") {
  auto patient = healthy();
  patient.profile = profiles().at("singularity-userns");
  patient.facts[1]["namespaces"]["user"] = 2;
  patient.looks[0].used = patient.looks[1].used = "shm";
  REQUIRE(ids(patient) == Ids{"user-apart"});
  const auto mended = only(patient, "user-apart").mend.profile;
  CHECK(mended->launcher == LauncherPlace::inside);
  CHECK(mended->ranks_per_container == 0);
}

TEST_CASE("temporary buffers that are faulted anew are found by counts, and kept by a setting") {
  auto patient = healthy();
  patient.profile = profiles().at("bare-metal");
  CallPages pages;
  pages.size = Bytes{std::uint64_t{64} << 20};
  pages.faults = 8193;
  pages.libc = "glibc 2.36";
  patient.looks[0].pages = patient.looks[1].pages = patient.looks[2].pages = pages;
  patient.looks[1].pages->faults = 12;  // no temporary buffer
  patient.looks[2].pages->kept = true;  // maps memory itself
  REQUIRE(ids(patient) == Ids{"faulted-buffers"});
  auto finding = only(patient, "faulted-buffers");
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi});
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("all-reduce of 64 MiB") &&
                 ContainsSubstring("openmpi: 8193, 0.50 of the message's pages") &&
                 ContainsSubstring("glibc 2.36"));
  CHECK(proving_backend(patient, finding) == Backend::openmpi);
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& setting : finding.mend.profile->backend_settings.at(Backend::openmpi))
      found.insert(setting.name + "=" + setting.value);
    return found;
  };
  CHECK(names() == Ids{"malloc:keep=true"});
  CHECK_FALSE(finding.mend.profile->backend_settings.contains(Backend::mpich));
  // Huge pages too, where the kernel gives them to those who ask.
  patient.host["cpu"]["transparent_huge_pages"] = "madvise";
  finding = only(patient, "faulted-buffers");
  CHECK(names() == Ids{"malloc:keep=true", "malloc:huge_pages=true"});
  CHECK_THAT(finding.mend.flag, ContainsSubstring("GLIBC_TUNABLES=glibc.malloc.hugetlb=1:") &&
                                    ContainsSubstring("malloc.keep = true"));
  // Its proof reads back as it is.
  EnvironmentProfile base;
  base.name = "bare-metal";
  const auto experiment = parse_experiment(proof_experiment(patient, finding, Backend::openmpi, 3),
                                           "proof", {}, {{"bare-metal", base}});
  CHECK(experiment.profiles.at("bare-metal-mended").backend_settings.at(Backend::openmpi).size() ==
        finding.mend.profile->backend_settings.at(Backend::openmpi).size());
  // A mended one shows it no more.
  patient.looks[0].pages->faults = 3;
  CHECK(ids(patient).empty());
}

TEST_CASE("a GPU machine's containers show the boundary with every flag that mends it") {
  auto patient = cross();
  patient.host["gpu"] = {{"usable", 4}, {"nvml", {{"p2p", {{"self", "nvlink"}}}}}};
  const auto finding = only(patient, "gpu-boundary");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("foretold transport NET"));
  for (const char* flag : {"--uts=host", "--ipc=host", "--network=host", "CUDA_VISIBLE_DEVICES"})
    CHECK_THAT(finding.mend.flag, ContainsSubstring(flag));
  REQUIRE(finding.mend.profile);
  CHECK(finding.mend.profile->gpus == GpuVisibility::all);
  // Beside it, for those who may not take the namespaces down.
  const auto folder = only(patient, "gpu-sockets");
  CHECK_THAT(folder.mend.flag, ContainsSubstring("DYNAMICCL_SHARED_FOLDER"));
  REQUIRE(folder.mend.profile);
  patient.profile = *folder.mend.profile;
  CHECK_FALSE(ids(patient).contains("gpu-sockets"));
}

TEST_CASE("facts of any shape are met without throwing") {
  for (const json& odd : {json(), json(7), json("x"), json::object(), json::array({1})}) {
    auto patient = cross();
    patient.host = odd;
    patient.facts = {odd, odd};
    for (auto& seen : patient.looks) seen.facts = patient.facts;
    CHECK_NOTHROW(find_causes(patient));
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
  CHECK(asked("cross-docker-shared-ipc", Backend::openmpi, {}) == "tcp");
  CHECK(asked("singularity-userns", Backend::mpich, {}) == "shm");
}

TEST_CASE("a proof is an experiment of both profiles that reads back as they are") {
  auto patient = cross();
  const auto finding = only(patient, "ipc-apart");
  const auto text = proof_experiment(patient, finding, Backend::mpich, 5);
  EnvironmentProfile base;
  base.name = "bare-metal";
  const auto experiment = parse_experiment(text, "proof", {}, {{"bare-metal", base}});
  CHECK(experiment.protocol.launches == 5);
  REQUIRE(experiment.profiles.size() == 2);
  CHECK(to_json(experiment.profiles.at("cross-docker")) == to_json(patient.profile));
  auto mended = *finding.mend.profile;
  mended.name = "cross-docker-mended";
  CHECK(to_json(experiment.profiles.at("cross-docker-mended")) == to_json(mended));
}
