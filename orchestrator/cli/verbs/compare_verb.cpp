#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/run/console.hpp"
#include "reports/compare/comparison.hpp"
#include "reports/render/comparison_junit.hpp"
#include "reports/render/comparison_render.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

struct CompareArguments {
  std::string a;
  std::string b = "last";
  std::string run = "last";
  std::vector<std::string> where;
  std::string band = "2%";
  std::string format;
  std::string junit;
  bool anyway = false;
};

std::vector<std::pair<std::string, std::string>> conditions(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> where;
  for (const auto& word : words) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      throw Error(ErrorKind::input,
                  fmt::format("--where {}: expected AXIS=VALUE, as in --where backend=gloo", word));
    }
    where.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return where;
}

const std::vector<std::string> kComparisonFormats{"table", "markdown", "csv"};

OutputFormat format_of(const std::string& name) {
  if (name.empty() || name == "table") return OutputFormat::text;
  if (name == "markdown") return OutputFormat::markdown;
  if (name == "csv") return OutputFormat::csv;
  throw Error(ErrorKind::input,
              fmt::format("unknown format \"{}\"; {}", name, suggestion(name, kComparisonFormats)));
}

int exit_code_of(const Comparison& comparison) {
  switch (comparison.overall()) {
    case Verdict::slower:
      return exit_code::kRegression;
    case Verdict::unclear:
      return exit_code::kUnclear;
    default:
      return exit_code::kFine;
  }
}

/// A side that is named like a database is none of the other things a side may be, which would be
/// looked for in the usual database.
void require_database_file(const std::string& side) {
  constexpr std::string_view kEnding = ".sqlite";
  const auto at = side.rfind(kEnding);
  if (at == std::string::npos || side.find('=') != std::string::npos) return;
  const std::string file = side.substr(0, at + kEnding.size());
  const std::string rest = side.substr(file.size());
  std::error_code ignored;
  if ((!rest.empty() && !rest.starts_with(':')) || std::filesystem::is_regular_file(file, ignored))
    return;
  throw Error(ErrorKind::input,
              fmt::format("compare: {}: there is no such database file; is the name right?", file));
}

Comparison comparison_as_asked(const CompareArguments& arguments, const Shared& shared) {
  ComparisonOptions options;
  options.band.relative = parse_band(arguments.band);
  options.anyway = arguments.anyway;
  const SideDefaults defaults{shared.db, arguments.run};
  const auto where = conditions(arguments.where);
  for (const auto& side : {arguments.a, arguments.b}) require_database_file(side);
  const auto a = parse_side(arguments.a, defaults);
  const auto b = parse_side(arguments.b, defaults);
  return compare_sides(load_side(a, where), load_side(b, where), options);
}

Comparison compare_or_report(const CompareArguments& arguments, const Shared& shared) {
  try {
    return comparison_as_asked(arguments, shared);
  } catch (const Error& error) {
    if (!arguments.junit.empty())
      write_output(arguments.junit, refusal_junit(arguments.a, arguments.b, error.what()),
                   "--junit");
    throw;
  }
}

int run_compare(const CompareArguments& arguments, const Shared& shared) {
  refuse_two_formats(shared, arguments.format);
  const auto format = format_of(arguments.format);
  const auto comparison = compare_or_report(arguments, shared);
  const int code = exit_code_of(comparison);
  if (!arguments.junit.empty())
    write_output(arguments.junit, comparison_junit(comparison), "--junit");
  const std::string text = shared.json ? comparison_json(comparison, code)
                                       : render_comparison(comparison, format, stdout_columns());
  const bool for_people = !shared.json && format == OutputFormat::text;
  fmt::print("{}", for_people ? coloured_for_stdout(text) : text);
  return code;
}

}  // namespace

double parse_band(const std::string& text) {
  std::string digits(trim(text));
  const bool percent = digits.ends_with('%');
  if (percent) digits = std::string(trim(digits.substr(0, digits.size() - 1)));
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (percent) value /= 100;
  const bool whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  if (!whole || !(value >= 0) || value > 1) {
    throw Error(ErrorKind::input,
                fmt::format("--band {}: expected a share from 0 to 100 %, as in --band 2% or "
                            "--band 0.02",
                            text));
  }
  return value;
}

void add_compare_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "compare", "two runs, commits, machines or environments: SAME, FASTER, SLOWER or UNCLEAR");
  auto arguments = std::make_shared<CompareArguments>();
  verb->add_option(
          "A", arguments->a,
          "the base: a run, FILE.sqlite[:RUN], commit:REVISION, an environment, AXIS=VALUE")
      ->required();
  verb->add_option("B", arguments->b, "what is compared with it (last)");
  verb->add_option("--run", arguments->run,
                   "the run in which environments and AXIS=VALUE are looked for (last)");
  verb->add_option("--where", arguments->where, "AXIS=VALUE must hold on both sides")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_option("--band", arguments->band, "times within this share count as equal (2%)");
  verb->add_flag("--anyway", arguments->anyway,
                 "compare what was measured by other methods or on other cores, too");
  verb->add_option("--junit", arguments->junit, "also write JUnit XML to this file");
  add_choice_option(*verb, "--format", arguments->format, kComparisonFormats, "how it is written");
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl compare last~1 last                       two runs\n"
      "  dynamiccl compare bare-metal cross-docker           two environments, paired by block\n"
      "  dynamiccl compare backend=openmpi backend=mpich --where environment=bare-metal\n"
      "  dynamiccl compare old-machine.sqlite new.sqlite:last --anyway\n"
      "  dynamiccl compare commit:3fa9c1d last --band 1% --junit compare.xml\n"
      "Exit codes: 0 all SAME or FASTER, 3 a cell is SLOWER, 5 a cell is UNCLEAR and none SLOWER,\n"
      "2 wrong input or unlike measurements.");
  verb->callback([arguments, &shared] { shared.exit_code = run_compare(*arguments, shared); });
}

}  // namespace dynamiccl
