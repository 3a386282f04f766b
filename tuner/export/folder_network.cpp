#include "tuner/export/folder_network.hpp"

#include <fmt/format.h>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {

std::map<std::string, std::string> folder_network(const std::string& plugin,
                                                  const std::string& folder) {
  return {
      {"NCCL_NET_PLUGIN", plugin},
      // NCCL 2.28 forgets the name with the last communicator, unless somebody still refers to it.
      {"NCCL_NET_PLUGIN_REF_COUNT", "1"},
      {"NCCL_NET", kFolderNetwork},
      {"DYNAMICCL_SHARED_FOLDER", folder}};
}

namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string volume_option(const std::string& outside, const std::string& inside, bool read_only) {
  const std::string& place = inside.empty() ? outside : inside;
  // A colon parts the fields of --volume; --mount takes a line of CSV, whose fields are quoted.
  if ((outside + place).find(':') == std::string::npos)
    return "--volume " + shell_quote(outside + ":" + place + (read_only ? ":ro" : ""));
  return "--mount " +
         shell_quote(fmt::format("type=bind,{},{}{}", csv_field("source=" + outside),
                                 csv_field("target=" + place), read_only ? ",readonly" : ""));
}

std::vector<std::string> folder_mount(const std::string& folder, const std::string& plugin) {
  return {fmt::format("mkdir -p -m 700 {}     # on the host, as the user of the ranks",
                      shell_quote(folder)),
          fmt::format("docker run {} {} ...     # every container, as all do, unless its image has "
                      "the plugin (docs/transport.md: Compose, Kubernetes, Apptainer, Slurm)",
                      volume_option(folder), volume_option(plugin, "", true))};
}

}  // namespace dynamiccl
