#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/vocabulary/text.hpp"
#include "tuner/agents/policy_features.hpp"
#include "tuner/learn/world.hpp"
#include "tuner/state/features.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/state/state_from_training.hpp"
#include "tuner/state/task_key.hpp"
#include "tuner/state/wire_fraction.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Place of a feature's first column.
int column_of(std::string_view name) {
  int column = 0;
  for (const Feature& feature : feature_table()) {
    if (feature.name == name) return column;
    column += feature.width;
  }
  FAIL("no feature " << name);
  return -1;
}

/// Cells of the table under a heading of docs/reference/state-features.md, without its head.
std::vector<std::vector<std::string>> document_rows(const std::string& heading) {
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/docs/reference/state-features.md");
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line == heading;
    if (!inside || !line.starts_with("| ") || line.starts_with("| source's") ||
        line.starts_with("| feature |"))
      continue;
    std::vector<std::string> cells;
    for (const std::string& cell : split(line.substr(1, line.size() - 2), '|'))
      cells.emplace_back(trim(cell));
    rows.push_back(std::move(cells));
  }
  return rows;
}

}  // namespace

TEST_CASE("every state feature of the sources is mapped in the document", "[E-63]") {
  std::set<std::string> features;
  for (const Feature& feature : feature_table())
    CHECK(features.insert(std::string(feature.name)).second);
  std::set<std::string> sources;
  std::set<std::string> used;
  for (const auto& row : document_rows("## Features")) {
    REQUIRE(row.size() == 3);
    INFO(row[0]);
    CHECK(sources.insert(row[0]).second);
    if (row[1] == "-") continue;
    CHECK(features.contains(row[1]));
    used.insert(row[1]);
  }
  CHECK(sources.size() == 60);
  // What no source names: the group's nodes and whether the ranks share memory.
  for (const std::string& name : features)
    CHECK((used.contains(name) || name == "nodes" || name == "shared_memory"));
}

TEST_CASE("the document says of each feature where a live run gets it from", "[E-07][E-19]") {
  for (const Feature& feature : feature_table()) {
    const FeatureSource& source = feature.source;
    INFO(feature.name);
    CHECK((source.training.empty() || source.tune.empty()) == !source.absent.empty());
    CHECK(!feature.known(State{}));
  }
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/docs/reference/state-features.md");
  std::ostringstream page;
  page << file.rdbuf();
  // `dynamiccl schema --features` prints it.
  CHECK(page.str().find(feature_sources_page()) != std::string::npos);
}

TEST_CASE("the policy sees what it was trained on and nothing else", "[E-12][E-15][E-25]") {
  std::vector<std::string> seen(feature_table().size());
  const SimCatalog catalog;
  FastRandom random(1);
  for (int job = 0; job < 128; ++job) {
    const auto stage = job % 2 == 0 ? CurriculumStage::first : CurriculumStage::third;
    const SimPlace place = draw_place(catalog, stage, random);
    const State& state = place.cells.front().search.task.state;
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (feature_table()[i].known(state)) seen[i] = "seen";
  }
  State state;
  state.last_choice = {1, 1, 1, 1};
  state.topology = Topology::fat_tree;
  state.critical = true;
  CHECK(policy_input(state, {}) == policy_input({}, {}));
  state.local_batch = 64;
  CHECK(policy_input(state, {}) != policy_input({}, {}));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    INFO(feature_table()[i].name);
    if (feature_table()[i].source.in_policy) CHECK(seen[i] == "seen");
  }
}

TEST_CASE("a spelling of a source stands for a name of the canonical value set", "[E-37][X-47]") {
  const std::map<std::string, std::vector<std::string>> values{
      {"setting", all_names<DeploymentSetting>()},  {"architecture", all_names<SumArchitecture>()},
      {"collective", all_names<Collective>()},      {"sync", all_names<SyncMode>()},
      {"compression", all_names<Compression>()},    {"schedule", all_names<Schedule>()},
      {"topology", all_names<Topology>()},          {"intra_link", all_names<IntraLink>()},
      {"inter_link", all_names<InterLink>()},       {"library", all_names<CclLibrary>()},
      {"parallelism", all_names<ParallelismMode>()}};
  const auto rows = document_rows("## Spellings");
  CHECK(rows.size() == 37);
  for (const auto& row : rows) {
    REQUIRE(row.size() == 3);
    INFO(row[0] << " " << row[1]);
    const auto& known = values.at(row[0]);
    CHECK(std::find(known.begin(), known.end(), row[2]) != known.end());
    CHECK(std::find(known.begin(), known.end(), row[1]) == known.end());
  }
}

TEST_CASE("unknown differs from every value, and every number stays in bounds", "[E-62]") {
  const Eigen::VectorXf unknown = encode(State{});
  REQUIRE(unknown.size() == state_width());
  CHECK(unknown.cwiseAbs().sum() == 0);

  State state;
  state.ina_active = false;
  state.runtime = EnvironmentKind::singularity;
  state.effective_size = Bytes{0};
  state.c2c_ratio = 1e30;
  state.model_intensity = std::nan("");
  state.cusum_score = -1e9;
  const Eigen::VectorXf known = encode(state);
  CHECK(known[column_of("ina_active")] == -1);
  const int runtime = column_of("container_runtime");
  CHECK(known.segment(runtime, 4) == Eigen::Vector4f(0, 1, 0, 0));
  CHECK(known[column_of("effective_size") + 1] == 1);
  CHECK(known.cwiseAbs().maxCoeff() <= 4);
  CHECK(known.allFinite());
}

TEST_CASE("nominal and effective size are separate features", "[E-18]") {
  State a;
  a.nominal_size = a.effective_size = Bytes{1 << 20};
  State b = a;
  b.effective_size = Bytes{1 << 14};
  const Eigen::VectorXf difference = encode(a) - encode(b);
  CHECK(difference[column_of("nominal_size")] == 0);
  CHECK(difference[column_of("effective_size")] == 6.0F / 16);
}

TEST_CASE("a call's key says what is called, by how many, and whether servers sum",
          "[E-06][E-09][E-17][E-20][E-29][E-34][E-35]") {
  const TaskKey key{.collective = Collective::alltoallv,
                    .bin = SizeBin::of(Bytes{4096}),
                    .group_size = 4,
                    .nodes = 2,
                    .architecture = Architecture::ps,
                    .backend = Backend::openmpi};
  State state;
  state.ranks_total = 16;
  set_task(state, key, Bytes{4096}, Bytes{4096});
  CHECK(state.collective == Collective::alltoall);  // one input for both
  CHECK(state.nominal_size == Bytes{4096});
  CHECK(state.architecture == SumArchitecture::ps);
  CHECK(state.group_size == 4);
  CHECK(state.ranks_total == 16);  // a group of a larger job
  const Eigen::VectorXf encoded = encode(state);
  CHECK(encoded[column_of("nominal_size")] == 12.0F / 16 - 1);
  CHECK(encoded[column_of("group_size")] == 2.0F / 8);
  CHECK(encoded[column_of("ranks_total")] == 4.0F / 8);
  // Collectives that trained policies do not know are one that they do.
  for (const auto& entry : NameTable<Collective>::entries) {
    TaskKey other = key;
    other.collective = entry.value;
    State seen;
    set_task(seen, other, Bytes{4096}, Bytes{4096});
    CHECK(encode(seen).segment(column_of("collective"), 12).sum() == 1.0F);
  }
  State alone;
  TaskKey sum = key;
  sum.collective = Collective::allreduce;
  sum.architecture = Architecture::ring;
  set_task(alone, sum, Bytes{8}, Bytes{8});
  CHECK(alone.ranks_total == 4);
  CHECK(alone.architecture == SumArchitecture::allreduce);
}

TEST_CASE("a training cell's job is in the state",
          "[E-14][E-21][E-22][E-26][E-27][E-28][E-30][E-31][E-32][E-46][E-47][E-50][E-51][E-52]"
          "[E-53][E-54]") {
  TrainingSpec spec;
  spec.model = TrainingModel::resnet50;
  spec.batch = 48;
  State state;
  state.architecture = SumArchitecture::ps;
  for (const auto& [method, expected] :
       {std::pair{TrainingMethod::bsp_a2a, Schedule::none},
        std::pair{TrainingMethod::wfbp_a2a, Schedule::wfbp},
        std::pair{TrainingMethod::mg_wfbp, Schedule::mg_wfbp},
        std::pair{TrainingMethod::bytescheduler_a2a, Schedule::partitioned}}) {
    spec.method = method;
    set_training(state, spec, 4);
    INFO(name_of(method));
    CHECK(state.schedule == expected);
  }
  CHECK(state.local_batch == 48);
  CHECK(state.parameters == 25'557'032);
  CHECK(state.architecture == SumArchitecture::allreduce);
  CHECK(state.sync == SyncMode::bsp);
  CHECK(state.local_steps == 0);
  CHECK(state.compression == Compression::none);
  CHECK(state.wire_fraction == 1);
  CHECK(state.parallelism == ParallelismMode::dp);
  CHECK(state.fault_tolerance == FaultTolerance::none);
  CHECK(state.pipeline_template == false);
  CHECK(state.stage == 0);
  CHECK(state.stage_role == StageRole::none);
}

TEST_CASE("when features must go, the cluster's stay", "[E-61]") {
  std::vector<const Feature*> all;
  for (const Feature& feature : feature_table()) all.push_back(&feature);
  const auto kept = keep_features(all, 60);
  int columns = 0;
  std::set<std::string_view> names;
  for (const Feature* feature : kept) {
    columns += feature->width;
    names.insert(feature->name);
  }
  CHECK(columns <= 60);
  for (const char* name : {"container_runtime", "intra_link", "inter_link", "tier_max",
                           "group_size", "collective", "effective_size"})
    CHECK(names.contains(name));
  for (const char* name : {"fault_tolerance", "pipeline_stage", "coflow_class"})
    CHECK_FALSE(names.contains(name));
  CHECK(keep_features(all, state_width()).size() == feature_table().size());
  CHECK(keep_features(all, 0).empty());
}

TEST_CASE("the share on the wire follows the compressor", "[E-198][X-50][X-51]") {
  CHECK(wire_fraction(Compression::none, 0) == 1);
  CHECK(wire_fraction(Compression::fp16, 0) == 0.5);
  CHECK(wire_fraction(Compression::quantised, 8) == 0.25);
  CHECK(wire_fraction(Compression::sign, 0) == 1.0 / 32);
  CHECK(wire_fraction(Compression::top_k, 0.01) == 0.02);  // index and value
  CHECK(wire_fraction(Compression::random_k, 0.25) == 0.25);
  CHECK_THROWS_WITH(wire_fraction(Compression::top_k, 32), ContainsSubstring("kept fraction"));
  CHECK_THROWS_WITH(wire_fraction(Compression::quantised, 0), ContainsSubstring("bits per value"));
}

TEST_CASE("C2C agrees with the two reference contrasts", "[E-186][E-189]") {
  // ResNet-50 against BERT-Base differ in intensity, BERT-Base against BERT-Large in batch.
  const double resnet = c2c_ratio(1, 64, 470);
  const double base = c2c_ratio(1, 64, 249);
  const double large = c2c_ratio(1, 8, 248);
  CHECK(resnet < base);
  CHECK(base < large);
  CHECK(std::abs(large / base - 8.03) < 0.01);
  CHECK(model_intensity(4.1e9 * 3, 25.6e6) > 400);
  CHECK_THROWS(c2c_ratio(1, 0, 1));
  CHECK_THROWS(model_intensity(1, 0));
}

TEST_CASE("a task key reads back what it writes", "[E-16][E-126][X-66]") {
  TaskKey key{.collective = Collective::allgather,
              .bin = SizeBin::of(Bytes{100'000}),
              .group_size = 8,
              .nodes = 2,
              .architecture = Architecture::ring,
              .backend = Backend::gloo};
  CHECK(key.text() == "gloo/ring/allgather/2^16/r8n2");
  CHECK(TaskKey::parse(key.text()) == key);
  for (const char* bad : {"", "gloo/ring/allgather/2^16", "gloo/ring/allgather/16/r8n2",
                          "gloo/ring/allgather/2^16/r8n2x", "gloo/ring/nothing/2^16/r8n2",
                          "gloo/ring/allgather/2^99/r8n2", "gloo/ring/allgather/2^-3/r8n2"})
    CHECK_THROWS_AS(TaskKey::parse(bad), Error);
  CHECK(SizeBin::of(Bytes{65535}).log2 == 15);
  CHECK(SizeBin::of(Bytes{65536}).first() == Bytes{65536});
  CHECK(SizeBin::of(Bytes{0}).log2 == 0);
  CHECK(SizeBin::of(Bytes{UINT64_MAX}).log2 == 63);
}

TEST_CASE("a detected regime fills the static state, and damaged JSON only leaves it unknown",
          "[E-05][E-10][E-11][E-24][E-36][E-41][E-42][E-45][F-06][F-07]") {
  const auto regime = nlohmann::json::parse(R"({
    "ingredients": {"library": "openmpi-4.1", "intra_link": "none", "inter_link": "tcp",
                    "inter_tier": "shaped-1000Mbit/s", "gpu": "none"},
    "features": {"is_cross_container": true, "container_runtime": 3, "is_ina_active": false,
                 "shared_memory_between_ranks": false, "cluster_class": "commodity"}})");
  const State state = state_from_regime(regime, 2);
  CHECK(state.cross_container == true);
  CHECK(state.runtime == EnvironmentKind::cross_docker);
  CHECK(state.library == CclLibrary::openmpi);
  CHECK(state.cluster_class == ClusterClass::commodity);
  CHECK(state.inter_link == InterLink::tcp);
  CHECK(state.tier_max == 4);
  CHECK_FALSE(state.sharing.has_value());
  // One machine whose containers' links are capped stands for machines far apart.
  CHECK(state_from_regime(regime).tier_max == 4);

  SECTION("GPUDirect RDMA over InfiniBand is a class, RoCE stays RoCE") {
    auto far = regime;
    far["features"]["gpudirect_rdma"] = true;
    for (const auto& [link, expected] :
         {std::pair{"infiniband", InterLink::gpudirect_rdma}, std::pair{"roce-v2", InterLink::roce},
          std::pair{"tcp", InterLink::tcp}, std::pair{"nvswitch", InterLink::nvswitch}}) {
      far["ingredients"]["inter_link"] = link;
      CHECK(state_from_regime(far, 2).inter_link == expected);
    }
  }

  SECTION("stated rates tell TCP's classes apart") {
    auto rated = regime;
    for (const auto& [tier, expected] :
         {std::pair{"10GbE", InterLink::tcp_10g}, std::pair{"100GbE", InterLink::tcp_100g},
          std::pair{"25GbE", InterLink::tcp}}) {
      rated["ingredients"]["inter_tier"] = tier;
      CHECK(state_from_regime(rated, 2).inter_link == expected);
    }
  }

  SECTION("pairs of ranks by their places") {
    auto placed = nlohmann::json::parse(R"({
      "ingredients": {"intra_link": "shm", "inter_link": "tcp", "inter_tier": "25GbE"},
      "pairs": {"worst": "switch", "mix": {"die": 0.25, "node": 0.25, "switch": 0.5}},
      "declared": {"topology": "fat-tree", "deployment": "edge"}})");
    State of_pairs = state_from_regime(placed, 2);
    CHECK(of_pairs.tier_max == 3);
    CHECK(of_pairs.tier_mix == std::array<double, kTiers>{0, 0.5, 0, 0.5, 0});
    CHECK(of_pairs.topology == Topology::fat_tree);
    CHECK(of_pairs.setting == DeploymentSetting::edge);
    placed["pairs"]["mix"] = {{"node", 0.5}, {"apart", 0.5}};
    of_pairs = state_from_regime(placed, 2);
    CHECK(of_pairs.tier_max == 4);
    CHECK(of_pairs.tier_mix == std::array<double, kTiers>{0, 0.5, 0, 0, 0.5});
    // Two nodes that look like one machine: no share is known, and the links say the tier.
    placed["pairs"]["mix"] = {{"die", 1.0}};
    CHECK(state_from_regime(placed, 2).tier_max == 3);
    CHECK_FALSE(state_from_regime(placed, 2).tier_mix);
    CHECK(state_from_regime(placed, 1).tier_mix == std::array<double, kTiers>{0, 1, 0, 0, 0});
    for (const char* damaged : {R"({"moon": 1})", R"({"node": "all"})", "[]", "null"}) {
      placed["pairs"]["mix"] = nlohmann::json::parse(damaged);
      CHECK_FALSE(state_from_regime(placed, 1).tier_mix);
    }
  }

  for (const char* damaged : {"null", "[]", "{\"features\": 3}", "{\"features\": {}}",
                              R"({"features": {"container_runtime": 17, "is_ina_active": "yes"},
                                  "ingredients": {"intra_link": 1}})"}) {
    const State empty = state_from_regime(nlohmann::json::parse(damaged));
    CHECK_FALSE(empty.runtime.has_value());
    CHECK_FALSE(empty.ina_active.has_value());
  }
}
