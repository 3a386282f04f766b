#include "train/data/dataset_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace dynamiccl {
namespace {

constexpr std::size_t kWords = 8;
constexpr std::size_t kDigits = 8;  // of a word: 32 bits, which a double holds exactly
/// What each rank tells: the length of its refusal, and its digest's words.
constexpr std::size_t kTold = 1 + kWords;

std::vector<double> words_of(const std::string& digest) {
  std::vector<double> words;
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint32_t word = 0;
    const char* from = digest.data() + i * kDigits;
    std::from_chars(from, from + kDigits, word, 16);
    words.push_back(word);
  }
  return words;
}

/// nullopt of a rank without data.
std::optional<std::string> digest_of(const std::vector<double>& told, std::size_t rank) {
  std::string digest;
  bool any = false;
  for (std::size_t i = 0; i < kWords; ++i) {
    const auto word = static_cast<std::uint32_t>(std::lround(told[rank * kTold + 1 + i]));
    any = any || word != 0;
    digest += fmt::format("{:08x}", word);
  }
  return any ? std::optional(digest) : std::nullopt;
}

std::string refusal_of(Communicator& comm, int rank, std::size_t length, std::string own) {
  own.resize((length + 3) / 4 * 4);
  broadcast_host(comm, own.data(), own.size(), rank);
  own.resize(length);
  return fmt::format("rank {} cannot run it: {}", rank, own);
}

}  // namespace

std::string agreed_refusal(Communicator& comm, const std::string& refusal, const Dataset* opened) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> told(ranks * kTold, 0);
  double* own = &told[static_cast<std::size_t>(comm.rank()) * kTold];
  *own = static_cast<double>(refusal.size());
  if (refusal.empty() && opened != nullptr) std::ranges::copy(words_of(opened->digest()), own + 1);
  told = sum_over_ranks(comm, std::move(told));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto length = static_cast<std::size_t>(std::lround(told[rank * kTold]));
    if (length == 0) continue;
    const std::string first = refusal_of(comm, static_cast<int>(rank), length, refusal);
    return refusal.empty() ? first : refusal;
  }
  std::optional<std::string> known;
  std::size_t knowing = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto digest = digest_of(told, rank);
    if (!known && digest) {
      known = digest;
      knowing = rank;
    }
    if (digest && *digest != *known)
      return fmt::format(
          "the data of rank {} is {}, that of rank {} is {} (SHA-256 of what sha256sum prints of "
          "the files): no shards of one set; compare `sha256sum` of the folder's files on the "
          "hosts of both ranks and give every host the same files",
          knowing, *known, rank, *digest);
  }
  return "";
}

}  // namespace dynamiccl
