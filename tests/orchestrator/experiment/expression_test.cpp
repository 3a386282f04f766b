#include "orchestrator/experiment/expression.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"

using namespace dynamiccl;

namespace {

const std::vector<std::string> kEnvironments{"bare-metal", "cross-docker"};

CellView sample_cell() {
  static const std::map<std::string, std::string> knobs{{"mca.btl", "tcp,self"}};
  CellView cell;
  cell.environment = "cross-docker";
  cell.backend = "gloo";
  cell.architecture = "ring";
  cell.collective = "allreduce";
  cell.datatype = "float32";
  cell.algorithm = "library";
  cell.ranks = 2;
  cell.size_bytes = 1 << 20;
  cell.knobs = &knobs;
  return cell;
}

std::string mistake(const std::string& text) {
  try {
    Expression::parse(text, kEnvironments);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "no mistake";
}

}  // namespace

TEST_CASE("expressions pick cells by field, size, membership and knob") {
  struct Case {
    const char* text;
    bool expected;
  };
  const Case cases[] = {
      {"backend == gloo", true},
      {"backend == \"gloo\"", true},
      {"backend != gloo", false},
      {"environment == cross-docker and ranks == 2", true},
      {"environment == bare-metal or ranks >= 2", true},
      {"size >= 1MiB", true},
      {"size > 1MiB", false},
      {"size < 1048577", true},
      {"size in [4B, 1MiB]", true},
      {"collective in [broadcast, allreduce]", true},
      {"collective not in [broadcast, allreduce]", false},
      {"not backend == gloo", false},
      {"not (backend == gloo and ranks > 2)", true},
      {"in_place == false", true},
      {"mca.btl == 'tcp,self'", true},
      {"env.UCX_TLS == default", true},
      {"malloc.keep == default", true},
      {"backend == mpich or backend == gloo and ranks == 4", false},
      {"(backend == mpich or backend == gloo) and ranks == 2", true},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    CHECK(Expression::parse(c.text, kEnvironments).matches(sample_cell()) == c.expected);
  }
}

TEST_CASE("expressions pick training cells by method and settings") {
  static const std::map<std::string, std::string> knobs{
      {"model", "resnet18"}, {"batch", "32"}, {"bucket", "4194304"}};
  CellView cell = sample_cell();
  cell.collective = "training";
  cell.algorithm = "ddp";
  cell.knobs = &knobs;
  const auto matches = [](const char* text, const CellView& view) {
    INFO(text);
    return Expression::parse(text, kEnvironments).matches(view);
  };
  CHECK(matches("training == ddp", cell));
  CHECK(matches("training in [dear, ddp] and model == resnet18", cell));
  CHECK(matches("training not in [dear, bsp-ps]", cell));
  CHECK(matches("bucket == 4MiB", cell));
  CHECK_FALSE(matches("bucket == 1MiB", cell));
  // What a cell does not say has its usual value.
  CHECK(matches("packing == none", cell));
  CHECK_FALSE(matches("packing == exponents", cell));
  CHECK(matches("momentum == 0.9 and batch in [16, 32]", cell));
  // A collective is no training, whatever is asked of it.
  CHECK_FALSE(matches("packing == none", sample_cell()));
  CHECK_FALSE(matches("training == ddp", sample_cell()));
  CHECK(matches("training != ddp", sample_cell()));
}

TEST_CASE("a broken expression names the column and what was expected") {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"bakend == gloo",
       "column 1: unknown field \"bakend\"; known: environment, backend, architecture, collective, "
       "datatype, algorithm, ranks, size, in_place, training, model, "},
      {"bakend == gloo", "Did you mean \"backend\"?"},
      {"training == deer", "column 13: unknown training method \"deer\""},
      {"model == resnet19", "column 10: "},
      {"bucket == lots", "column 11: "},
      {"backend == glo", "column 12: unknown backend \"glo\""},
      {"environment == cross-dock", "Did you mean \"cross-docker\"?"},
      {"backend = gloo", "column 9: found \"=\"; did you mean \"==\"?"},
      {"backend < gloo", "column 9: \"<\" needs ranks or size on its left"},
      {"size >= 1XB", "column 9: "},
      {"ranks == many", "column 10: expected a number of ranks, found \"many\""},
      {"ranks ==", "column 9: expected a value, found the end"},
      {"ranks", "column 6: expected ==, !=, <, <=, >, >=, in or not in, found the end"},
      {"(ranks == 2", "column 12: expected \")\", found the end"},
      {"ranks == 2 backend == gloo", "column 12: expected \"and\", \"or\" or the end"},
      {"ranks in 2", "column 10: expected \"[\""},
      {"backend == \"gloo", "column 12: quoted text does not end"},
      {"in_place == maybe", "column 13: expected true or false, found \"maybe\""},
      {"", "column 1: expected a field"},
      {"ranks == 2 & size > 1", "column 12: unexpected \"&\"; did you mean \"and\"?"},
      {"ranks == 2 || size > 1", "column 12: unexpected \"|\"; did you mean \"or\"?"},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    CHECK_THAT(mistake(c.text), Catch::Matchers::ContainsSubstring(c.message));
  }
}

TEST_CASE("hostile nesting is refused, not recursed into") {
  CHECK_THAT(mistake(std::string(100'000, '(')),
             Catch::Matchers::ContainsSubstring("nested too deep"));
}
