#pragma once

namespace dynamiccl {

/// AutoCCL's model of a GPU transport (Xu et al., NSDI 2025), bytes and microseconds. As
/// printed, both bandwidths rise with every parameter; they peak only because the
/// congestion factor falls with channels and chunk.
struct TransportModel {
  double alpha0_us = 4;          ///< start-up of a transport step of NC * C bytes
  double beta0_max = 2.0e4;      ///< transport bandwidth without congestion, bytes/us
  double alpha1_us = 0.5;        ///< start-up of a protocol step
  double beta1_max = 4.0e4;      ///< protocol bandwidth, (threads of all channels)/us in bytes
  double thread_bytes = 16;      ///< bytes that one thread moves per step
  double channel_limit = 24;     ///< channels at which congestion halves the bandwidth
  double chunk_limit = 1 << 23;  ///< chunk at which it halves
  double interference = 0;       ///< share of bandwidth lost to concurrent compute, 0 to 0.39
};

struct TransportKnobs {
  double channels = 8;
  double threads = 256;
  double chunk = 524288;  ///< bytes
};

/// gamma in (0, 1]: what is left of the bandwidth under congestion and interference.
double congestion_factor(const TransportModel& model, const TransportKnobs& knobs);

/// beta_0 = NC C / (alpha_0 + NC C / (beta_0_max gamma)), bytes/us.
double transport_bandwidth(const TransportModel& model, const TransportKnobs& knobs);
/// beta_1 = NC NT / (alpha_1 + NC NT / (beta_1_max gamma)), bytes/us; independent of the chunk.
double protocol_bandwidth(const TransportModel& model, const TransportKnobs& knobs);
/// The smaller of the two above.
double combined_bandwidth(const TransportModel& model, const TransportKnobs& knobs);

/// Largest bandwidth loss under concurrent compute that a source measured.
inline constexpr double kMaxInterferenceLoss = 0.39;

}  // namespace dynamiccl
