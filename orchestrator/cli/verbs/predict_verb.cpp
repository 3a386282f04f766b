#include <fmt/format.h>

#include <memory>
#include <optional>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/machine_model.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/smpi.hpp"
#include "profiles/machine_model_file.hpp"
#include "reports/render/render.hpp"
#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/machine_cost.hpp"

namespace dynamiccl {
namespace {

struct PredictArguments {
  std::string machine;
  std::string operation = "allreduce";
  std::vector<std::string> sizes;
  int ranks = 0;
  std::vector<std::string> overrides;
  bool smpi = false;
};

const Columns& predicted_columns() {
  static const Columns columns = with_shared(parse_columns(
      "size_bytes algorithm\n"
      "predicted_us | us, real | by the analytic model\n"
      "against_fastest | real | its time over that of the size's fastest\n"
      "start_up_us | us, real | of it, for the latency of messages\n"
      "bytes_us | us, real | of it, for bytes on the busiest links\n"
      "sum_us | us, real, optional | of it, for sums\n"
      "limit | text | links that most of the bytes' time is for\n"
      "segment_bytes | bytes, integer, exact, optional | of those tried, the fastest\n"
      "smpi_us | us, real, optional | by SimGrid's SMPI: the algorithm's own messages on simulated "
      "links\n"
      "smpi_ratio | real, optional | of SMPI's time to the model's\n",
      "predict"));
  return columns;
}

int ranks_of(const PredictArguments& arguments, const MachineModel& machine) {
  if (arguments.ranks > machine.ranks())
    throw Error(ErrorKind::input,
                fmt::format("--ranks {}: {} has {} ({} nodes of {}); a larger one is another file, "
                            "or --set nodes=N and, where it has a topology, its counts",
                            arguments.ranks, machine.name, machine.ranks(), machine.nodes,
                            machine.ranks_per_node));
  return arguments.ranks > 0 ? arguments.ranks : machine.ranks();
}

Collective operation_of(const PredictArguments& arguments) {
  const auto operation = parse_named<Collective>(arguments.operation);
  if (!modelled_algorithms(operation).empty()) return operation;
  std::vector<std::string> known;
  for (const auto& name : all_names<Collective>())
    if (!modelled_algorithms(parse_named<Collective>(name)).empty()) known.push_back(name);
  throw Error(ErrorKind::input, fmt::format("--operation {}: has no model; those that have: {}",
                                            arguments.operation, join(known, ", ")));
}

/// One size on one machine.
struct Asked {
  const MachineModel& machine;
  Collective operation;
  int ranks;
  double bytes;
};

/// What SMPI says; why it says nothing goes to stderr.
Value smpi_time(const Asked& asked, std::string_view algorithm) {
  const SmpiTime time =
      simulate_collective(asked.machine, asked.operation, asked.ranks, asked.bytes, algorithm);
  if (time.us) return *time.us;
  tell(fmt::format("SMPI, {} of {}: {}\n", algorithm,
                   format_bytes(Bytes(static_cast<std::uint64_t>(asked.bytes))), time.reason));
  return {};
}

void add_rows(Table& table, const Asked& asked, bool smpi) {
  const auto size = static_cast<std::int64_t>(asked.bytes);
  const auto none_as_null = [](double value) { return value > 0 ? Value(value) : Value(); };
  const auto times = predict_collective(asked.machine, asked.operation, asked.ranks, asked.bytes);
  for (const PredictedTime& time : times) {
    const auto name = smpi ? smpi_algorithm(time.algorithm, asked.operation) : std::string_view();
    const Value simulated = name.empty() ? Value() : smpi_time(asked, name);
    const double* us = std::get_if<double>(&simulated);
    table.rows.push_back(
        {size, time.algorithm, time.us, time.us / times.front().us, time.start_up_us, time.bytes_us,
         none_as_null(time.sum_us), std::string(time.limit),
         time.segment > 0 ? Value(static_cast<std::int64_t>(time.segment)) : Value(), simulated,
         us != nullptr ? Value(*us / time.us) : Value()});
  }
  if (!smpi) return;
  const Value simulated = smpi_time(asked, kSmpiRules);
  if (std::holds_alternative<double>(simulated))
    table.rows.push_back(
        {size, std::string(kSmpiRulesOf), {}, {}, {}, {}, {}, {}, {}, simulated, {}});
}

void print_prediction(const PredictArguments& arguments, Shared& shared) {
  const MachineModel machine =
      read_machine_model(arguments.machine, data_path("profiles/machines"), arguments.overrides);
  const Collective operation = operation_of(arguments);
  const int ranks = ranks_of(arguments, machine);
  if (ranks < 2) throw Error(ErrorKind::input, "one rank sends nothing: --ranks is 2 at least");
  if (arguments.smpi)
    if (const std::string why = why_no_smpi(machine, operation); !why.empty())
      throw Error(ErrorKind::environment, "--smpi: " + why);
  Table table;
  table.columns = {"size_bytes",    "algorithm", "predicted_us", "against_fastest",
                   "start_up_us",   "bytes_us",  "sum_us",       "limit",
                   "segment_bytes", "smpi_us",   "smpi_ratio"};
  // Models leave nothing; SimGrid's input does.
  std::optional<InterruptGuard> guard;
  if (arguments.smpi) guard.emplace();
  for (const std::string& size : arguments.sizes) {
    if (guard && interrupted()) break;
    add_rows(table, {machine, operation, ranks, static_cast<double>(parse_bytes(size).count())},
             arguments.smpi);
  }
  if (guard && interrupted()) {
    shared.exit_code = 128 + interrupt_signal();
    return;
  }
  if (shared.json)
    return fmt::print("{}", render_table(table, OutputFormat::json, predicted_columns()));
  fmt::print("{} of {} ranks on {} ({}), by {}: nothing of it was measured.\n{}",
             arguments.operation, ranks, printable(machine.name), printable(machine.description),
             arguments.smpi ? "analytic models and by SimGrid's SMPI" : "analytic models",
             render_table(table, OutputFormat::text, predicted_columns(), stdout_columns()));
}

void list_machines(const Shared& shared) {
  const std::string folder = data_path("profiles/machines");
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& name : machine_model_names(folder)) {
    const MachineModel machine = read_machine_model(name, folder);
    list.push_back({{"machine", name},
                    {"description", machine.description},
                    {"nodes", machine.nodes},
                    {"ranks", machine.ranks()},
                    {"topology", std::string(name_of(machine.shape))}});
    if (!shared.json)
      fmt::print("{}  ({} ranks, {} nodes, {})\n    {}\n", name, machine.ranks(), machine.nodes,
                 name_of(machine.shape), machine.description);
  }
  if (shared.json) fmt::print("{}\n", list.dump(1));
}

}  // namespace

void add_predict_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "predict", "what algorithms would take on a machine nobody here has, by analytic models");
  auto arguments = std::make_shared<PredictArguments>();
  verb->add_option(
      "MACHINE", arguments->machine,
      "name or file (.toml) of a machine; without it, those that come with the program");
  verb->add_option("--operation", arguments->operation, "collective (allreduce)");
  verb->add_option("--bytes", arguments->sizes, "sizes of the whole buffer (1MiB)")->delimiter(',');
  verb->add_option("--ranks", arguments->ranks, "so many of the machine's (all)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--set", arguments->overrides, "another value of a key of the file: nodes=64");
  verb->add_flag("--smpi", arguments->smpi,
                 "next to the models what SimGrid's SMPI simulates of the same file");
  verb->add_flag("--json", shared.json, "print JSON");
  verb->footer(
      "Examples:\n"
      "  dynamiccl predict\n"
      "  dynamiccl predict fat-tree-1024 --bytes 1MiB,64MiB\n"
      "  dynamiccl predict torus-1024 --ranks 256 --smpi\n"
      "  dynamiccl predict my-cluster.toml --operation broadcast --set "
      "links.network.gbytes_per_s=50\n"
      "Nothing is measured or stored. docs/machines.md says what the models count.");
  verb->callback([arguments, &shared] {
    if (arguments->sizes.empty()) arguments->sizes = {"1MiB"};
    if (arguments->machine.empty()) return list_machines(shared);
    print_prediction(*arguments, shared);
  });
}

}  // namespace dynamiccl
