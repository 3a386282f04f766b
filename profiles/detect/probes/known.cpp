#include "profiles/detect/probes/known.hpp"

#include <algorithm>

namespace dynamiccl {
namespace {

/// Bytes of the well-formed UTF-8 character at the front, 0 where there is none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x20 && lead != '\n' && lead != '\t') return 0;
  if (lead < 0x80) return lead == 0x7f ? 0 : 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  // Overlong forms, surrogates and what lies beyond U+10FFFF differ in the second byte only.
  const unsigned second = byte(1);
  const bool malformed = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                         (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return malformed ? 0 : length;
}

}  // namespace

std::string clean_text(std::string_view text, std::size_t limit) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (clean.size() + std::max<std::size_t>(length, 1) > limit) return clean + "...";
    clean += length == 0 ? std::string_view("?") : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::optional<double> grown(const nlohmann::json& before, const nlohmann::json& after,
                            const char* key) {
  if (!before.is_object() || !after.is_object()) return std::nullopt;
  const auto old_value = before.find(key);
  const auto new_value = after.find(key);
  if (old_value == before.end() || new_value == after.end()) return std::nullopt;
  if (!old_value->is_number() || !new_value->is_number()) return std::nullopt;
  const double difference = new_value->get<double>() - old_value->get<double>();
  return difference < 0 ? std::nullopt : std::optional(difference);
}

}  // namespace dynamiccl
