#include "orchestrator/run/console.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace dynamiccl;

namespace {

/// What the console wrote.
class Written {
 public:
  Written() : file_(std::tmpfile()) {}
  ~Written() { std::fclose(file_); }
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;
  [[nodiscard]] std::FILE* file() const { return file_; }
  [[nodiscard]] std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* file_;
};

}  // namespace

TEST_CASE("remaining time is told in words that fit") {
  CHECK(format_eta(0.4) == "0s");
  CHECK(format_eta(59) == "59s");
  CHECK(format_eta(190) == "3m10s");
  CHECK(format_eta(7505) == "2h05m");
}

TEST_CASE("a finished launch is one line, a failed one adds why") {
  const Written written;
  Console console(Verbosity::normal, written.file());
  console.expect(12);
  console.launched("bare-metal gloo", "", 1.23);
  console.launched("bare-metal mpich", "no end", 2);
  const auto text = written.text();
  CHECK(text.starts_with("[ 1/12] bare-metal gloo: ok 1.2 s, ETA "));
  CHECK(text.find("[ 2/12] bare-metal mpich: FAILED 2.0 s") != std::string::npos);
  CHECK(text.ends_with("\n    no end\n"));
  CHECK(text.find('\033') == std::string::npos);
}

TEST_CASE("a launch of which nobody knows how many come is counted, and foretells no end") {
  const Written written;
  Console console(Verbosity::normal, written.file());
  console.expect(std::nullopt);
  console.launched("a", "", 1);
  console.launched("b", "", 1);
  CHECK(written.text() == "[1] a: ok 1.0 s\n[2] b: ok 1.0 s\n");
}

TEST_CASE("quiet tells failures only, verbose tells details") {
  const Written quiet_out;
  Console quiet(Verbosity::quiet, quiet_out.file());
  quiet.expect(2);
  quiet.note("note");
  quiet.detail("detail");
  quiet.launched("a", "", 1);
  CHECK(quiet_out.text().empty());
  quiet.warning("warning");
  CHECK(quiet_out.text() == "warning\n");
  const Written verbose_out;
  const Console verbose(Verbosity::verbose, verbose_out.file());
  verbose.detail("detail");
  CHECK(verbose_out.text() == "detail\n");
}

TEST_CASE("two columns end where the terminal ends, and nowhere in a pipe") {
  const std::vector<std::pair<std::string, std::string>> entries{
      {"best", "fastest and slowest of what was measured"}, {"latency", "one cell"}};
  CHECK(two_columns(entries, 0) ==
        "  best     fastest and slowest of what was measured\n"
        "  latency  one cell\n");
  CHECK(two_columns(entries, 36) ==
        "  best     fastest and slowest of\n"
        "           what was measured\n"
        "  latency  one cell\n");
  // No room for a second column: the terminal breaks the lines itself.
  CHECK(two_columns(entries, 20) == two_columns(entries, 0));
}
