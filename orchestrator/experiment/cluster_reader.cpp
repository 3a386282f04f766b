#include "orchestrator/experiment/cluster_reader.hpp"

#include <fmt/format.h>

#include <filesystem>

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

/// Options go into command lines: nothing but options may stand there.
void read_options(TableReader& table, ClusterOptions& options) {
  options.options = table.texts("options");
  for (const auto& option : options.options)
    if (!option.starts_with("-"))
      table.complain("options",
                     fmt::format("\"{}\" is no option of salloc: it begins with -", option));
}

}  // namespace

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
  options.partition = table->text("partition").value_or("");
  options.time_limit = table->text("time_limit").value_or("");
  options.interface = table->text("interface").value_or("");
  if (const auto wait = table->duration("wait")) options.wait_s = static_cast<int>(wait->seconds());
  read_options(*table, options);
  if (!slurm) {
    for (const char* key : {"partition", "time_limit", "options", "wait"})
      if (table->has(key))
        table->complain(key, fmt::format("cluster.{} is for Slurm: add slurm = true", key));
    if (!table->has("hosts"))
      table->complain("", "[cluster] needs hosts = [\"node1:4\", ...] or slurm = true");
  } else if (table->has("hosts")) {
    table->complain("hosts", "cluster.hosts and cluster.slurm exclude each other: Slurm chooses");
  }
  if (!slurm && options.nodes > 0 && static_cast<std::size_t>(options.nodes) < options.hosts.size())
    options.hosts.resize(static_cast<std::size_t>(options.nodes));
  table->finish();
  return options;
}

}  // namespace dynamiccl
