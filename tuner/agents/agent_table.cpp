#include <array>

#include "core/vocabulary/text.hpp"
#include "tuner/agents/agent.hpp"
#include "tuner/agents/bandit.hpp"
#include "tuner/agents/coordinate_descent.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/agents/simple_agents.hpp"

namespace dynamiccl {
namespace {

struct AgentRow {
  std::string_view name;
  std::unique_ptr<Agent> (*make)(const AgentOptions&);
  bool searches = true;  ///< otherwise only what replays compare the others with
};

std::unique_ptr<Agent> make_policy_agent(const AgentOptions& options) {
  const Policy policy = read_policy(policy_or_throw(options.policy_path));
  return std::make_unique<PolicyAgent>(policy, options, BeliefOptions{});
}

std::unique_ptr<Agent> make_untrained_agent(const AgentOptions& options) {
  return std::make_unique<PolicyAgent>(untrained_policy(1), options, BeliefOptions{},
                                       kUntrainedPpo);
}

constexpr std::array kAgents{
    AgentRow{"default", [](const AgentOptions&) { return make_default_agent(); }, false},
    AgentRow{"prior", [](const AgentOptions&) { return make_prior_agent(); }, false},
    AgentRow{"random", make_random_agent},
    AgentRow{"exhaustive", make_exhaustive_agent},
    AgentRow{"coordinate-descent",
             [](const AgentOptions& options) -> std::unique_ptr<Agent> {
               return std::make_unique<CoordinateDescent>(options);
             }},
    AgentRow{kMeans,
             [](const AgentOptions& options) -> std::unique_ptr<Agent> {
               return std::make_unique<KernelMeans>(options);
             }},
    AgentRow{"bandit",
             [](const AgentOptions& options) -> std::unique_ptr<Agent> {
               return std::make_unique<Bandit>(options, BeliefOptions{});
             }},
    AgentRow{kPpo, make_policy_agent},
    AgentRow{kUntrainedPpo, make_untrained_agent, false},
};

}  // namespace

std::vector<std::string> agent_names() {
  std::vector<std::string> names;
  for (const AgentRow& row : kAgents) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> searching_agents() {
  std::vector<std::string> names;
  for (const AgentRow& row : kAgents)
    if (row.searches) names.emplace_back(row.name);
  return names;
}

bool reads_policy(const std::string& name) { return name == kPpo; }

std::unique_ptr<Agent> make_agent(const std::string& name, const AgentOptions& options) {
  for (const AgentRow& row : kAgents)
    if (row.name == name) return row.make(options);
  throw Error(ErrorKind::input,
              "unknown agent \"" + name + "\"; " + suggestion(name, agent_names()));
}

}  // namespace dynamiccl
