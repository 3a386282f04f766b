#include "orchestrator/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/work_settings.hpp"
#include "orchestrator/experiment/cluster_reader.hpp"
#include "orchestrator/experiment/experiment_keys.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "orchestrator/experiment/tune_reader.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/profile_toml.hpp"
#include "profiles/strict_toml.hpp"
#include "profiles/table_reader.hpp"
#include "train/spec/method_settings.hpp"

namespace dynamiccl {
namespace {

using Profiles = std::map<std::string, EnvironmentProfile>;

/// Of the settings of one backend, or of one training [[work]]: each becomes a launch or a cell,
/// and a million launches of a second take twelve days.
constexpr std::size_t kMostCombinations = 1'000'000;

std::vector<std::string> names_of(const Profiles& profiles) {
  std::vector<std::string> names;
  for (const auto& [name, profile] : profiles) names.push_back(name);
  return names;
}

std::vector<std::string> environments(TableReader& axes, const Profiles& known) {
  auto names = axes.texts("environment");
  for (const auto& name : names) {
    if (!known.contains(name))
      axes.complain("environment", TableReader::unknown_name("environment", name, names_of(known)));
  }
  return names;
}

/// The values of every axis in a table, as choices of that axis alone.
std::map<std::string, Dimension> read_axes(TableReader& table, const Profiles& known) {
  std::map<std::string, Dimension> axes;
  const auto add = [&](const char* name, const auto& values, auto member) {
    for (const auto& value : values) {
      AxisChoice choice;
      choice.*member = value;
      axes[name].push_back(choice);
    }
  };
  add("environment", environments(table, known), &AxisChoice::environment);
  add("backend", table.names<Backend>("backend"), &AxisChoice::backend);
  add("architecture", table.names<Architecture>("architecture"), &AxisChoice::architecture);
  add("ranks", table.integers("ranks"), &AxisChoice::ranks);
  add("datatype", table.names<DataType>("datatype"), &AxisChoice::datatype);
  add("algorithm", table.texts("algorithm"), &AxisChoice::algorithm);
  add("in_place", table.booleans("in_place"), &AxisChoice::in_place);
  table.finish();
  return axes;
}

AxisChoice merged(const AxisChoice& a, const AxisChoice& b) {
  AxisChoice both = a;
  if (b.environment) both.environment = b.environment;
  if (b.backend) both.backend = b.backend;
  if (b.architecture) both.architecture = b.architecture;
  if (b.ranks) both.ranks = b.ranks;
  if (b.datatype) both.datatype = b.datatype;
  if (b.algorithm) both.algorithm = b.algorithm;
  if (b.in_place) both.in_place = b.in_place;
  return both;
}

Dimension zipped(const std::map<std::string, Dimension>& axes, TableReader& table) {
  Dimension result;
  if (table.keys().size() < 2) {
    table.complain("", "[[zip]] needs at least two axes that vary together");
    return result;
  }
  const std::size_t count = axes.begin()->second.size();
  for (const auto& [name, values] : axes) {
    if (values.size() != count) {
      table.complain(name, fmt::format("[[zip]] lists must be of one length: {} has {} values, {} "
                                       "has {}",
                                       axes.begin()->first, count, name, values.size()));
      return result;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    AxisChoice choice;
    for (const auto& [name, values] : axes) choice = merged(choice, values[i]);
    result.push_back(choice);
  }
  return result;
}

/// What may stand there, of what everybody has.
std::string_view axis_example(std::string_view axis) {
  return axis == "ranks"          ? "2"
         : axis == "architecture" ? "[\"ring\", \"ps\"]"
         : axis == "backend"      ? "[\"openmpi\", \"mpich\", \"gloo\"]"
                                  : "[\"bare-metal\", \"single-docker\"]";
}

void read_dimensions(TableReader& root, const Profiles& known, Experiment& experiment) {
  std::set<std::string> given;
  if (auto axes = root.table("axes")) {
    const auto values = read_axes(*axes, known);
    // Groups are listed in this order; their order of running is random.
    for (const char* name :
         {"environment", "backend", "architecture", "ranks", "datatype", "algorithm", "in_place"}) {
      if (!axes->has(name)) continue;
      given.insert(name);
      // An axis whose every value was wrong has been complained about already.
      const auto found = values.find(name);
      if (found != values.end()) experiment.dimensions.push_back(found->second);
    }
  }
  for (auto& zip : root.tables("zip")) {
    const std::size_t before = root.mistakes().count();
    const auto axes = read_axes(zip, known);
    for (const auto& name : zip.keys())
      if (!axes.contains(name)) given.insert(name);
    for (const auto& [name, values] : axes) {
      if (!given.insert(name).second)
        zip.complain(
            name, fmt::format("axis {} is given twice: once in [axes] or another [[zip]]", name));
    }
    // Of values that were not understood nothing more is said.
    if (root.mistakes().count() == before) experiment.dimensions.push_back(zipped(axes, zip));
  }
  if (root.has("axes") && !root.node("axes")->is_table()) return;
  for (const char* required : kRequiredAxes) {
    if (!given.contains(required))
      root.complain("axes", fmt::format("expected axes.{0}, as in `{0} = {1}` below [axes]",
                                        required, axis_example(required)));
  }
}

/// Complains at the setting with which the combinations of all become more than can be planned.
/// @param known combinations of the settings before this one; 0 once it was complained about
void bound_combinations(const TableReader& table, const std::string& name, std::size_t values,
                        std::size_t& known) {
  known *= values;
  if (known <= kMostCombinations) return;
  table.complain(name,
                 fmt::format("{}.{}: with it the settings have {} combinations, more than {}: "
                             "give fewer values, or sweep some of them in another file",
                             table.path(), name, known, kMostCombinations));
  known = 0;
}

/// A setting that one of the methods takes is its own; one that none takes is a mistake.
void refuse_unused(TableReader& table, const std::string& setting,
                   const std::vector<TrainingMethod>& methods) {
  const bool taken =
      methods.empty() || std::any_of(methods.begin(), methods.end(), [&](TrainingMethod method) {
        return takes_setting(method_row(method), setting);
      });
  if (taken) return;
  table.complain(setting, fmt::format("{}: belongs to {}; train with one of these, too, or leave "
                                      "it out",
                                      setting, join(methods_that_take(setting), ", ")));
}

std::vector<std::string> values_of(const Work& work, const char* name) {
  const auto found = std::find_if(work.settings.begin(), work.settings.end(),
                                  [&](const KnobAxis& axis) { return axis.name == name; });
  return found == work.settings.end() ? std::vector<std::string>{"default"} : found->values;
}

/// "1" is what a setting takes `true` for, and nobody means it.
void refuse_boolean(const TableReader& table, const std::string& setting) {
  const toml::node& node = *table.node(setting);
  const auto* list = node.as_array();
  const bool boolean = list == nullptr
                           ? node.is_boolean()
                           : std::any_of(list->begin(), list->end(),
                                         [](const toml::node& one) { return one.is_boolean(); });
  if (boolean)
    table.complain(setting, fmt::format("{}: true and false are no value of it: expected a number "
                                        "or a word in quotes",
                                        setting));
}

/// A setting that none of the work's codecs reads is a mistake; where one does, cells of the others
/// are impossible.
void refuse_other_codecs(const TableReader& table, const Work& work) {
  for (const auto& axis : work.settings) {
    std::string why;
    bool read = false;
    for (const auto& value : axis.values)
      for (const auto& codec : values_of(work, "compression"))
        for (const auto& within : values_of(work, "group_compression")) {
          Settings said;
          for (const auto& [name, text] : {std::pair<std::string, std::string>{axis.name, value},
                                           {"compression", codec},
                                           {"group_compression", within}})
            if (text != "default") said[name] = text;
          const std::string misfit = training_contradiction(parsed_training(said));
          const bool other = misfit.starts_with(axis.name + ": belongs to compression");
          read = read || !other;
          if (other) why = misfit;
        }
    if (!read) table.complain(axis.name, why);
  }
}

/// A sparse codec sends a place with each value: of more than half of them that is more than all.
void note_wasteful_density(const TableReader& table, const Work& work) {
  constexpr std::size_t kValues = 1'000'000;
  for (const auto& codec : values_of(work, "compression"))
    for (const auto& density : values_of(work, "density")) {
      if (codec == "default" || density == "default") continue;
      const TrainingSpec spec = parsed_training({{"compression", codec}, {"density", density}});
      const auto bytes = codec_bytes(codec_settings(spec), kValues, 1, 0);
      if (!codec_row(spec.compression).by_density || !bytes || *bytes <= 4 * kValues) continue;
      table.note("density",
                 fmt::format("density = {}: {} sends a place with each value, {:.1f} "
                             "times the bytes of plain gradients",
                             density, codec, static_cast<double>(*bytes) / (4.0 * kValues)));
    }
}

/// Refuses a `local_after` to whose local steps no cell of the work comes: it would train one way
/// and be named after two.
void refuse_unreached_local_steps(const TableReader& table, const Work& work,
                                  const Protocol& protocol) {
  const auto waits = values_of(work, "synchronisation");
  const std::string later(name_of(Synchronisation::post_local));
  if (std::find(waits.begin(), waits.end(), later) == waits.end()) return;
  for (const auto& after : values_of(work, "local_after")) {
    std::string why;
    bool comes = false;
    for (const auto& of_round : values_of(work, "local_steps"))
      for (const auto& steps : values_of(work, "steps"))
        for (const auto& epochs : values_of(work, "epochs")) {
          Settings said{{"synchronisation", later}};
          for (const auto& [name, value] : {std::pair("local_after", after),
                                            {"local_steps", of_round},
                                            {"steps", steps},
                                            {"epochs", epochs}})
            if (value != "default") said[name] = value;
          const std::string misfit =
              local_after_misfit(parsed_training(said), protocol.warmup, protocol.iterations);
          comes = comes || misfit.empty();
          why = misfit;
        }
    if (!comes) table.complain("local_after", why);
  }
}

/// `training = [METHOD, ...]`: methods, and every setting as one value or a list of them.
void read_training(TableReader& table, const Protocol& protocol, Work& work) {
  const std::size_t before = table.mistakes().count();
  work.training = table.names<TrainingMethod>("training");
  work.architectures = table.names<Architecture>("architecture");
  work.backends = table.names<Backend>("backend");
  std::size_t combinations = 1;
  for (const auto& name : training_settings()) {
    if (!table.has(name)) continue;
    KnobAxis axis{name, table.scalars(name)};
    for (const auto& value : axis.values) {
      try {
        parsed_training({{name, value}});
      } catch (const Error& error) {
        table.complain(name, error.what());
      }
    }
    refuse_boolean(table, name);
    refuse_unused(table, name, work.training);
    bound_combinations(table, name, axis.values.size(), combinations);
    work.settings.push_back(std::move(axis));
  }
  if (table.mistakes().count() == before) {
    refuse_unreached_local_steps(table, work, protocol);
    refuse_other_codecs(table, work);
    note_wasteful_density(table, work);
  }
  table.finish();
}

/// Complains where it is none.
WorkSettings try_setting(const TableReader& table, const char* name, const std::string& value) {
  try {
    return work_settings_of({{name, value}});
  } catch (const Error& error) {
    table.complain(name, error.what());
    return {};
  }
}

/// What is usual is no setting, so that a cell's id is the same whether it is said or not.
std::vector<KnobAxis> read_calls(TableReader& table) {
  std::vector<KnobAxis> axes;
  const auto add = [&](const char* name, std::vector<std::string> values, const char* usual) {
    if (values.empty()) return;
    std::replace(values.begin(), values.end(), std::string(usual), std::string("default"));
    axes.push_back({setting_text(SettingScope::call, name), std::move(values)});
  };
  std::vector<std::string> ops;
  for (const auto op : table.names<ReduceOp>("op")) ops.emplace_back(name_of(op));
  add("op", std::move(ops), "sum");
  const auto whole = [&](const char* name) {
    std::vector<std::string> values;
    for (const int value : table.integers(name)) values.push_back(std::to_string(value));
    return values;
  };
  add("root", whole("root"), "0");
  add("warmup", whole("warmup"), "");
  add("iterations", whole("iterations"), "");
  std::vector<std::string> cold;
  for (const bool value : table.booleans("cold_cache")) cold.emplace_back(value ? "1" : "0");
  add("cold_cache", std::move(cold), "0");
  add("skew", whole("skew"), "");
  const auto parts = table.texts("parts");
  for (const auto& value : parts) try_setting(table, "parts", value);
  add("parts", parts, "");
  auto late = table.texts("late");
  for (auto& value : late)
    if (try_setting(table, "late", value).late.count() == 0) value = "default";
  add("late", std::move(late), "");
  return axes;
}

void read_work(TableReader& root, Experiment& experiment) {
  for (auto& table : root.tables("work")) {
    Work work;
    if (table.has("training")) {
      TableReader training = table.read_as(training_work_keys());
      read_training(training, experiment.protocol.cells, work);
      experiment.work.push_back(std::move(work));
      continue;
    }
    if (table.has("traffic")) {
      TableReader traffic = table.read_as(traffic_work_keys());
      work.architectures = {Architecture::ring};
      work.backends = traffic.names<Backend>("backend");
      std::vector<int> ranks;
      for (const auto& dimension : experiment.dimensions)
        for (const auto& choice : dimension)
          if (choice.ranks) ranks.push_back(*choice.ranks);
      work.traffic = read_traffic(traffic, ranks);
      experiment.work.push_back(std::move(work));
      continue;
    }
    work.architectures = table.names<Architecture>("architecture");
    work.backends = table.names<Backend>("backend");
    work.collectives = table.names<Collective>("collective");
    work.sizes = table.sizes("size");
    work.datatypes = table.names<DataType>("datatype");
    work.algorithms = table.texts("algorithm");
    work.in_place = table.booleans("in_place");
    work.calls = read_calls(table);
    table.finish();
    if (std::find(work.collectives.begin(), work.collectives.end(), Collective::training) !=
        work.collectives.end())
      table.complain("collective",
                     "training is no collective to be sized: write training = [\"mg-wfbp\", ...] "
                     "and model = \"...\" instead of collective and size");
    experiment.work.push_back(std::move(work));
  }
}

bool is_variable(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
         });
}

/// The knobs of one backend, as they are read.
struct BackendKnobs {
  Backend backend;
  std::vector<KnobAxis>& axes;
  std::size_t combinations = 1;

  void read(TableReader& table, const std::string& key, SettingScope scope,
            const std::string& name) {
    if (!is_variable(name))
      table.complain(key, fmt::format("\"{}\" is no name of a setting: expected letters, "
                                      "digits and _",
                                      name));
    KnobAxis axis{setting_text(scope, name), table.scalars(key)};
    if (const auto mistake = malloc_knob_mistake(axis.name, axis.values); !mistake.empty())
      table.complain(key, mistake);
    const auto same = [&](const KnobAxis& known) { return known.name == axis.name; };
    if (std::any_of(axes.begin(), axes.end(), same))
      table.complain(key, fmt::format("{} is given twice, with quotes and without", axis.name));
    bound_combinations(table, key, axis.values.size(), combinations);
    axes.push_back(std::move(axis));
  }

  /// @param key of `table` that gives settings of this scope
  void refuse_foreign(const TableReader& table, const std::string& key, SettingScope scope) const {
    if (scope == SettingScope::mca && !backend_facts(backend).mca)
      table.complain(key, fmt::format("mca parameters belong to Open MPI, not to {}; "
                                      "use env or call",
                                      name_of(backend)));
  }
};

/// [knobs.openmpi]: the tables of scopes (mca.btl), and names in quotes ("mca.btl").
void read_backend_knobs(TableReader& table, BackendKnobs& knobs) {
  for (const auto& scope : NameTable<SettingScope>::entries) {
    const std::string key(scope.name);
    auto names = table.table(key);
    if (!names) continue;
    knobs.refuse_foreign(table, key, scope.value);
    for (const auto& name : names->keys()) knobs.read(*names, name, scope.value, name);
  }
  for (const auto& key : table.keys()) {
    if (find_named<SettingScope>(key)) continue;
    const auto setting = find_setting(key);
    if (!setting) {
      table.complain(key, fmt::format("unknown key \"{}\" in [{}]; {}", key, table.path(),
                                      suggestion(key, all_names<SettingScope>())));
      continue;
    }
    if (!setting->note.empty()) table.note(key, setting->note);
    knobs.refuse_foreign(table, key, setting->scope);
    knobs.read(table, key, setting->scope, setting->name);
  }
  table.finish();
}

void read_knobs(TableReader& root, Experiment& experiment) {
  auto table = root.table("knobs");
  if (!table) return;
  for (const auto& backend_name : table->keys()) {
    const auto backend = find_named<Backend>(backend_name);
    if (!backend) {
      table->complain(backend_name,
                      TableReader::unknown_name("backend", backend_name, all_names<Backend>()));
      continue;
    }
    auto settings = table->table(backend_name);
    if (!settings) continue;
    BackendKnobs knobs{*backend, experiment.knobs[*backend]};
    read_backend_knobs(*settings, knobs);
  }
}

/// Both are stored as they are, with the file and --set that give them, and shown.
void refuse_passwords(TableReader& root, const Experiment& experiment) {
  for (const auto& [key, text] :
       {std::pair("name", experiment.name), std::pair("description", experiment.description)})
    if (carries_password(text))
      root.complain(
          key, fmt::format("the URL in it gives a password or token before \"@\", and a run's {} "
                           "is stored and shown as it is: leave them out",
                           key));
}

void read_expressions(TableReader& root, const std::string& key,
                      const std::vector<std::string>& environments,
                      std::vector<Expression>& expressions) {
  const auto texts = root.texts(key, Lines::many);
  const toml::node* node = root.node(key);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const toml::node* place = node->is_array() ? node->as_array()->get(i) : node;
    try {
      expressions.push_back(Expression::parse(texts[i], environments));
      for (const auto& note : expressions.back().notes())
        root.mistakes().note(place->source(), fmt::format("{} \"{}\", {}", key, texts[i], note));
    } catch (const Error& error) {
      root.mistakes().add(place->source(),
                          fmt::format("{} \"{}\", {}", key, texts[i], error.what()));
    }
  }
}

/// [profile.NAME]: a new profile (`extends`) or keys that replace those of a known one.
EnvironmentProfile changed_profile(TableReader& keys, const std::string& name,
                                   const Profiles& known) {
  const auto extends = keys.text("extends");
  const auto found = known.find(extends.value_or(name));
  EnvironmentProfile base;
  if (found != known.end()) {
    base = found->second;
  } else if (extends) {
    keys.complain("extends",
                  TableReader::unknown_name("environment profile", *extends, names_of(known)));
  } else if (!keys.has("extends")) {
    keys.complain("", fmt::format("[profile.{0}] is no known profile: write extends = \"...\" to "
                                  "make a new one; {1}",
                                  name, suggestion(name, names_of(known))));
  }
  base.name = name;
  return apply_profile_keys(base, keys);
}

Profiles with_overrides(TableReader& root, const Profiles& known) {
  Profiles profiles = known;
  auto table = root.table("profile");
  if (!table) return profiles;
  for (const auto& name : table->keys()) {
    // A profile with a mistake in it is still there for [axes].
    profiles.try_emplace(name);
    if (auto keys = table->table(name)) profiles[name] = changed_profile(*keys, name, known);
  }
  return profiles;
}

void keep_used_profiles(const Profiles& all, Experiment& experiment) {
  for (const auto& dimension : experiment.dimensions) {
    for (const auto& choice : dimension) {
      if (!choice.environment) continue;
      const auto found = all.find(*choice.environment);
      if (found == all.end()) continue;
      experiment.profiles.insert(*found);
      // An ordinary user gets the variant, so that it must be at hand.
      const auto variant = all.find(found->second.unprivileged_variant);
      if (variant != all.end()) experiment.profiles.insert(*variant);
    }
  }
}

/// What is simulated and what is measured are never of one run, so that no table sets them against
/// each other.
void refuse_mixed_kinds(const TableReader& root, const Profiles& all,
                        const Experiment& experiment) {
  std::string simulated;
  std::string measured;
  for (const auto& dimension : experiment.dimensions)
    for (const auto& choice : dimension)
      if (choice.environment && all.contains(*choice.environment))
        (all.at(*choice.environment).simulated() ? simulated : measured) = *choice.environment;
  if (simulated.empty()) return;
  if (!measured.empty())
    root.complain("axes", fmt::format("{} is simulated and {} is measured: give each an experiment "
                                      "of its own, as their times are never compared",
                                      simulated, measured));
  for (const char* key : {"cluster", "tune"})
    if (root.has(key))
      root.complain(key, fmt::format("[{}] is about ranks that run, and those of {} are simulated: "
                                     "leave it out",
                                     key, simulated));
}

}  // namespace

Experiment parse_experiment(const std::string& text, const std::string& source,
                            const std::vector<std::string>& overrides, const Profiles& profiles) {
  toml::table parsed = parse_toml(text, source);
  apply_overrides(parsed, overrides);
  Mistakes mistakes(source);
  TableReader root(parsed, "", mistakes, &experiment_keys());
  Experiment experiment;
  experiment.source_path = source;
  experiment.source_text = text;
  experiment.overrides = overrides;
  experiment.name = root.text("name").value_or("");
  experiment.description = root.text("description", Lines::many).value_or("");
  refuse_passwords(root, experiment);
  experiment.seed = static_cast<std::uint64_t>(
      root.integer("seed").value_or(static_cast<std::int64_t>(experiment.seed)));
  const Profiles all = with_overrides(root, profiles);
  read_dimensions(root, all, experiment);
  refuse_mixed_kinds(root, all, experiment);
  read_protocol(root, experiment.protocol);  // before the work, which is compared with it
  read_work(root, experiment);
  read_knobs(root, experiment);
  experiment.cluster = read_cluster(root);
  experiment.machine = read_machine(root);
  read_expressions(root, "where", names_of(all), experiment.where);
  read_expressions(root, "exclude", names_of(all), experiment.exclude);
  // Checked here with all else; `tune` reads it again with tune_options_of().
  read_tune(root, names_of(all));
  root.finish();
  mistakes.raise(&experiment.notes);
  keep_used_profiles(all, experiment);
  return experiment;
}

Experiment read_experiment(const std::string& path, const std::vector<std::string>& overrides,
                           const Profiles& profiles) {
  return parse_experiment(read_input_file(path), path, overrides, profiles);
}

TuneOptions tune_options_of(const Experiment& experiment) {
  toml::table parsed = parse_toml(experiment.source_text, experiment.source_path);
  apply_overrides(parsed, experiment.overrides);
  Mistakes mistakes(experiment.source_path);
  TableReader root(parsed, "", mistakes, &experiment_keys());
  std::vector<std::string> environments;
  for (const auto& [name, profile] : experiment.profiles) environments.push_back(name);
  TuneOptions options = read_tune(root, environments);
  mistakes.raise();
  return options;
}

}  // namespace dynamiccl
