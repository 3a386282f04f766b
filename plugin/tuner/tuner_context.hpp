#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "plugin/agreement/call_stream.hpp"
#include "plugin/agreement/member.hpp"
#include "plugin/tuner/nccl_tuner_abi.hpp"

namespace dynamiccl::nccl_tuner {

/// What NCCL expected of calls where the table was made, compared with what it expects here: NCCL
/// makes its expectations of links, GPUs, nodes and channels that all ranks know alike, so that
/// all ranks of a communicator come to the same answer at the same call.
struct CostCheck {
  std::array<std::uint64_t, kCallFunctions> unseen{};  ///< bit per size: not looked at yet
  std::array<std::array<CallCost, kCallBins>, kCallFunctions> expected{};
};

/// One communicator's tuner.
struct Context {
  std::unique_ptr<CostCheck> check;  ///< nullptr: nothing to look at, or no more
  bool refused = false;              ///< the table was made elsewhere: NCCL's own choices
  std::shared_ptr<Member> member;
  std::shared_ptr<CallStream> stream;  ///< nullptr: nobody wants to know what NCCL expects
  Logger log = nullptr;
  std::uint64_t masked = 0;  ///< calls whose setting NCCL does not have here
};

/// Reads the environment:
///   DYNAMICCL_TUNER_TABLE     table file (`dynamiccl export --format nccl`): of its rows those
///                             count that were made for this communicator's ranks and nodes, and
///                             none where it was made with another NCCL
///   DYNAMICCL_TUNER_FOLDER    folder that all ranks of a host share: ranks agree there, and a
///                             leader may change the table while the job runs. A communicator whose
///                             ranks run on several hosts never agrees: NCCL's own choices stay
/// Never fails: without a whole table NCCL's own choices stay.
/// @param communicator equal on all ranks; 0: unknown, no agreement
/// @throws std::bad_alloc alone
std::unique_ptr<Context> make_context(std::uint64_t communicator, std::size_t ranks,
                                      std::size_t nodes, Logger log);

/// Looks at a call's costs where the table says what they were; on a difference the table is
/// refused from this call on, and NCCL's log says so.
void check_costs(Context& context, std::size_t function, std::size_t bin, const float* costs,
                 int algorithms, int protocols) noexcept;

/// Puts a cell into NCCL's cost table: 0 into one cell that NCCL has not ruled out, or nothing.
/// @param costs flat, [algorithms][protocols]
/// @returns false when NCCL has ruled out what the cell asks for; nothing was changed
bool apply(CallCell cell, float* costs, int algorithms, int protocols, int* channels) noexcept;

}  // namespace dynamiccl::nccl_tuner
