#include "orchestrator/doctor/job/plain_pickle.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdint>
#include <map>
#include <vector>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

constexpr int kDeepest = 64;
// A recorder's 20,000 calls are a million or two of values without their stacks.
constexpr std::size_t kMostValues = 8'000'000;
// Of what is written out, without the stacks; of letters as many as the largest file has.
constexpr std::size_t kMostWritten = 2'000'000;
constexpr std::size_t kMostLetters = std::size_t{256} << 20;
// The most digits or bytes that a number may have: no counter of a recorder has more.
constexpr std::size_t kLongestNumber = 8;

enum class Shape { scalar, list, dictionary };

/// Containers refer to their values by place, as a pickle refers back to a container that is not
/// yet filled.
struct PickledValue {
  Shape shape = Shape::scalar;
  json scalar;
  std::vector<std::size_t> parts;  ///< of a dictionary: key, value, key, value
};

class PlainPickle {
 public:
  PlainPickle(std::string_view bytes, std::string_view left_out)
      : bytes_(bytes), left_out_(left_out) {}

  json read() {
    while (at_ < bytes_.size()) {
      const auto opcode = static_cast<unsigned char>(bytes_[at_++]);
      if (opcode == '.') return as_json(pop(), 0);
      if (!scalar(opcode) && !text(opcode) && !memo(opcode) && !container(opcode)) refuse(opcode);
    }
    fail("it ends before its end mark");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::input, fmt::format("no pickle of plain types: {} (byte {})", what, at_));
  }
  [[noreturn]] void refuse(unsigned char opcode) const {
    fail(
        fmt::format("opcode 0x{:02x} would import, call or build something, which is refused, or "
                    "is unknown",
                    opcode));
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("it is cut off");
    const auto part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::uint64_t little(std::size_t count) {
    std::uint64_t value = 0;
    const auto part = take(count);
    for (std::size_t i = 0; i < count; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    return value;
  }
  std::string_view line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("it is cut off");
    const auto part = take(end - at_);
    ++at_;
    return part;
  }

  void limit(std::size_t count) const {
    if (count >= kMostValues) fail("it holds too many values");
  }
  std::size_t make(PickledValue value) {
    limit(values_.size());
    values_.push_back(std::move(value));
    return values_.size() - 1;
  }
  void push(json value) { stack_.push_back(make({Shape::scalar, std::move(value), {}})); }
  std::size_t pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("it takes from an empty stack");
    const auto top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<std::size_t> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    std::vector<std::size_t> parts(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                   stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return parts;
  }
  void gather(Shape shape, std::vector<std::size_t> parts) {
    stack_.push_back(make({shape, {}, std::move(parts)}));
  }
  std::vector<std::size_t> last(std::size_t count) {
    std::vector<std::size_t> parts(count);
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) *part = pop();
    return parts;
  }
  void add(Shape shape, const std::vector<std::size_t>& parts) {
    if (stack_.empty() || values_[stack_.back()].shape != shape) fail("it fills what is no list");
    if (shape == Shape::dictionary && parts.size() % 2 != 0) fail("a key has no value");
    auto& known = values_[stack_.back()].parts;
    known.insert(known.end(), parts.begin(), parts.end());
  }

  bool scalar(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        take(1);
        return true;
      case 0x95:  // FRAME
        take(8);
        return true;
      case 'N':
        push(nullptr);
        return true;
      case 0x88:
      case 0x89:
        push(opcode == 0x88);
        return true;
      case 'K':
        push(little(1));
        return true;
      case 'M':
        push(little(2));
        return true;
      case 'J':
        push(static_cast<std::int32_t>(little(4)));
        return true;
      case 0x8a:  // LONG1
      case 0x8b:  // LONG4
        push(long_number(little(opcode == 0x8a ? 1 : 4)));
        return true;
      case 'G': {
        std::uint64_t bits = 0;
        for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
        push(std::bit_cast<double>(bits));
        return true;
      }
      case 'I':
      case 'L':
      case 'F':
        push(std::string(line()));
        return true;
      default:
        return false;
    }
  }
  json long_number(std::uint64_t count) {
    if (count > kLongestNumber) {
      take(count);
      return nullptr;
    }
    const auto value = little(count);
    const auto unused = 64 - 8 * count;
    return count == 0 ? json(0)
                      : json(static_cast<std::int64_t>(value << unused) >>
                             static_cast<std::int64_t>(unused));
  }

  bool text(unsigned char opcode) {
    switch (opcode) {
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':
      case 'C':
        push(std::string(take(little(1))));
        return true;
      case 'X':
      case 'T':
      case 'B':
        push(std::string(take(little(4))));
        return true;
      case 0x8d:  // BINUNICODE8
      case 0x8e:
        push(std::string(take(little(8))));
        return true;
      case 'V':
        push(std::string(line()));
        return true;
      default:
        return false;
    }
  }

  bool memo(unsigned char opcode) {
    switch (opcode) {
      case 'q':
      case 'r':
      case 0x94: {  // MEMOIZE
        if (stack_.empty()) fail("it keeps what is not there");
        limit(memo_.size());
        const auto name = opcode == 0x94 ? memo_.size() : little(opcode == 'q' ? 1 : 4);
        memo_[name] = stack_.back();
        return true;
      }
      case 'h':
      case 'j': {
        const auto found = memo_.find(little(opcode == 'h' ? 1 : 4));
        if (found == memo_.end()) fail("it refers to what it has not kept");
        limit(stack_.size());
        stack_.push_back(found->second);
        return true;
      }
      default:
        return false;
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':
        limit(marks_.size());
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case ']':
      case ')':
      case 0x8f:  // EMPTY_SET
        gather(Shape::list, {});
        return true;
      case '}':
        gather(Shape::dictionary, {});
        return true;
      case 0x85:
      case 0x86:
      case 0x87:  // TUPLE1 to TUPLE3
        gather(Shape::list, last(opcode - 0x84U));
        return true;
      case 't':
      case 'l':
      case 0x91:  // FROZENSET
        gather(Shape::list, pop_to_mark());
        return true;
      case 'd': {
        auto parts = pop_to_mark();
        gather(Shape::dictionary, {});
        add(Shape::dictionary, parts);
        return true;
      }
      case 'a':
        return filled(Shape::list, last(1));
      case 'e':
      case 0x90:  // ADDITEMS
        return filled(Shape::list, pop_to_mark());
      case 's':
        return filled(Shape::dictionary, last(2));
      case 'u':
        return filled(Shape::dictionary, pop_to_mark());
      default:
        return false;
    }
  }
  bool filled(Shape shape, const std::vector<std::size_t>& parts) {
    add(shape, parts);
    return true;
  }

  /// One text may be referred to again and again.
  const json& counted_letters(const json& scalar) {
    if (scalar.is_string()) letters_ += scalar.get_ref<const std::string&>().size();
    if (letters_ > kMostLetters) fail("it grows too large by references");
    return scalar;
  }

  json as_json(std::size_t place, int depth) {
    if (depth > kDeepest) fail("it is nested too deep, or in itself");
    if (++written_ > kMostWritten) fail("it grows too large by references");
    const auto& value = values_[place];
    if (value.shape == Shape::scalar) return counted_letters(value.scalar);
    json whole = value.shape == Shape::list ? json::array() : json::object();
    if (value.shape == Shape::list) {
      for (const auto part : value.parts) whole.push_back(as_json(part, depth + 1));
      return whole;
    }
    for (std::size_t i = 0; i + 1 < value.parts.size(); i += 2) {
      const auto& key = values_[value.parts[i]];
      if (key.shape != Shape::scalar) fail("a key is no plain value");
      const auto name = counted_letters(key.scalar).is_string() ? key.scalar.get<std::string>()
                                                                : key.scalar.dump();
      whole[name] =
          !left_out_.empty() && name == left_out_ ? json() : as_json(value.parts[i + 1], depth + 1);
    }
    return whole;
  }

  std::string_view bytes_;
  std::string_view left_out_;
  std::size_t at_ = 0;
  std::vector<PickledValue> values_;
  std::vector<std::size_t> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, std::size_t> memo_;
  std::size_t written_ = 0;
  std::size_t letters_ = 0;
};

}  // namespace

json read_plain_pickle(std::string_view bytes, std::string_view left_out) {
  return PlainPickle(bytes, left_out).read();
}

}  // namespace dynamiccl
