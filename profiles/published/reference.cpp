#include "profiles/published/reference.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/published/study.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

/// The study's word for an operation in ours.
std::string collective_of(const std::string& published) {
  return published == "bcast" ? "broadcast" : published;
}

/// Where the study has the operation from: its server broadcasts and gathers (their times add up
/// to its training time with one), its ring does the others.
std::string architecture_of(const std::string& collective) {
  const bool server = collective == "broadcast" || collective == "gather";
  return std::string(name_of(server ? Architecture::ps : Architecture::ring));
}

void add_shell_ratios(Study study, ReferenceFigures& figures) {
  study.each("rows", [&](Study& row) {
    const std::string collective = collective_of(row.text("subroutine"));
    figures.ratios.push_back({"nccl", architecture_of(collective), collective, "cross-docker",
                              row.number("cross_docker") / row.number("bare_metal"),
                              "micro-benchmark", "s000.nccl_cross_docker_shell"});
  });
}

void add_singularity_ratio(Study study, ReferenceFigures& figures) {
  const std::string collective = study.text("subroutine");
  figures.ratios.push_back({"mpich", architecture_of(collective), collective, "singularity",
                            study.number("singularity") / study.number("bare_metal"),
                            "micro-benchmark", "s000.shell_mpich_singularity"});
}

void add_training_ratios(Study study, ReferenceFigures& figures) {
  study.each("rows", [&](Study& row) {
    const std::string metric = row.text("metric");  // "nccl bcast latency"
    const std::string what = metric.starts_with("nccl allreduce latency") ? "allreduce"
                             : metric.starts_with("nccl bcast latency")   ? "broadcast"
                                                                          : "";
    if (what.empty()) return;
    for (const auto& [key, environment] :
         {std::pair{"singularity", "singularity"}, std::pair{"single_docker", "single-docker"},
          std::pair{"cross_docker", "cross-docker"}}) {
      figures.ratios.push_back({"nccl", architecture_of(what), what, environment,
                                row.number(key) / row.number("bare_metal"), "training",
                                "s000.environment_tradeoff"});
    }
  });
}

void add_extremes(Study study, ReferenceFigures& figures) {
  for (const bool best : {true, false}) {
    study.each(best ? "best" : "worst", [&](Study& row) {
      const std::string collective = collective_of(row.text("subroutine"));
      figures.extremes.push_back({architecture_of(collective), collective, row.text("backend"),
                                  row.text("environment"), row.number("seconds"), best});
    });
  }
  figures.extremes_note = study.text("note");
}

void add_ranking(PublishedRanking ranking, ReferenceFigures& figures) {
  std::stable_sort(ranking.fastest_first.begin(), ranking.fastest_first.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  figures.rankings.push_back(std::move(ranking));
}

void add_all_reduce_rankings(Study shell, Study training, ReferenceFigures& figures) {
  PublishedRanking ranking{
      "allreduce", "micro-benchmark", "s000.shell_allreduce_baremetal_4gpu", {}};
  shell.each("rows", [&](Study& row) {
    ranking.fastest_first.push_back({row.text("backend"), row.number("total")});
  });
  add_ranking(std::move(ranking), figures);
  ranking = {"allreduce", "training", "s000.training_allreduce_baremetal_4gpu", {}};
  for (const char* backend : {"mpi", "gloo", "nccl"})
    ranking.fastest_first.push_back({backend, training.number(backend)});
  add_ranking(std::move(ranking), figures);
}

/// Of the operations with a server. Figures of one harness only: a row of that table mixes two.
void add_server_rankings(Study study, ReferenceFigures& figures) {
  study.each("rows", [&](Study& row) {
    const std::string dimension = row.text("dimension");  // "ps gather bare metal"
    constexpr std::string_view kServer = "ps ";
    if (!dimension.starts_with(kServer) || row.text("nccl_harness") != "shell") return;
    const std::string rest = dimension.substr(kServer.size());
    add_ranking({rest.substr(0, rest.find(' ')),
                 "micro-benchmark",
                 "s000.backend_tradeoff",
                 {{"cuda-aware-mpi", row.number("mpi_family")}, {"nccl", row.number("nccl")}}},
                figures);
  });
}

}  // namespace

ReferenceFigures parse_reference_figures(const std::string& toml_text, const std::string& source) {
  const toml::table root = parse_toml(toml_text, source);
  Mistakes mistakes(source, ErrorKind::data);
  TableReader reader(root, "", mistakes);
  const auto table = [&](const char* path) { return Study(reader, path); };
  ReferenceFigures figures;
  Study testbed = table("s000.testbed");
  Study stack = table("s000.stack");
  figures.testbed =
      fmt::format("{:.0f}x {} over PCIe {}, NCCL {}, Open MPI {}, MPICH {}, {:.0f} GiB messages",
                  testbed.number("gpus_per_node"), testbed.text("gpu"), testbed.text("pcie"),
                  stack.text("nccl"), stack.text("openmpi"), stack.text("mpich"),
                  table("s000.method").number("tensor_gib"));
  add_shell_ratios(table("s000.nccl_cross_docker_shell"), figures);
  add_singularity_ratio(table("s000.shell_mpich_singularity"), figures);
  add_training_ratios(table("s000.environment_tradeoff"), figures);
  add_extremes(table("s000.training_best_worst"), figures);
  add_all_reduce_rankings(table("s000.shell_allreduce_baremetal_4gpu"),
                          table("s000.training_allreduce_baremetal_4gpu"), figures);
  add_server_rankings(table("s000.backend_tradeoff"), figures);
  table("s000.shell_copy_share").each("rows", [&](Study& row) {
    const std::string collective = collective_of(row.text("subroutine"));
    figures.copy_shares.push_back({row.text("backend"), architecture_of(collective), collective,
                                   row.number("share_percent")});
  });
  table("s000.training_time").each("rows", [&](Study& row) {
    figures.training_times.push_back({row.text("architecture"), row.text("backend"),
                                      row.number("bare_metal"), row.number("cross_docker")});
  });
  mistakes.raise();
  return figures;
}

}  // namespace dynamiccl
