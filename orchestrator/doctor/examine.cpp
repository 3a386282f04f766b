#include "orchestrator/doctor/examine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "containers/start/environment.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/measurement_statistics.hpp"
#include "orchestrator/doctor/gpu_path.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/observe.hpp"
#include "orchestrator/launch/process.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/launch_runner.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "profiles/detect/promise_check.hpp"

namespace dynamiccl {
namespace {

constexpr Micros kProbeTimeout{30e6};
constexpr std::size_t kFactsBytes = 4 << 20;

constexpr const char* kLookCell = "look";
constexpr Micros kLookTimeout{15e6};
// Above what glibc keeps by itself, temporary buffers of half the message included.
constexpr Bytes kPagesSize{std::uint64_t{64} << 20};
// All calls of that look together, the untimed ones too.
constexpr Micros kPagesTime{4e6};
constexpr int kPagesIterations = 4;
constexpr int kPagesCalls = kPagesIterations + 3;

LaunchRequest request_of(const EnvironmentProfile& profile, Backend backend,
                         const LaunchShape& shape, const LaunchSite& site) {
  LaunchRequest request;
  request.program_folder = site.worker_folder;
  request.run_folder = site.run_folder;
  request.backend = backend;
  request.shape = shape;
  apply_settings(request, profile, {});
  return request;
}

/// What probes are given besides their rank: what makes NCCL's ranks one host, as the regime is
/// named by it. The probe is static: it loads no library that is preloaded.
std::map<std::string, std::string> folder_variables(const EnvironmentProfile& profile,
                                                    const LaunchShape& shape,
                                                    const LaunchSite& site) {
  constexpr std::array kNames{kOneHostFolder, "LD_PRELOAD", "NCCL_HOSTID", "NCCL_P2P_DISABLE",
                              "NCCL_SHM_DISABLE"};
  std::map<std::string, std::string> told;
  for (const auto& [name, value] : request_of(profile, Backend::nccl, shape, site).environment)
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) told[name] = value;
  return told;
}

ProcessOutcome probe_ranks(const Environment& environment, int ranks, const std::string& folder,
                           const std::map<std::string, std::string>& variables) {
  std::vector<Command> commands;
  for (int rank = 0; rank < ranks; ++rank) {
    Command command;
    auto told = variables;
    told[std::string(kRankVariable)] = std::to_string(rank);
    command.argv = environment.wrap_rank(rank, {folder + "/dynamiccl-probe", "--compact"}, told);
    command.environment = environment.shape().launcher_environment;
    commands.push_back(std::move(command));
  }
  ProcessOptions options;
  options.timeout = kProbeTimeout;
  options.marker = random_uuid();
  options.kept_bytes = kFactsBytes;
  options.kill_elsewhere = [&environment] { environment.end_ranks(); };
  return run_processes(commands, options);
}

void read_facts(const ProcessOutcome& outcome, Symptoms& symptoms) {
  for (std::size_t rank = 0; rank < outcome.results.size(); ++rank) {
    const auto& result = outcome.results[rank];
    auto facts = json_or_discarded(result.stdout_tail);
    if (facts.is_discarded() || result.exit_code != 0) {
      symptoms.problems.push_back(fmt::format("the probe of rank {} failed: {}{}", rank,
                                              result.start_error, result.stderr_tail));
    } else {
      symptoms.facts.push_back(std::move(facts));
    }
  }
}

void check_facts(const MachineDeclarations& declared, Symptoms& symptoms) {
  if (symptoms.facts.empty()) return;
  RegimeContext context = regime_context(symptoms.profile, declared);
  // Where there are GPUs the environment is named as a library that uses them meets it.
  if (shows_gpus(symptoms.profile, symptoms.host)) context.backend = Backend::nccl;
  symptoms.regime = derive_regime(symptoms.facts, context);
  LaunchExpectation expected;
  expected.promise = promise_of(symptoms.profile);
  expected.ranks = symptoms.ranks;
  std::vector<HelloRecord> hellos;
  std::vector<FactsRecord> facts;
  for (int rank = 0; rank < static_cast<int>(symptoms.facts.size()); ++rank) {
    // Probes speak no library: their world is the one they were started as.
    HelloRecord hello;
    hello.rank = rank;
    hello.world_size = symptoms.ranks;
    hellos.push_back(hello);
    facts.push_back({rank, symptoms.facts[static_cast<std::size_t>(rank)]});
  }
  for (const auto& violation : check_promise(expected, symptoms.host, hellos, facts)) {
    if (violation.rule != "library")
      symptoms.problems.push_back(violation.rule + ": " + violation.message);
  }
}

RunProtocol look_protocol(int iterations) {
  RunProtocol protocol;
  protocol.cells.warmup = 1;
  protocol.cells.iterations = iterations;
  protocol.cells.min_iterations = 1;
  protocol.cells.cell_time_cap = Micros(2e6);
  protocol.launch_timeout = kLookTimeout;
  protocol.connect_timeout = Micros(10e6);
  return protocol;
}

std::string look_cell(std::size_t index) {
  return index == 0 ? kLookCell : fmt::format("{}-{}", kLookCell, index);
}

PlannedGroup look_group(const EnvironmentProfile& profile, Backend backend, int ranks,
                        const std::vector<Bytes>& sizes) {
  PlannedGroup group;
  group.id = fmt::format("doctor {} {}", profile.name, name_of(backend));
  group.environment = profile.name;
  group.backend = backend;
  group.ranks = ranks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    WorkCell cell;
    cell.id = look_cell(i);
    cell.collective = Collective::allreduce;
    cell.size = sizes[i];
    group.cells.push_back({cell, ""});
  }
  return group;
}

/// What the backend is given, as the launcher gets it.
void read_settings(const EnvironmentProfile& profile, const LaunchShape& shape,
                   const LaunchSite& site, int ranks, BackendLook& look) {
  const auto request = request_of(profile, look.backend, shape, site);
  look.environment = request.environment;
  look.mca = request.mca;
  look.many_hosts = !shape.launch_agent.empty();
  auto settings = look.environment;
  settings.insert(look.mca.begin(), look.mca.end());
  look.asked = asked_transport(profile, look.backend, settings, look.many_hosts, site.host, ranks);
}

/// Ranks may have taken different ways, and known it in different ways: "cma, tcp".
void add_distinct(std::string& list, const std::string& word, std::string_view separator) {
  if (word.empty()) return;
  const std::string whole = std::string(separator) + list + std::string(separator);
  if (whole.find(std::string(separator) + word + std::string(separator)) != std::string::npos)
    return;
  list += (list.empty() ? "" : std::string(separator)) + word;
}

void read_records(const FinishedLaunch& finished, const EnvironmentProfile& profile,
                  const MachineDeclarations& declared, BackendLook& look) {
  RegimeContext context = regime_context(profile, declared);
  context.backend = look.backend;
  for (const auto& file : finished.records) {
    for (const auto& record : file.records) {
      if (const auto* hello = std::get_if<HelloRecord>(&record))
        context.library_version = hello->library_version;
      if (const auto* facts = std::get_if<FactsRecord>(&record)) look.facts.push_back(facts->facts);
      if (const auto* transport = std::get_if<TransportRecord>(&record)) {
        add_distinct(look.used, transport->transport, ", ");
        add_distinct(look.used_evidence, transport->evidence, "; ");
        look.cma_refused += transport->cma_errors;
      }
    }
  }
  if (!look.facts.empty()) look.regime = derive_regime(look.facts, context);
}

std::string why_impossible(const Capabilities& can, const std::string& environment,
                           Backend backend) {
  if (const auto found = can.backend_reasons.find(backend); found != can.backend_reasons.end())
    return found->second;
  if (const auto found = can.pair_reasons.find({environment, backend});
      found != can.pair_reasons.end())
    return found->second;
  return "";
}

std::optional<MeasurementSummary> cell_summary(const FinishedLaunch& finished,
                                               const std::string& cell_id) {
  std::vector<RankCell> cells;
  for (const auto& file : finished.records)
    for (const auto& record : file.records)
      if (const auto* cell = std::get_if<CellRecord>(&record);
          cell != nullptr && cell->cell_id == cell_id)
        cells.push_back({cell->rank, cell});
  return summarise(cells, RankAggregation::max);
}

/// The fastest call of a cell: other work makes calls slower, and hardly all of them.
Micros fastest_call(const FinishedLaunch& finished, const std::string& cell_id) {
  const auto summary = cell_summary(finished, cell_id);
  return Micros(summary ? summary->min_us : 0);
}

std::optional<CallPages> read_pages(const FinishedLaunch& finished) {
  std::optional<CallPages> pages;
  for (const auto& file : finished.records) {
    for (const auto& record : file.records) {
      const auto* transport = std::get_if<TransportRecord>(&record);
      if (transport == nullptr || !transport->details.contains("memory")) continue;
      const auto& memory = transport->details.at("memory");
      const auto& cell = memory.at("cells").value(kLookCell, nlohmann::json::object());
      if (cell.value("calls", 0.0) <= 0) continue;
      const bool kept = memory.at("allocator").at("keeps") == true;
      if (!pages) {
        pages.emplace();
        pages->size = kPagesSize;
        pages->kept = kept;
        pages->page_bytes = memory.at("page_bytes").get<double>();
        pages->libc = memory.at("allocator").at("libc").get<std::string>();
      }
      pages->kept = pages->kept && kept;
      pages->faults =
          std::max(pages->faults, cell.value("minor_faults", 0.0) / cell.value("calls", 1.0));
    }
  }
  return pages;
}

/// What disturbed a launch by the noise gate's first flag; "" = nothing.
std::string noise_of(const FinishedLaunch& finished) {
  const auto flags = json_or_discarded(finished.end.noise_flags_json);
  return flags.is_array() && !flags.empty() ? flags.front().get<std::string>() : "";
}

/// On a busy machine a launch may come to no end in time although nothing is wrong.
bool disturbed_timeout(const FinishedLaunch& finished) {
  return finished.end.status == LaunchStatus::timed_out && !noise_of(finished).empty();
}

std::string why_unjudged(const FinishedLaunch& finished) {
  return fmt::format("no end within {:g} s on a busy machine ({}); look again when it is quiet",
                     kLookTimeout.seconds(), noise_of(finished));
}

/// A second, larger launch for the page faults of its calls, where it takes seconds at most.
std::optional<CallPages> look_at_pages(const EnvironmentProfile& profile, Backend backend,
                                       int ranks, LaunchRunner& runner, int cores,
                                       const FinishedLaunch& small, std::string& unjudged) {
  const double factor =
      static_cast<double>(kPagesSize.count()) / static_cast<double>(kLookSize.count());
  const Micros call = fastest_call(small, kLookCell);
  if (backend_facts(backend).on_gpu || ranks < 2 || ranks > cores || call.count() <= 0)
    return std::nullopt;
  if (call.count() * factor * kPagesCalls > kPagesTime.count()) {
    // Slow by others' work alone, they would be judged now and not then.
    if (const std::string noise = noise_of(small); !noise.empty())
      unjudged = fmt::format(
          "page faults of large calls are not judged: calls are slow on a busy machine ({}); look "
          "again when it is quiet",
          noise);
    return std::nullopt;
  }
  auto protocol = look_protocol(kPagesIterations);
  protocol.cells.min_iterations = kPagesIterations;
  const auto done =
      runner.attempt(look_group(profile, backend, ranks, {kPagesSize}), {}, 0, protocol);
  if (done.ok()) return read_pages(done.finished);
  if (disturbed_timeout(done.finished))
    unjudged =
        fmt::format("page faults of large calls are not judged: {}", why_unjudged(done.finished));
  return std::nullopt;
}

BackendLook look_at(const EnvironmentProfile& profile, Backend backend, int ranks,
                    const LookPlan& plan, LaunchRunner& runner, const LaunchSite& site) {
  BackendLook look;
  look.backend = backend;
  try {
    read_settings(profile, runner.environment(profile.name, ranks).shape(), site, ranks, look);
    const auto done = runner.attempt(look_group(profile, backend, ranks, plan.sizes), {}, 0,
                                     look_protocol(plan.iterations));
    read_records(done.finished, profile, site.machine, look);
    look.timed_out = done.finished.end.status == LaunchStatus::timed_out;
    if (!done.ok()) look.failure = done.finished.end.reason;
    if (disturbed_timeout(done.finished)) {
      look.unjudged = "not judged: " + why_unjudged(done.finished);
      look.timed_out = false;  // nothing shows that it hangs
    }
    if (!look.ran()) return look;
    for (std::size_t i = 0; i < plan.sizes.size(); ++i)
      look.fastest.push_back(fastest_call(done.finished, look_cell(i)));
    if (plan.pages)
      look.pages =
          look_at_pages(profile, backend, ranks, runner, site.cores, done.finished, look.unjudged);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    look.failure = error.what();
  }
  return look;
}

/// Looks at every backend; one that failed may have left its environment in disorder.
void look_at_all(const std::vector<Backend>& backends, const LookPlan& plan, const LaunchSite& site,
                 const Capabilities& can, LaunchRunner& runner, Symptoms& symptoms) {
  for (const Backend backend : backends) {
    if (interrupt_signal() != 0) break;
    BackendLook look;
    look.backend = backend;
    look.impossible = why_impossible(can, symptoms.profile.name, backend);
    if (look.impossible.empty()) {
      look = look_at(symptoms.profile, backend, symptoms.ranks, plan, runner, site);
      if (!look.failure.empty()) runner.stop_environments();
    }
    symptoms.looks.push_back(std::move(look));
  }
}

std::string value_of(const std::map<std::string, std::string>& settings, const char* name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

bool names_transport(const std::string& list, const char* name) {
  for (const auto& word : split(list, ','))
    if (trim(word) == name) return true;
  return false;
}

bool excludes_cma(const std::map<std::string, std::string>& settings) {
  const std::string tls = value_of(settings, "UCX_TLS");
  const std::string copies = value_of(settings, "btl_vader_single_copy_mechanism");
  return (tls.starts_with('^') && names_transport(tls.substr(1), "cma")) ||
         (!tls.empty() && !tls.starts_with('^') && !names_transport(tls, "cma") &&
          !names_transport(tls, "all") && !names_transport(tls, "shm") &&
          !names_transport(tls, "sm")) ||
         copies == "none" || copies == "emulated";
}

bool excludes_shared_memory(const std::map<std::string, std::string>& settings) {
  const std::string btl = value_of(settings, "btl");
  if (!btl.empty() && !btl.starts_with('^')) return !names_transport(btl, "vader");
  if (btl.starts_with('^') && names_transport(btl.substr(1), "vader")) return true;
  const std::string tls = value_of(settings, "UCX_TLS");
  if (tls.empty()) return false;
  const bool all_but = tls.starts_with('^');
  const auto named = [list = tls.substr(all_but ? 1 : 0)](const char* name) {
    return names_transport(list, name);
  };
  // UCX's names for all ways through memory.
  if (named("sm") || named("shm")) return all_but;
  const bool segments = named("mm") || (named("posix") && named("sysv"));
  if (all_but) return segments && named("cma");
  return !segments && !named("posix") && !named("sysv") && !named("cma") && !named("all");
}

}  // namespace

std::string asked_transport(const EnvironmentProfile& profile, Backend backend,
                            const std::map<std::string, std::string>& settings, bool many_hosts) {
  if (const auto only = backend_facts(backend).only_transport; !only.empty())
    return std::string(only);
  const bool together =
      profile.kind == EnvironmentKind::bare_metal || profile.ranks_per_container == 0;
  const bool shares_memory = together || profile.ipc != Sharing::private_;
  // An agent's hosts are apart.
  const bool apart = many_hosts && backend_facts(backend).host_memory;
  if (!shares_memory || apart || excludes_shared_memory(settings)) return "tcp";
  const bool same_pids = together || profile.pid != Sharing::private_;
  const bool same_users = together || profile.user != Sharing::private_;
  return same_pids && same_users && !excludes_cma(settings) ? "cma" : "shm";
}

std::string asked_transport(const EnvironmentProfile& profile, Backend backend,
                            const std::map<std::string, std::string>& settings, bool many_hosts,
                            const nlohmann::json& machine, int ranks) {
  switch (backend_facts(backend).transport) {
    case TransportRule::build:
      return "";
    case TransportRule::namespaces:
      return asked_transport(profile, backend, settings, many_hosts);
    case TransportRule::gpu_paths:
      break;
  }
  switch (predict_gpu_path(profile, machine, ranks).path) {
    case GpuPath::p2p:
      return "p2p";
    case GpuPath::shm:
      return "shm";
    case GpuPath::net:
      return "net";
    case GpuPath::none:
    case GpuPath::impossible:
      break;
  }
  return "";
}

Symptoms examine(const EnvironmentProfile& profile, int ranks, const std::vector<Backend>& backends,
                 const LaunchSite& site, const Capabilities& can, const LookPlan& plan) {
  Symptoms symptoms;
  symptoms.profile = profile;
  symptoms.ranks = ranks;
  symptoms.host = site.host;
  if (const auto reason = unavailable_reason(profile)) {
    symptoms.unavailable = *reason;
    return symptoms;
  }
  Console console(Verbosity::quiet);
  LaunchRunner runner({{{profile.name, profile}}, look_protocol(plan.iterations), 1}, site, nullptr,
                      console, random_uuid());
  try {
    const Readiness& readiness = runner.prepare_environment(profile.name);
    if (readiness.state != Readiness::State::ready) {
      symptoms.unavailable = readiness.reason;
      return symptoms;
    }
    const Environment& environment = runner.environment(profile.name, ranks);
    const auto probed = probe_ranks(environment, ranks, site.worker_folder,
                                    folder_variables(profile, environment.shape(), site));
    read_facts(probed, symptoms);
    // What was killed may still be on its way out, and what kills it meet the next launch.
    if (!probed.ok()) runner.stop_environments();
    look_at_all(backends, plan, site, can, runner, symptoms);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    symptoms.unavailable = error.what();
  }
  check_facts(site.machine, symptoms);
  return symptoms;
}

}  // namespace dynamiccl
