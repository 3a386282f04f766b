#include "orchestrator/doctor.hpp"

#include <fmt/format.h>

#include "containers/command.hpp"
#include "containers/environment.hpp"
#include "core/error.hpp"
#include "orchestrator/identity.hpp"
#include "orchestrator/process.hpp"
#include "profiles/detect/promise_check.hpp"

namespace dynamiccl {
namespace {

constexpr Micros kProbeTimeout{30e6};
constexpr std::size_t kFactsBytes = 4 << 20;

ProcessOutcome probe_ranks(const Environment& environment, int ranks, const std::string& folder) {
  std::vector<Command> commands;
  for (int rank = 0; rank < ranks; ++rank) {
    Command command;
    command.argv = environment.wrap_rank(rank, {folder + "/dynamiccl-probe", "--compact"},
                                         {{std::string(kRankVariable), std::to_string(rank)}});
    command.environment = environment.shape().launcher_environment;
    commands.push_back(std::move(command));
  }
  ProcessOptions options;
  options.timeout = kProbeTimeout;
  options.marker = random_uuid();
  options.kept_bytes = kFactsBytes;
  options.kill_elsewhere = [&] {
    for (const auto& command : environment.kill_commands()) run_command(command);
  };
  return run_processes(commands, options);
}

void read_facts(const ProcessOutcome& outcome, Diagnosis& diagnosis) {
  for (std::size_t rank = 0; rank < outcome.results.size(); ++rank) {
    const auto& result = outcome.results[rank];
    auto facts = nlohmann::json::parse(result.stdout_tail, nullptr, false);
    if (facts.is_discarded() || result.exit_code != 0) {
      diagnosis.problems.push_back(fmt::format("the probe of rank {} failed: {}{}", rank,
                                               result.start_error, result.stderr_tail));
    } else {
      diagnosis.facts.push_back(std::move(facts));
    }
  }
}

void check(const EnvironmentProfile& profile, int ranks, const nlohmann::json& host,
           Diagnosis& diagnosis) {
  RegimeContext context;
  context.declared_aggregation = profile.declared_aggregation;
  context.declared_link_bits_per_s = profile.link_bits_per_s;
  diagnosis.regime = derive_regime(diagnosis.facts, context);
  LaunchExpectation expected;
  expected.promise = promise_of(profile);
  expected.ranks = ranks;
  std::vector<HelloRecord> hellos;
  std::vector<FactsRecord> facts;
  for (int rank = 0; rank < static_cast<int>(diagnosis.facts.size()); ++rank) {
    // Probes speak no library: their world is the one they were started as.
    HelloRecord hello;
    hello.rank = rank;
    hello.world_size = ranks;
    hellos.push_back(hello);
    facts.push_back({rank, diagnosis.facts[static_cast<std::size_t>(rank)]});
  }
  for (const auto& violation : check_promise(expected, host, hellos, facts)) {
    if (violation.rule != "library")
      diagnosis.problems.push_back(violation.rule + ": " + violation.message);
  }
}

}  // namespace

Diagnosis diagnose(const EnvironmentProfile& profile, int ranks, const std::string& folder,
                   const nlohmann::json& host) {
  Diagnosis diagnosis;
  diagnosis.environment = profile.name;
  if (const auto reason = unavailable_reason(profile)) {
    diagnosis.unavailable = *reason;
    return diagnosis;
  }
  try {
    prepare(profile, [](const std::string& step) { fmt::print(stderr, "  {}\n", step); });
    const auto environment = start_environment(profile, {random_uuid(), ranks, {folder}});
    read_facts(probe_ranks(*environment, ranks, folder), diagnosis);
    environment->stop();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    diagnosis.unavailable = error.what();
  }
  if (!diagnosis.facts.empty()) check(profile, ranks, host, diagnosis);
  return diagnosis;
}

}  // namespace dynamiccl
