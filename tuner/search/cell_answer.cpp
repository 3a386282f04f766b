#include "tuner/search/cell_answer.hpp"

#include "core/statistics/verdict.hpp"

namespace dynamiccl {
namespace {

/// Why the default stays, where nothing was surely faster.
/// @param verdict of the choice; "" = not compared
std::string_view flag_of(const CellEvidence& evidence, std::string_view verdict) {
  if (evidence.arms <= 1) return kNothingToSet;
  if (!evidence.ratio && evidence.missed + 1 >= evidence.arms) return kOnlyDefault;
  if (evidence.tried <= 1 && !evidence.ratio) return kUnexplored;
  // An interval that begins inside the band and ends beyond it leaves out a gain, too; whoever
  // reads UNCLEAR next to "nothing helps" sees two answers.
  const bool no_gain = verdict == name_of(Verdict::same) || verdict == name_of(Verdict::slower);
  return no_gain && evidence.tried >= evidence.arms ? kNonActionable : kUndecided;
}

}  // namespace

CellAnswer answer_of(const CellEvidence& evidence, const ConfirmationRule& rule) {
  CellAnswer answer;
  answer.guard = evidence.guard;
  if (evidence.guard == GuardVerdict::ina_passthrough ||
      evidence.guard == GuardVerdict::no_actuator || evidence.guard == GuardVerdict::failed)
    return answer;
  const auto& ratio = evidence.ratio;
  const bool faster = ratio && ratio->interval && ratio->interval->high < 1;
  if (ratio)
    answer.verdict = name_of(faster ? Verdict::faster : judge(*ratio, {.relative = rule.band}));
  if (faster) {
    answer.kept = !evidence.above_gloo_floor;
    answer.guard = answer.kept ? GuardVerdict::pass : GuardVerdict::above_gloo_floor;
    return answer;
  }
  answer.flag = flag_of(evidence, answer.verdict);
  // A search's own suspicion is no verdict: without a comparison nothing was taken back.
  answer.guard = !ratio                                       ? GuardVerdict::pass
                 : answer.verdict == name_of(Verdict::slower) ? GuardVerdict::slower_than_default
                                                              : GuardVerdict::not_confirmed;
  return answer;
}

}  // namespace dynamiccl
