#include "workers/backends/nccl_call_tuner.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace dynamiccl {
namespace {

constexpr int kAllReduce = 4;  ///< ncclFuncAllReduce
// As NCCL counts them: what the plugin's mask is made of.
constexpr std::array<std::string_view, 7> kCallAlgorithms{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, 3> kCallProtocols{"LL", "LL128", "Simple"};

struct PerCall {
  std::string algorithm;
  std::string protocol;
  int channels = 0;
};

PerCall per_call(const CallShape& shape) {
  PerCall asked;
  if (shape.algorithm != CallShape{}.algorithm) asked.algorithm = shape.algorithm;
  if (const auto found = shape.knobs.find("protocol"); found != shape.knobs.end())
    asked.protocol = found->second;
  if (const auto found = shape.knobs.find("channels"); found != shape.knobs.end())
    asked.channels = std::atoi(found->second.c_str());
  return asked;
}

template <std::size_t n>
int place_of(const std::array<std::string_view, n>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

}  // namespace

void NcclCallTuner::load(const std::string& path) {
  if (const char* other = std::getenv("NCCL_TUNER_PLUGIN");
      other != nullptr && *other != '\0' && other != path)
    throw Error(ErrorKind::environment,
                fmt::format("tuner: NCCL_TUNER_PLUGIN names {}, and NCCL takes one tuner alone; "
                            "unset it, or train with tuner = \"off\"",
                            other));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(ErrorKind::environment,
                fmt::format("tuner: NCCL's calls are set by our plugin, which cannot be loaded: {}",
                            dlerror()));
  take_over_ = reinterpret_cast<decltype(take_over_)>(dlsym(library, "dynamiccl_tuner_take_over"));
  possible_ = reinterpret_cast<decltype(possible_)>(dlsym(library, "dynamiccl_tuner_possible"));
  choose_ = reinterpret_cast<decltype(choose_)>(dlsym(library, "dynamiccl_tuner_choose"));
  if (take_over_ == nullptr || possible_ == nullptr || choose_ == nullptr)
    throw Error(ErrorKind::environment,
                fmt::format("tuner: {} is of another build than this trainer", path));
  setenv("NCCL_TUNER_PLUGIN", path.c_str(), 1);
  take_over_(1);
}

void NcclCallTuner::require_asked() const {
  if (possible_(kAllReduce) == 0)
    throw Error(
        ErrorKind::environment,
        "tuner: NCCL has not asked our tuner plugin about its first all-reduce: it is older "
        "than 2.22, or could not load the plugin (NCCL_DEBUG=INFO says why); train with "
        "tuner = \"off\"");
}

bool NcclCallTuner::is_per_call(const CallShape& shape) {
  return !shape.knobs.empty() &&
         std::all_of(shape.knobs.begin(), shape.knobs.end(), [](const auto& knob) {
           return knob.first == "protocol" || knob.first == "channels";
         });
}

std::optional<std::string> NcclCallTuner::unsupported(const CallShape& shape) const {
  if (shape.collective != Collective::allreduce) return "the trainer sets all-reduces alone";
  const PerCall asked = per_call(shape);
  if (asked.algorithm.empty() && asked.protocol.empty()) return std::nullopt;
  const int algorithm = place_of(kCallAlgorithms, asked.algorithm);
  const int protocol = place_of(kCallProtocols, asked.protocol);
  if (algorithm < 0 || protocol < 0)
    return fmt::format("NCCL has no {} with protocol {}", asked.algorithm, asked.protocol);
  const int bit = algorithm * static_cast<int>(kCallProtocols.size()) + protocol;
  if ((possible_(kAllReduce) >> bit & 1U) != 0) return std::nullopt;
  return fmt::format("NCCL has ruled out {} with {} here", asked.algorithm, asked.protocol);
}

void NcclCallTuner::choose(const CallShape& shape) {
  const PerCall asked = per_call(shape);
  const int known =
      choose_(kAllReduce, asked.algorithm.c_str(), asked.protocol.c_str(), asked.channels);
  DYN_ASSERT(known == 1, "a setting that unsupported() has passed");
  in_force_ = true;
}

bool NcclCallTuner::clear() {
  if (!in_force_) return false;
  choose_(kAllReduce, "", "", 0);
  in_force_ = false;
  return true;
}

}  // namespace dynamiccl
