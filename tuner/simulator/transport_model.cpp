#include "tuner/simulator/transport_model.hpp"

#include <algorithm>

namespace dynamiccl {

double congestion_factor(const TransportModel& model, const TransportKnobs& knobs) {
  const double channels = knobs.channels / model.channel_limit;
  const double chunk = knobs.chunk / model.chunk_limit;
  const double loss = std::clamp(model.interference, 0.0, kMaxInterferenceLoss);
  return (1 - loss) / (1 + channels * channels + chunk * chunk);
}

double transport_bandwidth(const TransportModel& model, const TransportKnobs& knobs) {
  const double step = knobs.channels * knobs.chunk;
  return step / (model.alpha0_us + step / (model.beta0_max * congestion_factor(model, knobs)));
}

double protocol_bandwidth(const TransportModel& model, const TransportKnobs& knobs) {
  const double step = knobs.channels * knobs.threads * model.thread_bytes;
  return step / (model.alpha1_us + step / (model.beta1_max * congestion_factor(model, knobs)));
}

double combined_bandwidth(const TransportModel& model, const TransportKnobs& knobs) {
  return std::min(transport_bandwidth(model, knobs), protocol_bandwidth(model, knobs));
}

}  // namespace dynamiccl
