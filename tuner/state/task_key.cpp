#include "tuner/state/task_key.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>

namespace dynamiccl {
namespace {

/// "r2n1" or "2^16": the number behind `prefix`, which is removed with it.
int take_number(std::string_view& text, std::string_view prefix, const std::string& whole) {
  int value = 0;
  if (text.starts_with(prefix)) {
    text.remove_prefix(prefix.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && value >= 0) {
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
      return value;
    }
  }
  throw Error(ErrorKind::data, "\"" + whole + "\" is no task key: expected " + std::string(prefix) +
                                   "NUMBER, as in openmpi/ring/allreduce/2^16/r2n1");
}

}  // namespace

SizeBin SizeBin::of(Bytes effective_size) {
  return {effective_size.count() == 0
              ? 0
              : static_cast<int>(std::bit_width(effective_size.count())) - 1};
}

std::string TaskKey::text() const {
  return fmt::format("{}/{}/{}/2^{}/r{}n{}", name_of(backend), name_of(architecture),
                     name_of(collective), bin.log2, group_size, nodes);
}

TaskKey TaskKey::parse(const std::string& text) {
  const std::vector<std::string> parts = split(text, '/');
  if (parts.size() != 5)
    throw Error(ErrorKind::data, "\"" + text +
                                     "\" is no task key: expected five parts, as in "
                                     "openmpi/ring/allreduce/2^16/r2n1");
  TaskKey key;
  try {
    key.backend = parse_named<Backend>(parts[0]);
    key.architecture = parse_named<Architecture>(parts[1]);
    key.collective = parse_named<Collective>(parts[2]);
  } catch (const Error& error) {
    throw Error(ErrorKind::data, "\"" + text + "\" is no task key: " + error.what());
  }
  std::string_view size = parts[3];
  key.bin.log2 = take_number(size, "2^", text);
  std::string_view ranks = parts[4];
  key.group_size = take_number(ranks, "r", text);
  key.nodes = take_number(ranks, "n", text);
  if (!size.empty() || !ranks.empty() || key.bin.log2 > 63)
    throw Error(ErrorKind::data, "\"" + text + "\" is no task key: a number is followed by more");
  return key;
}

}  // namespace dynamiccl
