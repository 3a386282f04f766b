#include "profiles/docker_args.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dynamiccl {
namespace {

struct KnownFlag {
  const char* flag;
  const char* key;  ///< of a profile: it is checked and stored by its name; "" = DynamICCL's own
};

// The own ones are what it finds and removes its containers by, and who their ranks are.
constexpr std::array kKnownFlags{KnownFlag{"--name", ""},
                                 KnownFlag{"--rm", ""},
                                 KnownFlag{"--detach", ""},
                                 KnownFlag{"-d", ""},
                                 KnownFlag{"--interactive", ""},
                                 KnownFlag{"-i", ""},
                                 KnownFlag{"--tty", ""},
                                 KnownFlag{"-t", ""},
                                 KnownFlag{"--label", ""},
                                 KnownFlag{"-l", ""},
                                 KnownFlag{"--label-file", ""},
                                 KnownFlag{"--restart", ""},
                                 KnownFlag{"--user", ""},
                                 KnownFlag{"-u", ""},
                                 KnownFlag{"--cidfile", ""},
                                 KnownFlag{"--entrypoint", ""},
                                 KnownFlag{"--pod", ""},
                                 KnownFlag{"--cap-add", "capabilities"},
                                 KnownFlag{"--volume", "mounts"},
                                 KnownFlag{"-v", "mounts"},
                                 KnownFlag{"--memory", "memory"},
                                 KnownFlag{"-m", "memory"},
                                 KnownFlag{"--pid", "pid"},
                                 KnownFlag{"--ipc", "ipc"},
                                 KnownFlag{"--uts", "uts"},
                                 KnownFlag{"--security-opt", "security_options"},
                                 KnownFlag{"--network", "network"},
                                 KnownFlag{"--net", "network"}};

/// "--user=0" is --user; "-u0" and "-Pu0" are -u, as the letters before have no value.
std::string flag_of(const std::string& word) {
  if (word.starts_with("--")) return word.substr(0, word.find('='));
  const auto letter = word.find_first_not_of("Pq", 1);
  return letter == std::string::npos ? word : std::string("-") + word[letter];
}

}  // namespace

std::string docker_args_mistake(const std::vector<std::string>& words) {
  bool wants_value = false;
  for (const std::string& word : words) {
    if (!word.starts_with('-') && !wants_value)
      return fmt::format(
          "\"{}\" stands behind no flag: the engine would take it for an image; image = \"NAME\" "
          "names one",
          word);
    wants_value = word.starts_with('-') && word.find('=') == std::string::npos;
    if (!word.starts_with('-')) continue;
    const std::string flag = flag_of(word);
    if (flag == "--privileged")
      return "no container is started with --privileged; privileged = true gives what it gives "
             "but for the machine's devices";
    if (flag == "--use-api-socket") return "no container gets the engine's socket";
    const auto known = std::find_if(kKnownFlags.begin(), kKnownFlags.end(),
                                    [&](const KnownFlag& one) { return one.flag == flag; });
    if (known == kKnownFlags.end()) continue;
    if (std::string(known->key).empty())
      return fmt::format(
          "\"{}\" is DynamICCL's own: it names, finds, enters and removes its "
          "containers itself, and their ranks are the user's who starts it",
          flag);
    return fmt::format("\"{}\" is what the key {} gives", flag, known->key);
  }
  return "";
}

}  // namespace dynamiccl
