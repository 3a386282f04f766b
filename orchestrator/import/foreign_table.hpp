#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "db/foreign_run.hpp"

namespace dynamiccl {

/// One row of another program's table: one size, one direction of buffers.
struct ForeignRow {
  std::string collective;        ///< our name where we have one, else the program's
  std::uint64_t size_bytes = 0;  ///< as nccl-tests counts it
  std::string datatype;          ///< our name where we have one
  bool in_place = false;
  std::map<std::string, std::string> knobs;  ///< reduction and root where they are not the usual
  double time_us = 0;
  std::optional<std::int64_t> calls;  ///< that the time is the mean of; nullopt = as the start says
  std::optional<std::uint64_t> wrong;  ///< nullopt = the program did not check
  std::string wrong_reason;            ///< of values that are wrong but not counted; "" = `wrong`
                                       ///< is their number
  double resolution_us = 0;         ///< half a unit of the last digit that the time was printed to
  nlohmann::ordered_json reported;  ///< the row's numbers by their names, as printed
};

/// What one start of the other program printed.
struct ForeignStart {
  std::optional<int> ranks;  ///< nullopt = the table does not say
  /// `ranks` are those of one process: the table lists none, and a job may have had more processes.
  bool ranks_of_one_process = false;
  std::int64_t calls = 1;  ///< calls that each time is the mean of, where its row does not say
  std::vector<std::string> argv;
  nlohmann::json environment = nlohmann::json::object();             ///< allow-listed variables
  nlohmann::ordered_json source = nlohmann::ordered_json::object();  ///< what it says of itself
  std::optional<int> warmup;
  std::optional<int> iterations;
  std::optional<bool> verify;
  std::vector<ForeignRow> rows;
  std::string cut_off;   ///< how it shows that its output goes on elsewhere; "" = it has an end
  std::size_t line = 0;  ///< of the file, where it begins; 0 = not known
  /// What it was started with besides its rows' own knobs. What starts of one job differ in becomes
  /// a knob of theirs: they are no repeats of each other.
  std::map<std::string, std::string> settings;
  /// Values that are not stored, of settings that are not known: they tell starts apart.
  std::map<std::string, std::string> hidden;
  std::string command;  ///< the line that shows how it was started; "" = none does. Not stored
  std::vector<std::string> warnings;  ///< what it says against itself, as a clause
  std::vector<std::string> left_out;  ///< tests of its file that are unknown here, "Init (line 1)"
  std::string banner;                 ///< the last line before it that no program of ours printed
};

/// What the user adds to what the files say.
struct ImportOptions {
  std::string environment = "unknown";
  std::string backend;    ///< "" = "nccl" for nccl-tests, "mpi" for OSU
  std::string operation;  ///< of an nccl-tests table that does not name it
  int ranks = 0;          ///< 0 = the file says
  RankAggregation aggregation = RankAggregation::mean;  ///< both programs' default
  std::string name;                                     ///< of the run; "" = the file's name
};

/// Reads the text that nccl-tests prints: one ForeignStart per start of a program in it.
/// @param path for messages
/// @throws Error(data) with file:line for a row that does not fit its heading, and when there is no
/// table
std::vector<ForeignStart> read_nccl_tests_text(const std::string& text, const std::string& path,
                                               const ImportOptions& options);

/// Reads what nccl-tests writes with -J. Of the environment it holds, only variables on the
/// allow-list are kept.
/// @throws Error(data) for what is no such document
std::vector<ForeignStart> read_nccl_tests_json(const std::string& text, const std::string& path,
                                               const ImportOptions& options);

/// Reads the text of OSU micro-benchmarks: latency, bandwidth, blocking collectives.
/// @throws Error(data) as read_nccl_tests_text, Error(input) when ranks are needed and not given
std::vector<ForeignStart> read_osu_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options);

/// What nccl-tests says of a row, in text and JSON, besides its figures.
struct NcclTestsCell {
  std::string collective;
  std::uint64_t size_bytes;
  nlohmann::ordered_json count;  ///< null = it does not say
  std::string type;
  std::string redop;
  std::string root;
  bool in_place;
};

/// A row without its times. Knobs are reduction and root where they are not the usual, and how many
/// groups of ranks were measured at the same time where there was more than one.
ForeignRow nccl_tests_row(const NcclTestsCell& cell, std::size_t groups);

/// An id in the form of the others that is the same for the same text.
std::string id_of_import(const std::string& text);

/// Our name of a collective as nccl-tests spells its programs ("all_reduce_perf"); else the name
/// without "_perf".
std::string collective_of_program(const std::string& program);
/// The operations of nccl-tests, as it spells its programs.
std::vector<std::string> operations_of_nccl_tests();
/// Our name of "float", "half", "MPI_INT"; else the name itself.
std::string datatype_of(const std::string& name);

/// Reads the text of the Intel MPI Benchmarks: collectives, PingPong and its kin.
/// @throws Error(data) as read_nccl_tests_text
std::vector<ForeignStart> read_imb_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options);

/// ASCII letters made small.
std::string lower_case(std::string text);
/// Words between blanks.
std::vector<std::string> words_of(const std::string& line);
/// A number that is the whole word; nullopt for anything else.
std::optional<double> number_of(const std::string& word);

/// The starts that printed a row.
/// @param expected "nccl-tests: a heading ...", for the message
/// @throws Error(data) when there is none
std::vector<ForeignStart> with_rows(std::vector<ForeignStart> starts, const std::string& path,
                                    std::string_view expected);

/// A text without its blanks, also those within.
std::string without_blanks(std::string text);

/// A heading that names a column twice, in whatever case and with whatever blanks: whose figure is
/// whose is not known.
/// @param where "x.txt:18", for the message
/// @throws Error(data) with the column's name
void require_distinct(const std::vector<std::string>& columns, const std::string& where);

/// Digits alone, as sizes and counts are printed.
/// @param where "x.txt:18" or "x.json: results[2]", for the message
/// @param what "size in bytes", for the message
/// @throws Error(data) for anything else and for what is above the limit, by default what the
/// database holds
std::uint64_t count_of(const std::string& word, const std::string& where, std::string_view what,
                       std::uint64_t limit = std::numeric_limits<std::int64_t>::max());
/// A time or bandwidth: a finite number above 0.
/// @throws Error(data) as count_of
double positive_of(const std::string& word, const std::string& where, std::string_view what);
/// Half a unit of the last digit of a number as it is printed; 0 for what is no number.
double resolution_of(const std::string& word);
/// What a word in a column of verdicts says: PASS, ok, FAIL, ...; nullopt for anything else.
std::optional<bool> verdict_of(const std::string& word);
/// True for FAIL and FAILED, which say it in whatever column they stand.
bool says_failed(const std::string& word);
/// True for the title of a column of verdicts: "Validation", "check", "status".
bool is_verdict_column(const std::string& title);

/// Why figures of nccl-tests cannot be those of the collective over so many ranks; "" = they can.
std::string contradiction(const ForeignRow& row, int ranks);

/// A count of wrong values as nccl-tests prints it, a decimal fraction; nullopt for N/A and null.
/// @throws Error(data) as count_of
std::optional<std::uint64_t> wrong_of(const std::string& word, const std::string& where);

/// A file of another program's output and what was read from it.
struct ImportedFile {
  std::string path;
  std::string text;
  std::vector<ForeignStart> starts;
};

/// What the files say against themselves, as sentences for the user: tests left out, verdicts,
/// starts that were taken for repeats.
std::vector<std::string> import_warnings(const std::vector<ImportedFile>& files,
                                         const std::string& format, const ImportOptions& options);

/// Makes a run of the starts. Starts of as many ranks that have an operation (collective, datatype,
/// knobs) in common are launches of one group; a cell that one of them does not print is recorded
/// there as missing. Its id follows from what the files hold and the options, so that the same
/// import is known again.
/// @param files in the order given; each file's starts are in blocks of their own
/// @throws Error(input) when the number of ranks is not known, and for output that is there twice
ForeignRun make_foreign_run(const std::vector<ImportedFile>& files, const std::string& format,
                            const ImportOptions& options);

}  // namespace dynamiccl
