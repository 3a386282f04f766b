#include "orchestrator/cli/verbs/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/others_files.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

bool is_database(const fs::path& path) {
  constexpr std::string_view kMagic = "SQLite format 3";
  std::array<char, kMagic.size()> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return file && std::string_view(head.data(), head.size()) == kMagic;
}

/// Takes from `path` what others may not do with `model`.
void keep_as_private(const fs::path& path, const fs::path& model) {
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  std::error_code problem;
  const fs::perms kept = fs::status(model, problem).permissions() & kOthers;
  if (!problem) fs::permissions(path, kOthers & ~kept, fs::perm_options::remove, problem);
}

}  // namespace

void write_output(const std::string& path, const std::string& text, const std::string& option,
                  const std::string& private_as) {
  std::error_code problem;
  const fs::file_status status = fs::status(path, problem);
  const bool direct = fs::exists(status) && !fs::is_regular_file(status);
  if (fs::is_regular_file(status) && is_database(path))
    throw Error(ErrorKind::input,
                fmt::format("{}: is a database, which would be lost; name another file with {}",
                            path, option));
  // A device is written; a pipe that another user put there would be read by them.
  if (!direct || fs::is_fifo(status))
    require_no_strangers(path, "choose another place with " + option);
  // A link stays one: what it points to is written.
  fs::path target = direct ? fs::path(path) : fs::weakly_canonical(path, problem);
  if (problem) target = path;
  problem.clear();
  // By a name of this process: another one may be writing the same file.
  const fs::path written =
      direct ? target : fs::path(fmt::format("{}.{}.part", target.string(), getpid()));
  errno = 0;
  std::ofstream file;
  if (direct || begin_draft(written.string()))
    file.open(written, std::ios::binary | std::ios::trunc);
  if (file && !direct && !private_as.empty()) keep_as_private(written, private_as);
  if (file.is_open()) errno = 0;
  file << text;
  file.close();
  if (file && !direct) fs::rename(written, target, problem);
  if (file && !problem) return;
  const std::string why = problem ? problem.message() : errno != 0 ? std::strerror(errno) : "";
  if (!direct) fs::remove(written, problem);
  throw Error(ErrorKind::input,
              fmt::format("{}: cannot be written{}{}; choose another place with {}", path,
                          why.empty() ? "" : ": ", why, option));
}

void require_one_line(const std::string& option, const std::string& path) {
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }))
    throw Error(ErrorKind::input, option +
                                      ": a path with a line break or another control character "
                                      "cannot stand in the files that jobs load");
}

}  // namespace dynamiccl
