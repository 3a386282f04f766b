#include "tuner/export/one_host.hpp"

#include <fmt/format.h>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/one_host.hpp"

namespace dynamiccl {
namespace {

/// On the host.
constexpr const char* kHostFolder = "/dev/shm/job";

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// Every variable as "beforeNAMEequalsVALUEafter", parted by `between`.
std::string listed(const std::map<std::string, std::string>& variables, const std::string& before,
                   const std::string& between, const std::string& equals = "=",
                   const std::string& after = "") {
  std::vector<std::string> parts;
  for (const auto& [name, value] : variables)
    parts.push_back(before + name + equals + value + after);
  return join(parts, between);
}

}  // namespace

std::map<std::string, std::string> one_host_settings(bool peers) {
  if (peers) return {{"NCCL_HOSTID", kOneHostName}};
  return {{"NCCL_HOSTID", kOneHostName},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_CUMEM_HOST_ENABLE", "0"},
          // Neither asks whether peers are allowed.
          {"NCCL_NVLS_ENABLE", "0"},
          {"NCCL_WIN_ENABLE", "0"}};
}

std::map<std::string, std::string> one_host_library(const std::string& library,
                                                    const std::string& folder) {
  return {{"LD_PRELOAD", library}, {kOneHostFolder, folder}};
}

std::string volume_option(const std::string& outside, const std::string& inside, bool read_only) {
  const std::string& place = inside.empty() ? outside : inside;
  // A colon parts the fields of --volume; --mount takes a line of CSV, whose fields are quoted.
  if ((outside + place).find(':') == std::string::npos)
    return "--volume " + shell_quote(outside + ":" + place + (read_only ? ":ro" : ""));
  return "--mount " +
         shell_quote(fmt::format("type=bind,{},{}{}", csv_field("source=" + outside),
                                 csv_field("target=" + place), read_only ? ",readonly" : ""));
}

std::vector<std::string> one_host_mount(const std::string& folder, const std::string& library) {
  // One that a search has used lies there already.
  const bool usual = folder == kUsualFolder || folder == "/dev/shm";
  const std::string outside = usual ? kHostFolder : folder;
  std::string volumes = volume_option(outside, folder);
  if (!library.empty()) volumes += " " + volume_option(library, "", true);
  return {fmt::format(
              "mkdir -p -m 700 {}     # on the host, before any container, by the user they run as",
              shell_quote(outside)),
          fmt::format("docker run {} ...     # every container of the machine (docs/one-host.md: "
                      "Compose, Kubernetes, Apptainer, pyxis)",
                      volumes)};
}

std::vector<std::string> one_host_lines(OneHostWay way) {
  const bool preloads = way == OneHostWay::library;
  const auto variables =
      preloads ? one_host_library(kUsualLibrary, kUsualFolder) : one_host_settings();
  const std::string inside = preloads ? kUsualFolder : "/dev/shm";
  const std::string library = preloads ? fmt::format("{0}:{0}", kUsualLibrary) : "";
  const std::string folder = fmt::format("{}:{}", kHostFolder, inside);
  const auto with = [&](const char* before, const std::string& what) {
    return what.empty() ? "" : before + what;
  };
  std::string mounts = fmt::format("{{name: job, mountPath: {}}}", inside);
  std::string volumes =
      fmt::format("{{name: job, hostPath: {{path: {}, type: Directory}}}}", kHostFolder);
  if (preloads) {
    mounts += fmt::format(", {{name: onehost, mountPath: {}}}", kUsualLibrary);
    volumes += fmt::format(", {{name: onehost, hostPath: {{path: {}}}}}", kUsualLibrary);
  }
  return {
      fmt::format("on the host, first, as the user that the containers run as: mkdir -p -m 700 {}",
                  kHostFolder),
      fmt::format("Docker: docker run --volume {}{} {}", folder,
                  with(" --volume ", library.empty() ? "" : library + ":ro"),
                  listed(variables, "--env ", " ")),
      fmt::format("Compose: volumes: [\"{}\"{}], environment: {{{}}}", folder,
                  library.empty() ? "" : ", \"" + library + ":ro\"",
                  listed(variables, "", ", ", ": \"", "\"")),
      fmt::format("Kubernetes: volumes: [{}], volumeMounts: [{}], env: [{}]", volumes, mounts,
                  listed(variables, "{name: ", ", ", ", value: \"", "\"}")),
      fmt::format("Apptainer: apptainer exec --nv --bind {}{} --env {}", folder,
                  with(" --bind ", library), listed(variables, "", ",")),
      fmt::format("Slurm with pyxis: srun --container-mounts={}{} --export=ALL,{}", folder,
                  with(",", library), listed(variables, "", ","))};
}

std::string all_nodes_advice() {
  return "with the device nodes of all GPUs in every container NCCL uses NVLink or PCIe between "
         "them: docker run --gpus all --env CUDA_VISIBLE_DEVICES=N for rank N's own; "
         "NVIDIA_VISIBLE_DEVICES=all for pods and tasks that are given one GPU each, where the "
         "runtime allows it; srun --gpu-bind=none. Every such container can then use all GPUs of "
         "the machine, so that jobs that must not touch each other need machines of their own";
}

}  // namespace dynamiccl
