#include "profiles/published/training_studies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/training/training.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/published/study.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

/// "ByteScheduler-PS" as the vocabulary has it. @throws Error(data) for what it does not have
template <class E>
std::string our_name(const std::string& published, const std::string& source) {
  std::string name = published;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "resnet-50") name = "resnet50";
  if (!find_named<E>(name))
    throw Error(ErrorKind::data,
                fmt::format("{}: {} \"{}\" is none of ours; {}", source, NameTable<E>::what,
                            published, suggestion(name, all_names<E>())));
  return name;
}

void add_level(const Study& study, const std::string& key, double level, TrainingStudies& studies) {
  const bool lossy = key.ends_with("_lossy");
  study.each_text(key, [&](const std::string& line) {  // "scheduling: WFBP, MG-WFBP"
    const auto colon = line.find(':');
    if (colon == std::string::npos) return;
    for (const auto& name : split(line.substr(colon + 1), ','))
      studies.taxonomy.push_back({level, line.substr(0, colon), std::string(trim(name)), lossy});
  });
}

void add_taxonomy(const Study& study, TrainingStudies& studies) {
  add_level(study, "level1_lossy", 1, studies);
  add_level(study, "level2_lossless", 2, studies);
  add_level(study, "level3_lossless", 3, studies);
  studies.tuner_level = study.number("tuner_level");
}

/// The numbers of a row by workers: keys gpus4, gpus8, ...; a list is a range.
void add_speedups(const toml::table& row, const PublishedSpeedup& like, TrainingStudies& studies) {
  constexpr std::string_view kPrefix = "gpus";
  for (const auto& [key, node] : row) {
    if (!key.str().starts_with(kPrefix)) continue;
    PublishedSpeedup one = like;
    one.workers = std::stoi(std::string(key.str().substr(kPrefix.size())));
    if (const auto* range = node.as_array()) {
      one.low = range->at(0).value_or(0.0);
      one.high = range->at(range->size() - 1).value_or(0.0);
    } else {
      one.low = one.high = node.value_or(0.0);
    }
    studies.speedups.push_back(std::move(one));
  }
}

void add_labels(const Study& study, const char* property, std::vector<PublishedLabel>& labels) {
  study.each("rows", [&](const toml::table& row) {
    for (const auto& [key, node] : row)
      if (key != property)
        labels.push_back(
            {text_of(row, property), std::string(key.str()), node.value_or(std::string())});
  });
}

PublishedBudget budget_of(const Study& method, const Study& times) {
  const auto count = [&](const char* key) { return static_cast<int>(method.number(key)); };
  return {count("epochs"), count("steps_ring_4_workers"), count("steps_ps_nccl_3_workers"),
          times.number("ring_vs_ps_nccl_bare_metal")};
}

}  // namespace

TrainingStudies parse_training_studies(const std::string& toml_text, const std::string& source) {
  const toml::table root = parse_toml(toml_text, source);
  const auto table = [&](const char* path) { return Study(root, path, source); };
  TrainingStudies studies;
  const Study testbed = table("s001.testbed");
  studies.survey_testbed =
      fmt::format("{:.0f}x {} on {:.0f} nodes, PCIe {}, InfiniBand {:.0f} Gb/s or Ethernet",
                  testbed.number("gpus_total"), testbed.text("gpu"), testbed.number("nodes"),
                  testbed.text("pcie"), testbed.number("infiniband_gbit_per_s"));
  add_taxonomy(table("s001.taxonomy"), studies);
  table("s001.models").each("rows", [&](const toml::table& row) {
    studies.models.push_back({our_name<TrainingModel>(text_of(row, "model"), source),
                              number_of(row, "intensity"),
                              static_cast<int>(number_of(row, "local_batch"))});
  });
  // The seed's best of seven is on InfiniBand, as the table by method is.
  table("s001.speedup").each("rows", [&](const toml::table& row) {
    PublishedSpeedup best;
    best.link = "100Gb-IB-RDMA";
    best.model = our_name<TrainingModel>(text_of(row, "model"), source);
    add_speedups(row, best, studies);
  });
  const Study by_method = table("ddl_benchmarks.speedup");
  by_method.each("rows", [&](const toml::table& row) {
    PublishedSpeedup like;
    like.link = text_of(row, "link");
    like.model = our_name<TrainingModel>(text_of(row, "model"), source);
    like.method = our_name<TrainingMethod>(text_of(row, "method"), source);
    like.doubtful = row["doubtful"].value_or(false);
    add_speedups(row, like, studies);
  });
  studies.speedups_note = by_method.text("note");
  add_labels(table("s003.arch_tradeoff"), "dimension", studies.architecture);
  // The container study counts what a server costs (D-11).
  const Study cost = table("s000.architecture_tradeoff");
  for (const auto& [key, technique] : {std::pair{"gpus_lost_to_server_nccl.ps", "ps"},
                                       std::pair{"gpus_lost_to_server_nccl.ring", "allreduce"}})
    studies.architecture.push_back(
        {"GPUs lost to servers", technique, fmt::format("{:.0f}", cost.number(key))});
  add_labels(table("s003.scheduling_tradeoff"), "property", studies.scheduling);
  studies.budget = budget_of(table("s000.method"), table("s000.training_time"));
  return studies;
}

}  // namespace dynamiccl
