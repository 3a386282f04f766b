#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// The table of keys: what an input file may say, said once. TableReader checks a file by it, and
/// the schema for editors and the reference page are printed from it (profiles/keys_output.hpp).

enum class ValueKind {
  text,
  boolean,
  whole,     ///< a whole number
  number,    ///< whole or not
  duration,  ///< "500ms", or seconds as a number
  size,      ///< "64KiB", or bytes
  word,      ///< of a vocabulary
  scalar,    ///< text, number or boolean, which somebody else reads
  toggle,    ///< true, false or a word of `words`
  table
};
enum class HowMany {
  one,
  some,  ///< a value, or a list of at least one
  list   ///< a list, which may be empty
};
/// Whether a text may go on over several lines, as a description may and a setting may not.
enum class Lines { one, many };

/// How sizes and durations are written as text. A size is a number of whole bytes, or of eighths of
/// a K, M or G, so that its pattern tells whether it is one.
extern const std::string kSizePattern;
/// As parse_bytes() takes it: 0 and any fraction too.
extern const std::string kAnySizePattern;
extern const std::string kDurationPattern;
/// Durations above 0.
extern const std::string kPositiveDurationPattern;
/// A year: deadlines are counted in whole microseconds, an endless one would overflow.
inline constexpr Micros kLongestDuration{366.0 * 24 * 3600 * 1e6};

struct TableKeys;

/// What a key may hold. Made by the functions of namespace `rule`.
struct ValueRule {
  ValueKind kind = ValueKind::text;
  HowMany count = HowMany::one;
  std::int64_t low = 0;  ///< whole numbers and sizes in bytes
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  double least = 0;  ///< numbers
  double most = 0;
  bool positive = false;           ///< durations above 0
  bool ranges = false;             ///< sizes also as {from, to, factor}
  Lines lines = Lines::one;        ///< texts
  bool filled = false;             ///< texts of more than blanks
  std::string pattern;             ///< texts: a regular expression, "" = any
  std::string instead;             ///< said to who breaks the pattern: "CPU numbers as in \"0-3\""
  std::vector<std::string> words;  ///< of a vocabulary
  /// Of a table: its keys; several where one of them decides which hold.
  std::vector<std::shared_ptr<const TableKeys>> tables;

  [[nodiscard]] ValueRule some() const;
  [[nodiscard]] ValueRule list() const;
};

struct Key {
  std::string name;
  ValueRule value;
  std::string about;       ///< one line; "" where the name says it
  std::string usual = {};  ///< what holds where the key is absent
  bool required = false;
};

struct TableKeys {
  std::vector<Key> keys;
  /// What keys that the file chooses hold, by the pattern of their names; `chosen` stands for them
  /// in headings: "NAME".
  std::optional<ValueRule> others = std::nullopt;
  std::string others_pattern = {};
  std::string chosen = {};
  std::size_t fewest = 0;  ///< keys at least
  /// {"max_launches", "target_interval"}: the first is of use only with the second.
  std::vector<std::pair<std::string, std::string>> needs = {};
  /// What people look for and what is nearest to it: {"volumes", "write mounts = ..."} under a name
  /// that is no key, {"collective=scatter", "..."} as a key's value, {"user=", "..."} as any value
  /// that the key does not know.
  std::vector<std::pair<std::string, std::string>> hints = {};

  /// nullptr where the table knows no such key.
  [[nodiscard]] const ValueRule* find(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const;
};

namespace rule {

/// What a name of a variable or parameter looks like.
inline constexpr const char* kVariable = "^[A-Za-z_][A-Za-z0-9_]*$";

ValueRule text(Lines lines = Lines::one);
/// Of more than blanks.
ValueRule filled_text();
/// Short enough to be matched. @param instead what the text should have been, for messages
ValueRule text_like(std::string pattern, std::string instead);
ValueRule boolean();
ValueRule whole(std::int64_t low, std::int64_t high = std::numeric_limits<int>::max());
ValueRule number(double least, double most);
ValueRule duration();
ValueRule positive_duration();
/// @param least bytes
ValueRule size(std::int64_t least = 1);
/// Also {from = "4B", to = "1GiB", factor = 4}; one or more.
/// @param least 0: the number 0 by itself, too
ValueRule sizes(std::int64_t least = 1);
ValueRule scalar();
/// @param words besides true and false
ValueRule toggle(std::vector<std::string> words = {"default"});
ValueRule words(std::vector<std::string> words);
template <class E>
ValueRule word() {
  return words(all_names<E>());
}
ValueRule table(TableKeys keys);
ValueRule table(std::shared_ptr<const TableKeys> keys);
/// [[tables]]: at least one.
ValueRule tables(std::vector<std::shared_ptr<const TableKeys>> keys);
/// A table for each backend, all of the same keys.
ValueRule by_backend(const ValueRule& value);
/// A table whose keys the file chooses.
ValueRule chosen(const ValueRule& value, const char* pattern = "", const char* name = "NAME");

}  // namespace rule
}  // namespace dynamiccl
