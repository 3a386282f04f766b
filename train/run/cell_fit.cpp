#include "train/run/cell_fit.hpp"

#include <fmt/format.h>

#include "train/run/step_tuner.hpp"
#include "train/step/learner.hpp"
#include "workers/device/device.hpp"

namespace dynamiccl {
namespace {

std::string why_not_on_gpu(Communicator& comm, const TrainingSpec& spec) {
  const bool served = architecture_of(spec.method) == Architecture::ps;
  CallShape shape;
  // A server without a GPU takes part in what a server does.
  if (served) shape.collective = Collective::push_pull;
  if (auto reason = comm.unsupported(shape)) return *reason;
  return comm.rank() < dedicated_servers(spec) ? "" : why_no_gpu();
}

std::string why_not_on_host(const TrainingSpec& spec) {
  if (spec.precision != Precision::fp32)
    return fmt::format("precision {} needs a GPU", name_of(spec.precision));
  if (facts_of(spec.model, spec.sequence).tokens && !has_fast_blas())
    return "transformers need OpenBLAS here: apt-get install libopenblas0-pthread";
  return "";
}

}  // namespace

std::string why_not_trainable(Communicator& comm, const RunConfig& config,
                              const TrainingSpec& spec) {
  if (architecture_of(spec.method) != config.architecture)
    return fmt::format("{} does not belong to the {} architecture", name_of(spec.method),
                       name_of(config.architecture));
  if (auto reason = training_contradiction(spec); !reason.empty()) return reason;
  if (auto reason = engine_misfit(spec.method, config.backend); !reason.empty()) return reason;
  if (auto reason = tuner_misfit(spec, config.backend); !reason.empty()) return reason;
  if (auto reason = gpu_misfit(spec, config.backend); !reason.empty()) return reason;
  const bool server_has_gpu = planned_gpu(config.gpu_of_rank, config.server_rank, 0) >= 0;
  if (auto reason = server_gpu_misfit(spec, server_has_gpu); !reason.empty()) return reason;
  if (is_tuned(spec))
    if (auto reason = why_no_step_tuner(); !reason.empty()) return reason;
  if (is_tuned(spec) && config.ranks < 2)
    return fmt::format("tuner = \"{}\": a lone worker calls no collective", spec.tuner);
  if (method_row(spec.method).engine)
    if (auto reason = why_no_engine(); !reason.empty()) return reason;
  return comm.works_on_gpu() ? why_not_on_gpu(comm, spec) : why_not_on_host(spec);
}

std::optional<int> gpu_of(Communicator& comm, const RunConfig& config) {
  if (!comm.works_on_gpu()) return std::nullopt;
  return planned_gpu(config.gpu_of_rank, comm.rank(), comm.rank());
}

std::size_t copies_of(const TrainingSpec& spec, const CodecSettings& codec) {
  return std::size_t{1} + (spec.slow_momentum > 0 ? 2 : 0) + (codec.feedback ? 1 : 0) +
         static_cast<std::size_t>(codec_row(codec.codec).memories) +
         static_cast<std::size_t>(synchronisation_row(spec.synchronisation).memories) +
         (codec.codec != Codec::none && has_local_steps(spec.synchronisation) ? 1 : 0) +
         (codec_row(codec.codec).alike ? 0 : 2) +
         (codec.codec != Codec::none && method_row(spec.method).sums == SumPlace::neighbours ? 3
                                                                                             : 0);
}

}  // namespace dynamiccl
