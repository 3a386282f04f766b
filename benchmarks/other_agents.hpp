#pragma once

#include <memory>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// dlib's global_function_search as an agent, each task by itself: a knob is a whole number, and
/// what no setting has is taken for the nearest that one has. nullptr without libdlib-dev.
std::unique_ptr<Agent> make_dlib_agent(const AgentOptions& options);

/// The bandit with a belief whose scales, correlations and noise are made anew from the marginal
/// likelihood of its own measurements each time these have doubled.
std::unique_ptr<Agent> make_fitted_bandit(const AgentOptions& options);

}  // namespace dynamiccl
