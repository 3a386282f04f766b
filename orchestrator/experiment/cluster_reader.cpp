#include "orchestrator/experiment/cluster_reader.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "containers/cluster/hidden_gpus.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

std::vector<ClusterNode> read_hosts(TableReader& table) {
  const auto texts = table.texts("hosts");
  if (texts.empty()) return {};
  try {
    return hosts_of(texts);
  } catch (const Error& error) {
    table.complain("hosts", error.what());
    return {};
  }
}

/// `slurm = true` is srun.
std::optional<ClusterStart> read_slurm(TableReader& table) {
  const auto values = table.scalars("slurm");
  if (values.empty()) return std::nullopt;
  if (table.node("slurm")->is_boolean())
    return values.front() == "1" ? std::optional(ClusterStart::srun) : std::nullopt;
  const auto start = find_named<ClusterStart>(values.front());
  if (!start || *start == ClusterStart::ssh) {
    table.complain("slurm", fmt::format("cluster.slurm: expected true, \"srun\" or \"mpirun\", "
                                        "found \"{}\"; ssh is for hosts",
                                        values.front()));
    return std::nullopt;
  }
  return start;
}

void read_way(TableReader& table, ClusterOptions& options) {
  if (const auto engine = table.texts("engine"); !engine.empty()) options.engine = engine;
  options.records = table.name<RecordsWay>("records").value_or(RecordsWay::automatic);
  const auto shell = table.text("remote_shell");
  if (!shell || shell->empty()) return;
  try {
    options.remote_shell = remote_shell_of(*shell);
  } catch (const Error& error) {
    table.complain("remote_shell", error.what());
  }
}

/// Options go into command lines: nothing but options may stand there.
void read_options(TableReader& table, ClusterOptions& options) {
  options.options = table.texts("options");
  for (const auto& option : options.options)
    if (const auto why = why_hides_gpus(option); !why.empty())
      table.note("options", "cluster.options: " + why);
    else if (!option.starts_with("-"))
      table.complain(
          "options",
          fmt::format("\"{}\" is no option of salloc or sbatch: it begins with -", option));
}

}  // namespace

std::string remote_shell_of(const std::string& program) {
  // Open MPI cuts its agent's line at blanks and colons.
  const bool plain = program.find_first_of(" \t\n:") == std::string::npos && program[0] != '-';
  const bool in_path = program.find('/') == std::string::npos;
  if (!plain || (!in_path && program[0] != '/'))
    throw Error(
        ErrorKind::input,
        fmt::format("\"{}\" is no program to be called in ssh's place: a name in PATH or an "
                    "absolute path is needed, without options, blanks and colons; write a "
                    "script where options are needed",
                    program));
  return program;
}

std::vector<ClusterNode> hosts_of(const std::vector<std::string>& texts) {
  const bool alone = texts.size() == 1;
  if (alone && std::filesystem::is_regular_file(texts.front()))
    return parse_hosts(read_input_file(texts.front()), texts.front());
  if (alone && texts.front().find('/') != std::string::npos)
    throw Error(ErrorKind::input, texts.front() + ": there is no such file of hosts");
  return parse_hosts(join(texts, ","), "cluster.hosts");
}

std::optional<ClusterOptions> read_cluster(TableReader& root) {
  auto table = root.table("cluster");
  if (!table) return std::nullopt;
  ClusterOptions options;
  options.hosts = read_hosts(*table);
  const auto slurm = read_slurm(*table);
  if (slurm) options.start = *slurm;
  const auto count = [&](const char* key) {
    return static_cast<int>(table->integer(key).value_or(0));
  };
  options.nodes = count("nodes");
  options.ranks_per_node = count("ranks_per_node");
  options.gpus_per_node = count("gpus_per_node");
  options.dealt = table->boolean("dealt").value_or(false);
  if (options.dealt && options.gpus_per_node > 0)
    table->complain("dealt", "cluster.dealt is for ranks on CPUs: GPUs are given node by node");
  options.jobs = table->name<ClusterJobs>("jobs").value_or(ClusterJobs::one);
  options.jobs_ahead = static_cast<int>(table->integer("jobs_ahead").value_or(options.jobs_ahead));
  options.partition = table->text("partition").value_or("");
  options.time_limit = table->text("time_limit").value_or("");
  options.interface = table->text("interface").value_or("");
  read_way(*table, options);
  if (const auto wait = table->duration("wait")) options.wait_s = static_cast<int>(wait->seconds());
  read_options(*table, options);
  if (!slurm) {
    for (const char* key : {"partition", "time_limit", "options", "wait", "jobs", "jobs_ahead"})
      if (table->has(key))
        table->complain(key, fmt::format("cluster.{} is for Slurm: add slurm = true", key));
    if (!table->has("hosts"))
      table->complain("", "[cluster] needs hosts = [\"node1:4\", ...] or slurm = true");
  } else if (table->has("hosts")) {
    table->complain("hosts", "cluster.hosts and cluster.slurm exclude each other: Slurm chooses");
  } else if (options.dealt) {
    table->complain("dealt", "cluster.dealt is for hosts: ranks of Slurm fill node after node");
  } else if (!options.remote_shell.empty()) {
    table->complain("remote_shell", "cluster.remote_shell is for hosts: Slurm starts ranks itself");
  }
  if (!slurm && options.nodes > 0 && static_cast<std::size_t>(options.nodes) < options.hosts.size())
    options.hosts.resize(static_cast<std::size_t>(options.nodes));
  table->finish();
  return options;
}

MachineDeclarations read_machine(TableReader& root) {
  auto table = root.table("machine");
  if (!table) return {};
  MachineDeclarations machine = read_machine_keys(*table);
  const auto file = table->text("file");
  if (file && table->raw().size() > 1) {
    table->complain("file", "machine.file stands alone: write all declarations here or all there");
  } else if (file) {
    try {
      machine = parse_declarations(read_input_file(*file), *file);
    } catch (const Error& error) {
      table->complain("file", error.what());
    }
  }
  table->finish();
  return machine;
}

}  // namespace dynamiccl
