#include "core/wire/standing.hpp"

#include <fmt/format.h>

#include <cstring>

namespace dynamiccl {
namespace {

const char* words_of(Standpoint point) {
  switch (point) {
    case Standpoint::profile:
      return "at its profile of the model and of messages";
    case Standpoint::step:
      return "in the computation";
    case Standpoint::exchange:
      return "in the exchange";
    case Standpoint::gradients:
      return "waiting for gradients";
    case Standpoint::evaluation:
      return "at the accuracy";
    case Standpoint::comparison:
      return "at the comparison of weights";
    default:
      return nullptr;
  }
}

}  // namespace

std::string standing_file_name(int rank) { return fmt::format("rank{}.standing", rank); }

std::string words_of_standing(const std::string& bytes) {
  struct Plain {
    std::uint32_t magic, point, checked;
    std::uint64_t round;
  } standing{};
  static_assert(sizeof standing == sizeof(Standing));
  if (bytes.size() < sizeof standing) return "";
  std::memcpy(&standing, bytes.data(), sizeof standing);
  if (standing.magic != Standing::kMagic) return "";
  const char* words = words_of(static_cast<Standpoint>(standing.point));
  if (words == nullptr) return "";
  std::string text = words;
  if (standing.round > 0) text += fmt::format(" of round {}", standing.round);
  if (standing.checked != 0) text += " of the check against one process";
  return text;
}

}  // namespace dynamiccl
