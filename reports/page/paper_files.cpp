#include "reports/page/paper_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

// The page's colours on white and its markers, as gnuplot numbers them.
constexpr std::array kColours{"#5b6470", "#0b6fb8", "#00876a", "#d1540b",
                              "#a3478f", "#8a6d00", "#3f51b5", "#b0203f"};
constexpr std::array kMarkers{7, 5, 9, 13, 2, 1};
constexpr std::size_t kColumns = 3;  // of panels
constexpr std::size_t kMostLabels = 7;
constexpr int kPanelWidth = 420;  // pixels of the SVG
constexpr int kPanelHeight = 330;
constexpr int kKeyHeight = 18;  // of a line of the legend
constexpr double kPixelsPerInch = 110;

std::string with_unit(double value, PaperUnit unit) {
  switch (unit) {
    case PaperUnit::bytes:
      return value == std::floor(value) ? format_bytes(Bytes(static_cast<std::uint64_t>(value)))
                                        : format_number(value) + " B";
    case PaperUnit::microseconds:
      return format_micros(Micros(value));
    case PaperUnit::bytes_per_s:
      return format_bandwidth(value);
    case PaperUnit::seconds:
      return format_number(value) + " s";
    case PaperUnit::share:
      return format_number(100 * value) + " %";
    case PaperUnit::ratio:
    case PaperUnit::count:
      break;
  }
  return format_number(value);
}

/// What an axis's figures are divided by, and how that is called.
struct Scale {
  double by = 1;
  std::string name;
};

Scale scale_of(PaperUnit unit, double most) {
  const auto chosen = [&](std::initializer_list<Scale> scales) {
    for (const Scale& scale : scales)
      if (most >= scale.by) return scale;
    return *std::prev(scales.end());
  };
  switch (unit) {
    case PaperUnit::bytes:
      return chosen({{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}});
    case PaperUnit::microseconds:
      return chosen({{1e6, "s"}, {1e4, "ms"}, {1, "us"}}).name == "ms" ? Scale{1e3, "ms"}
             : most >= 1e6                                             ? Scale{1e6, "s"}
                                                                       : Scale{1, "us"};
    case PaperUnit::bytes_per_s:
      return chosen({{1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}, {1, "B/s"}});
    case PaperUnit::seconds:
      return {1, "s"};
    case PaperUnit::share:
      return {0.01, "%"};
    case PaperUnit::ratio:
    case PaperUnit::count:
      break;
  }
  return {};
}

/// Between single quotes gnuplot looks for nothing; a text of the database is one line of it.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : one_line(text)) safe += c == '\'' ? std::string("''") : std::string(1, c);
  return "'" + safe + "'";
}

std::string latex(const std::string& text) {
  std::string safe;
  for (const char c : one_line(text)) {
    if (c == '\\')
      safe += "\\textbackslash{}";
    else if (c == '~' || c == '^')
      safe += fmt::format("\\{}{{}}", c);
    else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos)
      safe += fmt::format("\\{}", c);
    else
      safe += c;
  }
  return safe;
}

template <class Each>
void for_points(const PaperFigure& figure, Each each) {
  for (const auto& panel : figure.panels)
    for (const auto& line : panel.lines)
      for (const auto& point : line.points) each(panel, line, point);
}

std::string x_text(const PaperFigure& figure, double x) {
  return figure.bars ? figure.places.at(static_cast<std::size_t>(x)) : with_unit(x, figure.x);
}

/// Shared by the panels, so that they can be compared by eye.
struct Range {
  double low = 0;
  double high = 1;
};

Range y_range(const PaperFigure& figure) {
  constexpr double kRoom = 1.15;
  constexpr double kMostOfInterval = 3;  // one of few launches can span decades
  double middle_low = INFINITY;
  double middle_high = 0;
  double low = INFINITY;
  double high = 0;
  for_points(figure, [&](const auto&, const auto&, const PaperPoint& point) {
    middle_low = std::min(middle_low, point.value);
    middle_high = std::max(middle_high, point.value);
    low = std::min(low, point.low.value_or(point.value));
    high = std::max(high, point.high.value_or(point.value));
  });
  low = std::max(low, middle_low / kMostOfInterval);
  high = std::min(high, middle_high * kMostOfInterval);
  if (figure.one_is_equal) {
    low = std::min(low, 0.8);
    high = std::max(high, 1.6);
  }
  return {low / kRoom, high * kRoom};
}

bool has_log_x(const PaperFigure& figure) {
  return figure.x == PaperUnit::bytes && figure.y != PaperUnit::share;
}

/// Sizes that were measured, as many as there is room for.
std::string size_ticks(const PaperFigure& figure) {
  std::set<double> sizes;
  for_points(figure, [&](const auto&, const auto&, const PaperPoint& p) { sizes.insert(p.x); });
  const std::vector<double> all(sizes.begin(), sizes.end());
  const std::size_t step = (all.size() + kMostLabels - 1) / kMostLabels;
  std::vector<std::string> ticks;
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((all.size() - 1 - i) % step == 0)
      ticks.push_back(fmt::format("{} {:.17g}", quoted(with_unit(all[i], figure.x)), all[i]));
  return fmt::format("set logscale x 2\nset xtics ({}) scale 0\nset xrange [{:.17g}:{:.17g}]\n",
                     join(ticks, ", "), all.front() / 1.4, all.back() * 1.4);
}

std::string line_data(const PaperLine& line, double x_scale, double y_scale,
                      const std::string& name) {
  std::string text = name + " << EOD\n";
  for (const auto& p : line.points)
    text += fmt::format("{:.9g} {:.9g} {:.9g} {:.9g}\n", p.x / x_scale, p.value / y_scale,
                        p.low.value_or(p.value) / y_scale, p.high.value_or(p.value) / y_scale);
  return text + "EOD\n";
}

std::string axis_label(const std::string& label, const Scale& scale) {
  return scale.name.empty() ? label : fmt::format("{} ({})", label, scale.name);
}

std::string line_axes(const PaperFigure& figure, const Scale& x, const Scale& y) {
  std::string text =
      fmt::format("set xlabel {} offset 0,0.4\nset ylabel {}\n",
                  quoted(axis_label(figure.x_label, x)), quoted(axis_label(figure.y_label, y)));
  if (has_log_x(figure)) text += size_ticks(figure);
  const Range range = y_range(figure);
  // Less than that is read on even steps, which have more labels.
  constexpr double kLogarithmic = 15;
  if (range.low > 0 && range.high / range.low > kLogarithmic) text += "set logscale y\n";
  return text + fmt::format("set yrange [{:.9g}:{:.9g}]\n", range.low / y.by, range.high / y.by);
}

std::string line_plot(const PaperPanel& panel, std::size_t number, bool one_is_equal) {
  std::vector<std::string> parts;
  // What single launches gave has no whisker.
  if (one_is_equal) parts.push_back("1 with lines lc rgb '#5b6470' lw 1 dt 2 notitle");
  for (std::size_t i = 0; i < panel.lines.size(); ++i) {
    const std::string data = fmt::format("$p{}_{}", number, i);
    const std::size_t look_of = panel.lines[i].look;
    const std::string look =
        fmt::format("lc rgb '{}' pt {} ps 0.7 lw 1.6{}", kColours[look_of % kColours.size()],
                    kMarkers[look_of % kMarkers.size()], look_of < kColours.size() ? "" : " dt 2");
    const auto& points = panel.lines[i].points;
    if (std::any_of(points.begin(), points.end(), [](const auto& p) { return p.low.has_value(); }))
      parts.push_back(fmt::format("{} using 1:2:3:4 with yerrorbars {} notitle", data, look));
    parts.push_back(fmt::format("{} using 1:2 with linespoints {} title {}", data, look,
                                quoted(panel.lines[i].label)));
  }
  return "plot " + join(parts, ", \\\n  ") + "\n";
}

std::string bar_plot(const PaperFigure& figure, const PaperPanel& panel, std::size_t number,
                     const Scale& y) {
  std::vector<std::string> names;
  for (const auto& point : panel.lines.front().points)
    names.push_back(fmt::format("{} {}", quoted(x_text(figure, point.x)), names.size()));
  std::string text =
      fmt::format("set ylabel {}\nset yrange [0:*]\nset xtics ({}) rotate by -35 noenhanced\n",
                  quoted(axis_label(figure.y_label, y)), join(names, ", "));
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < panel.lines.size(); ++i)
    parts.push_back(fmt::format("$p{}_{} using 2 lc rgb '{}' title {}", number, i,
                                i + 1 == panel.lines.size() ? "#aab2bb" : kColours[i + 1],
                                quoted(panel.lines[i].label)));
  return text + "plot " + join(parts, ", \\\n  ") + "\n";
}

/// Pixels of all panels together.
std::pair<int, int> figure_size(const PaperFigure& figure) {
  const std::size_t columns = std::min(kColumns, figure.panels.size());
  const std::size_t rows = (figure.panels.size() + columns - 1) / columns;
  std::size_t lines = 0;
  std::size_t longest = 0;
  for (const auto& panel : figure.panels) lines = std::max(lines, panel.lines.size());
  for (const auto& place : figure.places) longest = std::max(longest, place.size());
  const int height = kPanelHeight + kKeyHeight * static_cast<int>((lines + 1) / 2) +
                     (figure.bars ? 4 * static_cast<int>(std::min<std::size_t>(longest, 40)) : 0);
  const int width = figure.bars ? std::max(kPanelWidth, 34 * static_cast<int>(figure.places.size()))
                                : kPanelWidth;
  return {width * static_cast<int>(columns), height * static_cast<int>(rows)};
}

}  // namespace

std::string paper_csv(const PaperFigure& figure) {
  Table table;
  table.columns = {"panel", "line", figure.bars ? "bar" : "x", "value", "low", "high"};
  const auto value = [](const std::optional<double>& bound) {
    return bound ? Value(*bound) : Value();
  };
  for_points(figure, [&](const PaperPanel& panel, const PaperLine& line, const PaperPoint& p) {
    table.rows.push_back({panel.title, line.label,
                          figure.bars ? Value(x_text(figure, p.x)) : Value(p.x), p.value,
                          value(p.low), value(p.high)});
  });
  return render_table(table, OutputFormat::csv);
}

std::string paper_latex(const PaperFigure& figure) {
  std::string text = fmt::format("% {}\n% {}\n% \\usepackage{{booktabs}}\n", one_line(figure.title),
                                 one_line(figure.method));
  for (const auto& panel : figure.panels) {
    std::set<double> places;
    for (const auto& line : panel.lines)
      for (const auto& point : line.points) places.insert(point.x);
    std::vector<std::string> heads{latex(figure.bars ? "way" : figure.x_label)};
    for (const auto& line : panel.lines) heads.push_back(latex(line.label));
    text += fmt::format(
        "\\begin{{table}}\n\\caption{{{}, {}}}\n\\begin{{tabular}}{{l{}}}\n\\toprule\n"
        "{} \\\\\n\\midrule\n",
        latex(figure.title), latex(panel.title), std::string(panel.lines.size(), 'r'),
        join(heads, " & "));
    for (const double place : places) {
      std::vector<std::string> row{latex(x_text(figure, place))};
      for (const auto& line : panel.lines) {
        const auto found = std::find_if(line.points.begin(), line.points.end(),
                                        [&](const auto& point) { return point.x == place; });
        std::string value;
        if (found != line.points.end()) {
          value = with_unit(found->value, figure.y);
          if (found->low && found->high)
            value += fmt::format(" [{}, {}]", with_unit(*found->low, figure.y),
                                 with_unit(*found->high, figure.y));
        }
        row.push_back(latex(value));
      }
      text += join(row, " & ") + " \\\\\n";
    }
    text += "\\bottomrule\n\\end{tabular}\n\\end{table}\n";
  }
  return text;
}

std::string paper_gnuplot(const PaperFigure& figure) {
  double most_x = 0;
  double most_y = 0;
  for_points(figure, [&](const auto&, const auto&, const PaperPoint& point) {
    most_x = std::max(most_x, point.x);
    most_y = std::max(most_y, point.value);
  });
  const Scale x = has_log_x(figure) || figure.bars ? Scale{} : scale_of(figure.x, most_x);
  const Scale y = scale_of(figure.y, most_y);
  std::string text = "# " + one_line(figure.title) + "\n# " + one_line(figure.method) + "\n";
  for (std::size_t p = 0; p < figure.panels.size(); ++p)
    for (std::size_t i = 0; i < figure.panels[p].lines.size(); ++i)
      text += line_data(figure.panels[p].lines[i], x.by, y.by, fmt::format("$p{}_{}", p, i));
  const auto [width, height] = figure_size(figure);
  const std::size_t columns = std::min(kColumns, figure.panels.size());
  text += fmt::format(
      "do for [kind in 'svg pdf'] {{\nif (kind eq 'svg') {{ set terminal svg noenhanced size {},{} "
      "font 'sans,12' background '#ffffff' }} else {{ set terminal pdfcairo noenhanced size "
      "{:.2f}in,{:.2f}in font 'sans,9' }}\nset output '{}.'.kind\nset multiplot layout {},{}\n"
      "set key below samplen 2 height 0.6\nset border 3 lc rgb '#586069'\nset grid y lc rgb "
      "'#d9dde2'\nset xtics nomirror\nset ytics nomirror\n",
      width, height, width / kPixelsPerInch, height / kPixelsPerInch, figure.name,
      (figure.panels.size() + columns - 1) / columns, columns);
  if (figure.bars)
    text +=
        "set style data histogram\nset style histogram rowstacked\nset style fill solid\nset "
        "boxwidth 0.7\n";
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    text += "set title " + quoted(figure.panels[p].title) + "\n";
    text += figure.bars
                ? bar_plot(figure, figure.panels[p], p, y)
                : line_axes(figure, x, y) + line_plot(figure.panels[p], p, figure.one_is_equal);
  }
  return text + "unset multiplot\nset output\nreset\n}\n";
}

}  // namespace dynamiccl
