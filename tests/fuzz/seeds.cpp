#include "tests/fuzz/seeds.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "core/wire/record_frames.hpp"
#include "plugin/agreement/region.hpp"
#include "tests/fuzz/wire_targets.hpp"

namespace dynamiccl::fuzz {
namespace {

namespace fs = std::filesystem;

/// One with a table, and one that waits for a leader.
std::vector<std::string> regions() {
  std::vector<std::string> made;
  CallTable start;
  start.cells[0][3].channels = 4;
  for (const CallTable* table : std::initializer_list<const CallTable*>{&start, nullptr}) {
    std::string folder = (fs::temp_directory_path() / "corpus-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    const Region::Spec spec{7, 2, 1, table};
    std::string problem;
    if (Region::open_or_make(folder, spec, problem) != nullptr) {
      std::ifstream file(Region::path_of(folder, spec.communicator), std::ios::binary);
      made.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    fs::remove_all(folder);
  }
  return made;
}

std::string said(FrameKind kind, std::uint64_t sequence, std::string_view payload) {
  FrameHeader header;
  header.kind = kind;
  header.sequence = sequence;
  return frame(header, payload);
}

std::vector<std::string> record_frames() {
  const std::string rank = said(FrameKind::line, 1, R"({"record":"a"})") +
                           said(FrameKind::line, 2, "next") + said(FrameKind::line, 2, "again") +
                           said(FrameKind::file, 0, "decisions.json\n{}") +
                           said(FrameKind::last_words, 0, "the end") + said(FrameKind::bye, 0, "");
  const std::string rendezvous = said(FrameKind::set, 0, "key\nvalue") +
                                 said(FrameKind::get, 0, "key") + said(FrameKind::get, 0, "none");
  return {char(RankSays::writes) + rank, char(RankSays::reads) + rendezvous,
          char(RankSays::meets) + rendezvous,
          char(RankSays::writes) + said(FrameKind::last_words, 0, "two\nlines"),
          char(RankSays::nothing) + said(FrameKind::hello, 0, "0123 name refuse")};
}

}  // namespace

std::vector<std::string> made_seeds(std::string_view target) {
  if (target == "region") return regions();
  if (target == "record-frames") return record_frames();
  return {};
}

}  // namespace dynamiccl::fuzz
