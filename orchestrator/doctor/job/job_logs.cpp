#include "orchestrator/doctor/job/job_logs.hpp"

#include <fmt/format.h>

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/doctor/job/look_at_job.hpp"
#include "orchestrator/doctor/job/plain_pickle.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kLargestText = std::size_t{256} << 20;
// A value of JSON takes some ten times the memory of its letters.
constexpr std::size_t kLargestDump = std::size_t{64} << 20;
constexpr std::size_t kMostTold = 8;

/// Whether the kernel makes up what is there, without an end.
bool is_kernels(const std::string& path) {
  struct statfs system {};
  if (statfs(path.c_str(), &system) != 0) return false;
  return system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC ||
         system.f_type == DEBUGFS_MAGIC || system.f_type == TRACEFS_MAGIC;
}

/// The files that are named, those of folders by name; what is no file is left out.
std::vector<std::string> files_in(const std::vector<std::string>& paths,
                                  std::vector<std::string>& not_read) {
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::error_code none;
    if (is_kernels(path))
      throw Error(
          ErrorKind::input,
          fmt::format("doctor: --job {}: a folder or file of the kernel's, which no job has "
                      "left; name the process by its number alone",
                      path));
    if (!fs::is_directory(path, none)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (fs::recursive_directory_iterator entry(path, none), end;
         !none && entry != end && inside.size() <= kMostFiles; entry.increment(none)) {
      std::error_code gone;
      if (entry->is_directory(gone) && is_kernels(entry->path().string()))
        entry.disable_recursion_pending();
      if (entry->is_regular_file(gone)) inside.push_back(entry->path().string());
    }
    if (none) not_read.push_back(fmt::format("{}: {}", path, none.message()));
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.size() > kMostFiles) {
    files.resize(kMostFiles);
    not_read.push_back(
        fmt::format("{}: more than {} files; name fewer at once", paths.back(), kMostFiles));
  }
  return files;
}

/// The number at the end of a file's name, before what follows a dot; -1 = none.
int rank_in_name(const std::string& path) {
  auto name = fs::path(path).filename().string();
  for (const char* ending : {".json", ".pickle", ".pkl", ".txt", ".log"})
    if (name.ends_with(ending)) name.resize(name.size() - std::string_view(ending).size());
  auto digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  const auto number = name.substr(digits);
  return number.empty() || number.size() > 7 ? -1 : std::atoi(number.c_str());
}

std::string read_dump(LoggedJob& job, const nlohmann::json& dump, const std::string& path) {
  if (!dump.is_object()) return "no dump of PyTorch's flight recorder, and nothing else known";
  if (dump.contains("communicators")) {
    read_ras_answer(job, dump);
    return "";
  }
  if (!dump.contains("entries") && !dump.contains("pg_status"))
    return "neither a dump of PyTorch's flight recorder nor an answer of NCCL's RAS";
  const int rank = rank_in_name(path);
  if (rank < 0)
    return "a dump of PyTorch's flight recorder does not say whose it is: let its name end with "
           "the rank (nccl_trace_rank_3)";
  read_flight_record(job, dump, rank);
  return "";
}

/// What was typed to RAS, and its greeting, stand before its answer.
std::string_view without_greeting(std::string_view text) {
  const auto begin = text.find('{');
  if (begin == std::string_view::npos) return {};
  const auto before = text.substr(0, begin);
  return trim(before).empty() || before.find("SERVER PROTOCOL") != std::string_view::npos ||
                 before.find("OK\n") != std::string_view::npos
             ? text.substr(begin)
             : std::string_view();
}

std::size_t ranks_told(const LoggedJob& job) {
  std::set<int> ranks;
  for (const auto& [key, group] : job.groups)
    for (const auto& [name, member] : group.members)
      ranks.insert(member.rank >= 0 ? member.rank : member.gpu);
  for (const auto& answer : job.ras) {
    for (const auto& [rank, launched] : answer.launched) ranks.insert(rank);
    for (const auto& [rank, missing] : answer.missing) ranks.insert(rank);
  }
  ranks.erase(-1);
  return ranks.size();
}

}  // namespace

bool names_logs(const std::string& word) {
  const bool number = word.find_first_not_of("0123456789") == std::string::npos;
  std::error_code none;
  return !number && fs::exists(word, none);
}

std::string read_job_file(LoggedJob& job, const std::string& bytes, const std::string& name) {
  try {
    if (bytes.starts_with('\x80')) return read_dump(job, read_plain_pickle(bytes, "frames"), name);
    if (const auto object = without_greeting(bytes); !object.empty()) {
      const bool small = object.size() < kLargestDump;
      const auto dump = parse_ras_answer(small ? object : std::string_view());
      if (!dump.is_discarded()) return read_dump(job, dump, name);
      // Lines of a log may be JSON, each by itself.
      LoggedJob alone;
      read_log_text(alone, bytes);
      if (alone.groups.empty() && alone.said.empty() && alone.warnings.empty())
        return small ? "begins as JSON, which is torn or nested too deep"
                     : fmt::format("is JSON of more than {} MiB", kLargestDump >> 20);
    }
  } catch (const Error& error) {
    return error.what();
  }
  read_log_text(job, bytes);
  return "";
}

LogLook look_at_logs(const std::vector<std::string>& paths) {
  LoggedJob job;
  LogLook look;
  for (const auto& file : files_in(paths, look.not_read)) {
    std::error_code none;
    const bool regular = fs::is_regular_file(file, none);
    std::string why = regular ? "" : "is no regular file";
    if (regular && fs::file_size(file, none) > kLargestText)
      why = fmt::format("is larger than {} MiB", kLargestText >> 20);
    if (why.empty()) {
      const auto bytes = read_file(file, kLargestText);
      why = bytes ? read_job_file(job, *bytes, file) : "cannot be read";
    }
    if (why.empty())
      ++look.files;
    else
      look.not_read.push_back(file + ": " + why);
  }
  if (look.files == 0)
    throw Error(ErrorKind::input,
                fmt::format("doctor: --job {}: no file there can be read{}", join(paths, ", "),
                            look.not_read.empty() ? "" : "; " + look.not_read.front()));
  look.ranks = ranks_told(job);
  look.verdict = verdict(job);
  look.remarks = remarks(job);
  look.settings = settings_read(job);
  return look;
}

std::string to_text(const LogLook& look) {
  auto text = to_text(look.verdict) + to_text(look.remarks);
  if (!look.settings.empty()) text += "  NCCL has read: " + join(look.settings, ", ") + "\n";
  for (std::size_t i = 0; i < std::min(look.not_read.size(), kMostTold); ++i)
    text += "  not read: " + look.not_read[i] + "\n";
  if (look.not_read.size() > kMostTold)
    text += fmt::format("  not read: {} more\n", look.not_read.size() - kMostTold);
  text += "  read: " + counted(look.files, "file");
  if (look.ranks > 0)
    text += fmt::format(", which {} of {}", look.files == 1 ? "tells" : "tell",
                        counted(look.ranks, "rank"));
  return text + "\n";
}

nlohmann::json to_json(const LogLook& look) {
  auto object = to_json(look.verdict);
  object.update({{"files", look.files},
                 {"ranks_told", look.ranks},
                 {"settings", look.settings},
                 {"not_read", look.not_read},
                 {"remarks", to_json(look.remarks)}});
  return object;
}

}  // namespace dynamiccl
