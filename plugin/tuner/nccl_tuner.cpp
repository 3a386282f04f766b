// libdynamiccl-nccl-plugin.so, tuner half: loaded into NCCL by NCCL_TUNER_PLUGIN. Sets algorithm,
// protocol and a cap of channels per call from a table (tuner_context.hpp says how it is named), or
// as the program itself asks (program_choice.hpp); never throws, never blocks, never touches what
// NCCL has ruled out.
#include <pthread.h>

#include <atomic>
#include <exception>

#include "plugin/tuner/program_choice.hpp"
#include "plugin/tuner/tuner_context.hpp"

#define DYN_EXPORT __attribute__((visibility("default")))

namespace dynamiccl::nccl_tuner {
namespace {

// A forked child shares the region with its parent: it must not speak for it.
std::atomic<bool> g_forked{false};

[[gnu::constructor]] void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
}

Result init(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
            Logger log) noexcept {
  *context = nullptr;
  try {
    *context = make_context(communicator, ranks, nodes, log).release();
  } catch (const std::exception&) {
    // Out of memory: NCCL goes on alone.
  }
  return kSuccess;
}

Result init_v5(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
               Logger log, void* /*nvlink_domains*/, void* /*constants*/) {
  return init(context, communicator, ranks, nodes, log);
}
Result init_v4(std::size_t ranks, std::size_t nodes, Logger log, void** context) {
  return init(context, 0, ranks, nodes, log);
}

/// What NCCL has ruled out is left to it.
void obey(Context& context, CallCell cell, float* costs, int algorithms, int protocols,
          int* channels) noexcept {
  if (cell.leaves_all() || apply(cell, costs, algorithms, protocols, channels)) return;
  ++context.masked;
  context.member->count_masked();
}

Result decide(void* opaque, int function, std::size_t bytes, float* costs, int algorithms,
              int protocols, int* channels) noexcept {
  auto* context = static_cast<Context*>(opaque);
  if (context == nullptr || function < 0 || function >= static_cast<int>(kCallFunctions) ||
      g_forked.load(std::memory_order_relaxed))
    return kSuccess;
  const std::size_t bin = CallTable::bin(bytes);
  if (context->stream != nullptr && algorithms > 0)
    context->stream->note_costs(static_cast<std::size_t>(function), bin, costs, algorithms,
                                protocols);
  if (context->check != nullptr && algorithms > 0)
    check_costs(*context, static_cast<std::size_t>(function), bin, costs, algorithms, protocols);
  if (ProgramChoice& program = ProgramChoice::instance(); program.taken()) {
    if (algorithms > 0)
      program.note_costs(static_cast<std::size_t>(function), costs, algorithms, protocols);
    obey(*context, program.cell(static_cast<std::size_t>(function)), costs, algorithms, protocols,
         channels);
    return kSuccess;
  }
  if (context->refused) return kSuccess;
  const CallCell cell = context->member->decide(static_cast<std::size_t>(function), bin);
  obey(*context, cell, costs, algorithms, protocols, channels);
  return kSuccess;
}

Result get_coll_info(void* context, int function, std::size_t bytes, int /*pipe_ops*/,
                     float** table, int algorithms, int protocols, int /*registered*/,
                     int* channels) {
  return decide(context, function, bytes, reinterpret_cast<float*>(table), algorithms, protocols,
                channels);
}
Result get_coll_info_v3(void* context, int function, std::size_t bytes, int /*pipe_ops*/,
                        float** table, int algorithms, int protocols, int* channels) {
  return decide(context, function, bytes, reinterpret_cast<float*>(table), algorithms, protocols,
                channels);
}
/// Without a cost table it is unknown what NCCL has ruled out: only channels are capped.
Result get_coll_info_v2(void* context, int function, std::size_t bytes, int /*collnet*/,
                        int /*nvls*/, int /*pipe_ops*/, int* /*algorithm*/, int* /*protocol*/,
                        int* channels) {
  int cap = 0;
  float none = kIgnored;
  const Result result = decide(context, function, bytes, &none, 0, 0, &cap);
  if (cap != 0) *channels = cap;
  return result;
}

Result finalize(void* opaque) {
  auto* context = static_cast<Context*>(opaque);
  if (context == nullptr) return kSuccess;
  if (context->log != nullptr)
    context->log(kInfo, kTuning, __FILE__, __LINE__,
                 "DynamICCL: %lld calls decided, %llu asked for what NCCL does not have here",
                 static_cast<long long>(context->member->calls()),
                 static_cast<unsigned long long>(context->masked));
  delete context;
  return kSuccess;
}

}  // namespace
}  // namespace dynamiccl::nccl_tuner

extern "C" {
DYN_EXPORT extern const dynamiccl::nccl_tuner::PluginV5 ncclTunerPlugin_v5;
DYN_EXPORT extern const dynamiccl::nccl_tuner::PluginV4 ncclTunerPlugin_v4;
DYN_EXPORT extern const dynamiccl::nccl_tuner::PluginV3 ncclTunerPlugin_v3;
DYN_EXPORT extern const dynamiccl::nccl_tuner::PluginV2 ncclTunerPlugin_v2;
const dynamiccl::nccl_tuner::PluginV5 ncclTunerPlugin_v5{
    "DynamICCL", dynamiccl::nccl_tuner::init_v5, dynamiccl::nccl_tuner::get_coll_info,
    dynamiccl::nccl_tuner::finalize};
const dynamiccl::nccl_tuner::PluginV4 ncclTunerPlugin_v4{
    "DynamICCL", dynamiccl::nccl_tuner::init_v4, dynamiccl::nccl_tuner::get_coll_info,
    dynamiccl::nccl_tuner::finalize};
const dynamiccl::nccl_tuner::PluginV3 ncclTunerPlugin_v3{
    "DynamICCL", dynamiccl::nccl_tuner::init_v4, dynamiccl::nccl_tuner::get_coll_info_v3,
    dynamiccl::nccl_tuner::finalize};
const dynamiccl::nccl_tuner::PluginV2 ncclTunerPlugin_v2{
    "DynamICCL", dynamiccl::nccl_tuner::init_v4, dynamiccl::nccl_tuner::get_coll_info_v2,
    dynamiccl::nccl_tuner::finalize};
}
