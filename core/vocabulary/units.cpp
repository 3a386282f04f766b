#include "core/vocabulary/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};

constexpr std::array kByteSuffixes{Suffix{"", 1},
                                   Suffix{"B", 1},
                                   Suffix{"K", 1024.0},
                                   Suffix{"KiB", 1024.0},
                                   Suffix{"KB", 1e3},
                                   Suffix{"M", 1048576.0},
                                   Suffix{"MiB", 1048576.0},
                                   Suffix{"MB", 1e6},
                                   Suffix{"G", 1073741824.0},
                                   Suffix{"GiB", 1073741824.0},
                                   Suffix{"GB", 1e9}};

constexpr std::array kTimeSuffixes{Suffix{"", 1e6},    Suffix{"us", 1.0}, Suffix{"ms", 1e3},
                                   Suffix{"s", 1e6},   Suffix{"m", 60e6}, Suffix{"min", 60e6},
                                   Suffix{"h", 3600e6}};

template <std::size_t N>
double parse_with_suffix(std::string_view text, const std::array<Suffix, N>& suffixes,
                         std::string_view what, std::string_view example) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec == std::errc() && value >= 0 && std::isfinite(value)) {
    auto rest = text.substr(static_cast<std::size_t>(end - text.data()));
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    for (const auto& suffix : suffixes) {
      if (rest == suffix.text) return value * suffix.factor;
    }
  }
  throw Error(ErrorKind::input,
              fmt::format("\"{}\" is no {}; write for example {}", text, what, example));
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  // "16EiB" is a size, if none that anything here has.
  if (const auto letter = text.find_first_of("TPE");
      letter != std::string_view::npos && letter > 0 &&
      text.substr(0, letter).find_first_not_of("0123456789. ") == std::string_view::npos)
    throw Error(ErrorKind::input,
                fmt::format("\"{}\" is written with a unit that is not read: sizes go by K, M and "
                            "G; write for example 1024GiB",
                            text));
  const double value = parse_with_suffix(text, kByteSuffixes, "size", "4B, 64KiB or 1GiB");
  if (value >= 9.2e18 || value != std::floor(value)) {
    throw Error(ErrorKind::input,
                fmt::format("\"{}\" is no whole number of bytes below 8 EiB", text));
  }
  return Bytes(static_cast<std::uint64_t>(value));
}

std::string format_bytes(Bytes size) {
  constexpr std::array<std::string_view, 4> units{"B", "KiB", "MiB", "GiB"};
  std::uint64_t count = size.count();
  std::size_t unit = 0;
  while (unit + 1 < units.size() && count >= 1024 && count % 1024 == 0) {
    count /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", count, units[unit]);
}

std::string format_micros(Micros time) {
  const double us = time.count();
  if (!std::isfinite(us)) return "-";
  const double magnitude = std::fabs(us);
  const auto digits = [](double value) {
    const double m = std::fabs(value);
    return m >= 100 ? 0 : m >= 10 ? 1 : 2;
  };
  if (magnitude < 1000) return fmt::format("{:.{}f} us", us, digits(us));
  if (magnitude < 1e6) return fmt::format("{:.{}f} ms", us / 1e3, digits(us / 1e3));
  return fmt::format("{:.{}f} s", us / 1e6, digits(us / 1e6));
}

Micros parse_duration(std::string_view text) {
  return Micros(parse_with_suffix(text, kTimeSuffixes, "duration", "500ms, 2s or 3m"));
}

}  // namespace dynamiccl
