#include <fmt/format.h>

#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/experiment/experiment_schema.hpp"

namespace dynamiccl {

void add_schema_verb(CLI::App& app, Shared& /*shared*/) {
  auto* verb = app.add_subcommand("schema", "JSON schema of experiment files, for editors");
  verb->footer(
      "Example:\n"
      "  dynamiccl schema > experiments/experiment.schema.json\n"
      "A file that begins with \"#:schema experiment.schema.json\" is completed and checked by\n"
      "taplo and by Even Better TOML. `dynamiccl query schema` is the database's.");
  verb->callback([] { fmt::print("{}\n", experiment_schema().dump(2)); });
}

}  // namespace dynamiccl
