#include "orchestrator/experiment/tune_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/setting.hpp"

namespace dynamiccl {
namespace {

/// Size texts in bytes, rising, as spaces want them.
std::vector<std::string> byte_values(TableReader& table, const char* key) {
  std::vector<std::string> values;
  if (!table.has(key)) return values;
  auto sizes = table.sizes(key);
  std::sort(sizes.begin(), sizes.end());
  for (const Bytes size : sizes) values.push_back(std::to_string(size.count()));
  return values;
}

std::vector<std::string> count_values(TableReader& table, const char* key) {
  std::vector<std::string> values;
  if (!table.has(key)) return values;
  auto counts = table.integers(key);
  std::sort(counts.begin(), counts.end());
  for (const int count : counts) values.push_back(std::to_string(count));
  return values;
}

void read_algorithms(TableReader& table, Backend backend, TuneBackend& options) {
  auto lists = table.table("algorithms");
  if (!lists) return;
  for (const std::string& name : lists->keys()) {
    const auto collective = find_named<Collective>(name);
    if (!collective) {
      lists->complain(name, TableReader::unknown_name("collective", name, all_names<Collective>()));
      continue;
    }
    const auto known = known_algorithms(backend, *collective);
    const auto wanted = lists->texts(name);
    for (const std::string& algorithm : wanted)
      if (algorithm != "default" && std::find(known.begin(), known.end(), algorithm) == known.end())
        lists->complain(
            name, TableReader::unknown_name(
                      fmt::format("{} algorithm of {}", name, name_of(backend)), algorithm, known));
    options.algorithms[*collective] = wanted;
  }
}

void read_launch_knobs(TableReader& table, SpaceOptions& space) {
  auto knobs = table.table("launch");
  if (!knobs) return;
  for (const std::string& name : knobs->keys()) {
    const auto values = knobs->scalars(name);
    if (const auto mistake =
            setting_mistake(name, {SettingScope::env, SettingScope::mca, SettingScope::malloc});
        !mistake.empty()) {
      knobs->complain(name, mistake);
      continue;
    }
    const auto setting = *find_setting(name);
    if (!setting.note.empty()) knobs->note(name, setting.note);
    const std::string knob = setting_text(setting.scope, setting.name);
    if (const auto mistake = malloc_knob_mistake(knob, values); !mistake.empty())
      knobs->complain(name, mistake);
    space.launch.emplace_back(knob, values);
  }
}

TuneBackend read_backend(TableReader& table, Backend backend) {
  TuneBackend options;
  options.space.segments = byte_values(table, "segments");
  options.space.fanouts = count_values(table, "fanouts");
  options.space.depths = count_values(table, "depths");
  options.space.shards = count_values(table, "shards");
  options.space.channels = count_values(table, "channels");
  options.space.threads = count_values(table, "threads");
  options.space.chunks = byte_values(table, "chunks");
  options.space.socket_threads = count_values(table, "socket_threads");
  if (table.has("scopes")) options.space.scopes = table.names<KnobScope>("scopes");
  read_algorithms(table, backend, options);
  read_launch_knobs(table, options.space);
  table.finish();
  return options;
}

}  // namespace

TuneOptions read_tune(TableReader& root, const std::vector<std::string>& environments) {
  TuneOptions options;
  auto table = root.table("tune");
  if (!table) return options;
  options.given = true;
  if (const auto launches = table->integer("sweep_launches"))
    options.sweep_launches = static_cast<int>(*launches);
  if (const auto launches = table->integer("confirm_launches"))
    options.confirm_launches = static_cast<int>(*launches);
  if (const auto percent = table->integer("budget_percent"))
    options.budget = static_cast<double>(*percent) / 100;
  if (const auto time = table->duration("allowed_time")) options.allowed_time = *time;
  options.parallelism = table->name<ParallelismMode>("parallelism");
  for (const std::string& text : table->has("held_out") ? table->texts("held_out", Lines::many)
                                                        : std::vector<std::string>{}) {
    try {
      options.held_out.push_back(Expression::parse(text, environments));
      for (const auto& note : options.held_out.back().notes())
        table->note("held_out", fmt::format("held_out \"{}\", {}", text, note));
    } catch (const Error& error) {
      table->complain("held_out", fmt::format("held_out \"{}\", {}", text, error.what()));
    }
  }
  for (const std::string& name : all_names<Backend>()) {
    if (!table->has(name)) continue;
    const Backend backend = parse_named<Backend>(name);
    if (auto one = table->table(name)) options.backends[backend] = read_backend(*one, backend);
  }
  table->finish();
  return options;
}

}  // namespace dynamiccl
