#include <fmt/format.h>

#include <array>
#include <cmath>

#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {
namespace {

/// How the bus bandwidth of a collective follows from the algorithm's (doc/PERFORMANCE.md of
/// nccl-tests), and what of the message one rank has.
enum class TrafficKind { all_reduce, one_to_one, parts };

struct CollectiveRule {
  std::string_view collective;
  TrafficKind kind;
  bool reduces;
};

constexpr std::array kRules{CollectiveRule{"allreduce", TrafficKind::all_reduce, true},
                            CollectiveRule{"reduce", TrafficKind::one_to_one, true},
                            CollectiveRule{"broadcast", TrafficKind::one_to_one, false},
                            CollectiveRule{"sendrecv", TrafficKind::one_to_one, false},
                            CollectiveRule{"allgather", TrafficKind::parts, false},
                            CollectiveRule{"reduce_scatter", TrafficKind::parts, true},
                            CollectiveRule{"gather", TrafficKind::parts, false},
                            CollectiveRule{"scatter", TrafficKind::parts, false},
                            CollectiveRule{"alltoall", TrafficKind::parts, false}};

std::optional<double> printed_figure(const ForeignRow& row, const char* name, const char* other) {
  for (const char* key : {name, other}) {
    const auto found = row.reported.find(key);
    if (found != row.reported.end() && found->is_number()) return found->get<double>();
  }
  return std::nullopt;
}

/// At least what the last printed digit leaves open: two decimals below 100, fewer above.
double doubt_of(double value) { return value < 100 ? 0.006 : value < 1000 ? 0.06 : 0.6; }

bool factor_fits(double factor, double algbw, double busbw) {
  constexpr double kSlack = 0.004;  // of the factor itself, which is computed from rounded times
  const double low = (busbw - doubt_of(busbw)) / (algbw + doubt_of(algbw));
  const double high = (busbw + doubt_of(busbw)) / (algbw - doubt_of(algbw));
  return factor * (1 + kSlack) >= low && factor * (1 - kSlack) <= high;
}

std::string wrong_factor(const CollectiveRule& rule, const ForeignRow& row, int ranks) {
  const auto algbw = printed_figure(row, "algbw", "alg_bw");
  const auto busbw = printed_figure(row, "busbw", "bus_bw");
  if (!algbw || !busbw || *algbw < 1 || ranks < 1) return "";
  const double all = ranks;
  const double parts = (all - 1) / all;
  const double factor = rule.kind == TrafficKind::all_reduce ? 2 * parts
                        : rule.kind == TrafficKind::parts    ? parts
                                                             : 1;
  // Old versions took the part that is not sent out of the algorithm's bandwidth already.
  if (factor_fits(factor, *algbw, *busbw) ||
      (rule.kind == TrafficKind::parts && factor_fits(1, *algbw, *busbw)))
    return "";
  return fmt::format(
      "busbw / algbw is {:.3g} in its row of {} bytes, and {:.3g} for {} over {} "
      "ranks",
      *busbw / *algbw, row.size_bytes, factor, row.collective, ranks);
}

std::string wrong_count(const CollectiveRule& rule, const ForeignRow& row, int ranks) {
  const auto type = find_named<DataType>(row.datatype);
  const auto count = printed_figure(row, "count", "count");
  if (!type || !count || *count < 1) return "";
  const double bytes = *count * static_cast<double>(element_bytes(*type));
  const auto size = static_cast<double>(row.size_bytes);
  if (bytes == size || (rule.kind == TrafficKind::parts && bytes * ranks == size)) return "";
  return fmt::format(
      "{} elements of {} are {} bytes, and its row is of {}: no message of {} over "
      "{} ranks",
      *count, row.datatype, bytes, row.size_bytes, row.collective, ranks);
}

}  // namespace

std::string contradiction(const ForeignRow& row, int ranks) {
  if (row.knobs.contains("groups")) return "";
  for (const auto& rule : kRules) {
    if (rule.collective != row.collective) continue;
    const auto redop = row.reported.find("redop");
    const std::string reduction =
        redop != row.reported.end() && redop->is_string() ? redop->get<std::string>() : "";
    if (rule.reduces && reduction == "none")
      return fmt::format("its column redop says none, and {} reduces", row.collective);
    if (!rule.reduces && (reduction == "sum" || reduction == "prod" || reduction == "max" ||
                          reduction == "min" || reduction == "avg"))
      return fmt::format("its column redop says {}, and {} reduces nothing", reduction,
                         row.collective);
    if (auto wrong = wrong_factor(rule, row, ranks); !wrong.empty()) return wrong;
    return wrong_count(rule, row, ranks);
  }
  return "";
}

}  // namespace dynamiccl
