#include "orchestrator/experiment/experiment_schema.hpp"

#include <limits>
#include <string>
#include <string_view>

#include "core/training/training.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/experiment/toml_reader.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {
namespace {

using Json = nlohmann::ordered_json;

// Of profiles, as parse_bytes() takes it: 0 is the engine's default.
constexpr const char* kProfileSize = "^[0-9]+(\\.[0-9]+)? *(B|[KMG](iB|B)?)?$";
constexpr const char* kVariable = "^[A-Za-z_][A-Za-z0-9_]*$";

Json described(Json schema, std::string_view description) {
  schema["description"] = description;
  return schema;
}

Json text() { return {{"type", "string"}}; }
Json boolean() { return {{"type", "boolean"}}; }
/// No bound but the file format's.
Json whole(std::int64_t low) { return {{"type", "integer"}, {"minimum", low}}; }
/// As TableReader::integer() takes it.
Json integer(std::int64_t low, std::int64_t high = std::numeric_limits<int>::max()) {
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
}
Json number(double low, double high) {
  return {{"type", "number"}, {"minimum", low}, {"maximum", high}};
}
Json pattern(const std::string& expression) {
  return {{"type", "string"}, {"pattern", expression}};
}
Json any_of(std::initializer_list<Json> choices) { return {{"anyOf", Json(choices)}}; }
Json duration() {
  return any_of({pattern(kDurationPattern), number(0, kLongestDuration.seconds())});
}
Json positive_duration() {
  const Json seconds{
      {"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", kLongestDuration.seconds()}};
  return any_of({pattern(kPositiveDurationPattern), seconds});
}
Json list_of(Json item) { return {{"type", "array"}, {"items", std::move(item)}, {"minItems", 1}}; }
Json one_or_more(const Json& item) { return any_of({item, list_of(item)}); }

template <class E>
Json named() {
  return {{"type", "string"}, {"enum", all_names<E>()}};
}

Json object(Json properties) {
  return {
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
}

Json requiring(Json schema, std::initializer_list<const char*> keys) {
  schema["required"] = Json(keys);
  return schema;
}

Json size() { return any_of({pattern(kSizePattern), whole(1)}); }

Json sizes() {
  const Json range =
      requiring(object({{"from", size()}, {"to", size()}, {"factor", integer(2)}}), {"from", "to"});
  const Json one = any_of({pattern(kSizePattern), whole(1), range});
  return one_or_more(one);
}

/// What [axes] and [[zip]] have in common.
Json axis_keys() {
  return {
      {"environment", described(one_or_more(text()), "where ranks run: profiles by name")},
      {"backend", described(one_or_more(named<Backend>()), "communication libraries")},
      {"architecture", described(one_or_more(named<Architecture>()),
                                 "ps: parameter server, ring: all ranks alike")},
      {"ranks", described(one_or_more(integer(1, kMostRanks)), "processes")},
      {"datatype", described(one_or_more(named<DataType>()), "element type; float32 by default")},
      {"algorithm", described(one_or_more(text()),
                              "\"library\" lets the backend choose; own_ring is this project's")},
      {"in_place", described(one_or_more(boolean()), "one buffer for both directions")}};
}

Json scalar() { return {{"type", Json::array({"string", "integer", "number", "boolean"})}}; }

Json collective_work() {
  auto names = all_names<Collective>();
  std::erase(names, std::string(name_of(Collective::training)));
  const Json collective{{"type", "string"}, {"enum", names}};
  return requiring(
      object({{"architecture", one_or_more(named<Architecture>())},
              {"backend", described(one_or_more(named<Backend>()), "only with these")},
              {"collective", one_or_more(collective)},
              {"size", described(sizes(),
                                 "as nccl-tests counts it: \"64KiB\", 65536 or {from = "
                                 "\"4B\", to = \"1GiB\", factor = 4}")},
              {"datatype", one_or_more(named<DataType>())},
              {"algorithm", one_or_more(text())},
              {"in_place", one_or_more(boolean())}}),
      {"collective", "size"});
}

Json training_work() {
  Json keys{{"training", described(one_or_more(named<TrainingMethod>()), "training methods")},
            {"architecture", one_or_more(named<Architecture>())},
            {"backend", described(one_or_more(named<Backend>()), "only with these")}};
  for (const auto& setting : training_settings()) keys[setting] = one_or_more(scalar());
  keys["model"] = one_or_more(named<TrainingModel>());
  return requiring(object(std::move(keys)), {"training", "model"});
}

Json work() {
  return described(list_of(any_of({collective_work(), training_work()})),
                   "what is measured: collectives x sizes, or training methods x settings");
}

Json noise() {
  return described(
      object({{"busy", described(number(0, 1), "share of the CPUs that others may use; 0.25")},
              {"load",
               described(number(0, 1000), "others' runnable tasks per core before a launch; 0.5")},
              {"steal", described(number(0, 1), "share of CPU time stolen by a hypervisor; 0.02")},
              {"psi_cpu", described(number(0, 1),
                                    "share of time a task waited for a CPU before a "
                                    "launch; 0.2")},
              {"psi_memory", described(number(0, 1), "the same for memory; 0.05")},
              {"psi_io", described(number(0, 1), "the same for disks; 0.25")},
              {"throttled", described(integer(0), "periods throttled by a control group; 0")},
              {"wait", described(duration(), "how long a launch waits for a quiet machine; 0.3 s")},
              {"gpu_capped", described(number(0, 1),
                                       "share of a cell's time in which heat or power held a GPU's "
                                       "clocks back; 0.05")}}),
      "limits of the noise gate: a launch beyond one is flagged and kept");
}

Json protocol() {
  Json schema = described(
      object(
          {{"launches",
            described(integer(1, 10'000), "blocks: independent launches of each group; 5")},
           {"target_interval",
            described(number(0.001, 1),
                      "launches are added until the 95 % interval of each median "
                      "is within this share of it")},
           {"max_launches",
            described(integer(2, 10'000), "with target_interval: no group gets more; 40")},
           {"time_budget",
            described(positive_duration(), "no block begins that would not end within it")},
           {"retries", described(integer(0, 100), "further attempts of a launch that failed; 1")},
           {"warmup",
            described(integer(0, 1'000'000), "iterations kept out of every statistic; 10")},
           {"iterations",
            described(integer(1, 10'000'000), "timed samples of a cell in a launch; 100")},
           {"min_iterations",
            described(integer(1, 10'000'000), "never fewer, whatever cell_time_cap says; 5")},
           {"cell_time_cap", described(duration(), "timed part of a cell in a launch; 2 s")},
           {"batch_target", described(duration(),
                                      "faster calls are timed in batches that last as "
                                      "long; 50us, 0 = off")},
           {"max_batch", described(integer(1, 1'000'000), "calls in a batch; 1000")},
           {"batch_rooted", described(boolean(),
                                      "batches operations with one root, too, whose mean is then a "
                                      "throughput, as the root runs ahead; false")},
           {"rank_aggregation",
            described(named<RankAggregation>(), "how one iteration's ranks become one time; max")},
           {"verify", described(boolean(), "check every element of the results; true")},
           {"launch_timeout", described(positive_duration(),
                                        "a launch without an end is ended; made from "
                                        "the cells where absent")},
           {"connect_timeout",
            described(positive_duration(), "for ranks to find each other; 30 s")},
           {"noise", noise()}}),
      "how often and how long");
  schema["dependencies"] = {{"max_launches", Json::array({"target_interval"})}};
  return schema;
}

Json knob_values(std::string_view description) {
  return described({{"type", "object"},
                    {"propertyNames", {{"pattern", kVariable}}},
                    {"additionalProperties", one_or_more(scalar())}},
                   description);
}

/// Settings of the C library's allocator, core/vocabulary/malloc_settings.hpp.
Json malloc_knobs() {
  const Json values = one_or_more(
      any_of({boolean(), Json{{"type", "string"}, {"enum", Json::array({"default"})}}}));
  Json settings = Json::object();
  for (const auto& name : malloc_setting_names()) settings[name] = values;
  return described(object(std::move(settings)), "what the allocator does with freed memory");
}

Json knobs() {
  Json backends = Json::object();
  for (const auto& name : all_names<Backend>()) {
    backends[name] =
        object({{"env", knob_values("environment variables; \"default\" leaves one alone")},
                {"mca", knob_values("Open MPI parameters")},
                {"malloc", malloc_knobs()},
                {"call", knob_values("settings per communicator and call")}});
  }
  return described(object(std::move(backends)), "settings of libraries, every value is swept");
}

Json backend_settings() {
  Json backends = Json::object();
  const Json setting = requiring(
      object({{"name", described(text(), "variable, \"mca:PARAMETER\" or \"malloc:SETTING\"")},
              {"value", text()},
              {"reason", described(text(), "why it is needed here")}}),
      {"name", "value", "reason"});
  for (const auto& name : all_names<Backend>())
    backends[name] = Json{{"type", "array"}, {"items", setting}};
  return object(std::move(backends));
}

Json profile() {
  const Json sharing = named<Sharing>();
  return object(
      {{"extends", described(text(), "the profile that this one starts from")},
       {"kind", named<EnvironmentKind>()},
       {"description", text()},
       {"ranks_per_container", described(whole(0), "0: all ranks in one container")},
       {"network", sharing},
       {"ipc", sharing},
       {"uts", sharing},
       {"pid", sharing},
       {"user", sharing},
       {"cpus", described(pattern("^[0-9,-]*$"), "CPUs of every container, \"0-3,8\"")},
       {"cpu_limit", described(number(0.01, 65536), "CPU time of a container, in cores")},
       {"shm_size", described(any_of({pattern(kProfileSize), whole(0)}), "of a private /dev/shm")},
       {"capabilities", Json{{"type", "array"},
                             {"items", requiring(object({{"name", text()}, {"reason", text()}}),
                                                 {"name", "reason"})}}},
       {"security_options", Json{{"type", "array"}, {"items", text()}}},
       {"launcher", named<LauncherPlace>()},
       {"gpus", named<GpuVisibility>()},
       {"environment", Json{{"type", "object"},
                            {"propertyNames", {{"pattern", kVariable}}},
                            {"additionalProperties", text()}}},
       {"backend", backend_settings()},
       {"link_bits_per_s", described(number(8e3, 1e13), "cap of each container's link")},
       {"declared_aggregation", text()},
       {"unprivileged_variant", text()}});
}

Json tune_backend() {
  const Json counts = one_or_more(integer(1));
  return object(
      {{"algorithms", described({{"type", "object"}, {"additionalProperties", one_or_more(text())}},
                                "by collective; all that are known")},
       {"segments", sizes()},
       {"fanouts", counts},
       {"depths", counts},
       {"shards", counts},
       {"channels", counts},
       {"threads", counts},
       {"chunks", sizes()},
       {"socket_threads", counts},
       {"scopes", one_or_more(named<KnobScope>())},
       {"launch", described({{"type", "object"}, {"additionalProperties", one_or_more(scalar())}},
                            "\"env.NAME\", \"mca.NAME\" or \"malloc.NAME\": values")}});
}

Json tune() {
  Json keys = {
      {"held_out", described(one_or_more(text()), "cells that no choice of ours was made on")},
      {"sweep_launches", described(integer(3, 1000), "of every setting with --sweep; 6")},
      {"confirm_launches", described(integer(3, 1000), "of default and choice; 10")},
      {"budget_percent", described(integer(1, 100), "of what all settings need; 25")},
      {"allowed_time", described(duration(), "what the workload leaves for a call")}};
  for (const auto& name : all_names<Backend>()) keys[name] = tune_backend();
  return described(object(std::move(keys)), "which settings `tune` searches");
}

Json cluster() {
  const Json starts{"srun", "mpirun"};
  return described(
      object(
          {{"hosts", described(one_or_more(text()), "\"node1:4\", ..., or a file of them; by ssh")},
           {"slurm", described(any_of({Json{{"type", "boolean"}}, Json{{"enum", starts}}}),
                               "who starts the ranks: job steps or MPI's launcher")},
           {"nodes", described(integer(0, 65536), "0: all")},
           {"ranks_per_node", described(integer(0, 65536), "0: equal shares")},
           {"gpus_per_node", integer(0, 1024)},
           {"partition", text()},
           {"time_limit", described(text(), "as Slurm takes it: \"2:00:00\"")},
           {"options", described(one_or_more(text()), "of salloc: \"--account=A\"")},
           {"interface", described(text(), "the ranks' network: \"ib0\"")},
           {"wait", described(duration(), "for an allocation; a day")}}),
      "the ranks' machines, where they are not this one");
}

Json expressions(std::string_view description) {
  return described(one_or_more(text()), description);
}

/// Every axis that has no default stands in [axes] or in a [[zip]].
Json required_axes() {
  Json all = Json::array();
  for (const char* axis : kRequiredAxes) {
    const Json has{{"required", Json::array({axis})}};
    const Json in_axes{{"required", Json::array({"axes"})}, {"properties", {{"axes", has}}}};
    const Json in_zip{{"required", Json::array({"zip"})},
                      {"properties", {{"zip", {{"contains", has}}}}}};
    all.push_back(any_of({in_axes, in_zip}));
  }
  return all;
}

}  // namespace

Json experiment_schema() {
  Json zip = object(axis_keys());
  zip["minProperties"] = 2;
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
              {"title", "DynamICCL experiment"}};
  schema["allOf"] = required_axes();
  schema.update(requiring(
      object({{"name", described(pattern("[^ \\t\\r\\n]"), "what the runs are listed under")},
              {"description", described(text(), "one sentence")},
              {"seed", described(whole(0), "of orders and data; 1")},
              {"axes", described(object(axis_keys()), "every combination is measured")},
              {"zip", described(list_of(std::move(zip)), "axes that vary together")},
              {"work", work()},
              {"protocol", protocol()},
              {"knobs", knobs()},
              {"cluster", cluster()},
              {"tune", tune()},
              {"where", expressions("keep the cells for which all hold: \"size >= 1MiB\"")},
              {"exclude", expressions("drop the cells for which any holds")},
              {"profile", described({{"type", "object"}, {"additionalProperties", profile()}},
                                    "environment profiles changed or made for this file")}}),
      {"name", "work"}));
  return schema;
}

}  // namespace dynamiccl
