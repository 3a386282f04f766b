#include "profiles/published/training_studies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/published/study.hpp"
#include "profiles/strict_toml.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// "ByteScheduler-PS" as the vocabulary has it; what it does not have is noted.
template <class E>
std::string our_name_of(const std::string& published, Study& row, const std::string& key) {
  std::string name = published;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "resnet-50") name = "resnet50";
  if (!name.empty() && !find_named<E>(name))
    row.complain(key, fmt::format("{} \"{}\" is none of ours; {}", NameTable<E>::what, published,
                                  suggestion(name, all_names<E>())));
  return name;
}

template <class E>
std::string our_name(Study& row, const std::string& key) {
  return our_name_of<E>(row.text(key), row, key);
}

void add_level(Study study, const std::string& key, double level, TrainingStudies& studies) {
  const bool lossy = key.ends_with("_lossy");
  study.each_text(key, [&](const std::string& line) {  // "scheduling: WFBP, MG-WFBP"
    const auto colon = line.find(':');
    if (colon == std::string::npos) return;
    for (const auto& name : split(line.substr(colon + 1), ','))
      studies.taxonomy.push_back({level, line.substr(0, colon), std::string(trim(name)), lossy});
  });
}

void add_taxonomy(Study study, TrainingStudies& studies) {
  add_level(study, "level1_lossy", 1, studies);
  add_level(study, "level2_lossless", 2, studies);
  add_level(study, "level3_lossless", 3, studies);
  studies.tuner_level = study.number("tuner_level");
}

/// The numbers of a row by workers: keys gpus4, gpus8, ...; a list is a range.
void add_speedups(Study& row, const PublishedSpeedup& like, TrainingStudies& studies) {
  constexpr std::string_view kPrefix = "gpus";
  for (const std::string& key : row.keys()) {
    if (!key.starts_with(kPrefix)) continue;
    PublishedSpeedup one = like;
    one.workers = std::stoi(key.substr(kPrefix.size()));
    std::tie(one.low, one.high) = row.range(key);
    studies.speedups.push_back(std::move(one));
  }
}

void add_labels(Study study, const char* property, std::vector<PublishedLabel>& labels) {
  study.each("rows", [&](Study& row) {
    for (const std::string& key : row.keys())
      if (key != property) labels.push_back({row.text(property), key, row.text(key)});
  });
}

/// A row per place of the sum and synchronisation, a column per property.
void add_waiting_profile(Study study, std::vector<PublishedLabel>& labels) {
  study.each("rows", [&](Study& row) {
    const std::string technique = row.text("arch") + " " + row.text("sync");
    for (const char* property : {"consistency", "frequency", "congestion", "convergence"})
      labels.push_back({property, technique, row.text(property)});
  });
}

void add_waiting(Study tradeoff, Study tiers, Study orders, TrainingStudies& studies) {
  tradeoff.each("rows", [&](Study& row) {
    const auto [least, worst] = row.range("accuracy_change");
    studies.waiting.push_back(
        {row.text("mode"), row.text("consistency"), row.text("per_step"), least, worst});
  });
  tiers.each("rows", [&](Study& row) {
    studies.waiting_by_tier.push_back(
        {row.text("mode"),
         {row.text("tier1"), row.text("tier2"), row.text("tier3"), row.text("tier4")},
         row.text("gate")});
  });
  orders.each("rows", [&](Study& row) {
    const auto keys = row.keys();
    const bool both = std::find(keys.begin(), keys.end(), "non_convex") != keys.end();
    studies.convergence.push_back(
        {row.text("method"), row.text("convex"), both ? row.text("non_convex") : ""});
  });
}

/// "BERT-Base at 8 workers".
PublishedException exception_of(Study rules) {
  constexpr const char* kKey = "low_intensity_exception";
  PublishedException exception;
  exception.text = rules.text(kKey);
  const auto parts = split(exception.text, ' ');
  if (parts.size() != 4 || parts[1] != "at" || parts[3] != "workers") {
    rules.complain(kKey, fmt::format("\"{}\" is not \"MODEL at N workers\"", exception.text));
    return exception;
  }
  exception.model = std::string(parts[0]);
  std::transform(exception.model.begin(), exception.model.end(), exception.model.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  exception.workers = std::atoi(std::string(parts[2]).c_str());
  return exception;
}

/// "A over B, strongest at 32", or "A" and "A, slightly over B", which are said of A and all
/// others.
PublishedClaim claim_of(Study& rules, const std::string& key, PublishedClaim::Models models) {
  constexpr std::string_view kOver = " over ";
  PublishedClaim claim{rules.text(key), "", "", models};
  const std::string first = claim.text.substr(0, claim.text.find(','));
  const auto over = first.find(kOver);
  claim.faster = our_name_of<TrainingMethod>(first.substr(0, over), rules, key);
  if (over != std::string::npos)
    claim.slower = our_name_of<TrainingMethod>(first.substr(over + kOver.size()), rules, key);
  return claim;
}

std::vector<PublishedClaim> claims_of(Study rules) {
  using Models = PublishedClaim::Models;
  std::vector<PublishedClaim> claims{claim_of(rules, "no_scheduling", Models::all),
                                     claim_of(rules, "wfbp_large_n", Models::all),
                                     claim_of(rules, "low_intensity", Models::low_intensity),
                                     claim_of(rules, "high_intensity", Models::high_intensity),
                                     claim_of(rules, "weak", Models::all)};
  // Of the weak one the name alone is published.
  std::swap(claims.back().faster, claims.back().slower);
  claims[2].text += " at low intensity";
  claims[3].text += " at high intensity";
  claims.back().text += " weak";
  return claims;
}

PublishedBudget budget_of(Study method, Study times) {
  const auto count = [&](const char* key) { return static_cast<int>(method.number(key)); };
  return {count("epochs"), count("steps_ring_4_workers"), count("steps_ps_nccl_3_workers"),
          times.number("ring_vs_ps_nccl_bare_metal")};
}

}  // namespace

TrainingStudies parse_training_studies(const std::string& toml_text, const std::string& source) {
  const toml::table root = parse_toml(toml_text, source);
  Mistakes mistakes(source, ErrorKind::data);
  TableReader reader(root, "", mistakes);
  const auto table = [&](const char* path) { return Study(reader, path); };
  TrainingStudies studies;
  Study testbed = table("s001.testbed");
  studies.survey_testbed =
      fmt::format("{:.0f}x {} on {:.0f} nodes, PCIe {}, InfiniBand {:.0f} Gb/s or Ethernet",
                  testbed.number("gpus_total"), testbed.text("gpu"), testbed.number("nodes"),
                  testbed.text("pcie"), testbed.number("infiniband_gbit_per_s"));
  add_taxonomy(table("s001.taxonomy"), studies);
  table("s001.models").each("rows", [&](Study& row) {
    studies.models.push_back({our_name<TrainingModel>(row, "model"), row.number("intensity"),
                              static_cast<int>(row.number("local_batch"))});
  });
  // The seed's best of seven is on InfiniBand, as the table by method is.
  table("s001.speedup").each("rows", [&](Study& row) {
    PublishedSpeedup best;
    best.link = "100Gb-IB-RDMA";
    best.model = our_name<TrainingModel>(row, "model");
    add_speedups(row, best, studies);
  });
  Study by_method = table("ddl_benchmarks.speedup");
  by_method.each("rows", [&](Study& row) {
    PublishedSpeedup like;
    like.link = row.text("link");
    like.model = our_name<TrainingModel>(row, "model");
    like.method = our_name<TrainingMethod>(row, "method");
    like.doubtful = row.flag("doubtful");
    add_speedups(row, like, studies);
  });
  studies.speedups_note = by_method.text("note");
  add_labels(table("s003.arch_tradeoff"), "dimension", studies.architecture);
  // The container study counts what a server costs.
  Study lost = table("s000.architecture_tradeoff.gpus_lost_to_server_nccl");
  for (const auto& [key, technique] : {std::pair{"ps", "ps"}, std::pair{"ring", "allreduce"}})
    studies.architecture.push_back(
        {"GPUs lost to servers", technique, fmt::format("{:.0f}", lost.number(key))});
  add_labels(table("s003.scheduling_tradeoff"), "property", studies.scheduling);
  add_waiting_profile(table("s003.arch_sync_profile"), studies.waiting_profile);
  add_waiting(table("s003.sync_tradeoff"), table("s002.sync_by_tier"), table("s003.convergence"),
              studies);
  table("s002.decision_matrix").each_text("tier4_options", [&](const std::string& option) {
    studies.tier4_options.push_back(option);
  });
  studies.tier4_local_steps =
      static_cast<int>(table("s002.llm_other").number("local_sgd_tau_tier4"));
  add_labels(table("s002.compression_by_tier"), "method", studies.compression);
  studies.low_intensity = exception_of(table("s001.winner_rules"));
  studies.claims = claims_of(table("s001.winner_rules"));
  studies.budget = budget_of(table("s000.method"), table("s000.training_time"));
  mistakes.raise();
  return studies;
}

}  // namespace dynamiccl
