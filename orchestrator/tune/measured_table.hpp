#pragma once

#include "db/reader.hpp"
#include "tuner/table/joint_choice.hpp"

namespace dynamiccl {

/// A table of the jointly best settings of what runs have measured of a backend, with the regimes'
/// names and the runs as provenance. One regime per environment: the one most of its launches were
/// in.
/// @param runs run ids or what Reader::resolve_run() takes
/// @throws Error(input) for an unknown run or one without usable measurements
ConfigurationTable measured_table(const Reader& reader, const std::vector<std::string>& runs,
                                  Backend backend, const JointOptions& options);

}  // namespace dynamiccl
