#include "train/spec/setting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kAuto = "auto";

/// What is wrong with the text as a number.
template <class Number>
std::errc parse_whole(const std::string& value, Number& number) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  return error == std::errc() && stop != end ? std::errc::invalid_argument : error;
}

}  // namespace

void refuse_setting(const SettingRow& row, const std::string& value, std::string_view expected) {
  throw Error(ErrorKind::input,
              fmt::format("training: {} = \"{}\": expected {}", row.name, value, expected));
}

void read_setting(const SettingRow& row, const std::string& value, int& member) {
  int number = 0;
  const std::errc error = parse_whole(value, number);
  const bool too_large = error == std::errc::result_out_of_range && value.front() != '-';
  const double most = std::min<double>(row.most, kUnbounded);
  if (error != std::errc() || number < row.least || number > most)
    refuse_setting(row, value,
                   most < kUnbounded || too_large
                       ? fmt::format("a whole number {}..{}", row.least, most)
                       : fmt::format("a whole number from {} on", row.least));
  member = number;
}

void read_setting(const SettingRow& row, const std::string& value, double& member) {
  double number = 0;
  if (parse_whole(value, number) != std::errc() || !std::isfinite(number) || number < row.least ||
      number > row.most)
    refuse_setting(row, value,
                   !row.expected.empty() ? std::string(row.expected)
                   : row.most < std::numeric_limits<double>::max()
                       ? fmt::format("a number from {} to {}", row.least, row.most)
                       : fmt::format("a finite number from {} on", row.least));
  member = number;
}

void read_setting(const SettingRow& row, const std::string& value, Bytes& member) {
  member = value == kAuto ? Bytes(0) : parse_bytes(value);
  if (value != kAuto && member.count() < sizeof(float))
    refuse_setting(row, value, "\"auto\" or at least 4 bytes");
}

void read_setting(const SettingRow& row, const std::string& value, std::string& member) {
  if (value.empty() && !row.expected.empty()) refuse_setting(row, value, row.expected);
  member = value;
}

std::string setting_text(int value) { return std::to_string(value); }
std::string setting_text(double value) { return fmt::format("{}", value); }
std::string setting_text(Bytes value) {
  return value.count() == 0 ? kAuto : std::to_string(value.count());
}
std::string setting_text(const std::string& value) { return value; }

}  // namespace dynamiccl
