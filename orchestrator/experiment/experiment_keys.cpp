#include "orchestrator/experiment/experiment_keys.hpp"

#include <fmt/format.h>

#include "containers/cluster/cluster_options.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/work_settings.hpp"
#include "orchestrator/experiment/protocol.hpp"
#include "orchestrator/experiment/tune_options.hpp"
#include "profiles/keys_output.hpp"
#include "profiles/machine_declarations.hpp"
#include "profiles/profile_toml.hpp"
#include "train/spec/removed_settings.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

using Json = nlohmann::ordered_json;
using KeysPtr = std::shared_ptr<const TableKeys>;

std::string plain(double value) { return fmt::format("{:g}", value); }
std::string seconds(Micros time) { return fmt::format("{:g} s", time.seconds()); }

/// What [axes] and [[zip]] have in common.
std::vector<Key> axis_keys() {
  return {
      {"environment", rule::text().some(), "where ranks run: profiles by name"},
      {"backend", rule::word<Backend>().some(), "communication libraries"},
      {"architecture", rule::word<Architecture>().some(),
       "ps: parameter server, ring: all ranks alike"},
      {"ranks", rule::whole(1, kMostRanks).some(), "processes"},
      {"datatype", rule::word<DataType>().some(), "element type", "float32"},
      {"algorithm", rule::text().some(),
       "\"library\" lets the backend choose; own_ring and two_level are this project's", "library"},
      {"in_place", rule::boolean().some(), "one buffer for both directions", "false"}};
}

/// Types that people know from elsewhere, and what is nearest.
std::vector<std::pair<std::string, std::string>> type_hints() {
  const std::string moves =
      "nearest is float16: where bytes are only moved, the type does not change the call";
  return {{"datatype=uint8", moves},
          {"datatype=int8", moves},
          {"datatype=int64", "nearest is float64, of as many bytes"},
          {"datatype=uint64", "nearest is float64, of as many bytes"},
          {"datatype=uint32", "nearest is int32"},
          {"datatype=float8_e4m3", moves + "; codecs of a training send fewer bits"},
          {"datatype=float8_e5m2", moves + "; codecs of a training send fewer bits"}};
}

TableKeys axes_keys() {
  TableKeys keys{axis_keys()};
  keys.hints = type_hints();
  return keys;
}

KeysPtr zip_keys() {
  TableKeys keys{axis_keys()};
  keys.hints = type_hints();
  keys.fewest = 2;
  return std::make_shared<const TableKeys>(std::move(keys));
}

/// What people want of a call and no key of a work says.
std::vector<std::pair<std::string, std::string>> work_hints() {
  const std::string of_all = "it holds for all work of a file: write it under [protocol]";
  const std::string blocks =
      "a call is timed by itself here; what overlaps with computing is a training's step: training "
      "= [\"wfbp-a2a\", ...]";
  const std::string parts =
      "write parts = \"1:0:3\", a share for each rank (of alltoallv a row for each, too: "
      "\"0:1/1:0\"), or skew = 4";
  const std::string groups =
      "a launch is one group of all its ranks: ranks = [2, 4] in [axes] measures groups of several "
      "sizes";
  return {{"redop", "write op = \"max\""},
          {"operation", "write collective = \"allreduce\" or another, and op = \"max\""},
          {"op=avg", "nearest is sum: MPI and Gloo have no average"},
          {"verify", of_all},
          {"cell_time_cap", of_all},
          {"batch_target", of_all},
          {"threads",
           "a rank is a process that calls from one thread: more callers are more ranks ([axes] "
           "ranks)"},
          {"collective=gatherv", "nearest are gather, of equal parts, and allgatherv"},
          {"collective=scatterv", "nearest are scatter, of equal parts, and alltoallv"},
          {"collective=reduce_scatterv", "nearest is reduce_scatter, of equal parts"},
          {"collective=reduce_scatter_block",
           "reduce_scatter is it: over MPI it calls MPI_Reduce_scatter_block"},
          {"overlap", blocks},
          {"nonblocking", blocks},
          {"window",
           "one call is under way at a time; of our own ring it is call.pipeline_depth in "
           "[knobs.BACKEND]"},
          {"groups", groups},
          {"subgroup", groups},
          {"subgroups", groups},
          {"matrix", parts},
          {"sizes_per_rank", parts},
          {"counts", parts},
          {"arrival", "write late = \"100us\": each rank enters by a drawn share of it later"},
          {"imbalance", parts},
          {"graph", "of NCCL it is a knob: call.graph = [0, 1] in [knobs.nccl]"},
          {"ranks", "it is an axis: write it under [axes]"},
          {"environment", "it is an axis: write it under [axes]"}};
}

KeysPtr collective_work() {
  auto names = all_names<Collective>();
  std::erase(names, std::string(name_of(Collective::training)));
  TableKeys keys{
      {{"collective", rule::words(names).some(), "what is called", "", true},
       {"size", rule::sizes(0),
        "as nccl-tests counts it, 0 for a call of nothing: \"64KiB\", 65536, {from = \"4B\", to = "
        "\"1GiB\", factor = 4} or "
        "{from = \"1MiB\", to = \"8MiB\", step = \"1MiB\"}",
        "", true},
       {"architecture", rule::word<Architecture>().some(), "only with these", "as the axes say"},
       {"backend", rule::word<Backend>().some(), "only with these", "as the axes say"},
       {"datatype", rule::word<DataType>().some(), "instead of the axis", "as the axes say"},
       {"algorithm", rule::text().some(), "instead of the axis", "as the axes say"},
       {"in_place", rule::boolean().some(), "instead of the axis", "as the axes say"},
       {"op", rule::word<ReduceOp>().some(), "of reductions, over MPI and Gloo", "sum"},
       {"root", rule::whole(0).some(), "rank that broadcasts or scatters, or that a reduce ends on",
        "0"},
       {"warmup", rule::whole(0, 1'000'000).some(), "instead of the protocol's",
        "as the protocol says"},
       {"iterations", rule::whole(1, 10'000'000).some(), "instead of the protocol's",
        "as the protocol says"},
       {"cold_cache", rule::boolean().some(),
        "takes a cell's buffers out of the processor's caches before each sample, a single call",
        "false"},
       {"skew", rule::whole(1, 1'000'000).some(),
        "of allgatherv and alltoallv: how often the largest part holds the smallest",
        "as many as ranks"},
       {"parts", rule::text_like("", "shares in quotes as in \"1:0:3\"").some(),
        "instead: a share for each rank, \"1:0:3\"; of alltoallv what each sends to them, or a row "
        "for each, \"0:1/1:0\"",
        "as skew says"},
       {"late", rule::text_like(kDurationPattern, "a duration such as \"100us\"").some(),
        "each rank enters a call by a drawn share of it late; its time begins as it enters", "0"}}};
  keys.hints = work_hints();
  const auto types = type_hints();
  keys.hints.insert(keys.hints.end(), types.begin(), types.end());
  return std::make_shared<const TableKeys>(std::move(keys));
}

KeysPtr traffic_work() {
  TableKeys keys{
      {{"traffic", rule::filled_text(), "a language model: the calls of one step", "", true},
       {"parallel", rule::text(), "as `predict --parallel` takes it: \"tensor=2,fsdp\"",
        "data-parallel"},
       {"shrink", rule::whole(1, 1'000'000), "sizes are divided by it", "1"},
       {"backend", rule::word<Backend>().some(), "only with these", "as the axes say"}}};
  return std::make_shared<const TableKeys>(std::move(keys));
}

KeysPtr training_work() {
  static const KeysPtr keys = [] {
    TableKeys work{
        {{"training", rule::word<TrainingMethod>().some(), "training methods", "", true},
         {"architecture", rule::word<Architecture>().some(), "only with these", "as the axes say"},
         {"backend", rule::word<Backend>().some(), "only with these", "as the axes say"}}};
    for (const auto& row : training_setting_rows()) {
      const bool model = row.name == training_settings().front();
      work.keys.push_back({row.name,
                           model ? rule::word<TrainingModel>().some() : rule::scalar().some(),
                           row.about, model ? "" : row.usual, model});
    }
    for (const auto& [name, holds] : kRemovedSettings) work.hints.emplace_back(name, holds);
    return std::make_shared<const TableKeys>(std::move(work));
  }();
  return keys;
}

TableKeys noise_keys() {
  const NoiseLimits usual;
  const ValueRule share = rule::number(0, 1);
  return {{{"busy", share, "share of the CPUs that others may use", plain(usual.busy)},
           {"load", rule::number(0, 1000), "others' runnable tasks per core before a launch",
            plain(usual.load)},
           {"steal", share, "share of CPU time stolen by a hypervisor", plain(usual.steal)},
           {"psi_cpu", share, "share of time a task waited for a CPU before a launch",
            plain(usual.psi_cpu)},
           {"psi_memory", share, "the same for memory", plain(usual.psi_memory)},
           {"psi_io", share, "the same for disks", plain(usual.psi_io)},
           {"throttled", rule::whole(0), "periods throttled by a control group",
            std::to_string(usual.throttled)},
           {"wait", rule::duration(), "how long a launch waits for a quiet machine",
            seconds(usual.wait)},
           {"gpu_capped", share,
            "share of a cell's time in which heat or power held a GPU's clocks back",
            plain(usual.gpu_capped)}}};
}

std::vector<Key> launch_keys(const RunProtocol& usual) {
  return {{"launches", rule::whole(1, 10'000), "blocks: independent launches of each group",
           std::to_string(usual.launches)},
          {"target_interval", rule::number(0.001, 1),
           "launches are added until the 95 % interval of each median is within this share of it",
           "as many as launches says"},
          {"max_launches", rule::whole(2, 10'000), "with target_interval: no group gets more",
           std::to_string(usual.max_launches)},
          {"time_budget", rule::positive_duration(), "no block begins that would not end within it",
           "none"},
          {"retries", rule::whole(0, 100), "further attempts of a launch that failed",
           std::to_string(usual.retries)},
          {"launch_timeout", rule::positive_duration(), "a launch without an end is ended",
           "made from the cells"},
          {"connect_timeout", rule::positive_duration(), "for ranks to find each other",
           seconds(usual.connect_timeout)}};
}

std::vector<Key> sampling_keys(const Protocol& usual) {
  return {
      {"warmup", rule::whole(0, 1'000'000), "iterations kept out of every statistic",
       std::to_string(usual.warmup)},
      {"iterations", rule::whole(1, 10'000'000), "timed samples of a cell in a launch",
       std::to_string(usual.iterations)},
      {"min_iterations", rule::whole(1, 10'000'000), "never fewer, whatever cell_time_cap says",
       std::to_string(usual.min_iterations)},
      {"cell_time_cap", rule::duration(), "timed part of a cell in a launch",
       seconds(usual.cell_time_cap)},
      {"batch_target", rule::duration(),
       "faster calls are timed in batches that last as long; 0 = off",
       fmt::format("{:g} us", usual.batch_target.count())},
      {"max_batch", rule::whole(1, 1'000'000), "calls in a batch", std::to_string(usual.max_batch)},
      {"batch_rooted", rule::boolean(),
       "batches operations with one root, too, whose mean is then a throughput, as the root "
       "runs ahead",
       fmt::format("{}", usual.batch_rooted)},
      {"rank_aggregation", rule::word<RankAggregation>(),
       "how one iteration's ranks become one time", std::string(name_of(usual.rank_aggregation))},
      {"verify", rule::boolean(), "check every element of the results",
       fmt::format("{}", usual.verify)}};
}

TableKeys protocol_keys() {
  const RunProtocol usual;
  TableKeys protocol{launch_keys(usual)};
  for (Key& key : sampling_keys(usual.cells)) protocol.keys.push_back(std::move(key));
  protocol.keys.push_back({"noise", rule::table(noise_keys()),
                           "limits of the noise gate: a launch beyond one is flagged and kept"});
  protocol.needs = {{"max_launches", "target_interval"}};
  const std::string budget =
      "time_budget ends a run between blocks of launches, cell_time_cap the timed part of a cell";
  protocol.hints = {{"verify=",
                     "it holds for every call of all cells; cells that go unchecked are a run by "
                     "themselves: --set protocol.verify=false --only 'size > 1MiB'"},
                    {"max_seconds", budget},
                    {"max_time", budget},
                    {"timeout", "launch_timeout ends a launch"},
                    {"repetitions", "iterations are samples of a cell, launches whole starts"},
                    {"seed", "it stands at the file's top: seed = 1"}};
  return protocol;
}

/// Settings of the C library's allocator, core/vocabulary/malloc_settings.hpp.
TableKeys malloc_keys() {
  TableKeys keys;
  for (const auto& name : malloc_setting_names())
    keys.keys.push_back({name, rule::toggle().some(), "", "as the process has it"});
  return keys;
}

ValueRule knobs() {
  const ValueRule values = rule::chosen(rule::scalar().some(), rule::kVariable);
  TableKeys keys{
      {{"env", values, "environment variables; \"default\" leaves one alone"},
       {"mca", values, "Open MPI parameters"},
       {"malloc", rule::table(malloc_keys()), "what the allocator does with freed memory"},
       {"call", values, "settings per communicator and call"}}};
  // With their scope, as [tune.BACKEND.launch] and profiles write them: "mca.pml".
  keys.others = rule::scalar().some();
  keys.others_pattern = "^(env|mca|malloc|call)([.][A-Za-z_][A-Za-z0-9_]*)?$";
  keys.chosen = "SETTING";
  return rule::by_backend(rule::table(std::move(keys)));
}

TableKeys tune_backend_keys() {
  const ValueRule counts = rule::whole(1).some();
  return {{{"algorithms", rule::chosen(rule::text().some(), "", "COLLECTIVE"),
            "algorithms by collective", "all that are known"},
           {"segments", rule::sizes(), "bytes of a pipelined segment"},
           {"fanouts", counts, "children of a tree's node"},
           {"depths", counts, "segments under way"},
           {"shards", counts, "servers that share a message"},
           {"channels", counts, "NCCL's channels"},
           {"threads", counts, "NCCL's threads of a block"},
           {"chunks", rule::sizes(), "bytes of NCCL's buffers"},
           {"socket_threads", counts, "NCCL's threads per socket"},
           {"scopes", rule::word<KnobScope>().some(), "when a setting takes effect"},
           {"launch", rule::chosen(rule::scalar().some(), "", "SETTING"),
            "\"env.NAME\", \"mca.NAME\" or \"malloc.NAME\": values"}}};
}

TableKeys tune_keys() {
  const TuneOptions usual;
  TableKeys tune{{{"held_out", rule::text(Lines::many).some(),
                   "cells, as expressions, that no choice of ours was made on"},
                  {"sweep_launches", rule::whole(3, 1000), "of every setting with --sweep",
                   std::to_string(usual.sweep_launches)},
                  {"confirm_launches", rule::whole(3, 1000), "of default and choice",
                   std::to_string(usual.confirm_launches)},
                  {"budget_percent", rule::whole(1, 100), "of what all settings need",
                   plain(100 * usual.budget)},
                  {"allowed_time", rule::duration(), "what the workload leaves for a call"},
                  {"parallelism", rule::word<ParallelismMode>(),
                   "how the workload whose calls these are is spread over its ranks"}}};
  const auto backend = rule::table(tune_backend_keys());
  for (const auto& name : all_names<Backend>())
    tune.keys.push_back({name, backend, "what is searched of this library"});
  return tune;
}

TableKeys cluster_keys() {
  constexpr int kMostNodes = 65536;
  constexpr int kMostGpus = 1024;
  constexpr int kMostJobs = 100'000;
  return {{{"hosts", rule::text().some(), "\"node1:4\", ..., or a file of them; by ssh"},
           {"slurm", rule::toggle({"srun", "mpirun"}),
            "who starts the ranks: job steps or MPI's launcher; true: srun", "false"},
           {"remote_shell", rule::text(),
            "program called in ssh's place for hosts: PROGRAM HOST COMMAND...", "ssh"},
           {"records", rule::word<RecordsWay>(),
            "how ranks' records come here: through a folder that all nodes see, by connections, or "
            "by these where some node does not see it",
            "auto"},
           {"engine", rule::text().some(),
            "of containers on nodes, as it is called there: \"docker\", \"podman\", [\"docker\", "
            "\"--host\", \"unix:///run/x.sock\"], or \"pyxis\", which is planned alone",
            "docker"},
           {"nodes", rule::whole(0, kMostNodes), "0: all", "0"},
           {"ranks_per_node", rule::whole(0, kMostNodes), "0: equal shares", "0"},
           {"dealt", rule::boolean(),
            "number ranks over the hosts in turn, as a cyclic distribution does, not host by host",
            "false"},
           {"gpus_per_node", rule::whole(0, kMostGpus), "what each node is asked for", "0"},
           {"jobs", rule::word<ClusterJobs>(),
            "all launches as job steps of one allocation, or a job of Slurm for each, in their "
            "order: each after the one before, one of a name at a time, or an array of one at a "
            "time",
            "one"},
           {"jobs_ahead", rule::whole(1, kMostJobs), "jobs that wait in the queue at most", "100"},
           {"partition", rule::text(), "of Slurm"},
           {"time_limit", rule::text(), "as Slurm takes it: \"2:00:00\""},
           {"options", rule::text().some(),
            "of salloc, or of sbatch where each launch has a job: \"--account=A\""},
           {"interface", rule::text(), "the ranks' network: \"ib0\""},
           {"wait", rule::duration(), "for an allocation", "a day"}}};
}

TableKeys machine_table_keys() {
  TableKeys keys = machine_keys();
  keys.keys.push_back({"file", rule::filled_text(), "a file of these keys, in their place"});
  return keys;
}

/// Every axis that has no default stands in [axes] or in a [[zip]].
Json required_axes() {
  Json all = Json::array();
  for (const char* axis : kRequiredAxes) {
    const Json has{{"required", Json::array({axis})}};
    const Json in_axes{{"required", Json::array({"axes"})}, {"properties", {{"axes", has}}}};
    const Json in_zip{{"required", Json::array({"zip"})},
                      {"properties", {{"zip", {{"contains", has}}}}}};
    all.push_back({{"anyOf", {in_axes, in_zip}}});
  }
  return all;
}

}  // namespace

const TableKeys& training_work_keys() { return *training_work(); }
const TableKeys& traffic_work_keys() {
  static const KeysPtr keys = traffic_work();
  return *keys;
}

const TableKeys& experiment_keys() {
  const ValueRule expressions = rule::text(Lines::many).some();
  static const TableKeys keys{
      {{"name", rule::filled_text(), "what the runs are listed under", "", true},
       {"description", rule::text(Lines::many), "one sentence"},
       {"seed", rule::whole(0, std::numeric_limits<std::int64_t>::max()), "of orders and data",
        std::to_string(kUsualSeed)},
       {"axes", rule::table(axes_keys()), "every combination is measured"},
       {"zip", rule::tables({zip_keys()}), "axes that vary together"},
       {"work", rule::tables({collective_work(), training_work(), traffic_work()}),
        "what is measured: collectives x sizes, training methods x settings, or the calls of a "
        "language model's step",
        "", true},
       {"protocol", rule::table(protocol_keys()), "how often and how long"},
       {"knobs", knobs(), "settings of libraries, every value is swept"},
       {"cluster", rule::table(cluster_keys()), "the ranks' machines, where they are not this one"},
       {"machine", rule::table(machine_table_keys()),
        "what no probe sees of the machines; shown as declared"},
       {"tune", rule::table(tune_keys()), "which settings `tune` searches"},
       {"where", expressions, "keep the cells for which all hold: \"size >= 1MiB\""},
       {"exclude", expressions, "drop the cells for which any holds"},
       {"profile", rule::chosen(rule::table(std::make_shared<const TableKeys>(profile_keys()))),
        "environment profiles changed or made for this file"}}};
  return keys;
}

Json experiment_schema() {
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
              {"title", "DynamICCL experiment"}};
  schema["allOf"] = required_axes();
  schema.update(json_schema(experiment_keys()));
  return schema;
}

std::string experiment_keys_page() {
  std::string page =
      "# Keys of experiment files\n\n"
      "Printed by `dynamiccl schema --markdown` from the table by which experiments are read; "
      "`dynamiccl schema` prints the same as a JSON schema for editors. All mistakes of a file are "
      "reported at once, each as `file:line:column`.\n\n"
      "* A **duration** is a text such as `\"500ms\"` (units us, ms, s, min or m, h) or a number "
      "of seconds.\n"
      "* A **size** is a text such as `\"64KiB\"` (K or KiB is 1024 bytes, KB 1000; M and G "
      "likewise) or a number of bytes.\n"
      "* A **range of sizes** is `{from = \"4B\", to = \"1GiB\", factor = 4}`, or with `step = "
      "\"1MiB\"` "
      "in the factor's place.\n"
      "* The axes environment, backend, architecture and ranks have no default: each stands in "
      "`[axes]` or in a `[[zip]]`.\n\n";
  page += keys_markdown(experiment_keys(), "The file");
  // Each section ends with an empty line; the page, whose last line end its printer writes, with
  // none.
  page.resize(page.find_last_not_of('\n') + 1);
  return page;
}

}  // namespace dynamiccl
