#include "orchestrator/cli/cli.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "db/usual_db.hpp"
#include "orchestrator/cli/commands_page.hpp"
#include "orchestrator/cli/help_lines.hpp"
#include "orchestrator/cli/verbs/started_as.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"

namespace dynamiccl {
namespace {

// One row per verb: a new one is a file in verbs/ and a line here.
constexpr std::array kVerbs{
    add_run_verb,         add_plan_verb,   add_doctor_verb, add_query_verb,      add_list_verb,
    add_show_verb,        add_report_verb, add_export_verb, add_clean_verb,      add_compare_verb,
    add_gate_verb,        add_import_verb, add_replay_verb, add_completion_verb, add_schema_verb,
    add_experiments_verb, add_tune_verb,   add_train_verb,  add_predict_verb};

constexpr const char* kFooter =
    "Examples:\n"
    "  dynamiccl plan experiments/quickstart.toml      what would be measured, and how\n"
    "  dynamiccl run experiments/quickstart.toml       measure, store, print the answer\n"
    "  dynamiccl query overhead                        each environment against bare metal\n"
    "  dynamiccl doctor                                what this machine is, and what slows it\n"
    "Each verb has its own --help. Data goes to stdout, messages to stderr.";

int exit_code_of(const Error& error) {
  return error.kind() == ErrorKind::input || error.kind() == ErrorKind::data
             ? exit_code::kUsage
             : exit_code::kCellFailed;
}

/// The word that stands where a verb should: CLI11 calls it an extra argument.
std::string unknown_verb(const CLI::App& app, const std::vector<std::string>& argv) {
  if (argv.size() < 2 || argv[1].starts_with("-")) return "";
  std::vector<std::string> verbs;
  for (const auto* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  for (const auto& verb : verbs) {
    if (verb == argv[1]) return "";
  }
  return fmt::format("unknown verb \"{}\"; {}", argv[1], suggestion(argv[1], verbs));
}

/// Verbs that have an option of that name.
std::vector<const CLI::App*> verbs_with(const CLI::App& app, const std::string& option) {
  std::vector<const CLI::App*> verbs;
  for (const CLI::App* verb : app.get_subcommands({}))
    if (verb->get_option_no_throw(option) != nullptr) verbs.push_back(verb);
  return verbs;
}

/// The words that are neither options nor, as far as verbs have such options, their values.
std::vector<std::string> words_among_options(const CLI::App& app,
                                             const std::vector<std::string>& argv) {
  std::vector<std::string> words;
  bool value = false;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    if (argv[i].starts_with("-")) {
      const auto owners = verbs_with(app, argv[i]);
      value = !owners.empty() &&
              owners.front()->get_option_no_throw(argv[i])->get_items_expected_min() > 0;
    } else if (!std::exchange(value, false)) {
      words.push_back(argv[i]);
    }
  }
  return words;
}

/// The verb behind options that stand before it.
const CLI::App* verb_behind(const CLI::App& app, const std::vector<std::string>& argv) {
  for (const auto& word : words_among_options(app, argv))
    for (const CLI::App* verb : app.get_subcommands({}))
      if (verb->get_name() == word) return verb;
  return nullptr;
}

/// Where no word is a verb: what is wrong with the first, to follow what is wrong with the option.
std::string misspelled_behind(const CLI::App& app, const std::vector<std::string>& argv) {
  const auto words = words_among_options(app, argv);
  if (words.empty()) return "";
  std::vector<std::string> verbs;
  for (const auto* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  const std::string near = nearest_word(words.front(), verbs);
  return fmt::format("; \"{}\" is no verb{}", words.front(),
                     near.empty() ? "" : fmt::format(": did you mean {}?", near));
}

/// An option that stands before the verb: the library reads it as nobody's and complains of what
/// the verb then lacks.
std::string misplaced_option(const CLI::App& app, const std::vector<std::string>& argv) {
  if (argv.size() < 2 || !argv[1].starts_with("-")) return "";
  for (const char* answer : {"-h", "--help", "--version"})
    if (std::find(argv.begin(), argv.end(), answer) != argv.end()) return "";
  // Of letters together the first one speaks.
  const std::string option =
      argv[1].substr(0, argv[1].starts_with("--") ? argv[1].find('=') : std::size_t{2});
  if (option == "--")
    return "-- stands before the verb; a verb comes first: `dynamiccl --help` lists the verbs";
  const auto owners = verbs_with(app, option);
  const CLI::App* verb = verb_behind(app, argv);
  if (verb != nullptr && verb->get_option_no_throw(option) == nullptr)
    return fmt::format(
        "{} stands before the verb, and {} has no such option; options go behind "
        "their verb: `dynamiccl {} --help` lists them",
        option, verb->get_name(), verb->get_name());
  if (verb == nullptr && owners.empty())
    return fmt::format(
        "there is no option {}; a verb comes first, and its options behind it: "
        "`dynamiccl --help` lists the verbs{}",
        option, misspelled_behind(app, argv));
  const std::string wrong = verb != nullptr ? "" : misspelled_behind(app, argv);
  if (!wrong.empty())
    return fmt::format("{} stands before the verb; it goes behind it{}", option, wrong);
  return fmt::format("{} stands before the verb; it goes behind it: dynamiccl {} {} ...", option,
                     verb != nullptr ? verb->get_name() : owners.front()->get_name(), option);
}

/// `help` and `help VERB` as `--help` and `VERB --help`.
std::vector<std::string> without_help_verb(std::vector<std::string> argv) {
  if (argv.size() < 2 || argv[1] != "help") return argv;
  // The help of help is the program's.
  while (argv.size() > 1 && argv[1] == "help") argv.erase(argv.begin() + 1);
  argv.emplace_back("--help");
  return argv;
}

/// Takes the command behind `tune ... --` away: its words are none of ours.
std::vector<std::string> take_command(std::vector<std::string>& argv) {
  if (argv.size() < 2 || argv[1] != "tune") return {};
  const auto mark = std::find(argv.begin(), argv.end(), "--");
  if (mark == argv.end()) return {};
  std::vector<std::string> command(mark + 1, argv.end());
  // Nothing behind it is a mistake that the verb explains.
  if (command.empty()) command.emplace_back();
  argv.erase(mark, argv.end());
  return command;
}

/// CLI11's ranges take "nan", which is beyond neither end.
void require_numbers(CLI::App& app) {
  const CLI::Validator finite(
      [](std::string& text) {
        return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : text + " is no number";
      },
      "");
  for (CLI::App* verb : app.get_subcommands({}))
    for (CLI::Option* option : verb->get_options())
      if (option->get_type_name().starts_with("FLOAT")) option->check(finite);
}

/// Options that name a file or folder: an empty name is the variable that a script forgot, which
/// must neither be taken for an option that was not given nor for a file. Numbers that count take
/// none below 0, which CLI11 reads as large ones.
void require_names_and_counts(CLI::App& app) {
  constexpr std::array kPlaces{"--out",           "--table",       "--apply",  "--check",
                               "--policy",        "--junit",       "--plugin", "--from",
                               "--shared-folder", "--machine-file"};
  const CLI::Validator named(
      [](std::string& text) { return text.empty() ? "an empty name is no file" : ""; }, "");
  const CLI::Validator counts(
      [](std::string& text) {
        return trim(text).starts_with("-") ? text + " is less than 0" : std::string();
      },
      "");
  for (CLI::App* verb : app.get_subcommands({}))
    for (CLI::Option* option : verb->get_options()) {
      if (std::find(kPlaces.begin(), kPlaces.end(), option->get_name()) != kPlaces.end())
        option->check(named);
      if (option->get_type_name().starts_with("UINT")) option->check(counts);
    }
}

/// A range whose upper end is the largest number there is says no more than that, and none says
/// that a word is no number.
std::string readable(std::string text) {
  const auto range = text.find(" not in range ");
  constexpr std::string_view kValue = "Value ";
  if (const auto value = text.rfind(kValue, range);
      range != std::string::npos && value != std::string::npos) {
    const std::string word = text.substr(value + kValue.size(), range - value - kValue.size());
    char* end = nullptr;
    std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0')
      return fmt::format("{}\"{}\" is no number", text.substr(0, value), word);
  }
  if (range != std::string::npos && text.find(" to 179769", range) != std::string::npos)
    text = text.substr(0, range) + " is too small";
  return text;
}

/// What is no option or argument of the verb, in words: CLI11 lists it from behind.
std::string unexpected_text(const CLI::App& verb, const std::string& word) {
  if (!word.starts_with("-"))
    return fmt::format("{}: \"{}\" is one argument too many{}", verb.get_name(), word,
                       verb.get_name() == "tune" ? "; a command of your own stands behind --: "
                                                   "dynamiccl tune -- torchrun train.py"
                                                 : "");
  const std::string option = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const auto* one : verb.get_options())
    for (const auto& name : one->get_lnames()) known.push_back("--" + name);
  const std::string near = nearest_word(option, known);
  std::string text = fmt::format("{}: there is no option {}", verb.get_name(), option);
  if (!near.empty()) text += fmt::format("; did you mean {}?", near);
  if (std::find(known.begin(), known.end(), "--set") != known.end())
    text += fmt::format(
        "{} a key of the experiment's file is set by --set, as in --set protocol.launches=10",
        near.empty() ? ";" : " Or:");
  return text;
}

/// What is wrong with the words of a command line.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
    for (const auto* verb : app.get_subcommands())
      if (const auto words = verb->remaining(); !words.empty()) {
        const auto option = std::find_if(words.begin(), words.end(), [](const std::string& word) {
          return word.starts_with("-");
        });
        return unexpected_text(*verb, option != words.end() ? *option : words.front());
      }
  return readable(error.what());
}

int parse_and_run(CLI::App& app, const std::vector<std::string>& argv, const Shared& shared) {
  // `help --markdown`, whose "help" is gone by now.
  if (argv.size() == 3 && argv[1] == "--markdown" && argv[2] == "--help") {
    fmt::print("{}", commands_markdown(app));
    return exit_code::kFine;
  }
  for (const auto& problem : {unknown_verb(app, argv), misplaced_option(app, argv)})
    if (!problem.empty()) throw Error(ErrorKind::input, problem);
  try {
    // CLI11 takes its arguments from the back.
    std::vector<std::string> reversed(argv.rbegin(), argv.rend() - 1);
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version: on stdout
    tell(fmt::format("dynamiccl: {}\nTry: dynamiccl {}--help\n",
                     printable(usage_problem(app, error)),
                     argv.size() > 1 && !argv[1].starts_with("-") ? argv[1] + " " : ""));
    return exit_code::kUsage;
  }
  return shared.exit_code;
}

/// Verbs that measure and store: their work is done or not, whoever reads the answer.
bool measures(const std::vector<std::string>& argv) {
  constexpr std::array<std::string_view, 6> kMeasuring{"run",  "tune",   "train",
                                                       "gate", "replay", "doctor"};
  return argv.size() > 1 &&
         std::find(kMeasuring.begin(), kMeasuring.end(), argv[1]) != kMeasuring.end();
}

/// Where not even a small run has enough, each of its parts would say so in its own words.
void require_open_files() {
  constexpr rlim_t kLeast = 32;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kLeast)
    throw Error(
        ErrorKind::environment,
        fmt::format("this process may have {} files open at a time, and needs {} and more with "
                    "many ranks: raise the limit (ulimit -n)",
                    limit.rlim_cur, kLeast));
}

/// What to do about an error of the system that speaks of no remedy.
std::string remedy_of(std::string_view what) {
  rlimit limit{};
  if (what.find(std::strerror(EMFILE)) == std::string_view::npos ||
      getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return "";
  return fmt::format(
      "; {} may be open at a time: raise the limit (ulimit -n), or ask for fewer ranks",
      limit.rlim_cur);
}

/// The JSON library's name for an error says nothing to who reads it.
std::string without_library_names(std::string text) {
  constexpr std::string_view kMark = "[json.exception.";
  constexpr std::string_view kEnd = "] ";
  for (auto at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at)) {
    const auto end = text.find(kEnd, at);
    if (end == std::string::npos) break;
    text.erase(at, end + kEnd.size() - at);
  }
  return text;
}

/// Files are read with sentences of their own: what comes so far stood in a database.
std::string of_another_form(const std::string& what) {
  return fmt::format(
      "dynamiccl: a stored value has another form than DynamICCL writes: {}; the database was "
      "damaged or another program changed it: use a copy of it, or leave this run out\n",
      printable(without_library_names(what)));
}

/// The exit code where stdout took no more.
int output_failed(int error, const std::vector<std::string>& argv) {
  // `| head` has read enough of an answer; that something was measured to its end is no such
  // answer.
  if (error == EPIPE && !measures(argv)) return exit_code::kFine;
  tell(
      fmt::format("dynamiccl: the output cannot be written: {}; what it would have said can be "
                  "asked for again with `dynamiccl query` and `dynamiccl show`\n",
                  error == 0 ? "stdout is closed or full" : std::strerror(error)));
  return exit_code::kCellFailed;
}

}  // namespace

void refuse_two_formats(const Shared& shared, const std::string& format) {
  if (shared.json && !format.empty() && format != "json")
    throw Error(ErrorKind::input,
                fmt::format("--json and --format {} are two formats; give one", format));
}

void add_db_option(CLI::App& verb, Shared& shared) {
  verb.add_option("--db", shared.db,
                  fmt::format("database file ($DYNAMICCL_DB, else {})", kUsualDb))
      ->check([](const std::string& path) { return path.empty() ? "names no file" : ""; });
}

void add_output_options(CLI::App& verb, Shared& shared) {
  verb.add_flag("--json", shared.json, "data as JSON");
  verb.add_flag("-q,--quiet", shared.quiet, "errors only on stderr");
  verb.add_flag("-v,--verbose", shared.verbose, "more on stderr, with what the ranks print there");
}

/// Such a name is wrong wherever it is looked for; other errors are the machine's.
bool is_name_of_no_file(const std::error_code& code) {
  return code == std::errc::filename_too_long || code == std::errc::too_many_symbolic_link_levels;
}

std::string of_places(const std::filesystem::filesystem_error& error) {
  const std::string first = printable(error.path1().string());
  const std::string second = printable(error.path2().string());
  const std::string places =
      first.empty() || second.empty() ? first + second : first + " and " + second;
  return fmt::format("dynamiccl: {}{}{}\n", places, places.empty() ? "" : ": ",
                     error.code().message());
}

int run_command_line(const std::vector<std::string>& argv) {
  Shared shared;
  shared.argv = argv;
  shared.db = usual_db();
  CLI::App app{
      "DynamICCL measures collective communication over environments, backends and settings,\n"
      "says what the environment costs and why, and which settings to use.",
      "dynamiccl"};
  app.formatter(std::make_shared<HelpLines>());  // the verbs take it over
  app.set_version_flag("--version", installation_text, "version, build, and what is installed");
  app.require_subcommand(1);
  app.footer(kFooter);
  std::vector<std::string> words = without_help_verb(argv);
  shared.command = take_command(words);
  take_tune_mode(words, shared);
  for (const auto add : kVerbs) add(app, shared);
  require_numbers(app);
  require_names_and_counts(app);
  int code = exit_code::kCellFailed;
  int output_error = 0;
  try {
    require_open_files();
    code = parse_and_run(app, words, shared);
  } catch (const Error& error) {
    const std::string what =
        with_database(without_library_names(error.what()), db_words(shared.db));
    tell(fmt::format(
        "dynamiccl: {}{}\n", printable(what),
        error.kind() == ErrorKind::bug ? "\nThis is a bug in DynamICCL: please report it." : ""));
    // What a signal ended half way says so; that there was one is the end that is reported.
    code = interrupted() ? 128 + interrupt_signal() : exit_code_of(error);
  } catch (const nlohmann::json::exception& error) {
    tell(of_another_form(error.what()));
    code = exit_code::kUsage;
  } catch (const std::filesystem::filesystem_error& error) {
    tell(of_places(error));
    if (is_name_of_no_file(error.code())) code = exit_code::kUsage;
  } catch (const std::system_error& error) {
    // Printing throws it too, and leaves stdout with its mark of an error.
    if (std::ferror(stdout) != 0) {
      output_error = error.code().value();
      code = exit_code::kFine;
    } else {
      tell(fmt::format("dynamiccl: {}{}\n", printable(error.what()), remedy_of(error.what())));
    }
  } catch (const std::bad_alloc&) {
    tell("dynamiccl: no memory is left for this; ask for less at once\n");
  } catch (const std::exception& error) {
    tell(fmt::format("dynamiccl: {}{}\n", printable(error.what()), remedy_of(error.what())));
  }
  // What is still in the buffer is part of the answer.
  errno = output_error;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    code = std::max(code, output_failed(errno, argv));
  return code;
}

}  // namespace dynamiccl
