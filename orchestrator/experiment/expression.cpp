#include "orchestrator/experiment/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "orchestrator/experiment/expression_tokens.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

namespace expression {

enum class Field {
  environment,
  backend,
  architecture,
  collective,
  datatype,
  algorithm,
  ranks,
  size,
  in_place,
  training,
  setting,  ///< of a training cell: model, packing ...
  knob
};
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal };

}  // namespace expression

using expression::Comparison;
using expression::Field;

namespace {

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr std::array kFields{FieldName{"environment", Field::environment},
                             FieldName{"backend", Field::backend},
                             FieldName{"architecture", Field::architecture},
                             FieldName{"collective", Field::collective},
                             FieldName{"datatype", Field::datatype},
                             FieldName{"algorithm", Field::algorithm},
                             FieldName{"ranks", Field::ranks},
                             FieldName{"size", Field::size},
                             FieldName{"in_place", Field::in_place},
                             FieldName{"training", Field::training}};

bool is_numeric(Field field) { return field == Field::ranks || field == Field::size; }

}  // namespace

struct Expression::Node {
  enum class Kind { comparison, any_of, all_of, negation } kind = Kind::comparison;
  Field field = Field::environment;
  std::string knob;
  Comparison comparison = Comparison::equal;
  std::vector<std::string> names;      ///< right side of a field of names; several for `in`
  std::vector<std::uint64_t> numbers;  ///< right side of ranks and size
  std::vector<std::shared_ptr<const Node>> children;
};

namespace {

using Node = Expression::Node;
using NodePtr = std::shared_ptr<const Node>;
using expression::fail;
using expression::Token;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::vector<std::string>& environments)
      : tokens_(std::move(tokens)), environments_(environments) {}

  NodePtr parse() {
    auto root = any_of();
    if (peek().kind != Token::Kind::end) {
      fail(peek().column,
           fmt::format("expected \"and\", \"or\" or the end, found \"{}\"", peek().text));
    }
    return root;
  }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  [[nodiscard]] const Token& peek() const { return tokens_[next_]; }
  Token take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool accept(std::string_view text) {
    if (peek().kind == Token::Kind::end || peek().kind == Token::Kind::text || peek().text != text)
      return false;
    take();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail(peek().column, fmt::format("expected \"{}\"{}", text, found()));
  }
  [[nodiscard]] std::string found() const {
    return peek().kind == Token::Kind::end ? ", found the end"
                                           : fmt::format(", found \"{}\"", peek().text);
  }

  NodePtr chain(Node::Kind kind, std::string_view word, NodePtr (Parser::*part)()) {
    std::vector<NodePtr> children{(this->*part)()};
    while (accept(word)) children.push_back((this->*part)());
    if (children.size() == 1) return children.front();
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->children = std::move(children);
    return node;
  }
  NodePtr any_of() { return chain(Node::Kind::any_of, "or", &Parser::all_of); }
  NodePtr all_of() { return chain(Node::Kind::all_of, "and", &Parser::factor); }

  NodePtr factor() {
    // Parentheses and `not` nest by recursion: a bound keeps hostile input off the stack's end.
    if (++depth_ > 200) fail(peek().column, "nested too deep (more than 200 levels)");
    NodePtr result;
    if (accept("not")) {
      auto node = std::make_shared<Node>();
      node->kind = Node::Kind::negation;
      node->children.push_back(factor());
      result = node;
    } else if (accept("(")) {
      result = any_of();
      expect(")");
    } else {
      result = comparison();
    }
    --depth_;
    return result;
  }

  NodePtr comparison() {
    auto node = std::make_shared<Node>();
    const Token name = take();
    if (name.kind != Token::Kind::word) {
      fail(name.column, fmt::format("expected a field ({})", join(field_names(), ", ")));
    }
    set_field(*node, name);
    const Token op = take();
    if (op.text == "in" || op.text == "not") {
      if (op.text == "not") expect("in");
      node->comparison = op.text == "not" ? Comparison::not_equal : Comparison::equal;
      expect("[");
      do add_value(*node, take());
      while (accept(","));
      expect("]");
      return node;
    }
    node->comparison = comparison_of(op);
    if (!is_numeric(node->field) && node->comparison != Comparison::equal &&
        node->comparison != Comparison::not_equal) {
      fail(op.column, fmt::format("\"{}\" needs ranks or size on its left; {} knows ==, != and in",
                                  op.text, name.text));
    }
    add_value(*node, take());
    return node;
  }

  static Comparison comparison_of(const Token& op) {
    struct Entry {
      std::string_view text;
      Comparison value;
    };
    constexpr std::array entries{
        Entry{"==", Comparison::equal},  Entry{"!=", Comparison::not_equal},
        Entry{"<", Comparison::less},    Entry{"<=", Comparison::less_equal},
        Entry{">", Comparison::greater}, Entry{">=", Comparison::greater_equal}};
    for (const auto& entry : entries) {
      if (op.kind == Token::Kind::op && op.text == entry.text) return entry.value;
    }
    fail(op.column,
         fmt::format("expected ==, !=, <, <=, >, >=, in or not in{}",
                     op.kind == Token::Kind::end ? ", found the end"
                                                 : fmt::format(", found \"{}\"", op.text)));
  }

  static std::vector<std::string> field_names() {
    std::vector<std::string> names;
    for (const auto& entry : kFields) names.emplace_back(entry.name);
    for (auto& setting : training_settings()) names.push_back(std::move(setting));
    return names;
  }

  void set_field(Node& node, const Token& name) {
    if (const auto setting = find_setting(name.text)) {
      node.field = Field::knob;
      node.knob = setting_text(setting->scope, setting->name);
      if (!setting->note.empty())
        notes_.push_back(fmt::format("column {}: {}", name.column, setting->note));
      return;
    }
    for (const auto& entry : kFields) {
      if (entry.name == name.text) {
        node.field = entry.field;
        return;
      }
    }
    const auto settings = training_settings();
    if (std::find(settings.begin(), settings.end(), name.text) != settings.end()) {
      node.field = Field::setting;
      node.knob = name.text;
      return;
    }
    fail(name.column,
         fmt::format("unknown field \"{}\"; {}", name.text, suggestion(name.text, field_names())));
  }

  void add_value(Node& node, const Token& value) {
    if (value.kind != Token::Kind::word && value.kind != Token::Kind::text) {
      fail(value.column, value.kind == Token::Kind::end
                             ? "expected a value, found the end"
                             : fmt::format("expected a value, found \"{}\"", value.text));
    }
    try {
      if (node.field == Field::size) {
        node.numbers.push_back(parse_bytes(value.text).count());
      } else if (node.field == Field::ranks) {
        node.numbers.push_back(whole_number(value.text));
      } else {
        check_name(node.field, value.text);
        node.names.push_back(node.field == Field::setting ? as_stored(node.knob, value.text)
                                                          : value.text);
      }
    } catch (const Error& error) {
      fail(value.column, error.what());
    }
  }

  /// "4MiB" as cells have it, "4194304"; what nothing needs to be said for is "default".
  static std::string as_stored(const std::string& setting, const std::string& text) {
    const auto knobs = training_cell(parsed_training({{setting, text}})).knobs;
    const auto found = knobs.find(setting);
    return found == knobs.end() ? "default" : found->second;
  }

  static std::uint64_t whole_number(const std::string& text) {
    const bool digits =
        !text.empty() && text.size() < 10 && std::all_of(text.begin(), text.end(), [](char c) {
          return std::isdigit(static_cast<unsigned char>(c)) != 0;
        });
    if (!digits)
      throw Error(ErrorKind::input, fmt::format("expected a number of ranks, found \"{}\"", text));
    return std::stoull(text);
  }

  void check_name(Field field, const std::string& text) const {
    switch (field) {
      case Field::environment:
        if (std::find(environments_.begin(), environments_.end(), text) == environments_.end()) {
          throw Error(ErrorKind::input, fmt::format("unknown environment \"{}\"; {}", text,
                                                    suggestion(text, environments_)));
        }
        break;
      case Field::backend:
        parse_named<Backend>(text);
        break;
      case Field::architecture:
        parse_named<Architecture>(text);
        break;
      case Field::collective:
        parse_named<Collective>(text);
        break;
      case Field::datatype:
        parse_named<DataType>(text);
        break;
      case Field::training:
        parse_named<TrainingMethod>(text);
        break;
      case Field::in_place:
        if (text != "true" && text != "false")
          throw Error(ErrorKind::input, fmt::format("expected true or false, found \"{}\"", text));
        break;
      default:
        break;  // algorithms and knobs have the library's own names
    }
  }

  std::vector<Token> tokens_;
  const std::vector<std::string>& environments_;
  std::vector<std::string> notes_;
  std::size_t next_ = 0;
  int depth_ = 0;
};

std::string_view name_in(const CellView& cell, const Node& node) {
  const bool trains = cell.collective == name_of(Collective::training);
  switch (node.field) {
    case Field::environment:
      return cell.environment;
    case Field::backend:
      return cell.backend;
    case Field::architecture:
      return cell.architecture;
    case Field::collective:
      return cell.collective;
    case Field::datatype:
      return cell.datatype;
    case Field::algorithm:
      return cell.algorithm;
    case Field::in_place:
      return cell.in_place ? "true" : "false";
    case Field::training:
      return trains ? cell.algorithm : "none";
    case Field::setting:
      if (!trains) return "none";
      break;
    default:
      break;
  }
  if (cell.knobs != nullptr) {
    const auto found = cell.knobs->find(node.knob);
    if (found != cell.knobs->end()) return found->second;
  }
  return "default";
}

template <class T>
bool compare(const T& left, Comparison comparison, const T& right) {
  switch (comparison) {
    case Comparison::less:
      return left < right;
    case Comparison::less_equal:
      return left <= right;
    case Comparison::greater:
      return left > right;
    case Comparison::greater_equal:
      return left >= right;
    default:
      return left == right;
  }
}

template <class T, class Values>
bool compare_any(const T& left, const Node& node, const Values& values) {
  const bool any = std::any_of(values.begin(), values.end(), [&](const auto& value) {
    return compare(left, node.comparison, T(value));
  });
  return node.comparison == Comparison::not_equal ? !any : any;
}

bool evaluate(const Node& node, const CellView& cell) {
  const auto holds = [&](const NodePtr& child) { return evaluate(*child, cell); };
  switch (node.kind) {
    case Node::Kind::any_of:
      return std::any_of(node.children.begin(), node.children.end(), holds);
    case Node::Kind::all_of:
      return std::all_of(node.children.begin(), node.children.end(), holds);
    case Node::Kind::negation:
      return !holds(node.children.front());
    case Node::Kind::comparison:
      break;
  }
  if (node.field == Field::ranks)
    return compare_any(static_cast<std::uint64_t>(cell.ranks), node, node.numbers);
  if (node.field == Field::size) return compare_any(cell.size_bytes, node, node.numbers);
  return compare_any(name_in(cell, node), node, node.names);
}

}  // namespace

Expression Expression::parse(std::string_view text, const std::vector<std::string>& environments) {
  Expression expression;
  expression.text_ = std::string(text);
  Parser parser(expression::tokenize(text), environments);
  expression.root_ = parser.parse();
  expression.notes_ = parser.notes();
  return expression;
}

bool Expression::matches(const CellView& cell) const { return evaluate(*root_, cell); }

}  // namespace dynamiccl
