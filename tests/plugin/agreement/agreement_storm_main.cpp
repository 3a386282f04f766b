// agreement_storm [--switches N] [--jobs N] [--ranks N] [--delay-ms N] [--seed N]: table switches
// in jobs of real processes under delays and SIGSTOP; prints one JSON object. Exit code 1 when a
// call differed between ranks, a process failed, or less than 30 % of the proposals were committed.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/plugin/agreement/agreement_storm.hpp"

int main(int argc, char** argv) {
  dynamiccl::StormOptions options;
  options.jobs = 16;
  const std::map<std::string, int*> known{{"--switches", &options.switches},
                                          {"--jobs", &options.jobs},
                                          {"--ranks", &options.ranks},
                                          {"--delay-ms", &options.delay_ms}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto found = known.find(argv[i]);
    if (found != known.end()) *found->second = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--seed") options.seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::string folder = std::filesystem::temp_directory_path() / "agreement-storm-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  const dynamiccl::StormResult r = dynamiccl::run_storm(options, folder);
  std::filesystem::remove_all(folder);
  std::printf(
      "{\"proposals\":%llu,\"committed\":%llu,\"calls\":%llu,\"differing\":%llu,\"unknown_tables\":"
      "%llu,\"changes_seen\":%llu,\"stops\":%llu,\"failed_processes\":%d}\n",
      static_cast<unsigned long long>(r.proposals), static_cast<unsigned long long>(r.committed),
      static_cast<unsigned long long>(r.calls), static_cast<unsigned long long>(r.differing),
      static_cast<unsigned long long>(r.lost), static_cast<unsigned long long>(r.adopted),
      static_cast<unsigned long long>(r.stops), r.failed_processes);
  const bool fine = r.differing == 0 && r.lost == 0 && r.failed_processes == 0 && r.proposals > 0 &&
                    10 * r.committed >= 3 * r.proposals;
  return fine ? 0 : 1;
}
