#include "orchestrator/doctor/prove.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "orchestrator/doctor/output.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A stored run of two environments whose launches are made by hand.
class StoredProof {
 public:
  StoredProof()
      : store_(folder_.file("p.sqlite")),
        plan_(make_plan("run-1", {"as-it-is", "as-it-is-fixed"}, {"allreduce"}, {1 << 20})) {
    store_.begin_run(plan_.run, plan_.groups, plan_.cells);
  }

  void took(std::size_t side, int block, double time_us) {
    store_launch(store_, plan_, plan_.groups.at(side), block,
                 [=](const CellInfo&, int, int) { return time_us; });
  }

  /// On a busy machine: each iteration takes what a rank waits for a core besides.
  void waited(std::size_t side, int block, double quiet_us, double waited_us) {
    const auto start = make_start(plan_.groups.at(side).id, block);
    const auto row = store_.begin_launch(plan_.run.id, start);
    constexpr int kIterations = 10;
    auto files = make_records(plan_.cells, start.group_id, start.uuid, 2, kIterations,
                              [=](const CellInfo&, int, int) { return quiet_us + waited_us; });
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (auto& record : files[rank].records)
        if (auto* cell = std::get_if<CellRecord>(&record))
          cell->measured.waited_us.assign(kIterations, rank == 0 ? waited_us : 0);
    auto end = make_end();
    end.noise_flags_json = kBusy;
    store_.finish_launch(row, end, files);
  }

  void failed(std::size_t side, int block, LaunchStatus status, const std::string& reason,
              const std::string& flags = "[]") {
    const auto row = store_.begin_launch(plan_.run.id, make_start(plan_.groups.at(side).id, block));
    auto end = make_end(status, reason);
    end.noise_flags_json = flags;
    store_.finish_launch(row, end, {});
  }

  static constexpr const char* kBusy = R"x(["others used the CPUs: 90 % (limit 25 %)"])x";

  ProofResult judged() {
    store_.end_run(plan_.run.id, "complete");
    ProofResult asked;
    asked.cause = "small-shm";
    asked.timeout_s = 10;
    asked.before.environment = "as-it-is";
    asked.after.environment = "as-it-is-fixed";
    asked.before.asked = asked.after.asked = "cma";
    return judge_proof(Reader(folder_.file("p.sqlite")), plan_.run.id, asked);
  }

 private:
  ScratchFolder folder_;
  Store store_;
  SyntheticPlan plan_;
};

constexpr std::size_t kBefore = 0;
constexpr std::size_t kAfter = 1;

}  // namespace

TEST_CASE("a fix that halves the time is FASTER with an interval") {
  StoredProof proof;
  for (int block = 0; block < 4; ++block) {
    proof.took(kBefore, block, 1000 + block);
    proof.took(kAfter, block, 500 + 2 * block);
  }
  const auto result = proof.judged();
  CHECK(result.verdict == Verdict::faster);
  REQUIRE(result.ratio.interval);
  CHECK(result.ratio.interval->low < 0.5);
  CHECK(result.ratio.interval->high < 0.6);
  CHECK(result.before.launches == 4);
  CHECK_THAT(to_text(result), ContainsSubstring("proof: FASTER, fixed / as it is 0.50"));
}

TEST_CASE("a fix that changes nothing is SAME, and one that harms is SLOWER") {
  StoredProof same;
  StoredProof harm;
  for (int block = 0; block < 4; ++block) {
    same.took(kBefore, block, 1000 + block);
    same.took(kAfter, block, 1001 + block);
    harm.took(kBefore, block, 1000 + block);
    harm.took(kAfter, block, 1500 + block);
  }
  CHECK(same.judged().verdict == Verdict::same);
  CHECK(harm.judged().verdict == Verdict::slower);
}

TEST_CASE("what ranks waited for a core proves no fix") {
  StoredProof explained;
  StoredProof fixed;
  for (int block = 0; block < 4; ++block) {
    explained.waited(kBefore, block, 1000 + block, 3000);
    explained.waited(kAfter, block, 1000 + block, 100);
    fixed.waited(kBefore, block, 1000 + block, 300);
    fixed.waited(kAfter, block, 300 + block, 200);
  }
  const auto open = explained.judged();
  CHECK(open.verdict == Verdict::not_judged);
  CHECK_THAT(to_text(open), ContainsSubstring("proof: NOT JUDGED") &&
                                ContainsSubstring("ranks waited for a core 75 % of the time in "
                                                  "as-it-is, 9 % in as-it-is-fixed"));
  const auto proved = fixed.judged();
  CHECK(proved.verdict == Verdict::faster);
  CHECK_THAT(proved.note, ContainsSubstring("at most 0.5"));
}

TEST_CASE("launches that a busy machine may have kept from ending prove no fix") {
  StoredProof proof;
  for (int block = 0; block < 3; ++block) {
    proof.failed(kBefore, block, LaunchStatus::timed_out, "no end after 10 s", StoredProof::kBusy);
    proof.took(kAfter, block, 500);
  }
  const auto result = proof.judged();
  CHECK(result.verdict == Verdict::not_judged);
  CHECK(result.note == "before, none of 3 launches came to an end within 10 s on a busy machine");
}

TEST_CASE("launches that never ended before and do after are FASTER, and it is said why") {
  StoredProof proof;
  for (int block = 0; block < 3; ++block) {
    proof.failed(kBefore, block, LaunchStatus::timed_out, "no end after 10 s");
    proof.took(kAfter, block, 500);
  }
  const auto result = proof.judged();
  CHECK(result.verdict == Verdict::faster);
  CHECK_FALSE(result.ratio.interval);
  CHECK(result.note == "before, none of 3 launches came to an end within 10 s");
  CHECK_THAT(to_text(result), ContainsSubstring("no time (0 launches, 3 failed"));
}

TEST_CASE("a fixed profile that does not run either proves nothing") {
  StoredProof broken;
  StoredProof partly;
  for (int block = 0; block < 3; ++block) {
    broken.failed(kBefore, block, LaunchStatus::failed, "aborted");
    broken.failed(kAfter, block, LaunchStatus::failed, "aborted too");
    partly.failed(kBefore, block, LaunchStatus::failed, "aborted");
    if (block == 0)
      partly.failed(kAfter, block, LaunchStatus::failed, "aborted too");
    else
      partly.took(kAfter, block, 500);
  }
  const auto result = broken.judged();
  CHECK(result.verdict == Verdict::unclear);
  CHECK(result.note == "no launch of the fixed profile ended well: aborted too");
  CHECK(partly.judged().verdict == Verdict::unclear);
}

TEST_CASE("launches that fail after the fix leave the verdict open, however fast the others are") {
  StoredProof half;
  StoredProof better;
  for (int block = 0; block < 6; ++block) {
    half.took(kBefore, block, 1000 + block);
    better.took(kAfter, block, 500 + block);
    if (block % 2 == 0) {
      half.took(kAfter, block, 500 + block);
      better.took(kBefore, block, 1000 + block);
    } else {
      half.failed(kAfter, block, LaunchStatus::failed, "rank 1 aborted");
      better.failed(kBefore, block, LaunchStatus::failed, "rank 1 aborted");
    }
  }
  const auto open = half.judged();
  CHECK(open.verdict == Verdict::unclear);
  REQUIRE(open.ratio.interval);
  CHECK(open.ratio.interval->high < 0.98);
  CHECK(open.note == "fixed, 3 of 6 launches failed: rank 1 aborted, so the fix is not proved");
  const auto proved = better.judged();
  CHECK(proved.verdict == Verdict::faster);
  CHECK(proved.note == "before, 3 of 6 launches failed: rank 1 aborted");
}

TEST_CASE("the doctor gives no all-clear for backends that did not run") {
  Diagnosis diagnosis;
  BackendLook nccl;
  nccl.backend = Backend::nccl;
  nccl.impossible = "nccl needs an NVIDIA GPU";
  diagnosis.symptoms.looks = {nccl};
  const auto nothing_ran = to_text(diagnosis);
  CHECK_THAT(nothing_ran, ContainsSubstring("no backend ran in it: what slows it is not known"));
  CHECK_THAT(nothing_ran, !ContainsSubstring("nothing found"));
  BackendLook gloo;
  gloo.backend = Backend::gloo;
  diagnosis.symptoms.looks = {gloo, nccl};
  CHECK_THAT(to_text(diagnosis), ContainsSubstring("nothing found that slows gloo in it"));
  diagnosis.symptoms.looks = {gloo};
  CHECK_THAT(to_text(diagnosis), ContainsSubstring("nothing found that slows it"));
  diagnosis.symptoms.looks.clear();
  CHECK_THAT(to_text(diagnosis), ContainsSubstring("no backend ran in it"));
}

TEST_CASE("the doctor says what a busy machine keeps it from knowing") {
  Diagnosis diagnosis;
  diagnosis.symptoms.profile.name = "single-docker";
  BackendLook look;
  look.backend = Backend::mpich;
  look.failure = "no end after 15 s";
  look.unjudged = "not judged: no end within 15 s on a busy machine (others used the CPUs)";
  diagnosis.symptoms.looks.push_back(look);
  look.failure.clear();
  look.used = "cma";
  look.unjudged = "page faults of large calls are not judged: no end within 15 s";
  diagnosis.symptoms.looks.push_back(look);
  const auto text = to_text(diagnosis);
  CHECK_THAT(text, ContainsSubstring("mpich: not judged: no end within 15 s on a busy machine") &&
                       ContainsSubstring("; page faults of large calls are not judged") &&
                       !ContainsSubstring("its launch failed"));
}

TEST_CASE("the doctor says how it knows which way the bytes took") {
  Diagnosis diagnosis;
  diagnosis.symptoms.profile.name = "single-docker";
  BackendLook look;
  look.asked = "cma";
  look.used = "cma, tcp";
  look.used_evidence = "process_vm_readv moved the payload";
  diagnosis.symptoms.looks.push_back(look);
  CHECK(look.moved_by("tcp"));
  CHECK_FALSE(look.moved_by("shm"));
  CHECK_THAT(to_text(diagnosis),
             ContainsSubstring("openmpi: transport cma, tcp, asked was cma (process_vm_readv moved "
                               "the payload); regime"));
  for (int i = 0; i < 40; ++i) diagnosis.symptoms.looks[0].used_evidence += " and more";
  // Whole, however long: the terminal's width is that of the output.
  CHECK_THAT(to_text(diagnosis),
             ContainsSubstring(diagnosis.symptoms.looks[0].used_evidence + "); regime"));
  CHECK(to_json(diagnosis)["backends"][0]["evidence"].get<std::string>().size() > 300);
}
