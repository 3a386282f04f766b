#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "containers/command.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/printable_json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "reports/page/html_report.hpp"
#include "reports/page/paper_files.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"

namespace dynamiccl {
namespace {

struct ReportArguments {
  std::string run = "last";
  std::string format;  ///< "" = as the name of the file says
  bool html = false;
  std::string out;
  std::string figures;  ///< folder of figures, "" = none
};

const std::vector<std::string> kReportFormats{"html", "markdown", "csv", "json"};

std::string format_by_name(const std::string& out) {
  const std::string ending = std::filesystem::path(out).extension().string();
  if (ending == ".html" || ending == ".htm") return "html";
  if (ending == ".csv") return "csv";
  if (ending == ".json") return "json";
  for (const char* text : {"", ".md", ".markdown", ".txt"})
    if (ending == text) return "markdown";
  throw Error(
      ErrorKind::input,
      fmt::format("{}: no report is written as {}; name it .html, .md, .csv or .json, or say "
                  "with --format how to write it",
                  out, ending));
}

std::string render(const Reader& reader, const ReportArguments& arguments) {
  if (arguments.format == "html") return render_report_html(reader, arguments.run);
  if (arguments.format == "csv")
    return render_report_figures(reader, arguments.run, OutputFormat::csv);
  if (arguments.format == "json")
    return printable_json(render_report_figures(reader, arguments.run, OutputFormat::json));
  if (arguments.format == "markdown")
    return printable(render_report_markdown(reader, arguments.run));
  throw Error(ErrorKind::input, fmt::format("unknown report format \"{}\"; {}", arguments.format,
                                            suggestion(arguments.format, kReportFormats)));
}

/// The figures of the page as files for a paper: pictures by gnuplot, and what they were made of.
void write_figures(const ReportArguments& arguments, const Shared& shared) {
  namespace fs = std::filesystem;
  const Reader reader(shared.db);
  const auto figures = paper_figures(report_page_data(reader, arguments.run));
  if (figures.empty())
    throw Error(ErrorKind::input,
                fmt::format("report: run {} has nothing that is drawn over sizes, and no training; "
                            "`dynamiccl report {} --out report.md` says what it has",
                            arguments.run, arguments.run));
  std::error_code problem;
  fs::create_directories(arguments.figures, problem);
  if (problem)
    throw Error(ErrorKind::input, fmt::format("{}: cannot be made: {}; choose another folder with "
                                              "--figures",
                                              arguments.figures, problem.message()));
  const std::string gnuplot = find_program("gnuplot");
  for (const auto& figure : figures) {
    const fs::path stem = fs::path(arguments.figures) / figure.name;
    for (const auto& [ending, text] : {std::pair{".csv", paper_csv(figure)},
                                       {".tex", paper_latex(figure)},
                                       {".gp", paper_gnuplot(figure)}})
      write_output(stem.string() + ending, text, "--figures", shared.db);
    if (gnuplot.empty()) continue;
    // As by hand: it reads and writes in the folder that it is started in.
    checked_output("drawing " + figure.name,
                   {"/bin/sh", "-c", "cd \"$1\" && exec \"$2\" \"$3\"", "sh", arguments.figures,
                    gnuplot, figure.name + ".gp"});
  }
  if (shared.quiet) return;
  tell(fmt::format("{}: {} as {}.csv (data), .tex (LaTeX table) and .gp (script of gnuplot)\n",
                   printable(arguments.figures), counted(figures.size(), "figure"),
                   gnuplot.empty() ? "" : ".svg, .pdf, "));
  if (gnuplot.empty())
    tell(
        "gnuplot is not installed, so there are no pictures: apt-get install gnuplot-nox, then "
        "the same again, or `gnuplot NAME.gp` in that folder\n");
}

void write_report(ReportArguments arguments, const Shared& shared) {
  if (arguments.html && shared.json)
    throw Error(ErrorKind::input, "report: --html is a page and --json are its figures; give one");
  if (arguments.html && !arguments.format.empty() && arguments.format != "html")
    throw Error(
        ErrorKind::input,
        fmt::format("report: --html and --format {} are two formats; give one", arguments.format));
  refuse_two_formats(shared, arguments.format);
  if (arguments.html) arguments.format = "html";
  if (shared.json) arguments.format = "json";
  if (!arguments.figures.empty()) write_figures(arguments, shared);
  // The figures alone, where no report was asked for.
  if (!arguments.figures.empty() && arguments.format.empty() && arguments.out.empty()) return;
  if (arguments.format.empty()) arguments.format = format_by_name(arguments.out);
  const std::string text = render(Reader(shared.db), arguments);
  // Nobody reads a page in a terminal.
  if (arguments.format == "html" && arguments.out.empty()) arguments.out = "report.html";
  if (arguments.out.empty() || arguments.out == "-") {
    // A browser shows a control character of a page, a terminal obeys it.
    fmt::print("{}", arguments.format == "html" ? printable(text) : text);
    return;
  }
  write_output(arguments.out, text, "--out", shared.db);
  if (!shared.quiet)
    tell(fmt::format("{}: {:.0f} KiB\n", printable(arguments.out),
                     static_cast<double>(text.size()) / 1024));
}

}  // namespace

void add_report_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "report",
      "the report of a run: an offline HTML page, Markdown, or its figures as CSV or JSON");
  auto arguments = std::make_shared<ReportArguments>();
  verb->add_option("RUN", arguments->run, "run id, its beginning, last or last~1");
  verb->add_flag("--html", arguments->html, "short for --format html");
  add_choice_option(*verb, "--format", arguments->format, kReportFormats,
                    "how it is written (by the ending of --out, as in r.html; else markdown)");
  verb->add_option("--out", arguments->out,
                   "file to write, - for stdout (html: report.html unless said, else stdout)");
  verb->add_option("--figures", arguments->figures,
                   "folder for the page's figures as SVG and PDF (by gnuplot), with their data as "
                   "CSV and LaTeX tables");
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n  dynamiccl report --out report.html\n  dynamiccl report --out report.md\n"
      "  dynamiccl report last~1 --format csv\n"
      "  dynamiccl report last --figures figures      for a paper");
  verb->callback([arguments, &shared] { write_report(*arguments, shared); });
}

}  // namespace dynamiccl
