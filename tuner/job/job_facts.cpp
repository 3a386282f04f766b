#include "tuner/job/job_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <thread>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "plugin/agreement/call_table.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "profiles/detect/regime_links.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostDevices = 64;

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kMostRankFiles = 4096;
/// A few kilobytes, and what its NCCL_ variables say.
constexpr std::uintmax_t kMostFactsBytes = std::uintmax_t{256} << 10;
/// Facts are sections of values; what reads them goes as deep as they do.
constexpr int kDeepestFacts = 8;

/// @returns what is no object, or far too deep, as null
json object_of(const std::string& text) {
  const json told = json::parse(
      text, [](int depth, json::parse_event_t, const json&) { return depth <= kDeepestFacts; },
      false);
  return told.is_object() ? told : json();
}

/// One process speaks once, whatever communicators it has.
std::vector<json> by_process(std::vector<json> told) {
  std::map<std::string, json> processes;
  for (json& rank : told) {
    const std::string process = fact(rank, "process", "pid").dump() +
                                fact(rank, "namespaces", "pid").dump() +
                                fact_text(rank, "system", "boot_id");
    processes[process] = std::move(rank);
  }
  std::vector<json> ranks;
  for (auto& [process, rank] : processes) ranks.push_back(std::move(rank));
  return ranks;
}

/// What ranks of one machine share, and what one of them has recorded. Variables are the rank's
/// own.
json with_host(const json& host_facts, const json& rank) {
  json merged = host_facts.is_object() ? host_facts : json::object();
  merged.erase("environment");
  // Which folder a rank was given it says itself.
  if (const auto shm = merged.find("shm"); shm != merged.end() && shm->is_object())
    for (const char* own : {"folder", "meeting"}) shm->erase(own);
  merged.merge_patch(rank);
  return merged;
}

std::map<std::string, std::string> nccl_variables(const json& rank) {
  std::map<std::string, std::string> variables;
  const json& all = fact(rank, "environment", "variables");
  if (!all.is_object()) return variables;
  for (const auto& [name, value] : all.items())
    if (value.is_string()) variables[name] = value.get<std::string>();
  return variables;
}

int most_per_host(const std::vector<json>& ranks) {
  std::map<std::string, int> hosts;
  int most = 1;
  for (const json& rank : ranks)
    most = std::max(most, ++hosts[fact_text(rank, "system", "boot_id")]);
  return most;
}

std::string text_of(const json& regime, const char* ingredient) {
  return fact_text(regime, "ingredients", ingredient);
}

}  // namespace

std::vector<json> ranks_told_in(const std::string& folder) {
  std::vector<json> ranks;
  std::error_code problem;
  std::size_t files = 0;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
    if (++files > kMostRankFiles || !at->is_regular_file(problem) ||
        at->file_size(problem) > kMostFactsBytes)
      continue;
    if (json told = object_of(file_text(at->path().string())); !told.is_null())
      ranks.push_back(std::move(told));
  }
  return ranks;
}

std::string library_title(Backend library) {
  switch (library) {
    case Backend::openmpi:
      return "Open MPI";
    case Backend::mpich:
      return "MPICH";
    case Backend::gloo:
      return "Gloo";
    case Backend::nccl:
      return "NCCL";
    default:
      return std::string(name_of(library));
  }
}

std::string JobFacts::nccl() const {
  if (nccl_version <= 0) return "unknown";
  // Since 2.9 the minor version has two digits.
  return nccl_version >= 10000 ? fmt::format("{}.{}.{}", nccl_version / 10000,
                                             nccl_version / 100 % 100, nccl_version % 100)
                               : fmt::format("{}.{}.{}", nccl_version / 1000,
                                             nccl_version / 100 % 10, nccl_version % 100);
}

std::string JobFacts::version() const {
  if (library == Backend::nccl) return nccl();
  return mpi.empty() ? "unknown" : mpi;
}

std::string JobFacts::nccl_release() const {
  const std::string version = nccl();
  return nccl_version <= 0 ? "" : version.substr(0, version.rfind('.'));
}

namespace {

/// Model of the machine's GPUs, where all are one.
std::string common_model(const json& host_facts) {
  std::string model;
  const json& devices = fact(host_facts, "gpu", "devices");
  if (!devices.is_array()) return model;
  for (const json& device : devices) {
    const auto told = device.is_object() ? device.find("model") : device.end();
    if (!device.is_object() || told == device.end() || !told->is_string()) continue;
    const auto own = told->get<std::string>();
    if (!model.empty() && own != model) return "";
    model = own;
  }
  return model;
}

/// RDMA devices that each rank sees, of the rank with the fewest; 1 where they are not known.
int fewest_devices(const std::vector<json>& told) {
  std::size_t fewest = kMostDevices;
  for (const json& rank : told) {
    const json& devices = fact(rank, "rdma", "devices");
    fewest = std::min(fewest, devices.is_array() ? devices.size() : 1);
  }
  return static_cast<int>(std::max<std::size_t>(1, fewest));
}

std::string version_after(const std::string& said, std::string_view word) {
  const auto begin = said.find_first_of("0123456789", word.size());
  if (begin == std::string::npos) return "";
  return said.substr(begin, said.find_first_not_of("0123456789.", begin) - begin);
}

/// Which MPI its own words name: "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\n...".
/// Another one's settings are not known here.
void name_library(JobFacts& facts, const std::string& said, const json& host_facts) {
  const std::string pages = fact_text(host_facts, "cpu", "transparent_huge_pages");
  facts.huge_pages = why_no_huge_pages(pages).empty();
  facts.mpi = said.substr(0, said.find('\n'));
  for (const Backend library : {Backend::openmpi, Backend::mpich}) {
    const std::string title = library_title(library);
    if (!said.starts_with(title)) continue;
    facts.library = library;
    facts.mpi = version_after(said, title);
    facts.ucx = said.find("ch4:ucx") != std::string::npos;
  }
}

}  // namespace

JobFacts facts_of_machine(const json& host_facts, Backend library) {
  JobFacts facts;
  facts.library = library;
  name_library(facts, "", host_facts);
  facts.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  RegimeContext context;
  context.backend = library;
  facts.regime = derive_regime({host_facts}, context);
  facts.state = state_from_regime(facts.regime.json, facts.nodes);
  return facts;
}

std::optional<JobFacts> read_job_facts(const std::string& folder, const json& host_facts, int nodes,
                                       int ranks) {
  std::vector<json> all;
  for (const json& rank : ranks_told_in(folder)) all.push_back(with_host(host_facts, rank));
  const std::vector<json> told = by_process(std::move(all));
  if (told.empty()) return std::nullopt;
  JobFacts facts;
  facts.ranks = static_cast<int>(told.size());
  facts.variables = nccl_variables(told.front());
  if (const auto version = told.front().find("nccl_version"); version != told.front().end())
    facts.nccl_version = whole_number<int>(*version).value_or(facts.nccl_version);
  facts.ranks_per_host = most_per_host(told);
  facts.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  facts.gpu = common_model(host_facts);
  facts.driver = fact_text(host_facts, "gpu", "driver_version");
  name_library(facts, fact_text(told.front(), "mpi", "says"), host_facts);
  RegimeContext context;
  context.backend = facts.library;
  context.library_version = facts.version();
  facts.regime = derive_regime(told, context);
  facts.nodes = std::max(nodes, 1);
  if (facts.nodes > 1 && ranks > facts.ranks) {
    facts.regime.id += fmt::format("-{}of{}", facts.ranks, ranks);
    facts.regime.name +=
        fmt::format(" / {} of {} ranks seen, {} nodes", facts.ranks, ranks, facts.nodes);
  }
  facts.state = state_from_regime(facts.regime.json, facts.nodes);
  facts.state.ranks_total = facts.ranks;
  const std::string intra = text_of(facts.regime.json, "intra_link");
  facts.peer_to_peer = intra == "nvlink" || intra == "pcie";
  facts.shared_memory = facts.peer_to_peer || intra == "shm";
  // Where NCCL counts nodes, or the ranks of one host share nothing that is known.
  facts.network = facts.nodes > 1 || intra == "none" || intra == "unknown";
  facts.rdma = fact(facts.regime.json, "features", "kernel_bypass") == true;
  facts.nics = fewest_devices(told);
  facts.one_dev_shm = !is_apart(ranks_by_host(told), "shm");
  facts.one_network = !is_apart(ranks_by_host(told), "net");
  facts.preloaded = std::all_of(told.begin(), told.end(), [](const json& rank) {
    return preloads_one_host(variable(rank, "LD_PRELOAD"));
  });
  facts.all_gpus = std::all_of(told.begin(), told.end(), [&](const json& rank) {
    return whole_number<int>(fact(rank, "gpu", "usable")).value_or(0) >= facts.ranks_per_host;
  });
  return facts;
}

SpaceContext call_context(const JobFacts& facts, std::uint32_t possible) {
  SpaceContext context;
  context.backend = Backend::nccl;
  context.nccl_plugin = true;
  context.ranks = facts.ranks;
  context.nodes = facts.nodes;
  context.peer_to_peer = facts.peer_to_peer;
  context.shared_memory = facts.shared_memory;
  context.ina_active = facts.state.ina_active.value_or(false);
  const auto has = [&](int algorithm, int protocol) {
    return (possible >> (algorithm * 3 + protocol) & 1U) != 0;
  };
  constexpr int kTree = 0, kRing = 1, kCollnetDirect = 2, kCollnetChain = 3, kNvls = 4;
  constexpr int kLl128 = 1, kSimple = 2;
  if (possible == 0) {
    context.nvlink = fact(facts.regime.json, "features", "has_nvlink") == true;
    return context;
  }
  // NCCL's own word on what runs here; LL128 needs what NVLink gives.
  context.nvlink = has(kTree, kLl128) || has(kRing, kLl128);
  context.multicast = has(kNvls, kSimple);
  context.collnet = has(kCollnetDirect, kSimple) || has(kCollnetChain, kSimple);
  return context;
}

}  // namespace dynamiccl
