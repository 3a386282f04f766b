// Does AutoCCL's model of a GPU transport (tuner/simulator/transport_model.hpp) describe what a
// sweep measured, and is bandwidth unimodal along each resource, as the model's search assumes?
// Prints one Markdown table of runs over settings of NCCL (experiments/gpu_sweep.toml):
//
//   bandwidth_model EXPERIMENT_NAME DB...
//
// One row per environment, settings of the launch apart from threads and buffer, protocol and size:
// points (channels that ran, threads of a block, bytes of a chunk), the model's error, the share of
// lines (one resource varies, the others are fixed) that rise and then fall, and the channels at
// which bandwidth is highest next to those that NCCL takes by itself. Databases of earlier versions
// are migrated in place: give copies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "benchmarks/grid_samples.hpp"
#include "benchmarks/transport_fit.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "db/store.hpp"
#include "reports/model/table_view.hpp"

using namespace dynamiccl;

namespace {

/// NCCL cuts a protocol's buffer into eight slots of a chunk each (NCCL_STEPS in its device.h).
constexpr double kSlots = 8;
constexpr double kDefaultBuffer = 1 << 22;
constexpr std::array kResources{"env.NCCL_BUFFSIZE", "env.NCCL_NTHREADS"};

struct Line {
  std::vector<TransportPoint> points;
  std::optional<double> library_channels;
  double library_rate = 0;
};
/// By environment, launch and way as one text, and by size in bytes.
using Lines = std::map<std::pair<std::string, std::int64_t>, Line>;

/// "RING/SIMPLE, 8 channels, 544 threads", as NCCL's profiler interface tells it.
struct Ran {
  std::string way;
  double channels = 0;
  double threads = 0;
};

std::optional<Ran> parsed(const std::string& text) {
  static const std::regex form(R"(([A-Z]+/[A-Z0-9]+), ([0-9]+) channels, ([0-9]+) threads)");
  std::smatch found;
  if (!std::regex_match(text, found, form)) return std::nullopt;
  return Ran{found[1], std::stod(found[2]), std::stod(found[3])};
}

/// Settings of the launch without those that are the model's own.
std::string other_settings(nlohmann::json knobs) {
  for (const char* resource : kResources) knobs.erase(resource);
  std::string text;
  for (const auto& [name, value] : knobs.items())
    text += (text.empty() ? "" : " ") + name + "=" + value.get<std::string>();
  return text.empty() ? "default" : text;
}

double chunk_of(const nlohmann::json& knobs) {
  const auto buffer = knobs.find("env.NCCL_BUFFSIZE");
  return (buffer == knobs.end() ? kDefaultBuffer : std::stod(buffer->get<std::string>())) / kSlots;
}

bool is_default(const TableView& rows, std::size_t i, const nlohmann::json& knobs) {
  const std::string cell = rows.text(i, "cell_knobs");
  return rows.text(i, "algorithm") == "library" && (cell.empty() || cell == "{}") &&
         std::none_of(kResources.begin(), kResources.end(),
                      [&](const char* resource) { return knobs.contains(resource); });
}

void load(const std::string& name, const std::string& db, Lines& lines) {
  { const Store migrated(db); }
  const Reader reader(db);
  const Table table = reader.query(
      "SELECT environment, group_knobs, algorithm, cell_knobs, algorithm_ran, size_bytes, "
      "avg(median_us) AS us FROM v_measurement WHERE counts AND run_id = ? AND backend = 'nccl' "
      "GROUP BY environment, group_knobs, algorithm, cell_knobs, algorithm_ran, size_bytes",
      {find_run(reader, name)});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto ran = parsed(rows.text(i, "algorithm_ran"));
    if (!ran) continue;
    const std::string group = rows.text(i, "group_knobs");
    const auto knobs = nlohmann::json::parse(group.empty() ? "{}" : group);
    const std::int64_t size = rows.integer(i, "size_bytes");
    Line& line = lines[{
        fmt::format("{} | {} | {}", rows.text(i, "environment"), other_settings(knobs), ran->way),
        size}];
    const double rate = static_cast<double>(size) / *rows.real(i, "us");
    if (is_default(rows, i, knobs)) {
      line.library_channels = ran->channels;
      line.library_rate = rate;
    }
    line.points.push_back({{ran->channels, ran->threads, chunk_of(knobs)}, rate});
  }
}

/// The same resources may have been asked for in several ways.
std::vector<TransportPoint> merged(const std::vector<TransportPoint>& points) {
  std::map<std::array<double, 3>, std::vector<double>> by_place;
  for (const auto& point : points)
    by_place[{point.knobs.channels, point.knobs.threads, point.knobs.chunk}].push_back(
        point.bytes_per_us);
  std::vector<TransportPoint> result;
  for (const auto& [place, rates] : by_place)
    result.push_back({{place[0], place[1], place[2]}, median(rates)});
  return result;
}

void print(const Lines& lines) {
  fmt::print(
      "environment | launch | way | size_bytes | points | model's error | unimodal lines | best "
      "channels | GB/s | NCCL's channels | GB/s\n---|---|---|---|---|---|---|---|---|---|---\n");
  for (const auto& [key, line] : lines) {
    const auto points = merged(line.points);
    if (points.size() < 6) continue;
    const auto best = std::max_element(
        points.begin(), points.end(),
        [](const auto& a, const auto& b) { return a.bytes_per_us < b.bytes_per_us; });
    const std::string own =
        line.library_channels
            ? fmt::format("{:.0f} | {:.1f}", *line.library_channels, line.library_rate / 1e3)
            : "- | -";
    fmt::print("{} | {} | {} | {:.0f} % | {:.0f} % | {:.0f} | {:.1f} | {}\n", key.first, key.second,
               points.size(), 100 * fit_transport(points).relative_error,
               100 * unimodal_share(points), best->knobs.channels, best->bytes_per_us / 1e3, own);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw Error(ErrorKind::input, "usage: bandwidth_model EXPERIMENT_NAME DB...");
    Lines lines;
    for (int i = 2; i < argc; ++i) load(argv[1], argv[i], lines);
    print(lines);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bandwidth_model: {}\n", error.what());
    return 2;
  }
}
