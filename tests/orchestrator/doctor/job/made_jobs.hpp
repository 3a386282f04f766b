#pragma once

#include <functional>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

// Jobs as looks show them, made of rules.
namespace dynamiccl::testing {

inline constexpr int kLooks = 8;
inline constexpr double kPause = 1;

/// What one look shows of a rank in a call. @param moment differs where it has moved on
inline RankLook in_call(const std::string& call, std::uint64_t moment = 1,
                        CallKind kind = CallKind::collective) {
  RankLook look;
  look.state = 'R';
  look.stack = {true, kind, call, "", false, 7, moment};
  return look;
}

/// What one look shows of a rank outside of calls.
inline RankLook outside(char state, const std::string& kernel_call, const std::string& place = "") {
  RankLook look;
  look.state = state;
  look.kernel_call = kernel_call;
  look.stack.read = true;
  look.stack.place = place;
  return look;
}

/// A rank whose looks come from a function of their number, a second apart.
inline LiveRank rank_of(int rank, const std::function<RankLook(int)>& look_of, double cores = 0.9,
                        double waiting = 0) {
  LiveRank facts;
  facts.rank = rank;
  facts.pid = 100 + rank;
  facts.program = "job";
  for (int i = 0; i < kLooks; ++i) {
    RankLook look = look_of(i);
    look.at_s = i * kPause;
    look.cpu_s = look.run_s = cores * look.at_s;
    look.wait_s = waiting * look.at_s;
    facts.looks.push_back(look);
  }
  return facts;
}

inline LiveJob job_of(std::vector<LiveRank> ranks) {
  LiveJob job;
  job.world = static_cast<int>(ranks.size());
  job.all_here = true;
  job.seconds = (kLooks - 1) * kPause;
  job.ranks = std::move(ranks);
  return job;
}

inline RankLook stands(int) { return in_call("MPI_Allreduce"); }
inline RankLook moves(int look) {
  return in_call("MPI_Allreduce", static_cast<std::uint64_t>(look) + 1);
}
inline RankLook sleeps(int) { return outside('S', "asleep"); }
inline RankLook computes(int) { return outside('R', "", "compute of job"); }

/// A rank that is in a wait for its GPU at each look, with its stack as it was.
inline LiveRank on_gpu(int rank, double gpu_memory, std::uint64_t launched,
                       std::uint64_t more_each_look) {
  auto one = rank_of(rank, [&](int look) {
    auto waits = in_call("cudaStreamSynchronize", 1, CallKind::gpu);
    waits.gpu_memory = gpu_memory;
    waits.launched = launched + more_each_look * static_cast<std::uint64_t>(look);
    return waits;
  });
  one.on_gpu = true;
  return one;
}

}  // namespace dynamiccl::testing
