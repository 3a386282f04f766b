#include "reports/page/paper_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

// Lines of more settings cover each other.
constexpr std::size_t kMostSettings = 12;

std::string file_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (name.ends_with('-')) name.pop_back();
  return name.substr(0, 80);
}

std::optional<double> number(const json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string text_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found == row.end() ? std::nullopt : number(*found);
}

/// As on the page: variants stand behind what they vary.
std::size_t environment_rank(const std::string& name) {
  constexpr std::array kKinds{"bare-metal", "singularity", "single-docker", "cross-docker"};
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                 [&](const char* start) { return name.starts_with(start); });
  return static_cast<std::size_t>(kind - kKinds.begin());
}

/// A measured cell of the page's columns.
struct Cell {
  std::size_t environment = 0;
  std::size_t backend = 0;
  std::size_t operation = 0;
  std::size_t settings = 0;
  double size = 0;
  const json* columns = nullptr;
  std::size_t row = 0;

  [[nodiscard]] std::optional<double> figure(const char* column) const {
    return number(columns->at(column).at(row));
  }
};

class Cells {
 public:
  explicit Cells(const json& page) : lists_(page.at("cells")) {
    const json& columns = lists_.at("columns");
    if (!columns.contains("median")) return;
    const auto index = [&](const char* name, std::size_t row) {
      return columns.at(name).at(row).get<std::size_t>();
    };
    for (std::size_t row = 0; row < columns.at("median").size(); ++row)
      all_.push_back({index("environment", row), index("backend", row), index("operation", row),
                      index("settings", row), columns.at("size").at(row).get<double>(), &columns,
                      row});
    choose_settings();
  }

  [[nodiscard]] std::string name(const char* list, std::size_t index) const {
    return lists_.at(list).at(index).get<std::string>();
  }
  /// Where an environment stands among all of the run, in the page's order.
  [[nodiscard]] std::size_t place_of_environment(std::size_t index) const {
    const auto before = [&](std::size_t other) {
      const std::string a = name("environments", other);
      const std::string b = name("environments", index);
      return std::pair(environment_rank(a), a) < std::pair(environment_rank(b), b);
    };
    std::size_t place = 0;
    for (std::size_t other = 0; other < count("environments"); ++other)
      place += before(other) ? 1 : 0;
    return place;
  }
  [[nodiscard]] const json& operations() const { return lists_.at("operations"); }
  [[nodiscard]] std::size_t count(const char* list) const { return lists_.at(list).size(); }
  /// @param usual the settings that the page begins with; else all
  [[nodiscard]] std::vector<Cell> of(std::size_t operation, bool usual) const {
    std::vector<Cell> found;
    for (const Cell& cell : all_)
      if (cell.operation == operation && cell.size > 0 &&
          (!usual || cell.settings == settings_.at(cell.backend)))
        found.push_back(cell);
    return found;
  }

 private:
  /// The library's defaults, or else the settings that most of these cells have.
  [[nodiscard]] std::size_t usual(const std::vector<Cell>& some) const {
    std::map<std::size_t, std::size_t> counts;
    for (const Cell& cell : some) ++counts[cell.settings];
    std::size_t best = counts.empty() ? 0 : counts.begin()->first;
    for (const auto& [settings, count] : counts) {
      if (name("settings", settings) == "library defaults") return settings;
      if (count > counts.at(best)) best = settings;
    }
    return best;
  }

  /// Settings that every backend has; where there are none, each backend's own.
  void choose_settings() {
    std::map<std::size_t, std::set<std::size_t>> known;
    for (const Cell& cell : all_) known[cell.backend].insert(cell.settings);
    std::vector<Cell> shared;
    for (const Cell& cell : all_)
      if (std::all_of(known.begin(), known.end(),
                      [&](const auto& entry) { return entry.second.contains(cell.settings); }))
        shared.push_back(cell);
    for (const auto& [backend, settings] : known) {
      std::vector<Cell> mine;
      for (const Cell& cell : shared.empty() ? all_ : shared)
        if (!shared.empty() || cell.backend == backend) mine.push_back(cell);
      settings_[backend] = usual(mine);
    }
  }

  const json& lists_;
  std::vector<Cell> all_;
  std::map<std::size_t, std::size_t> settings_;  ///< by backend
};

using PointOf = std::optional<PaperPoint> (*)(const Cell&);

std::optional<PaperPoint> latency(const Cell& cell) {
  const auto median = cell.figure("median");
  if (!median || *median <= 0) return std::nullopt;
  return PaperPoint{cell.size, *median, cell.figure("low"), cell.figure("high")};
}

std::optional<PaperPoint> bus_bandwidth(const Cell& cell) {
  const auto time = latency(cell);
  const auto factor = cell.figure("busbw_factor");
  if (!time || !factor || *factor <= 0) return std::nullopt;
  const double product = cell.size * 1e6 * *factor;
  PaperPoint point{cell.size, product / time->value, {}, {}};
  if (time->high && time->low && *time->low > 0) {  // the longest time is the lowest bandwidth
    point.low = product / *time->high;
    point.high = product / *time->low;
  }
  return point;
}

std::optional<PaperPoint> overhead(const Cell& cell) {
  const auto ratio = cell.figure("ratio");
  if (!ratio || *ratio <= 0) return std::nullopt;
  return PaperPoint{cell.size, *ratio, cell.figure("ratio_low"), cell.figure("ratio_high")};
}

/// A panel for each environment, backend or pair of both that `line` does not tell apart, in the
/// page's order.
std::vector<PaperPanel> panels_of(const Cells& cells, const std::vector<Cell>& chosen,
                                  const std::string& line, PointOf point_of) {
  using Ordered = std::pair<std::size_t, std::string>;  // place, name
  std::map<Ordered, std::map<Ordered, PaperLine>> panels;
  for (const Cell& cell : chosen) {
    const auto point = point_of(cell);
    if (!point) continue;
    const std::string environment = cells.name("environments", cell.environment);
    const std::string backend = cells.name("backends", cell.backend);
    const std::string settings = cells.name("settings", cell.settings);
    const std::size_t rank = cells.place_of_environment(cell.environment);
    const Ordered panel = line == "environment" ? Ordered{cell.backend, backend}
                          : line == "backend"   ? Ordered{rank, environment}
                                                : Ordered{rank, environment + ", " + backend};
    const Ordered label = line == "environment" ? Ordered{rank, environment}
                          : line == "backend"   ? Ordered{cell.backend, backend}
                                                : Ordered{cell.settings, settings};
    auto& drawn = panels[panel][label];
    drawn.label = label.second;
    drawn.look = label.first + (line == "backend" ? 1 : 0);
    drawn.points.push_back(*point);
  }
  std::vector<PaperPanel> all;
  for (auto& [panel, lines] : panels) {
    all.push_back({panel.second, {}});
    for (auto& [label, drawn] : lines) {
      std::sort(drawn.points.begin(), drawn.points.end(),
                [](const auto& a, const auto& b) { return a.x < b.x; });
      all.back().lines.push_back(std::move(drawn));
    }
  }
  return all;
}

std::string operation_name(const json& operations, std::size_t index) {
  const json& o = operations.at(index);
  const auto same = [&](const char* key) {
    return std::all_of(operations.begin(), operations.end(),
                       [&](const json& other) { return other.at(key) == o.at(key); });
  };
  std::string name = text_of(o, "architecture") + " " + text_of(o, "collective");
  if (!same("ranks")) name += fmt::format(", {} ranks", o.at("ranks").get<int>());
  if (!same("datatype")) name += ", " + text_of(o, "datatype");
  if (!same("in_place")) name += o.at("in_place").get<bool>() ? ", in place" : ", out of place";
  return name;
}

void add_figure(std::vector<PaperFigure>& figures, PaperFigure figure) {
  if (figure.panels.empty()) return;
  const auto taken = [&](const std::string& name) {
    return std::any_of(figures.begin(), figures.end(),
                       [&](const PaperFigure& other) { return other.name == name; });
  };
  const std::string wanted = figure.name;
  for (int number = 2; taken(figure.name); ++number)
    figure.name = fmt::format("{}-{}", wanted, number);
  figures.push_back(std::move(figure));
}

void add_operation(const Cells& cells, std::size_t operation, std::vector<PaperFigure>& figures) {
  const auto usual = cells.of(operation, true);
  const auto all = cells.of(operation, false);
  const std::string named = operation_name(cells.operations(), operation);
  const json& of = cells.operations().at(operation);
  // Of a size that nobody chose: its steps are drawn below.
  if (text_of(of, "collective") == "training") return;
  const std::string method = text_of(of, "method");
  std::set<std::size_t> settings;
  for (const Cell& cell : all) settings.insert(cell.settings);
  const std::string line = cells.count("environments") > 1 ? "environment"
                           : cells.count("backends") > 1   ? "backend"
                                                           : "settings";
  const auto add = [&](const char* kind, const std::string& y, PaperUnit unit, PointOf point,
                       bool of_settings) {
    PaperFigure figure;
    figure.name = file_name(std::string(kind) + " " + named + (of_settings ? " settings" : ""));
    figure.title = fmt::format("{} of {}", y, named);
    figure.method = method;
    figure.x_label = "message size";
    figure.y_label = y;
    figure.y = unit;
    figure.one_is_equal = unit == PaperUnit::ratio;
    figure.panels =
        panels_of(cells, of_settings ? all : usual, of_settings ? "settings" : line, point);
    add_figure(figures, std::move(figure));
  };
  for (const bool of_settings : {false, true}) {
    if (of_settings &&
        (settings.size() < 2 || settings.size() > kMostSettings || line == "settings"))
      continue;
    add("latency", "latency", PaperUnit::microseconds, latency, of_settings);
    add("busbw", "bus bandwidth", PaperUnit::bytes_per_s, bus_bandwidth, of_settings);
    add("overhead", "time over bare metal's", PaperUnit::ratio, overhead, of_settings);
  }
}

std::string place_of(const json& row) {
  return text_of(row, "environment") + ", " + text_of(row, "backend");
}

std::string task_of(const json& row) {
  return fmt::format("{}, batch {:g}, {:g} ranks", text_of(row, "model"),
                     number_of(row, "batch").value_or(0), number_of(row, "ranks").value_or(0));
}

std::vector<std::string> settings_words(const json& row) {
  const std::string settings = text_of(row, "settings");
  return settings.empty() || settings.starts_with('{') ? std::vector<std::string>{}
                                                       : split(settings, ' ');
}

/// A way to train by its method and what of its settings not all of these rows have.
std::string way_of(const json& row, const std::vector<const json*>& all) {
  std::vector<std::string> own;
  for (const auto& word : settings_words(row)) {
    const bool shared = std::all_of(all.begin(), all.end(), [&](const json* other) {
      const auto words = settings_words(*other);
      return std::find(words.begin(), words.end(), word) != words.end();
    });
    if (!shared) own.push_back(word);
  }
  return text_of(row, "method") + (own.empty() ? "" : " (" + join(own, " ") + ")");
}

/// Where a step's time goes: a bar for each way to train, a part of it each line.
void add_steps(const json& rows, std::vector<PaperFigure>& figures) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kParts{
      {{"forward_us", "forward"},
       {"backward_us", "backward"},
       {"update_us", "optimizer"},
       {"exposed_us", "waiting for gradients"}}};
  std::map<std::string, std::map<std::string, std::vector<const json*>>> tasks;
  for (const json& row : rows) tasks[task_of(row)][place_of(row)].push_back(&row);
  for (const auto& [task, places] : tasks) {
    PaperFigure figure;
    figure.name = file_name("step " + task);
    figure.title = "Where the step goes: " + task;
    figure.method =
        "Medians over launches. Forward, backward and optimizer: of the slowest worker while it "
        "computes; waiting: until gradients are there.";
    figure.y_label = "time of a step";
    figure.bars = true;
    std::vector<const json*> all;
    for (const auto& [place, mine] : places) all.insert(all.end(), mine.begin(), mine.end());
    for (const auto& [place, mine] : places) {
      PaperPanel panel{place, {}};
      for (const auto& [key, label] : kParts) panel.lines.push_back({label, {}, 0});
      panel.lines.push_back({"everything else", {}, 0});
      for (const json* row : mine) {
        const auto bar = static_cast<double>(figure.places.size());
        figure.places.push_back(way_of(*row, all));
        double rest = number_of(*row, "step_us").value_or(0);
        for (std::size_t part = 0; part < kParts.size(); ++part) {
          const double time = number_of(*row, kParts[part].first).value_or(0);
          rest -= time;
          panel.lines[part].points.push_back({bar, time, {}, {}});
        }
        panel.lines.back().points.push_back({bar, std::max(0.0, rest), {}, {}});
      }
      figure.panels.push_back(std::move(panel));
    }
    add_figure(figures, std::move(figure));
  }
}

/// Lines of one launch each: [x, ..., value] at the places `x` and `y`.
void add_curves(const json& cells, const char* points_key, std::size_t x, std::size_t y,
                PaperFigure like, std::vector<PaperFigure>& figures) {
  std::map<std::string, std::map<std::string, std::vector<PaperLine>>> tasks;
  for (const json& cell : cells) {
    if (!cell.contains(points_key) || !cell.at(points_key).is_array()) continue;
    PaperLine line{text_of(cell, "configuration"), {}, 0};
    for (const json& point : cell.at(points_key)) {
      const auto at = number(point.at(x));
      const auto value = number(point.at(y));
      if (at && value) line.points.push_back({*at, *value, {}, {}});
    }
    if (line.points.size() > 1) tasks[task_of(cell)][place_of(cell)].push_back(std::move(line));
  }
  for (auto& [task, places] : tasks) {
    PaperFigure figure = like;
    figure.name = file_name(like.name + " " + task);
    figure.title = like.title + ": " + task;
    for (auto& [place, lines] : places) {
      for (std::size_t i = 0; i < lines.size(); ++i) lines[i].look = i;
      figure.panels.push_back({place, std::move(lines)});
    }
    add_figure(figures, std::move(figure));
  }
}

PaperFigure curve(const char* name, const char* title, const char* x_label, PaperUnit x,
                  const char* y_label, PaperUnit y) {
  PaperFigure figure;
  figure.name = name;
  figure.title = title;
  figure.method = "Of one launch of each way to train, evaluations left out.";
  figure.x_label = x_label;
  figure.x = x;
  figure.y_label = y_label;
  figure.y = y;
  return figure;
}

void add_speedups(const json& rows, std::vector<PaperFigure>& figures) {
  std::map<std::string, std::map<std::string, PaperLine>> panels;
  std::vector<const json*> all;
  for (const json& row : rows) all.push_back(&row);
  for (const json& row : rows) {
    const auto speedup = number_of(row, "speedup");
    if (!speedup) continue;
    auto& line =
        panels[fmt::format("{}, batch {:g}, {}", text_of(row, "model"),
                           number_of(row, "batch").value_or(0), place_of(row))][way_of(row, all)];
    line.label = way_of(row, all);
    line.points.push_back({number_of(row, "ranks").value_or(0), *speedup,
                           number_of(row, "speedup_low"), number_of(row, "speedup_high")});
  }
  auto figure = curve("speedup", "Speed-up by ranks", "ranks", PaperUnit::count, "speed-up",
                      PaperUnit::ratio);
  figure.method = "Throughput over one worker's in the same launch.";
  for (auto& [panel, lines] : panels) {
    PaperPanel drawn{panel, {}};
    for (auto& [label, line] : lines) {
      std::sort(line.points.begin(), line.points.end(),
                [](const auto& a, const auto& b) { return a.x < b.x; });
      line.look = drawn.lines.size();
      if (line.points.size() > 1) drawn.lines.push_back(std::move(line));
    }
    if (!drawn.lines.empty()) figure.panels.push_back(std::move(drawn));
  }
  add_figure(figures, std::move(figure));
}

}  // namespace

std::vector<PaperFigure> paper_figures(const json& page) {
  std::vector<PaperFigure> figures;
  const Cells cells(page);
  for (std::size_t i = 0; i < cells.operations().size(); ++i) add_operation(cells, i, figures);
  const json& training = page.at("sections").at("training");
  if (!training.is_object()) return figures;
  add_steps(training.at("rows"), figures);
  add_curves(training.at("curves"), "losses", 0, 1,
             curve("loss", "Loss over steps", "step", PaperUnit::count, "loss", PaperUnit::count),
             figures);
  add_curves(training.at("progress"), "points", 0, 2,
             curve("accuracy-time", "Accuracy over time", "time", PaperUnit::seconds, "accuracy",
                   PaperUnit::share),
             figures);
  add_curves(training.at("progress"), "points", 1, 2,
             curve("accuracy-bytes", "Accuracy over bytes sent", "sent by the busiest rank",
                   PaperUnit::bytes, "accuracy", PaperUnit::share),
             figures);
  add_speedups(training.at("scaling"), figures);
  return figures;
}

}  // namespace dynamiccl
