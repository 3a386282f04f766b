#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "reports/page/html_report.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_page.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/page/page_data.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A run of one launch that was started by this command.
class StartedRun {
 public:
  explicit StartedRun(const std::vector<std::string>& argv)
      : store_(folder_.file("a.sqlite")), plan_(make_plan("run-1", {"bare-metal"}, {"x"}, {4})) {
    plan_.groups[0].knobs_json = R"({"segment":"8KiB"})";
    store_.begin_run(plan_.run, plan_.groups, plan_.cells);
    auto start = make_start(plan_.groups[0].id, 0);
    start.argv = argv;
    store_.finish_launch(store_.begin_launch("run-1", start), make_end(),
                         make_records(plan_.cells, plan_.groups[0].id, start.uuid, 2, 10,
                                      [](const CellInfo&, int, int) { return 10.0; }));
  }

  [[nodiscard]] Reader reader() const { return Reader(folder_.file("a.sqlite")); }
  [[nodiscard]] std::string shown() const {
    return render_run(reader(), "last", OutputFormat::text);
  }
  [[nodiscard]] std::string launches() const {
    const Table table = named_query(reader(), "launches", {});
    return render_table(table, OutputFormat::text, columns_of("launches", table));
  }

 private:
  ScratchFolder folder_;
  Store store_;
  SyntheticPlan plan_;
};

}  // namespace

TEST_CASE("ranks that start singly are shown as commands that a shell takes", "[G-01]") {
  const StartedRun run(
      {"env", "DYN_RANK=0", "worker", "a b", "&", "env", "DYN_RANK=1", "worker", "a b"});
  CHECK_THAT(run.shown(), ContainsSubstring("  env DYN_RANK=0 worker 'a b'\n"
                                            "  env DYN_RANK=1 worker 'a b'\n"));
  CHECK_THAT(run.launches(),
             ContainsSubstring("env DYN_RANK=0 worker 'a b' & env DYN_RANK=1 worker 'a b'\n"));
  const auto page = data_of(render_report_html(run.reader(), "last"));
  CHECK(page["sections"]["provenance"]["groups"][0]["command"] ==
        "env DYN_RANK=0 worker 'a b' & env DYN_RANK=1 worker 'a b'");
}

TEST_CASE("an argument that is an ampersand stays one", "[G-01]") {
  const StartedRun run({"mpirun", "-n", "2", "--note", "&", "worker"});
  CHECK_THAT(run.shown(), ContainsSubstring("  mpirun -n 2 --note '&' worker\n"));
  CHECK_THAT(run.launches(), ContainsSubstring("mpirun -n 2 --note '&' worker\n"));
}

TEST_CASE("a command says which group it is of, its settings with it", "[G-01]") {
  const StartedRun run({"mpirun", "worker"});
  CHECK_THAT(run.shown(),
             ContainsSubstring("# bare-metal openmpi ring 2 ranks segment=8KiB\n  mpirun worker"));
}
