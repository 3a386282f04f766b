#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <functional>

#include "core/vocabulary/json.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;

namespace {

constexpr std::uint64_t kSize = std::uint64_t{64} << 20;

/// A run of one cell under the default and with memory kept; `memory` makes what a rank left.
Table page_faults(const std::function<nlohmann::json(bool kept, const std::string& cell)>& memory) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal", "kept"}, {"allreduce"}, {kSize});
  plan.groups[1].environment = "bare-metal";
  plan.groups[0].knobs_json = R"({"env.A":"1"})";
  plan.groups[1].knobs_json = R"({"env.A":"1","malloc.keep":"1"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 4; ++block) {
    for (const bool kept : {false, true}) {
      const auto& group = plan.groups[kept ? 1 : 0];
      const auto start = make_start(group.id, block);
      const auto row = store.begin_launch("run-1", start);
      const double time_us = (kept ? 20e3 : 40e3) * (1 + 1e-3 * block);
      auto files = make_records(plan.cells, group.id, start.uuid, 2, 10,
                                [&](const CellInfo&, int, int) { return time_us; });
      for (auto& file : files)
        for (auto& record : file.records)
          if (auto* transport = std::get_if<TransportRecord>(&record))
            transport->details["memory"] = memory(kept, plan.cells[kept ? 1 : 0].id);
      store.finish_launch(row, make_end(), files);
    }
  }
  store.end_run("run-1", "complete");
  return named_query(Reader(folder.file("a.sqlite")), "page_faults", {});
}

nlohmann::json left_by_rank(bool kept, const std::string& cell, const nlohmann::json& reasons) {
  return {{"page_bytes", 4096},
          {"cells", {{cell, {{"minor_faults", kept ? 20 : 81920}, {"calls", 10}}}}},
          {"allocator", {{"tunables", ""}, {"libc", "glibc 2.36"}, {"keeps", kept}}},
          {"huge_pages", {{"mode", "madvise"}, {"bytes", 0}}},
          {"not_effective", reasons}};
}

}  // namespace

TEST_CASE("faults of a call stand beside the message's pages and the default's time") {
  const Table table = page_faults([](bool kept, const std::string& cell) {
    return left_by_rank(kept, cell, nlohmann::json::object());
  });
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  const std::size_t kept = rows.text(0, "kept") == "yes" ? 0 : 1;
  const std::size_t plain = 1 - kept;
  CHECK(rows.text(plain, "kept") == "no");
  CHECK(rows.real(plain, "faults_per_call") == 8192.0);
  CHECK(rows.real(plain, "message_pages") == 16384.0);
  CHECK_FALSE(rows.real(plain, "ratio"));
  CHECK(rows.real(kept, "faults_per_call") == 2.0);
  CHECK(rows.real(kept, "default_faults_per_call") == 8192.0);
  CHECK_THAT(*rows.real(kept, "ratio"), WithinRel(0.5, 1e-6));
  CHECK(rows.text(kept, "verdict") == "FASTER");
  CHECK(rows.text(kept, "not_effective").empty());
}

TEST_CASE("a setting that came to nothing says why, and old launches have no row") {
  const Table table = page_faults([](bool kept, const std::string& cell) {
    return kept ? left_by_rank(false, cell, {{"keep", "glibc 2.31 still maps"}}) : nlohmann::json();
  });
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "kept") == "no");
  CHECK(rows.text(0, "not_effective") == "keep: glibc 2.31 still maps");
  CHECK_FALSE(rows.real(0, "default_faults_per_call"));
  CHECK_THAT(*rows.real(0, "ratio"), WithinRel(0.5, 1e-6));
}
