#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "profiles/detect/probes/probe.hpp"
#include "profiles/detect/round_trips.hpp"

namespace {

constexpr std::string_view kUsage =
    "dynamiccl-probe [--root DIR] [--compact] [--hold]: prints what this process sees of its "
    "surroundings\n"
    "(namespaces, container, cgroup, shared memory, network, GPUs, libraries) as JSON.\n"
    "  --root DIR  read the files of a recorded tree instead of this machine's\n"
    "  --compact   one line\n"
    "  --hold      then stay until standard input ends, so that the container lives on\n"
    "dynamiccl-probe --echo [INTERFACE]: prints \"echo ADDRESS:PORT\" and answers there until "
    "standard "
    "input ends\n"
    "dynamiccl-probe --ping ADDRESS:PORT...: microseconds of a round trip to each, a line each\n"
    "A static program: copy it into any container, e.g. docker cp, or bind it in.\n"
    "Exit code: 0 facts printed, 2 wrong usage.\n";

int print_facts(const std::string& prefix, bool compact) {
  using namespace dynamiccl;
  const ProbeRoot root(prefix);
  // The system calls of this process say nothing of a tree recorded elsewhere.
  const auto live = prefix == "/" ? make_live_system(nullptr) : std::make_unique<LiveSystem>();
  const Declarations nothing_declared;
  const auto facts = run_probes({root, *live, nothing_declared});
  const std::string text =
      facts.dump(compact ? -1 : 2, ' ', false, nlohmann::json::error_handler_t::replace);
  return std::printf("%s\n", text.c_str()) < 0 ? 1 : 0;
}

/// A place that does not answer ends it with 1.
int print_round_trips(const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    const auto took = dynamiccl::round_trip_us(place);
    if (!took) {
      std::fprintf(stderr, "dynamiccl-probe: %s does not answer\n", place.c_str());
      return 1;
    }
    std::printf("%s %.2f\n", place.c_str(), *took);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "--ping")
    return print_round_trips({words.begin() + 1, words.end()});
  if (!words.empty() && words.size() <= 2 && words.front() == "--echo")
    return dynamiccl::serve_round_trips(words.size() == 2 ? words.back() : "");
  std::string root = "/";
  bool compact = false;
  bool hold = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage.data(), stdout);
      return 0;
    }
    if (argument == "--compact") {
      compact = true;
    } else if (argument == "--hold") {
      hold = true;
    } else if (argument == "--root" && i + 1 < argc) {
      root = argv[++i];
    } else {
      std::fprintf(stderr, "dynamiccl-probe: unknown argument \"%s\"\n%s", argv[i], kUsage.data());
      return 2;
    }
  }
  try {
    const int code = print_facts(root, compact);
    std::fflush(stdout);
    while (hold && std::getchar() != EOF) {
    }
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dynamiccl-probe: %s\n", error.what());
    return 1;
  }
}
