#pragma once

namespace dynamiccl {

/// Message tags of the point-to-point traffic, one per purpose, so that a message of one kind can
/// never be taken for another.
inline constexpr int kBarrierTag = 1;
inline constexpr int kControlTag = 2;
inline constexpr int kRingTag = 3;
inline constexpr int kNeighbourTag = 4;
inline constexpr int kPushTag = 5;
inline constexpr int kPullTag = 6;

}  // namespace dynamiccl
