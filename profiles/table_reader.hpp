#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/keys.hpp"
#include "profiles/toml_parser.hpp"

namespace dynamiccl {

/// All mistakes of a file, reported together before anything runs.
class Mistakes {
 public:
  /// @param source file name for nodes that know none
  /// @param kind of the error: data where the file is this program's own
  explicit Mistakes(std::string source, ErrorKind kind = ErrorKind::input)
      : source_(std::move(source)), kind_(kind) {}
  /// Adds `file:line:col: message`.
  void add(const toml::source_region& where, const std::string& message);
  /// A note in the same form: what reads, but should be written otherwise.
  void note(const toml::source_region& where, const std::string& message);
  [[nodiscard]] bool empty() const { return mistakes_.empty(); }
  [[nodiscard]] std::size_t count() const { return mistakes_.size(); }
  [[nodiscard]] const std::string& source() const { return source_; }
  /// @throws Error with one line per mistake, in the order of the file; those of other places
  /// (--set) follow
  /// @param notes where not null, gets the notes when there is no mistake, in the order they came
  void raise(std::vector<std::string>* notes = nullptr) const;

 private:
  struct Mistake {
    std::size_t line = kNowhere;
    std::size_t column = 0;
    std::string message;
  };
  static constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] Mistake at(const toml::source_region& where, const std::string& message) const;

  std::string source_;
  ErrorKind kind_;
  std::vector<Mistake> mistakes_;
  std::vector<std::string> notes_;
};

/// Reads one TOML table, the one reader of all input files. A wrong value is noted in `Mistakes`
/// and reads as absent, so that all mistakes are found at once. Two ways:
/// - by a table of keys: types and bounds are the table's, finish() notes keys that it does not
///   have and needed ones that are absent;
/// - freely, of the program's own data: the methods that are given bounds.
class TableReader {
 public:
  /// @param path dotted name in messages, "" for the file's top level
  TableReader(const toml::table& table, std::string path, Mistakes& mistakes,
              const TableKeys* keys = nullptr);

  // What the table of keys says of `key` is what is read. A getter that does not fit it is a bug.
  /// Control characters are a mistake in any text; line ends and tabs are none with Lines::many.
  std::optional<std::string> text(const std::string& key, Lines lines = Lines::one);
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::int64_t> integer(const std::string& key);
  std::optional<double> number(const std::string& key);
  /// "2s", "500ms" or seconds as a number; a year at most.
  std::optional<Micros> duration(const std::string& key);
  std::optional<Bytes> size(const std::string& key);
  std::vector<int> integers(const std::string& key);
  /// A single value reads as a list of one; an empty list is a mistake, but for HowMany::list.
  std::vector<std::string> texts(const std::string& key, Lines lines = Lines::one);
  std::vector<bool> booleans(const std::string& key);
  /// Sizes as text ("64KiB"), as bytes, or {from = "4B", to = "1GiB", factor = 4}.
  std::vector<Bytes> sizes(const std::string& key);
  /// Scalars of any type as text: settings that a library reads itself.
  std::vector<std::string> scalars(const std::string& key);

  std::optional<std::int64_t> integer(const std::string& key, std::int64_t minimum,
                                      std::int64_t maximum = std::numeric_limits<int>::max());
  /// A number, whole or not, within the bounds.
  std::optional<double> number(const std::string& key, double minimum, double maximum);
  std::vector<int> integers(const std::string& key, int minimum,
                            int maximum = std::numeric_limits<int>::max());

  template <class E>
  std::vector<E> names(const std::string& key) {
    std::vector<E> values;
    expect(key, ValueKind::word);
    for_each(key, [&](const toml::node& node) {
      const auto name = node.value_exact<std::string>();
      if (!name) return wrong_type(key, node, "a name in quotes");
      if (const auto value = find_named<E>(*name)) {
        values.push_back(*value);
      } else {
        mistakes_.add(node.source(),
                      unknown_value(key, std::string(NameTable<E>::what), *name, all_names<E>()));
      }
    });
    return values;
  }
  template <class E>
  std::optional<E> name(const std::string& key) {
    const auto values = names<E>(key);
    if (values.empty()) return std::nullopt;
    return values.front();
  }

  std::optional<TableReader> table(const std::string& key);
  /// The tables of `[[key]]`. Where the table of keys has several for it, the first one's hold
  /// until read_as() says otherwise.
  std::vector<TableReader> tables(const std::string& key);
  /// The same table by other keys.
  [[nodiscard]] TableReader read_as(const TableKeys& keys) const {
    return {table_, path_, mistakes_, &keys};
  }
  /// Names of all keys, for tables whose keys the user chooses; they become known.
  std::vector<std::string> keys();

  [[nodiscard]] bool has(const std::string& key) const { return table_.contains(key); }
  [[nodiscard]] const toml::node* node(const std::string& key) const { return table_.get(key); }
  [[nodiscard]] const toml::table& raw() const { return table_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Mistakes& mistakes() const { return mistakes_; }
  /// Notes a mistake at the key's value, at the table when the key is absent.
  void complain(const std::string& key, const std::string& message) const;
  /// The same of a note.
  void note(const std::string& key, const std::string& message) const;
  /// Notes every key that is not known, and every needed one that is absent.
  /// @throws Error(bug) for a key of the table of keys that stands here and nobody asked for
  void finish();

  static std::string unknown_name(const std::string& what, const std::string& name,
                                  const std::vector<std::string>& known);

 private:
  /// What the table of keys says of a key that is being read, nullptr when reading freely.
  const ValueRule* expect(const std::string& key, ValueKind kind);
  /// The same, where the table of keys must say it.
  const ValueRule& bounds(const std::string& key, ValueKind kind);
  [[nodiscard]] HowMany count_of(const std::string& key) const;
  void for_each(const std::string& key, const std::function<void(const toml::node&)>& visit);
  void wrong_type(const std::string& key, const toml::node& node, const std::string& expected);
  void wrong_whole(const std::string& key, const toml::node& node, std::int64_t minimum,
                   std::int64_t maximum);
  std::optional<std::string> string(const std::string& key, const toml::node& node, Lines lines);
  void size_range(const std::string& key, const toml::table& range, std::vector<Bytes>& sizes);
  std::optional<Bytes> size_at(const std::string& key, const toml::node& node, std::int64_t least);
  [[nodiscard]] std::string hint_for(const std::string& name,
                                     const std::vector<std::string>& known) const;
  /// What a name of no vocabulary is answered with: what is nearest, where the table knows.
  [[nodiscard]] std::string unknown_value(const std::string& key, const std::string& what,
                                          const std::string& name,
                                          const std::vector<std::string>& known) const;
  void note_unknown_keys() const;
  void note_absent_keys() const;
  [[nodiscard]] std::string dotted(const std::string& key) const;

  const toml::table& table_;
  std::string path_;
  Mistakes& mistakes_;
  const TableKeys* keys_;
  std::set<std::string> asked_;
};

/// Applies `key=value` overrides (`protocol.iterations=5`, `axes.backend=gloo`,
/// `work.0.size=1MiB`). The value is TOML; what is no TOML is taken as text.
/// @throws Error(input) naming the override
void apply_overrides(toml::table& table, const std::vector<std::string>& overrides);

}  // namespace dynamiccl
