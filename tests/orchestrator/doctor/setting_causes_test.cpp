// Settings that people copy: a wrong interface, a slow way, too little memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "orchestrator/launch/launcher.hpp"
#include "tests/orchestrator/doctor/symptoms.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::map<std::string, EnvironmentProfile>& with_cases() {
  static const auto known =
      load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments",
                     DYNAMICCL_SOURCE_DIR "/tests/orchestrator/doctor/cases"});
  return known;
}

/// A look at a backend with what the profile tells it.
BackendLook told(const EnvironmentProfile& profile, Backend backend) {
  LaunchRequest request;
  request.backend = backend;
  request.shape.subnet = "172.30.1.0/24";
  request.shape.interface = "eth0";
  apply_settings(request, profile, {});
  BackendLook seen = look(backend, "", "");
  seen.environment = request.environment;
  seen.mca = request.mca;
  auto settings = seen.environment;
  settings.insert(seen.mca.begin(), seen.mca.end());
  seen.asked = seen.used = asked_transport(profile, backend, settings, false);
  return seen;
}

/// Two ranks on a machine with lo and eth0 whose Open MPI is told what the profile says.
Symptoms symptoms_of(const std::string& name, const std::string& failure = "") {
  Symptoms symptoms = healthy();
  symptoms.profile = with_cases().at(name);
  for (auto& facts : symptoms.facts) facts["network"]["interfaces"].erase(1);  // no docker0
  symptoms.looks = {told(symptoms.profile, Backend::openmpi)};
  symptoms.looks[0].failure = failure;
  return symptoms;
}

nlohmann::json eight_gpus() { return {{"gpu", {{"usable", 8}, {"nvlink", true}}}}; }

}  // namespace

TEST_CASE("an interface that is not there is named, with those that are") {
  const auto finding = only(symptoms_of("noif", "exit code 1"), "no-interface");
  CHECK(finding.symptom.backends == std::vector{Backend::openmpi});
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("btl_tcp_if_include = eth9") &&
                                           ContainsSubstring("eth0 (192.0.2.2)"));
  CHECK_THAT(finding.fix.flag, ContainsSubstring("without btl_tcp_if_include (backend.openmpi)"));
  REQUIRE(finding.fix.profile);
  CHECK_FALSE(told(*finding.fix.profile, Backend::openmpi).mca.contains("btl_tcp_if_include"));
  // One that is there, or that ran, is no cause.
  auto present = symptoms_of("noif", "exit code 1");
  present.looks[0].mca["btl_tcp_if_include"] = "eth0";
  CHECK_FALSE(ids(present).contains("no-interface"));
  CHECK_FALSE(ids(symptoms_of("noif")).contains("no-interface"));
}

TEST_CASE("an exclude list that leaves no interface is named") {
  const auto symptoms = symptoms_of("excl", "exit code 1");
  const auto finding = only(symptoms, "no-interface");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("btl_tcp_if_exclude = lo,eth0"));
  auto wider = symptoms;
  wider.looks[0].mca["btl_tcp_if_exclude"] = "lo";
  CHECK_FALSE(ids(wider).contains("no-interface"));
}

TEST_CASE("a setting that forces the slow way is named with its origin") {
  const auto finding = only(symptoms_of("tcp-only"), "slow-setting");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("btl = tcp,self") && ContainsSubstring("forbids cma") &&
                 ContainsSubstring("profile tcp-only, [[backend.openmpi]]: \"copied from a web"));
  REQUIRE(finding.fix.profile);
  CHECK(told(*finding.fix.profile, Backend::openmpi).asked == "cma");
  auto by_variable = symptoms_of("bare-metal");
  by_variable.looks = {look(Backend::mpich, "tcp", "tcp")};
  by_variable.looks[0].environment["UCX_TLS"] = "tcp,self";
  CHECK_THAT(only(by_variable, "slow-setting").symptom.evidence,
             ContainsSubstring("UCX_TLS = tcp,self (the launcher)"));
}

TEST_CASE("a setting that the ranks inherit from the user's shell is named, and how it goes") {
  auto symptoms = symptoms_of("bare-metal");
  symptoms.looks = {look(Backend::mpich, "tcp", "tcp"), look(Backend::openmpi, "tcp", "tcp")};
  nlohmann::json shell;
  shell["environment"]["variables"]["UCX_TLS"] = "tcp,self";
  shell["environment"]["variables"]["OMPI_MCA_btl"] = "tcp,self";
  for (auto& look : symptoms.looks) look.facts.push_back(shell);
  const auto finding = only(symptoms, "slow-setting");
  CHECK_THAT(
      finding.symptom.evidence,
      ContainsSubstring("mpich: UCX_TLS = tcp,self (UCX_TLS in the environment that the ranks "
                        "inherit) forbids cma") &&
          ContainsSubstring("openmpi: btl = tcp,self (OMPI_MCA_btl in the environment that"));
  CHECK(finding.fix.flag == "unset OMPI_MCA_btl, unset UCX_TLS");
  CHECK_FALSE(finding.fix.profile);
  // What the launcher is told comes before it.
  symptoms.looks[0].environment["UCX_TLS"] = "all";
  symptoms.looks.pop_back();
  CHECK_FALSE(ids(symptoms).contains("slow-setting"));
}

TEST_CASE("a setting of a library's own file is named with the file") {
  auto symptoms = symptoms_of("bare-metal");
  symptoms.looks = {look(Backend::mpich, "tcp", "tcp"), look(Backend::openmpi, "tcp", "tcp")};
  nlohmann::json files;
  files["OMPI_MCA_btl"] = {{"value", "tcp,self"}, {"file", "/root/.openmpi/mca-params.conf"}};
  files["UCX_TLS"] = {{"value", "tcp,self"}, {"file", "/etc/ucx/ucx.conf"}};
  for (auto& look : symptoms.looks) look.facts = {{{"environment", {{"files", files}}}}};
  const auto finding = only(symptoms, "slow-setting");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("mpich: UCX_TLS = tcp,self (/etc/ucx/ucx.conf) forbids cma") &&
                 ContainsSubstring(
                     "openmpi: btl = tcp,self (/root/.openmpi/mca-params.conf) forbids cma"));
  CHECK(finding.fix.flag ==
        "without UCX_TLS in /etc/ucx/ucx.conf, without btl in /root/.openmpi/mca-params.conf");
  CHECK_FALSE(finding.fix.profile);
  // A variable outweighs the file, and the launcher's command both.
  for (auto& look : symptoms.looks)
    look.facts[0]["environment"]["variables"] = {{"UCX_TLS", "all"}, {"OMPI_MCA_btl", "self"}};
  symptoms.looks[1].mca["btl"] = "self,vader";
  CHECK_FALSE(ids(symptoms).contains("slow-setting"));
}

TEST_CASE("a list of interfaces that Gloo's programs end of is named with those that are there") {
  auto symptoms = symptoms_of("gloo-list");
  symptoms.looks = {told(symptoms.profile, Backend::gloo)};
  const auto finding = only(symptoms, "no-interface");
  CHECK(finding.symptom.backends == std::vector{Backend::gloo});
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("GLOO_SOCKET_IFNAME = ^lo,docker (profile gloo-list, "
                               "[[backend.gloo]]: \"copied from a thread\")") &&
                 ContainsSubstring("PyTorch's too, take for the name") &&
                 ContainsSubstring("eth0 (192.0.2.2)"));
  REQUIRE(finding.fix.profile);
  CHECK_FALSE(told(*finding.fix.profile, Backend::gloo).environment.contains("GLOO_SOCKET_IFNAME"));
  symptoms.looks[0].environment["GLOO_SOCKET_IFNAME"] = "eth0";
  CHECK_FALSE(ids(symptoms).contains("no-interface"));
  symptoms.looks[0].environment["GLOO_SOCKET_IFNAME"] = "eth0,";
  CHECK_FALSE(ids(symptoms).contains("no-interface"));
  symptoms.looks[0].environment["GLOO_SOCKET_IFNAME"] = "eth0,eth9";
  CHECK(ids(symptoms).contains("no-interface"));
  // Another library's list is spoken of in its own words.
  symptoms.looks.push_back(told(symptoms.profile, Backend::mpich));
  symptoms.looks[1].environment["UCX_NET_DEVICES"] = "eth9";
  symptoms.looks[1].failure = "a process ended with exit code 1";
  const auto both = only(symptoms, "no-interface");
  CHECK_THAT(both.symptom.evidence,
             ContainsSubstring("and end as they start where it is not there; mpich is set to ") &&
                 ContainsSubstring(", which leaves none of the interfaces that are there; there "
                                   "are: "));
}

TEST_CASE("a setting that a library refuses is named beside what the library says") {
  auto symptoms = symptoms_of("pml-ucx",
                              "a process ended with exit code 1; Open MPI said: \"PML "
                              "ucx cannot be selected\"; ranks 0, 1: left no record");
  const auto finding = only(symptoms, "refused-setting");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("openmpi: pml = ucx (profile pml-ucx, [[backend.openmpi]]: "));
  REQUIRE(finding.fix.profile);
  CHECK_FALSE(told(*finding.fix.profile, Backend::openmpi).mca.contains("pml"));
  symptoms.looks[0].failure = "a process ended with exit code 1";
  CHECK_FALSE(ids(symptoms).contains("refused-setting"));
  auto component = symptoms_of("tcp-only",
                               "Open MPI said that component nosuch of framework btl "
                               "was not found, or was unable to be opened");
  CHECK(ids(component).contains("refused-setting"));
  auto ucx = symptoms_of("bare-metal");
  ucx.looks = {look(Backend::mpich, "", "cma")};
  ucx.looks[0].failure = "UCX said: \"no usable transports/devices (asked rc on all devices)\"";
  CHECK_FALSE(ids(ucx).contains("refused-setting"));
  ucx.looks[0].facts = {{{"environment", {{"variables", {{"UCX_TLS", "rc"}}}}}}};
  CHECK(only(ucx, "refused-setting").fix.flag == "unset UCX_TLS");
}

TEST_CASE("a setting whose folder is not there is named") {
  auto symptoms = symptoms_of("backing");
  symptoms.looks[0].facts = {{{"environment", {{"absent_folders", {"/nosuch"}}}}}};
  const auto finding = only(symptoms, "absent-folder");
  CHECK_THAT(
      finding.symptom.evidence,
      ContainsSubstring("openmpi: btl_vader_backing_directory = /nosuch (profile backing, ") &&
          ContainsSubstring("not there"));
  REQUIRE(finding.fix.profile);
  CHECK(told(*finding.fix.profile, Backend::openmpi).mca.empty());
  symptoms.looks[0].facts = {{{"environment", {{"absent_folders", nlohmann::json::array()}}}}};
  CHECK_FALSE(ids(symptoms).contains("absent-folder"));
}

TEST_CASE("settings that may or may not cost time are named for --prove, idle ones are not") {
  for (const auto& [name, setting] :
       {std::pair{"no-tuned", "coll = ^tuned"}, {"yield", "mpi_yield_when_idle = 1"}}) {
    auto symptoms = symptoms_of(name);
    symptoms.host["cpu"]["cores"] = 2;
    const auto finding = only(symptoms, "doubtful-setting");
    CHECK_THAT(finding.symptom.evidence, ContainsSubstring(setting));
    CHECK(finding.fix.profile);
    // No problem that is found, until --prove finds one.
    CHECK(finding.cause->doubtful);
  }
  // The launcher of more ranks than cores gives it itself.
  auto crowded = symptoms_of("bare-metal");
  crowded.host["cpu"]["cores"] = 1;
  crowded.looks[0].facts = {
      {{"environment", {{"variables", {{"OMPI_MCA_mpi_yield_when_idle", "1"}}}}}}};
  CHECK_FALSE(ids(crowded).contains("doubtful-setting"));
  auto nolocal = symptoms_of("nolocal");
  nolocal.looks = {told(nolocal.profile, Backend::mpich)};
  CHECK(ids(nolocal).empty());
}

TEST_CASE("no profile of ours forbids a way that its environment allows") {
  for (const auto& [name, profile] : profiles()) {
    INFO(name);
    auto symptoms = symptoms_of(name);
    symptoms.looks.push_back(told(profile, Backend::mpich));
    if (profile.pid == Sharing::private_ && profile.ranks_per_container > 0)
      for (std::size_t i = 0; i < symptoms.facts.size(); ++i)
        symptoms.facts[i]["namespaces"]["pid"] = 70 + i;
    CHECK_FALSE(ids(symptoms).contains("slow-setting"));
  }
}

TEST_CASE("a /dev/shm that is too small for NCCL's ranks is foretold to fail") {
  const auto small = predict_gpu_path(with_cases().at("sixteen"), eight_gpus(), 8);
  CHECK(small.path == GpuPath::impossible);
  REQUIRE(small.obstacles.size() == 1);
  CHECK(small.obstacles[0].what == "/dev/shm size");
  CHECK_THAT(small.obstacles[0].why,
             ContainsSubstring("8 ranks share a /dev/shm of 16") && ContainsSubstring("74 MiB"));
  CHECK(predict_gpu_path(with_cases().at("single-docker"), eight_gpus(), 8).path == GpuPath::p2p);
  CHECK(predict_gpu_path(with_cases().at("bare-metal"), eight_gpus(), 8).path == GpuPath::p2p);
}

TEST_CASE("ranks in user namespaces apart whose UCX goes by TCP are found") {
  Symptoms symptoms = healthy();
  symptoms.profile = profiles().at("singularity-userns");
  for (int rank = 0; rank < 2; ++rank)
    symptoms.facts[static_cast<std::size_t>(rank)]["namespaces"]["user"] = rank + 1;
  symptoms.looks = {look(Backend::mpich, "tcp", "shm")};
  for (auto& seen : symptoms.looks) seen.facts = symptoms.facts;
  const auto finding = only(symptoms, "user-apart");
  CHECK(finding.symptom.backends == std::vector{Backend::mpich});
  CHECK_THAT(finding.fix.flag, ContainsSubstring("launcher inside one container"));
}
