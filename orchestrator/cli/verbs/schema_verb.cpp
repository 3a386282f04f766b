#include <fmt/format.h>

#include <memory>

#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/experiment/experiment_keys.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {

void add_schema_verb(CLI::App& app, Shared& /*shared*/) {
  auto* verb = app.add_subcommand("schema", "keys of experiment files: a JSON schema, or a page");
  const auto markdown = std::make_shared<bool>(false);
  verb->add_flag("--markdown", *markdown, "the reference page of keys, in Markdown");
  const auto features = std::make_shared<bool>(false);
  verb->add_flag("--features", *features,
                 "what a live run knows of each state feature, in Markdown");
  verb->footer(
      "Example:\n"
      "  dynamiccl schema > experiments/experiment.schema.json\n"
      "  dynamiccl schema --markdown > experiment-keys.md\n"
      "A file that begins with \"#:schema experiment.schema.json\" is completed and checked by\n"
      "taplo and by Even Better TOML. `dynamiccl query schema` is the database's.");
  verb->callback([markdown, features] {
    if (*features) return fmt::print("{}", feature_sources_page());
    fmt::print("{}\n", *markdown ? experiment_keys_page() : experiment_schema().dump(2));
  });
}

}  // namespace dynamiccl
