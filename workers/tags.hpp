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
inline constexpr int kOrderTag = 7;
inline constexpr int kHalfTag = 8;
inline constexpr int kClockTag = 9;
inline constexpr int kGossipTag = 10;
inline constexpr int kReportTag = 11;
inline constexpr int kSettingTag = 12;
inline constexpr int kGroupTag = 13;
inline constexpr int kLevelTag = 14;
inline constexpr int kComingTag = 15;
/// Pushed and pulled pieces of training: tag + number of the piece.
inline constexpr int kPieceTag = 1000;

}  // namespace dynamiccl
