#include "containers/running_environment.hpp"

#include "containers/command.hpp"

namespace dynamiccl {

void Environment::end_ranks() const {
  CommandOptions options;
  options.timeout = plan_.kill_timeout;
  if (!plan_.kill_command.empty()) run_command(plan_.kill_command, options);
}

}  // namespace dynamiccl
