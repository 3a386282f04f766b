#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/state/features.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

class TemporaryFile {
 public:
  TemporaryFile()
      : path_(std::filesystem::temp_directory_path() /
              ("dynamiccl_policy_" + std::to_string(getpid()))) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }

 private:
  std::filesystem::path path_;
};

Task small_task() {
  Task task;
  task.space = std::make_shared<const ActionSpace>(
      make_space({.backend = Backend::openmpi, .collective = Collective::allreduce, .ranks = 4}));
  task.key = {"regime", {.collective = Collective::allreduce, .bin = {18}, .group_size = 4}};
  return task;
}

}  // namespace

TEST_CASE("a policy file gives back what was written") {
  const TemporaryFile file;
  const Policy policy = untrained_policy(3);
  write_policy(policy, file.path());
  const Policy again = read_policy(file.path());
  CHECK(again.version() == policy.version());
  CHECK(again.weights == policy.weights);
  CHECK(again.provenance.at("seed") == 3);
  CHECK(untrained_policy(4).version() != policy.version());
}

TEST_CASE("damaged policy files are refused with a reason") {
  const TemporaryFile file;
  write_policy(untrained_policy(3), file.path());
  const std::string good = file.read();
  const auto refused = [&](const std::string& text, const char* why) {
    file.write(text);
    CHECK_THROWS_WITH(read_policy(file.path()), ContainsSubstring(why));
  };
  refused("", "no policy file");
  refused(good.substr(0, good.size() - 8), "digest");
  std::string flipped = good;
  flipped[flipped.size() - 100] = static_cast<char>(flipped[flipped.size() - 100] ^ 1);
  refused(flipped, "digest");
  std::string newer = good;
  newer.replace(newer.find("POLICY 1"), 8, "POLICY 2");
  refused(newer, "version");
  std::string other = good;
  const std::size_t place = other.find(feature_digest());
  REQUIRE(place != std::string::npos);
  other[place] = other[place] == 'a' ? 'b' : 'a';
  refused(other, "another state vector");
  std::string huge = good;
  const std::size_t hidden = huge.find("\"hidden\":64");
  huge.replace(hidden, 11, "\"hidden\":99999999");
  refused(huge, "hidden is 99999999");
  CHECK_THROWS_AS(read_policy("/nonexistent/policy"), Error);
  // Nothing is thrown but Error, whatever the bytes are.
  FastRandom random(1);
  for (int i = 0; i < 300; ++i) {
    std::string noise = good.substr(0, 600 + random.below(400));
    for (int j = 0; j < 5; ++j) noise[random.below(noise.size())] = static_cast<char>(random());
    file.write(noise);
    CHECK_THROWS_AS(read_policy(file.path()), Error);
  }
}

TEST_CASE("the heads' probabilities multiply to one over all arms", "[E-70]") {
  const Task task = small_task();
  const PolicyNetwork network = untrained_policy(5).network();
  const BeliefOptions options;
  const BeliefView view = make_view(task);
  const TimeBelief belief(options);
  const std::size_t arms = task.space->arms().size();
  std::vector<bool> failed(arms, false);
  failed[3] = true;
  const std::vector<int> tries(arms, 0);
  const ArmOutlook outlook = outlook_of(belief.posterior(view), failed, 0.05, 0.9);
  const ArmKnowledge known{outlook, failed, tries, view.prior};
  const Eigen::VectorXf hidden =
      network.advance(policy_input(task.state, {}), network.initial_state());
  FastRandom random(1);
  std::map<std::size_t, double> probability;
  for (int i = 0; i < 4000; ++i) {
    const PolicyWalk walk = walk_heads(network, hidden, *task.space, known, &random);
    probability[walk.arm] = walk.probability;
  }
  CHECK_FALSE(probability.contains(3));
  CHECK(probability.size() + 3 >= arms);
  double sum = 0;
  for (const auto& [arm, p] : probability) sum += p;
  // An arm so unlikely that it was never drawn is missing from the sum.
  CHECK(sum < 1 + 1e-4);
  CHECK(sum > 0.99);
}

TEST_CASE("the policy agent measures nothing twice without need, and ends") {
  Task task = small_task();
  AgentOptions options;
  PolicyAgent agent(untrained_policy(1), options, {});
  // Algorithms differ by tens of percent, segments by a few.
  std::vector<double> us;
  FastRandom random(4);
  for (const Action& arm : task.space->arms())
    us.push_back(200 + 30 * ((arm[0] * 5) % 7) + 3 * arm[1]);
  const auto best = static_cast<std::size_t>(std::min_element(us.begin(), us.end()) - us.begin());
  us[best] *= 0.9;
  int evaluations = 0;
  while (!agent.finished(task)) {
    REQUIRE(++evaluations < 60);
    const Choice choice = agent.act(task);
    agent.learn(task, choice.arm,
                {true, Micros{us[choice.arm] * std::exp(0.01 * random.normal())}});
  }
  CHECK(us[agent.recommend(task)] < 1.05 * us[best]);
  CHECK(agent.version().size() == 16);
}

TEST_CASE("the policy that comes along fits this program and tells how it was trained") {
  const Policy policy = read_policy(DYNAMICCL_SOURCE_DIR "/tuner/policy/pretrained.policy");
  CHECK(policy.provenance.at("stages").size() == 3);
  CHECK(policy.provenance.at("curves").size() == 5);
  double bandit = 0;
  double descent = 0;
  double worst_seed = 0;
  for (const auto& row : policy.provenance.at("held_out")) {
    const std::string agent = row.at("agent");
    // Policies that simulated calls trained have rewards; those of searches what is left to gain.
    const double reward = row.contains("mean_reward") ? row.at("mean_reward").get<double>()
                                                      : -row.at("regret_4").get<double>();
    if (agent == "bandit") bandit = reward;
    if (agent == "coordinate-descent") descent = reward;
    if (agent.starts_with("ppo seed")) worst_seed = std::min(worst_seed, reward);
  }
  REQUIRE(bandit < 0);
  CHECK(worst_seed > bandit);
  CHECK(worst_seed > descent);
}

TEST_CASE("a smaller policy sees the cluster, and nothing of what had to go", "[E-61]") {
  const Policy whole = untrained_policy(5);
  const Policy small = untrained_policy(5, 40);
  const PolicyNetwork network = small.network();
  const auto names = small.provenance.at("sees").get<std::set<std::string>>();
  CHECK(names.contains("container_runtime"));
  CHECK(names.contains("intra_link"));
  // Of what a policy sees at all.
  CHECK(!names.contains("fault_tolerance"));
  CHECK(!whole.provenance.contains("sees"));
  int columns = 0;
  Eigen::Index column = 0;
  const Eigen::VectorXf input = Eigen::VectorXf::Ones(small.shape.input);
  const Eigen::VectorXf seen = network.seen(input);
  for (const Feature& feature : feature_table()) {
    INFO(feature.name);
    const bool kept = names.contains(std::string(feature.name));
    columns += kept ? feature.width : 0;
    CHECK(seen.segment(column, feature.width).isOnes() == kept);
    Eigen::VectorXf other = input;
    other.segment(column, feature.width).setConstant(-2);
    const auto advanced = [&](const Eigen::VectorXf& of) {
      return network.advance(of, network.initial_state());
    };
    CHECK((advanced(other) != advanced(input)) == kept);
    column += feature.width;
  }
  CHECK(columns <= 40);
  CHECK(columns > 30);
  // What came of the last step is no feature of the state.
  CHECK(seen.tail(kFeedbackFeatures).isOnes());
}

TEST_CASE("the ratio of communication to computation enters what the policy expects", "[E-188]") {
  const PolicyNetwork network =
      read_policy(DYNAMICCL_SOURCE_DIR "/tuner/policy/pretrained.policy").network();
  const auto value = [&](double c2c) {
    State state = small_task().state;
    state.c2c_ratio = c2c;
    return network.value(network.advance(policy_input(state, {}), network.initial_state()));
  };
  CHECK(std::abs(value(0.01) - value(10)) > 1e-3F);
}
