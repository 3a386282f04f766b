#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "embedded/page_charts_script.hpp"
#include "embedded/page_html.hpp"
#include "embedded/page_panels_script.hpp"
#include "embedded/page_script.hpp"
#include "embedded/page_style.hpp"
#include "embedded/page_table_script.hpp"
#include "embedded/uplot_licence.hpp"
#include "embedded/uplot_script.hpp"
#include "embedded/uplot_style.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/page/html_report.hpp"
#include "reports/page/section.hpp"
#include "reports/render/answer.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// JSON that can stand inside a script element: no "</script>" and no "<!--".
std::string inlined(const json& document) {
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

/// Replaces every "{{NAME}}" of the page by its value, in one pass: values are never searched.
std::string filled(std::string_view page,
                   const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string out;
  std::size_t at = 0;
  while (at < page.size()) {
    const auto open = page.find("{{", at);
    const auto close = open == std::string_view::npos ? open : page.find("}}", open);
    out += page.substr(at, open == std::string_view::npos ? open : open - at);
    if (close == std::string_view::npos) break;
    const auto name = page.substr(open + 2, close - open - 2);
    bool known = false;
    for (const auto& [key, value] : values) {
      if (key != name) continue;
      out += value;
      known = true;
    }
    DYN_ASSERT(known, "every place holder of page.html has a value");
    at = close + 2;
  }
  return out;
}

json page_data(const PageContext& page) {
  json sections = json::object();
  for (const auto& section : page_sections())
    sections[std::string(section.id)] = section.data == nullptr ? json() : section.data(page);
  return {{"cells", page_cells(page)},
          {"counts", cell_counts(page.reader, page.run)},
          {"sections", std::move(sections)}};
}

}  // namespace

json report_page_data(const Reader& reader, const std::string& run_id) {
  const std::string run = reader.resolve_run(run_id);
  const auto scope = run_scope(reader, run);
  const auto figures = load_figures(reader, scope);
  const BareMetal bare_metal(figures);
  return page_data({reader, run, scope.front(), figures, bare_metal});
}

std::string render_report_html(const Reader& reader, const std::string& run_id) {
  const std::string run = reader.resolve_run(run_id);
  const Table info = reader.query("SELECT name FROM run WHERE uuid = ?1", {run});
  std::string scripts;
  for (const auto& section : page_sections()) scripts += std::string(section.script) + "\n";
  const auto text = [](std::string_view view) { return std::string(view); };
  return filled(embedded::page_html,
                {{"title", escaped(TableView(info).text(0, "name"))},
                 {"style", text(embedded::uplot_style) + text(embedded::page_style)},
                 {"licence", text(embedded::uplot_licence)},
                 {"library", text(embedded::uplot_script)},
                 {"data", inlined(report_page_data(reader, run))},
                 {"script", text(embedded::page_script) + text(embedded::page_table_script) +
                                text(embedded::page_charts_script) +
                                text(embedded::page_panels_script) + scripts}});
}

}  // namespace dynamiccl
