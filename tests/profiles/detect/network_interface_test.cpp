#include "profiles/detect/network_interface.hpp"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace dynamiccl;

namespace {

/// What default_interface() and its address are in a network of its own, made by `commands`; "":
/// none can be had.
std::string seen_after(const std::string& commands) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 || std::system((commands + " 2>/dev/null").c_str()) != 0)
      _exit(1);
    const std::string name = default_interface();
    char text[INET_ADDRSTRLEN] = "none";
    if (const auto address = ipv4_address_of(name))
      inet_ntop(AF_INET, &*address, text, sizeof text);
    dprintf(ends[1], "%s %s", name.c_str(), text);
    _exit(0);
  }
  close(ends[1]);
  std::string seen;
  for (char c = 0; read(ends[0], &c, 1) == 1;) seen += c;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return seen;
}

}  // namespace

TEST_CASE("a rank is reached by the default route's interface, else by one that is no loopback",
          "[F-06]") {
  if (seen_after("ip link set lo up").empty()) SKIP("needs root and ip, for networks of its own");
  CHECK(seen_after("true") == "lo none");
  CHECK(seen_after("ip link set lo up") == "lo 127.0.0.1");
  const std::string two =
      "{ ip link set lo up && ip link add one type veth peer name two && "
      "ip addr add 192.0.2.1/24 dev one && ip addr add 198.51.100.1/24 dev two";
  CHECK(seen_after(two + "; }") == "lo 127.0.0.1");
  CHECK(seen_after(two + " && ip link set two up; }") == "two 198.51.100.1");
  CHECK(seen_after(two + " && ip link set one up; }") == "one 192.0.2.1");
  const std::string both = two + " && ip link set one up && ip link set two up";
  CHECK(seen_after(both + "; }") == "two 198.51.100.1");  // a pair's second end is made first
  CHECK(seen_after(both + " && ip route add default via 192.0.2.2; }") == "one 192.0.2.1");
  CHECK_FALSE(ipv4_address_of("no-such-interface"));
}

TEST_CASE(
    "Gloo's ranks go over the interface that GLOO_SOCKET_IFNAME names first, if all are there") {
  if (!ipv4_address_of("lo")) SKIP("the loopback interface is down");
  unsetenv("GLOO_SOCKET_IFNAME");
  CHECK(gloo_interface("eth7") == "eth7");
  CHECK(gloo_interface("") == default_interface());
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  CHECK(gloo_interface("eth7") == "lo");
  setenv("GLOO_SOCKET_IFNAME", "lo,", 1);
  CHECK(gloo_interface("eth7") == "lo");
  setenv("GLOO_SOCKET_IFNAME", ",lo", 1);
  CHECK_THROWS_WITH(gloo_interface("eth7"),
                    Catch::Matchers::ContainsSubstring("\"\" is no interf"));
  setenv("GLOO_SOCKET_IFNAME", "lo,no-such", 1);
  CHECK_THROWS_WITH(gloo_interface("eth7"),
                    Catch::Matchers::StartsWith("GLOO_SOCKET_IFNAME = lo,no-such: \"no-such\" is "
                                                "no interface that is up and has an IPv4 address"));
  unsetenv("GLOO_SOCKET_IFNAME");
}
