#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/figures_method.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/waits.hpp"
#include "reports/page/section.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Names in the order in which they are first met.
class Names {
 public:
  std::size_t index_of(const std::string& key, const json& value) {
    const auto [found, is_new] = index_.emplace(key, list_.size());
    if (is_new) list_.push_back(value);
    return found->second;
  }
  std::size_t index_of(const std::string& name) { return index_of(name, name); }
  [[nodiscard]] const json& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> index_;
  json list_ = json::array();
};

std::string settings_of(const CellFigure& f) {
  std::vector<std::string> parts;
  if (f.algorithm != "library") parts.push_back(f.algorithm);
  for (const auto& knobs : {f.group_knobs, f.cell_knobs})
    for (auto& word : setting_words(knobs)) parts.push_back(std::move(word));
  return parts.empty() ? "library defaults" : join(parts, " ");
}

struct Operations {
  Names names;
  std::map<std::size_t, std::vector<const CellFigure*>> figures;

  std::size_t add(const CellFigure& f) {
    const std::string key = fmt::format("{} {} {} {} {}", f.architecture, f.collective, f.ranks,
                                        f.datatype, f.in_place);
    const auto index = names.index_of(key, {{"architecture", f.architecture},
                                            {"collective", f.collective},
                                            {"ranks", f.ranks},
                                            {"datatype", f.datatype},
                                            {"in_place", f.in_place != 0}});
    figures[index].push_back(&f);
    return index;
  }
};

/// Columns of the cells, by their short name in the page.
class PageColumns {
 public:
  void add(const char* column, json value) { columns_[column].push_back(std::move(value)); }
  [[nodiscard]] json take() { return std::move(columns_); }

 private:
  json columns_ = json::object();
};

void add_times(const CellFigure& f, PageColumns& columns) {
  const auto interval = f.interval();
  columns.add("median", rounded(f.median_us()));
  columns.add("low", interval ? rounded(interval->low) : json());
  columns.add("high", interval ? rounded(interval->high) : json());
  json launches = json::array();
  for (const auto& launch : f.launches) launches.push_back(rounded(launch.median_us));
  columns.add("launches", std::move(launches));
  columns.add("busbw_factor", rounded(f.busbw_factor));
  columns.add("drifting", f.drifting);
  columns.add("collective_us", rounded(f.component_us(&LaunchFigure::collective_us)));
  columns.add("h2d_us", rounded(f.component_us(&LaunchFigure::h2d_us)));
  columns.add("d2h_us", rounded(f.component_us(&LaunchFigure::d2h_us)));
  columns.add("send_us", rounded(f.component_us(&LaunchFigure::send_us)));
  columns.add("compute_us", rounded(f.component_us(&LaunchFigure::compute_us)));
  columns.add("device_us", rounded(f.component_us(&LaunchFigure::device_us)));
}

/// Ratios to bare metal and their verdicts. A page of hundreds of verdicts is judged as one table:
/// each alone at 95 % would give some false ones by chance.
/// @returns busy_machine() of them
std::string add_ratios(const PageContext& page, PageColumns& columns) {
  std::vector<Ratio> ratios;
  std::vector<bool> compared;
  for (const auto& f : page.figures) {
    const CellFigure* base = page.bare_metal.of(f);
    const bool has_base = base != nullptr && base != &f;
    compared.push_back(has_base);
    if (has_base) ratios.push_back(time_ratio(f, *base));
  }
  const auto verdicts = judge_table(ratios, EquivalenceBand{});
  std::size_t next = 0;
  for (const bool has_ratio : compared) {
    if (!has_ratio) {
      for (const char* column : {"ratio", "ratio_low", "ratio_high", "verdict", "waits", "sure"})
        columns.add(column, json());
      continue;
    }
    const Ratio& ratio = ratios[next];
    columns.add("ratio", rounded(ratio.value));
    columns.add("ratio_low", ratio.interval ? rounded(ratio.interval->low) : json());
    columns.add("ratio_high", ratio.interval ? rounded(ratio.interval->high) : json());
    columns.add("verdict", static_cast<int>(verdicts[next]));
    columns.add("waits", waits_note(ratio, verdicts[next], EquivalenceBand{}));
    columns.add("sure", rounded(factor_at_least(ratio, EquivalenceBand{}).value_or(ratio.value)));
    ++next;
  }
  return busy_machine(page.figures, ratios, verdicts);
}

}  // namespace

json rounded(double value) {
  if (!std::isfinite(value)) return {};
  return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr);
}

json rounded(const std::optional<double>& value) { return value ? rounded(*value) : json(); }

json table_json(const Table& table) { return parsed_json(render_table(table, OutputFormat::json)); }

json page_cells(const PageContext& page) {
  Names environments;
  Names backends;
  Names settings;
  Operations operations;
  PageColumns columns;
  // The page sets backends next to each other, at equal settings.
  const auto stated = with_stated_memory(page.figures);
  for (std::size_t i = 0; i < page.figures.size(); ++i) {
    const CellFigure& f = page.figures[i];
    columns.add("environment", environments.index_of(f.environment));
    columns.add("backend", backends.index_of(f.backend));
    columns.add("operation", operations.add(f));
    columns.add("settings", settings.index_of(settings_of(stated[i])));
    columns.add("size", f.size_bytes);
    add_times(f, columns);
  }
  const std::string busy = add_ratios(page, columns);
  json operation_list = operations.names.list();
  for (const auto& [index, figures] : operations.figures)
    operation_list[index]["method"] = figures_method(figures, page.bare_metal);
  json verdicts = json::array();
  for (const auto& entry : NameTable<Verdict>::entries) verdicts.push_back(entry.name);
  return {{"environments", environments.list()},
          {"backends", backends.list()},
          {"operations", operation_list},
          {"settings", settings.list()},
          {"verdicts", verdicts},
          {"busy", busy},
          {"columns", columns.take()}};
}

}  // namespace dynamiccl
