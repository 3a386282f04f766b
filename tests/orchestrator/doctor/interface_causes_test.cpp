#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/prove.hpp"
#include "tests/orchestrator/doctor/symptoms.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("Open MPI on a container bridge is found, named or left open") {
  auto symptoms = on_host_network();
  auto& openmpi = symptoms.looks[0];
  openmpi.mca["btl_tcp_if_include"] = "lo";
  CHECK_FALSE(ids(symptoms).contains("wrong-interface"));
  openmpi.mca["btl_tcp_if_include"] = "docker0";
  REQUIRE(ids(symptoms).contains("wrong-interface"));
  openmpi.mca.clear();
  openmpi.failure = "no end after 20 s";
  openmpi.timed_out = true;
  const auto finding = only(symptoms, "wrong-interface");
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("docker0"));
  CHECK_THAT(finding.symptom.evidence, ContainsSubstring("did not come to an end"));
  CHECK_THAT(finding.symptom.evidence, !ContainsSubstring("br-idle"));
  const auto& settings = finding.fix.profile->backend_settings.at(Backend::openmpi);
  CHECK(std::any_of(settings.begin(), settings.end(), [](const auto& setting) {
    return setting.scope == SettingScope::mca && setting.name == "btl_tcp_if_include" &&
           setting.value == "{interface}";
  }));
  // One host's TCP is kept on the loopback interface by the launcher.
  openmpi.many_hosts = false;
  CHECK_FALSE(ids(symptoms).contains("wrong-interface"));
}

TEST_CASE("subnets in Open MPI's lists are held against the bridge's address") {
  auto symptoms = on_host_network();
  auto& openmpi = symptoms.looks[0];
  const auto wrong = [&](const char* name, const char* list) {
    openmpi.mca = {{name, list}};
    return ids(symptoms).contains("wrong-interface");
  };
  CHECK_FALSE(wrong("btl_tcp_if_exclude", "127.0.0.1/8,172.17.0.0/16"));
  CHECK_FALSE(wrong("btl_tcp_if_exclude", "lo,docker0"));
  CHECK(wrong("btl_tcp_if_exclude", "127.0.0.1/8,sppp"));
  CHECK(wrong("btl_tcp_if_exclude", "172.18.0.0/16"));
  CHECK_THAT(only(symptoms, "wrong-interface").fix.flag,
             ContainsSubstring("oob_tcp_if_include INTERFACE without btl_tcp_if_exclude "
                               "(backend.openmpi)"));
  CHECK(wrong("btl_tcp_if_include", "172.17.0.0/16"));
  CHECK(wrong("btl_tcp_if_include", "0.0.0.0/0"));
  CHECK(wrong("btl_tcp_if_include", "172.17.0.1/32"));
  CHECK_FALSE(wrong("btl_tcp_if_include", "192.0.2.0/24,172.17.0.2/32"));
  CHECK_FALSE(wrong("btl_tcp_if_include", "172.17/16"));  // no subnet to Open MPI either
  CHECK_FALSE(wrong("btl_tcp_if_include", "172.17.0.0/33"));
}

TEST_CASE("NCCL's list of interfaces is read by NCCL's rules") {
  auto symptoms = on_host_network();
  symptoms.looks = {look(Backend::nccl, "net", "net")};
  const auto wrong = [&](const char* list) {
    symptoms.looks[0].environment = {{"NCCL_SOCKET_IFNAME", list}};
    return ids(symptoms).contains("wrong-interface");
  };
  for (const char* list :
       {"docker0", "docker", "eth,docker", "=docker0", "=eth0,docker0", "^eth", "^=docker"}) {
    CAPTURE(list);
    CHECK(wrong(list));
  }
  for (const char* list : {"eth0", "=docker", "^docker", "^=docker0", "^lo,docker", "", "^"}) {
    CAPTURE(list);
    CHECK_FALSE(wrong(list));
  }
  REQUIRE(wrong("=docker0"));
  const auto finding = only(symptoms, "wrong-interface");
  CHECK(proving_backend(symptoms, finding) == Backend::nccl);
  // GPUs of one machine reach each other without an interface.
  symptoms.looks[0].used = "p2p";
  CHECK_FALSE(wrong("docker0"));
}

TEST_CASE("the fix of a wrong interface is the misled library's own setting") {
  struct Case {
    Backend backend;
    const char* variable;
    const char* flag;
  };
  for (const auto& [backend, variable, flag] :
       {Case{Backend::nccl, "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME=INTERFACE (backend.nccl)"},
        Case{Backend::gloo, "GLOO_SOCKET_IFNAME", "without GLOO_SOCKET_IFNAME (backend.gloo)"},
        Case{Backend::mpich, "UCX_NET_DEVICES", "without UCX_NET_DEVICES (backend.mpich)"}}) {
    CAPTURE(variable);
    auto symptoms = on_host_network();
    symptoms.looks = {look(backend, "tcp", "tcp")};
    symptoms.looks[0].environment[variable] = "docker0";
    symptoms.profile.environment[variable] = "docker0";
    symptoms.profile.backend_settings[backend] = {
        {{SettingScope::env, variable, "docker0"}, "a mistake"}};
    const auto finding = only(symptoms, "wrong-interface");
    CHECK(finding.symptom.backends == std::vector{backend});
    CHECK(finding.fix.flag == flag);
    CHECK_THAT(finding.symptom.evidence,
               ContainsSubstring(std::string(name_of(backend)) + " may use docker0"));
    const auto& fixed = *finding.fix.profile;
    for (const auto& setting : fixed.backend_settings.at(backend))
      CHECK(setting.value == "{interface}");
    if (backend != Backend::nccl) CHECK_FALSE(fixed.environment.contains(variable));
    // Who is not misled keeps what the profile says.
    CHECK(fixed.backend_settings.at(Backend::openmpi).size() ==
          symptoms.profile.backend_settings.at(Backend::openmpi).size());
  }
  auto both = on_host_network();
  both.looks[0].mca.clear();
  both.looks[1].environment["UCX_NET_DEVICES"] = "eth0,docker0";
  const auto finding = only(both, "wrong-interface");
  CHECK(finding.fix.flag ==
        "--mca btl_tcp_if_include INTERFACE --mca oob_tcp_if_include INTERFACE (backend.openmpi), "
        "without UCX_NET_DEVICES (backend.mpich)");
  CHECK_THAT(finding.symptom.evidence,
             ContainsSubstring("openmpi may use docker0; mpich may use docker0:"));
}
