#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "core/statistics/descriptive.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/machine_model.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/smpi.hpp"
#include "profiles/machine_model_file.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/render/render.hpp"
#include "train/spec/llm_traffic.hpp"
#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/machine_cost.hpp"
#include "tuner/simulator/machine_fit.hpp"

namespace dynamiccl {
namespace {

/// Lines around a table, no wider than it may be.
void print_prose(const std::string& text) { fmt::print("{}", broken_text(text, stdout_columns())); }

struct PredictArguments {
  std::vector<std::string> machines;
  std::string machine;  ///< the only one of them, or ""
  std::string operation = "allreduce";
  std::vector<std::string> sizes;
  int ranks = 0;
  std::vector<std::string> overrides;
  bool smpi = false;
  std::string fit;                 ///< a run
  std::vector<std::string> where;  ///< of its cells
  std::string traffic;             ///< a language model
  std::string parallel;
};

const Columns& predicted_columns() {
  static const Columns columns = with_shared(parse_columns(
      "size_bytes algorithm\n"
      "predicted_us | us, real | by the analytic model\n"
      "against_fastest | real | its time over that of the size's fastest\n"
      "start_up_us | us, real | of it, for the latency of messages\n"
      "transfer_us | us, real | of it, for bytes on the busiest links\n"
      "sum_us | us, real, optional | of it, for sums\n"
      "limit | text | links that most of the transfer is on\n"
      "segment_bytes | bytes, integer, exact, optional | of those tried, the fastest\n"
      "smpi_us | us, real, optional | by SimGrid's SMPI: the algorithm's own messages on simulated "
      "links\n"
      "smpi_ratio | real, optional | of SMPI's time to the model's\n"
      "error_percent | percent, real, optional | median distance of such predictions from measured "
      "cells, of a fitted machine\n"
      "error_p90_percent | percent, real, optional | nine of ten were nearer\n",
      "predict"));
  return columns;
}

const Columns& traffic_columns() {
  static const Columns columns = with_shared(
      parse_columns("phase | text | forward, backward, gradients\n"
                    "what | text | it carries\n"
                    "operation | text | collective, or sendrecv from stage to stage\n"
                    "group | integer | ranks that call together\n"
                    "stride | integer | from one of them to the next\n"
                    "size_bytes\n"
                    "calls | integer | of a rank of the first stage in one step\n"
                    "sent_bytes | bytes, real | by all these groups together in one step\n"
                    "algorithm\n"
                    "call_us | us, real | by the fastest analytic model, all groups at once\n"
                    "step_us | us, real | of all its calls\n"
                    "limit | text | links that most of the transfer is on\n",
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

/// The last two values of a row.
void add_error(std::vector<Value>& row, const MachineModel& machine, HeldOut what) {
  const HeldOutError* error = nullptr;
  if (machine.measured) {
    const auto found = machine.measured->errors.find(what);
    if (found != machine.measured->errors.end()) error = &found->second;
  }
  row.push_back(error != nullptr ? Value(100 * error->median) : Value());
  row.push_back(error != nullptr ? Value(100 * error->p90) : Value());
}

/// What the library of a fitted machine should take, by its measured calls.
void add_library(Table& table, const Asked& asked) {
  if (!asked.machine.measured) return;
  const MeasuredLibrary& library = *asked.machine.measured;
  const auto time = library_time(library, asked.operation, asked.ranks, asked.bytes);
  if (!time) return;
  std::vector<Value> row{static_cast<std::int64_t>(asked.bytes), library.name, time->us};
  row.resize(11);
  add_error(row, asked.machine, time->like);
  table.rows.push_back(std::move(row));
}

void add_rows(Table& table, const Asked& asked, bool smpi) {
  const auto size = static_cast<std::int64_t>(asked.bytes);
  const auto none_as_null = [](double value) { return value > 0 ? Value(value) : Value(); };
  const auto times = predict_collective(asked.machine, asked.operation, asked.ranks, asked.bytes);
  for (const PredictedTime& time : times) {
    const auto name = smpi ? smpi_algorithm(time.algorithm, asked.operation) : std::string_view();
    const Value simulated = name.empty() ? Value() : smpi_time(asked, name);
    const double* us = std::get_if<double>(&simulated);
    std::vector<Value> row{
        size,
        time.algorithm,
        time.us,
        time.us / times.front().us,
        time.start_up_us,
        time.bytes_us,
        none_as_null(time.sum_us),
        std::string(time.limit),
        time.segment > 0 ? Value(static_cast<std::int64_t>(time.segment)) : Value(),
        simulated,
        us != nullptr ? Value(*us / time.us) : Value()};
    add_error(row, asked.machine, HeldOut::links);
    table.rows.push_back(std::move(row));
  }
  if (!smpi) return;
  for (const SmpiRules& rules : kSmpiRules) {
    const Value simulated = smpi_time(asked, rules.name);
    if (std::holds_alternative<double>(simulated))
      table.rows.push_back(
          {size, std::string(rules.of), {}, {}, {}, {}, {}, {}, {}, simulated, {}, {}, {}});
  }
}

CellConditions conditions_of(const std::vector<std::string>& words) {
  CellConditions where;
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    if (equals == std::string::npos)
      throw Error(
          ErrorKind::input,
          fmt::format("--where {}: expected COLUMN=VALUE, as in --where backend=nccl", word));
    where.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return where;
}

constexpr std::int64_t kMostFittedRanks = 1 << 20;  ///< as a machine's file may have

/// One library's calls in one environment: a machine has one of both.
std::vector<CellFigure> fitted_cells(const PredictArguments& arguments, const Shared& shared) {
  const Reader reader(shared.db);
  const Table run =
      reader.query("SELECT id FROM run WHERE uuid = ?1", {reader.resolve_run(arguments.fit)});
  auto cells = filter_figures(load_figures(reader, {TableView(run).integer(0, "id")}),
                              conditions_of(arguments.where));
  std::erase_if(cells, [](const CellFigure& cell) {
    const auto collective = find_named<Collective>(cell.collective);
    // A barrier has no bytes that a line could go over.
    return cell.ranks < 2 || !collective || *collective == Collective::training ||
           cell.size_bytes <= 0 || cell.median_us() <= 0;
  });
  for (const CellFigure& cell : cells)
    if (is_simulated(cell.environment))
      throw Error(ErrorKind::input,
                  fmt::format("--fit {}: {} was simulated on a machine's file, and a machine is "
                              "fitted to what was measured: name a run of ranks that ran",
                              arguments.fit, cell.environment));
  if (cells.empty())
    throw Error(ErrorKind::input,
                fmt::format("--fit {}: no measured collective of several ranks is left; `dynamiccl "
                            "query latency --run {}` lists what the run has",
                            arguments.fit, arguments.fit));
  for (const CellFigure& cell : cells)
    if (cell.ranks > kMostFittedRanks)
      throw Error(ErrorKind::input,
                  fmt::format("--fit {}: {} ranks of {}, and a machine has {} at most: --where "
                              "ranks=N takes the cells of another count",
                              arguments.fit, cell.ranks, cell.collective, kMostFittedRanks));
  for (const std::string& axis : axis_names()) {
    if (axis == "collective" || axis == "size_bytes" || axis == "ranks") continue;
    std::set<std::string> values;
    for (const CellFigure& cell : cells) values.insert(axis_value(cell, axis));
    if (values.size() > 1)
      throw Error(ErrorKind::input,
                  fmt::format("--fit {}: its cells have several values of {} ({}), and a machine "
                              "has one: --where {}={}",
                              arguments.fit, axis, join({values.begin(), values.end()}, ", "), axis,
                              *values.begin()));
  }
  return cells;
}

void print_fitted(const PredictArguments& arguments, const Shared& shared) {
  if (shared.json) throw Error(ErrorKind::input, "--fit prints a file in TOML; leave out --json");
  const auto cells = fitted_cells(arguments, shared);
  const CellFigure& first = cells.front();
  MachineModel machine;
  MeasuredLibrary library;
  library.name = first.backend;
  for (const CellFigure& cell : cells) {
    machine.ranks_per_node = std::max(machine.ranks_per_node, static_cast<int>(cell.ranks));
    library.calls.push_back({parse_named<Collective>(cell.collective), static_cast<int>(cell.ranks),
                             static_cast<double>(cell.size_bytes), cell.median_us()});
  }
  hold_out(library);
  machine.description = fmt::format("{}, {}, {} ranks and fewer, as measured", first.environment,
                                    first.backend, machine.ranks_per_node);
  machine.measured = std::move(library);
  machine.links[0].classes = {{}};
  fit_links(machine);
  fmt::print("{}", machine_toml(machine, "run " + first.run_id));
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
  table.columns = {"size_bytes",       "algorithm",   "predicted_us", "against_fastest",
                   "start_up_us",      "transfer_us", "sum_us",       "limit",
                   "segment_bytes",    "smpi_us",     "smpi_ratio",   "error_percent",
                   "error_p90_percent"};
  // Models leave nothing; SimGrid's input does.
  std::optional<InterruptGuard> guard;
  if (arguments.smpi) guard.emplace();
  for (const std::string& size : arguments.sizes) {
    if (guard && interrupted()) break;
    add_rows(table, {machine, operation, ranks, static_cast<double>(parse_bytes(size).count())},
             arguments.smpi);
    add_library(table, {machine, operation, ranks, static_cast<double>(parse_bytes(size).count())});
  }
  if (guard && interrupted()) {
    shared.exit_code = 128 + interrupt_signal();
    return;
  }
  if (shared.json)
    return fmt::print("{}", render_table(table, OutputFormat::json, predicted_columns()));
  print_prose(fmt::format(
      "{} of {} ranks on {} ({}), by {}{}: nothing of it was measured.\n", arguments.operation,
      ranks, printable(machine.name), printable(machine.description),
      arguments.smpi ? "analytic models and by SimGrid's SMPI" : "analytic models",
      machine.measured ? ", and from calls of a stored run" : ""));
  fmt::print("{}", render_table(table, OutputFormat::text, predicted_columns(), stdout_columns()));
}

/// What algorithms take on one of several machines, the fastest first; times by SMPI of those that
/// it has, where it is asked for.
std::vector<std::pair<std::string, double>> times_on(const MachineModel& machine,
                                                     const PredictArguments& arguments,
                                                     double bytes) {
  const Asked asked{machine, operation_of(arguments), ranks_of(arguments, machine), bytes};
  std::vector<std::pair<std::string, double>> times;
  for (const auto& one : predict_collective(machine, asked.operation, asked.ranks, bytes)) {
    if (!arguments.smpi) {
      times.emplace_back(one.algorithm, one.us);
      continue;
    }
    const auto name = smpi_algorithm(one.algorithm, asked.operation);
    if (name.empty() || interrupted()) continue;
    const Value us = smpi_time(asked, name);
    if (const double* known = std::get_if<double>(&us)) times.emplace_back(one.algorithm, *known);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.second < b.second; });
  return times;
}

/// Ratios that one machine's choices have on the others.
struct Kept {
  std::vector<double> ratios;
  std::string worst_on;
};

std::string kept_line(const std::string& machine, const Kept& kept) {
  constexpr double kDiffers = 1.05;
  if (kept.ratios.empty()) return fmt::format("{}: no choice of it is elsewhere\n", machine);
  const auto differ = std::count_if(kept.ratios.begin(), kept.ratios.end(),
                                    [](double ratio) { return ratio >= kDiffers; });
  return fmt::format(
      "kept elsewhere, what is fastest on {} takes 5 % more at least in {} of {}, {:.3g} times "
      "as long in the middle, {:.3g} at worst{}\n",
      machine, differ, kept.ratios.size(), median(kept.ratios),
      *std::max_element(kept.ratios.begin(), kept.ratios.end()),
      kept.worst_on.empty() ? "" : ", on " + kept.worst_on);
}

/// The machines of a table with a column of each.
std::vector<MachineModel> machines_side_by_side(const PredictArguments& arguments) {
  std::set<std::string> columns{"size_bytes", "chosen_for", "algorithm"};
  std::vector<MachineModel> machines;
  for (const std::string& name : arguments.machines) {
    const MachineModel& machine = machines.emplace_back(
        read_machine_model(name, data_path("profiles/machines"), arguments.overrides));
    if (ranks_of(arguments, machine) < 2)
      throw Error(ErrorKind::input, "one rank sends nothing: --ranks is 2 at least");
    if (arguments.smpi)
      if (const auto why = why_no_smpi(machine, operation_of(arguments)); !why.empty())
        throw Error(ErrorKind::environment, "--smpi: " + why);
    const bool writable = machine.name.find_first_of("|#\n\r") == std::string::npos &&
                          trim(machine.name) == machine.name && !machine.name.empty();
    if (!writable || !columns.insert(machine.name).second)
      throw Error(ErrorKind::input, name +
                                        ": is no name of a column, or one of two alike: "
                                        "rename the file");
  }
  return machines;
}

/// Adds a size's rows: each machine's choice and what it costs on all.
void add_choices(Table& table, std::vector<Kept>& kept, const std::vector<MachineModel>& machines,
                 const PredictArguments& arguments, double bytes) {
  std::vector<std::vector<std::pair<std::string, double>>> times;
  for (const MachineModel& machine : machines) times.push_back(times_on(machine, arguments, bytes));
  for (std::size_t m = 0; m < machines.size() && !interrupted(); ++m) {
    if (times[m].empty()) continue;
    const std::string& choice = times[m].front().first;
    std::vector<Value> row{static_cast<std::int64_t>(bytes), machines[m].name, choice};
    for (std::size_t on = 0; on < machines.size(); ++on) {
      const auto found = std::find_if(times[on].begin(), times[on].end(),
                                      [&](const auto& one) { return one.first == choice; });
      row.push_back(found == times[on].end() ? Value()
                                             : Value(found->second / times[on].front().second));
      if (on == m || found == times[on].end()) continue;
      const double ratio = found->second / times[on].front().second;
      if (kept[m].ratios.empty() ||
          ratio > *std::max_element(kept[m].ratios.begin(), kept[m].ratios.end()))
        kept[m].worst_on = machines[on].name;
      kept[m].ratios.push_back(ratio);
    }
    table.rows.push_back(std::move(row));
  }
}

/// On each machine the fastest, and what it costs to keep that on the others.
void print_choices(const PredictArguments& arguments, Shared& shared) {
  const std::vector<MachineModel> machines = machines_side_by_side(arguments);
  std::string columns =
      "size_bytes\nchosen_for | text | the machine on which it is the fastest\n"
      "algorithm\n";
  Table table;
  table.columns = {"size_bytes", "chosen_for", "algorithm"};
  std::vector<std::string> named;
  for (const MachineModel& machine : machines) {
    columns += fmt::format("{} | real, optional | its time there over the fastest's there\n",
                           machine.name);
    table.columns.push_back(machine.name);
    named.push_back(fmt::format("{} ({} ranks)", machine.name, ranks_of(arguments, machine)));
  }
  const InterruptGuard guard;
  std::vector<Kept> kept(machines.size());
  for (const std::string& size : arguments.sizes) {
    if (interrupted()) break;
    add_choices(table, kept, machines, arguments, static_cast<double>(parse_bytes(size).count()));
  }
  if (interrupted()) {
    shared.exit_code = 128 + interrupt_signal();
    return;
  }
  const Columns described = with_shared(parse_columns(columns, "predict"));
  if (shared.json) return fmt::print("{}", render_table(table, OutputFormat::json, described));
  print_prose(fmt::format("{} on {}, by {}: nothing of it was measured.\n", arguments.operation,
                          printable(join(named, ", ")),
                          arguments.smpi ? "SimGrid's SMPI" : "analytic models"));
  fmt::print("{}", render_table(table, OutputFormat::text, described, stdout_columns()));
  for (std::size_t m = 0; m < machines.size(); ++m)
    print_prose(printable(kept_line(machines[m].name, kept[m])));
}

/// What a rank must hold, next to what it has.
std::string memory_line(const LlmModel& model, const LlmParallelism& parallelism,
                        const MachineModel& machine) {
  const double needed = llm_memory(model, parallelism);
  const auto text = [](double bytes) { return fmt::format("{:.4g} GiB", bytes / (1 << 30)); };
  std::string line = fmt::format(
      "{:.4g} thousand million parameters: {} a rank for weights, gradients and Adam's state "
      "(16 bytes each), without activations",
      model.parameters() / 1e9, text(needed));
  if (machine.memory_bytes <= 0) return line + "; the machine's file does not say its memory\n";
  return line + fmt::format(", {} {}\n", needed <= machine.memory_bytes ? "of" : "DOES NOT FIT in",
                            text(machine.memory_bytes));
}

void print_traffic(const PredictArguments& arguments, const Shared& shared) {
  const MachineModel machine =
      read_machine_model(arguments.machine, data_path("profiles/machines"), arguments.overrides);
  const LlmModel& model = llm_named(arguments.traffic);
  const int ranks = ranks_of(arguments, machine);
  const LlmParallelism parallelism = parse_parallelism(arguments.parallel, model, ranks);
  Table table;
  table.columns = {"phase", "what",       "operation", "group",   "stride",  "size_bytes",
                   "calls", "sent_bytes", "algorithm", "call_us", "step_us", "limit"};
  double total_us = 0;
  for (const LlmCall& call : llm_traffic(model, parallelism)) {
    const PredictedTime time =
        predict_groups(machine, call.collective, call.group, call.stride, call.bytes, ranks);
    const double step_us = time.us * static_cast<double>(call.count);
    total_us += step_us;
    table.rows.push_back(
        {std::string(call.phase), std::string(call.what), std::string(name_of(call.collective)),
         static_cast<std::int64_t>(call.group), static_cast<std::int64_t>(call.stride),
         static_cast<std::int64_t>(std::llround(call.bytes)), call.count, sent_in_step(call),
         time.algorithm, time.us, step_us, std::string(time.limit)});
  }
  if (shared.json)
    return fmt::print("{}", render_table(table, OutputFormat::json, traffic_columns()));
  print_prose(fmt::format(
      "One step of {} on {} ranks of {} (data {}, tensor {}, pipeline {}): nothing of it was "
      "measured.\n{}",
      model.name, ranks, printable(machine.name), parallelism.data, parallelism.tensor,
      parallelism.pipeline, memory_line(model, parallelism, machine)));
  fmt::print("{}one after another {:.4g} s of communication\n",
             render_table(table, OutputFormat::text, traffic_columns(), stdout_columns()),
             total_us / 1e6);
}

/// The list of machines answers none of these.
void refuse_without_machine(const std::vector<const CLI::Option*>& options) {
  for (const CLI::Option* option : options)
    if (option->count() > 0)
      throw Error(ErrorKind::input, fmt::format("{}: of which MACHINE? `dynamiccl predict` lists "
                                                "those that come with the program",
                                                option->get_name()));
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

/// @param of_machine options that mean nothing without one
void predict(PredictArguments& arguments, const std::vector<const CLI::Option*>& of_machine,
             Shared& shared) {
  if (arguments.sizes.empty()) arguments.sizes = {"1MiB"};
  if (!arguments.fit.empty()) return print_fitted(arguments, shared);
  if (arguments.machines.empty()) {
    refuse_without_machine(of_machine);
    return list_machines(shared);
  }
  if (arguments.machines.size() > 1) {
    if (!arguments.traffic.empty())
      throw Error(ErrorKind::input, "--traffic: is listed of one MACHINE");
    return print_choices(arguments, shared);
  }
  arguments.machine = arguments.machines.front();
  if (!arguments.traffic.empty()) return print_traffic(arguments, shared);
  print_prediction(arguments, shared);
}

}  // namespace

void add_predict_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "predict", "what algorithms would take on a machine nobody here has, by analytic models");
  auto arguments = std::make_shared<PredictArguments>();
  auto* machine = verb->add_option(
      "MACHINE", arguments->machines,
      "name or file (.toml) of a machine; several: what the choice for each costs on the others; "
      "without it, those that come with the program");
  auto* operation = verb->add_option("--operation", arguments->operation, "collective (allreduce)");
  auto* sizes = verb->add_option("--bytes", arguments->sizes, "sizes of the whole buffer (1MiB)")
                    ->delimiter(',');
  auto* ranks = verb->add_option("--ranks", arguments->ranks, "so many of the machine's (all)")
                    ->check(CLI::PositiveNumber);
  auto* set = verb->add_option("--set", arguments->overrides,
                               "another value of a key of the file: nodes=64");
  auto* smpi = verb->add_flag("--smpi", arguments->smpi,
                              "next to the models what SimGrid's SMPI simulates of the same file");
  auto* fit = verb->add_option("--fit", arguments->fit,
                               "print the file of a machine as a stored run measured it")
                  ->excludes(machine)
                  ->excludes(operation)
                  ->excludes(sizes)
                  ->excludes(ranks)
                  ->excludes(set)
                  ->excludes(smpi);
  verb->add_option("--where", arguments->where, "of its cells, COLUMN=VALUE must hold")->needs(fit);
  add_db_option(*verb, shared);
  auto* traffic = verb->add_option("--traffic", arguments->traffic,
                                   "the calls of one training step of a language model: llama-7b")
                      ->excludes(operation)
                      ->excludes(sizes)
                      ->excludes(smpi)
                      ->excludes(fit);
  verb->add_option("--parallel", arguments->parallel,
                   "how it is shared out: tensor=8,pipeline=4,fsdp; data has the rest")
      ->needs(traffic);
  verb->add_flag("--json", shared.json, "print JSON");
  verb->footer(
      "Examples:\n"
      "  dynamiccl predict\n"
      "  dynamiccl predict fat-tree-1024 --bytes 1MiB,64MiB\n"
      "  dynamiccl predict torus-1024 --ranks 256 --smpi\n"
      "  dynamiccl predict tier-1 tier-2 tier-3 tier-4 --bytes 1KiB,1MiB,64MiB\n"
      "  dynamiccl predict my-cluster.toml --operation broadcast --set "
      "links.network.gbytes_per_s=50\n"
      "  dynamiccl predict --fit last --where backend=nccl > mine.toml\n"
      "  dynamiccl predict gpus-100k --ranks 64 --traffic llama-7b --parallel tensor=8,fsdp\n"
      "Nothing is measured or stored. docs/machines.md says what the models count.");
  const std::vector<const CLI::Option*> of_machine{operation, sizes, ranks, set, smpi, traffic};
  verb->callback([arguments, of_machine, &shared] { predict(*arguments, of_machine, shared); });
}

}  // namespace dynamiccl
