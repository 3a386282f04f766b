#include "tuner/simulator/machine_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "core/statistics/descriptive.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "tuner/simulator/machine_cost.hpp"

namespace dynamiccl {
namespace {

using FittedCalls = std::vector<MeasuredCall>;

double on_busiest_link(Collective collective, int ranks, double bytes) {
  const double factor = bus_bandwidth_factor(collective, ranks);
  return bytes * (factor > 0 ? factor : 1);
}

/// One operation's times over bytes on the busiest link.
double on_curve(const FittedCalls& calls, Collective collective, double bytes) {
  std::vector<std::pair<double, double>> points;
  for (const MeasuredCall& call : calls)
    if (call.collective == collective)
      points.emplace_back(on_busiest_link(call.collective, call.ranks, call.bytes), call.us);
  std::sort(points.begin(), points.end());
  // A constant bandwidth is the best that a single call says of larger ones.
  if (points.size() == 1) return points[0].second * std::max(1.0, bytes / points[0].first);
  if (bytes <= points.front().first) return points.front().second;
  std::size_t end = 1;
  while (end + 1 < points.size() && bytes > points[end].first) ++end;
  const auto& [from, from_us] = points[end - 1];
  const auto& [to, to_us] = points[end];
  const double us = from_us + (to_us - from_us) * (bytes - from) / (to - from);
  return bytes > to ? std::max(us, to_us) : us;
}

/// The calls with the count of ranks that is nearest by ratio; of two as near, the larger count.
FittedCalls at_nearest_ranks(const FittedCalls& calls, int ranks) {
  int nearest = 0;
  const auto distance = [&](int count) {
    return std::abs(std::log(static_cast<double>(count) / ranks));
  };
  for (const MeasuredCall& call : calls)
    if (nearest == 0 || distance(call.ranks) < distance(nearest) ||
        (distance(call.ranks) == distance(nearest) && call.ranks > nearest))
      nearest = call.ranks;
  FittedCalls found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found),
               [&](const MeasuredCall& call) { return call.ranks == nearest; });
  return found;
}

bool is_between(const FittedCalls& calls, Collective collective, double bytes) {
  const auto is = [&](auto holds) {
    return std::any_of(calls.begin(), calls.end(), [&](const MeasuredCall& call) {
      return call.collective == collective && holds(call.bytes);
    });
  };
  return is([&](double other) { return other < bytes; }) &&
         is([&](double other) { return other > bytes; });
}

/// How far the other operations' calls of this very size lie off the lines between their
/// neighbours: protocols and caches bend all of them there. 1 where none tells.
double bend_at(const FittedCalls& calls, Collective collective, double bytes) {
  std::vector<double> bends;
  for (const MeasuredCall& call : calls) {
    if (call.collective == collective || call.bytes != bytes) continue;
    FittedCalls rest = calls;
    std::erase_if(rest, [&](const MeasuredCall& other) { return other.bytes == bytes; });
    if (!is_between(rest, call.collective, bytes)) continue;
    const double busiest = on_busiest_link(call.collective, call.ranks, bytes);
    bends.push_back(call.us / on_curve(rest, call.collective, busiest));
  }
  return bends.empty() ? 1 : median(std::move(bends));
}

std::optional<LibraryTime> time_by(const FittedCalls& all, Collective collective, int ranks,
                                   double bytes) {
  const FittedCalls calls = at_nearest_ranks(all, ranks);
  if (calls.empty()) return std::nullopt;
  LibraryTime time;
  const double busiest = on_busiest_link(collective, ranks, bytes);
  std::set<Collective> known;
  for (const MeasuredCall& call : calls) known.insert(call.collective);
  if (known.contains(collective)) {
    const bool measured = std::any_of(calls.begin(), calls.end(), [&](const MeasuredCall& call) {
      return call.collective == collective && call.bytes == bytes;
    });
    time.us =
        on_curve(calls, collective, busiest) * (measured ? 1 : bend_at(calls, collective, bytes));
  } else {
    std::vector<double> others;
    for (const Collective other : known) others.push_back(on_curve(calls, other, busiest));
    time.us = median(std::move(others));
    time.like = HeldOut::collectives;
  }
  if (calls.front().ranks != ranks) time.like = HeldOut::ranks;
  return time;
}

HeldOutError error_of(std::vector<double> distances) {
  std::sort(distances.begin(), distances.end());
  const auto ninth =
      static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(distances.size())));
  return {static_cast<int>(distances.size()), median(distances), distances[ninth - 1]};
}

/// Leaves out in turn the calls of which `key` says the same, and predicts them by the rest.
template <class Key, class Left>
void leave_out(MeasuredLibrary& library, HeldOut what, Key key, Left predicted) {
  std::vector<double> distances;
  using Value = decltype(key(library.calls.front()));
  std::set<Value> values;
  for (const MeasuredCall& call : library.calls) values.insert(key(call));
  for (const Value& value : values) {
    FittedCalls rest;
    std::copy_if(library.calls.begin(), library.calls.end(), std::back_inserter(rest),
                 [&](const MeasuredCall& call) { return key(call) != value; });
    for (const MeasuredCall& call : library.calls)
      if (key(call) == value)
        if (const auto us = predicted(rest, call)) distances.push_back(std::abs(*us / call.us - 1));
  }
  if (!distances.empty()) library.errors[what] = error_of(std::move(distances));
}

std::optional<double> rest_says(const FittedCalls& rest, const MeasuredCall& call) {
  if (const auto time = time_by(rest, call.collective, call.ranks, call.bytes)) return time->us;
  return std::nullopt;
}

/// Only of sizes that lie between two others of their operation and count of ranks.
std::optional<double> neighbours_say(const FittedCalls& rest, const MeasuredCall& call) {
  FittedCalls alike;
  std::copy_if(rest.begin(), rest.end(), std::back_inserter(alike),
               [&](const MeasuredCall& other) { return other.ranks == call.ranks; });
  return is_between(alike, call.collective, call.bytes) ? rest_says(rest, call) : std::nullopt;
}

/// The models' fastest; nullopt where the operation has no model.
std::optional<double> model_time(const MachineModel& machine, const MeasuredCall& call) {
  const auto times = predict_collective(machine, call.collective, call.ranks, call.bytes);
  if (times.empty()) return std::nullopt;
  return times.front().us;
}

/// Two figures are fitted to calls of two sizes or operations that have a model at least.
bool can_fit(const FittedCalls& calls) {
  std::set<std::pair<Collective, double>> modelled;
  for (const MeasuredCall& call : calls)
    if (!modelled_algorithms(call.collective).empty())
      modelled.emplace(call.collective, call.bytes);
  return modelled.size() >= 2;
}

/// Steps of latency and bandwidth by a factor, smaller and smaller, while the sum of logarithmic
/// distances falls.
void fit_first_link(MachineModel& machine, const FittedCalls& calls) {
  LinkClass& link = machine.links.front().classes.front();
  link = {0, 1, 1e3};
  const auto distance = [&] {
    double sum = 0;
    for (const MeasuredCall& call : calls)
      if (const auto us = model_time(machine, call)) sum += std::abs(std::log(*us / call.us));
    return sum;
  };
  double best = distance();
  for (double factor = 8; factor > 1.005;) {
    bool better = false;
    for (double* figure : {&link.latency_us, &link.bytes_per_us})
      for (const double step : {factor, 1 / factor}) {
        const double before = *figure;
        *figure = std::clamp(before * step, 1e-3, 1e8);
        const double now = distance();
        if (now < best) {
          best = now;
          better = true;
        } else {
          *figure = before;
        }
      }
    if (!better) factor = std::sqrt(factor);
  }
}

/// A text as TOML has it, which is as JSON has it.
std::string quoted_toml(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string calls_toml(const FittedCalls& calls) {
  std::string text = "call = [\n";
  for (const MeasuredCall& call : calls)
    text += fmt::format("  {{operation = \"{}\", ranks = {}, size = {}, us = {:.6g}}},\n",
                        name_of(call.collective), call.ranks,
                        static_cast<std::uint64_t>(call.bytes), call.us);
  return text + "]\n";
}

}  // namespace

std::optional<LibraryTime> library_time(const MeasuredLibrary& library, Collective collective,
                                        int ranks, double bytes) {
  return time_by(library.calls, collective, ranks, bytes);
}

void hold_out(MeasuredLibrary& library) {
  leave_out(
      library, HeldOut::sizes,
      [](const MeasuredCall& call) { return std::pair(call.collective, call.bytes); },
      neighbours_say);
  leave_out(
      library, HeldOut::collectives, [](const MeasuredCall& call) { return call.collective; },
      rest_says);
  leave_out(
      library, HeldOut::ranks, [](const MeasuredCall& call) { return call.ranks; }, rest_says);
}

void fit_links(MachineModel& machine) {
  if (!can_fit(machine.measured->calls))
    throw Error(ErrorKind::input,
                "links have a latency and a bandwidth, which need calls of two sizes or operations "
                "at least that have a model (`dynamiccl predict MACHINE --operation NAME`), as "
                "allreduce has; measure further ones, or leave out a --where");
  MachineModel part = machine;
  std::optional<Collective> left_out;
  leave_out(
      *machine.measured, HeldOut::links, [](const MeasuredCall& call) { return call.collective; },
      [&](const FittedCalls& rest, const MeasuredCall& call) -> std::optional<double> {
        if (!can_fit(rest)) return std::nullopt;
        if (left_out != call.collective) fit_first_link(part, rest);
        left_out = call.collective;
        return model_time(part, call);
      });
  fit_first_link(machine, machine.measured->calls);
}

std::string machine_toml(const MachineModel& machine, const std::string& source) {
  const LinkClass& link = machine.links.front().classes.front();
  std::string text = fmt::format(
      "# Made by `predict --fit`: measured calls, and links fitted to them.\n"
      "description = {}\nsource = {}\nnodes = {}\nranks_per_node = {}\n\n"
      "[links.node]\nlatency = \"{:.3f}us\"\ngbytes_per_s = {:.4g}\n"
      "source = \"fitted: the fastest model of each call, held_out links says how near\"\n\n"
      "[measured]\nlibrary = {}\nsource = {}\n",
      quoted_toml(machine.description), quoted_toml(source), machine.nodes, machine.ranks_per_node,
      link.latency_us, link.bytes_per_us / 1e3, quoted_toml(machine.measured->name),
      quoted_toml(source));
  if (machine.measured->errors.empty()) return text + calls_toml(machine.measured->calls);
  text += "held_out = [\n";
  for (const auto& [what, error] : machine.measured->errors)
    text += fmt::format(
        "  {{what = \"{}\", cells = {}, median_percent = {:.3g}, p90_percent = {:.3g}}},\n",
        name_of(what), error.cells, 100 * error.median, 100 * error.p90);
  return text + "]\n" + calls_toml(machine.measured->calls);
}

}  // namespace dynamiccl
