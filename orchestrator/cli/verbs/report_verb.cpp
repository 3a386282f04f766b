#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/printable_json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "reports/page/html_report.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"

namespace dynamiccl {
namespace {

struct ReportArguments {
  std::string run = "last";
  std::string format;  ///< "" = as the name of the file says
  bool html = false;
  std::string out;
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
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n  dynamiccl report --out report.html\n  dynamiccl report --out report.md\n"
      "  dynamiccl report last~1 --format csv");
  verb->callback([arguments, &shared] { write_report(*arguments, shared); });
}

}  // namespace dynamiccl
