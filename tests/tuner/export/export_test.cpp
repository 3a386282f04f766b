#include "tuner/export/export.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tuner/table/joint_choice.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

TableEntry entry(Backend backend, Collective collective, std::uint64_t size, ActionSettings setting,
                 double ratio = 0.5, int ranks = 4) {
  TableEntry made;
  made.key = {"r1", {collective, SizeBin::of(Bytes(size)), ranks, 1, Architecture::ring, backend}};
  made.size = Bytes(size);
  made.setting = std::move(setting);
  made.evidence.default_us = 100;
  made.evidence.tuned_us = 100 * ratio;
  return made;
}

ConfigurationTable table_of(const std::vector<TableEntry>& entries) {
  ConfigurationTable table;
  table.put_regime({"r1", "cross-docker / apart", {}});
  for (const TableEntry& one : entries) table.put(one);
  return table;
}

const std::map<std::string, std::string> kThread{{"env.NCCL_SOCKET_NTHREADS", "1"}};

ActionSettings nccl(int channels, std::map<std::string, std::string> launch = kThread) {
  return {"library", {{"channels", std::to_string(channels)}}, std::move(launch)};
}

std::string text_of(const Export& made, const std::string& name) {
  for (const ExportedFile& file : made.files)
    if (file.name == name) return file.text;
  return "no file " + name;
}

}  // namespace

TEST_CASE("NCCL gets caps per size under one ceiling, for all sizes in between", "[E-125]") {
  const auto table =
      table_of({entry(Backend::nccl, Collective::allreduce, 1 << 10, nccl(2), 1.0),
                entry(Backend::nccl, Collective::allreduce, 1 << 18, nccl(1)),
                entry(Backend::nccl, Collective::allreduce, 1 << 26,
                      {"ring", {{"protocol", "Simple"}, {"channels", "16"}}, kThread}, 0.2)});
  const Export made =
      export_table(table, ExportFormat::nccl, {.folder = "/tuned", .plugin = "/lib/plugin.so"});
  const std::string conf = text_of(made, "nccl.conf");
  CHECK(conf.find("NCCL_MIN_CTAS=16\n") != std::string::npos);
  CHECK(conf.find("NCCL_SOCKET_NTHREADS=1\n") != std::string::npos);
  CHECK(conf.find("NCCL_TUNER_PLUGIN=/lib/plugin.so\n") != std::string::npos);
  CHECK(conf.find("DYNAMICCL_TUNER_TABLE=/tuned/nccl.table\n") != std::string::npos);
  std::string problem;
  const auto rows = call_table_from_text(text_of(made, "nccl.table"), problem).rows;
  CHECK(problem.empty());
  const CallTable calls = table_for(rows, 4, 4);
  CHECK(calls.cells[4][0].channels == 2);
  CHECK(calls.cells[4][14] == CallCell{CallCell::kAny, CallCell::kAny, 2, 0});
  CHECK(calls.cells[4][15].channels == 1);
  CHECK(calls.cells[4][22].channels == 1);
  CHECK(calls.cells[4][26] == CallCell{1, 2, 16, 0});
  // Ground that was not measured is NCCL's, capped.
  CHECK(calls.cells[4][23] == CallCell{CallCell::kAny, CallCell::kAny, 16, 0});
  CHECK(calls.cells[4][40] == CallCell{CallCell::kAny, CallCell::kAny, 16, 0});
  // Collectives without rows stay below the ceiling as well.
  CHECK(calls.cells[2][26].channels == 16);
  CHECK(calls.cells[2][26].algorithm == CallCell::kAny);
  CHECK(table_for(rows, 2, 1).cells[4][26].leaves_all());
}

TEST_CASE("what a table itself calls slower is not exported", "[E-125]") {
  TableEntry good = entry(Backend::openmpi, Collective::allreduce, 1 << 18, {"ring", {}, {}});
  TableEntry bad = entry(Backend::openmpi, Collective::broadcast, 1 << 18, {"binomial", {}, {}});
  bad.evidence.verdict = "SLOWER";
  const Export made = export_table(table_of({good, bad}), ExportFormat::openmpi, {});
  CHECK(made.notes.front() == "1 of 2 rows are left out: the table itself calls them SLOWER");
  // Ring is Open MPI's fourth all-reduce, binomial its sixth broadcast.
  CHECK_THAT(text_of(made, "openmpi.rules"), ContainsSubstring("\n262144 4 "));
  CHECK(text_of(made, "openmpi.rules").find("\n262144 6 ") == std::string::npos);
  CHECK_THROWS_WITH(export_table(table_of({bad}), ExportFormat::openmpi, {}),
                    ContainsSubstring("nothing to load"));
  // A file of variables without any says that there is none.
  CHECK_THROWS_WITH(export_table(table_of({good}), ExportFormat::environment, {}),
                    ContainsSubstring("no rows of NCCL"));
}

TEST_CASE("NCCL's table says for whom it was made", "[E-127]") {
  const auto made_in = [](const char* link, const nlohmann::json& apart) {
    auto table = table_of({entry(Backend::nccl, Collective::allreduce, 1 << 26, nccl(16))});
    table.regimes.front().json = {
        {"ingredients", {{"intra_link", link}, {"apart", apart}, {"library", "nccl-2.28"}}}};
    std::string problem;
    const CallTableFile file = call_table_from_text(
        text_of(export_table(table, ExportFormat::nccl, {}), "nccl.table"), problem);
    CHECK(problem.empty());
    CHECK(file.origin.nccl == "2.28");
    REQUIRE(!file.rows.empty());
    for (const CallRow& row : file.rows) CHECK(row.ranks == 4);
    return file.rows.front().nodes;
  };
  // Ranks that share nothing and have host names of their own are nodes to NCCL.
  CHECK(made_in("none", {"net", "ipc", "uts"}) == 4);
  CHECK(made_in("nvlink", nlohmann::json::array()) == 1);
  // P2P and shared memory switched off: NCCL may count one node, or several.
  CHECK(made_in("none", nlohmann::json::array()) == 0);
  CHECK(made_in("unknown", {"uts"}) == 0);
}

TEST_CASE("settings of ranks that a library makes one host bring its lines and its mount") {
  // As `tune -- COMMAND` leaves them: the folder and the library of the search.
  const std::map<std::string, std::string> chosen{
      {"env.LD_PRELOAD", "/opt/libdynamiccl-onehost.so"},
      {"env.DYNAMICCL_SHARED_FOLDER", "/dev/shm/tuned/one-host"}};
  const auto table = table_of(
      {entry(Backend::nccl, Collective::allreduce, 1 << 26, {"library", {}, chosen}, 0.2)});
  ExportOptions options{.folder = "/tuned", .plugin = "/opt/plugin.so"};
  Export made = export_table(table, ExportFormat::nccl, options);
  std::string conf = text_of(made, "nccl.conf");
  CHECK(conf.find("DYNAMICCL_SHARED_FOLDER=/dev/shm/tuned/one-host\n") != std::string::npos);
  // The loader reads no file of NCCL's.
  CHECK(conf.find("LD_PRELOAD") == std::string::npos);
  REQUIRE(made.use.size() == 3);
  CHECK(made.use[0].find("mkdir -p -m 700 /dev/shm/tuned/one-host     # ") != std::string::npos);
  CHECK(made.use[1].find("--volume /dev/shm/tuned/one-host:/dev/shm/tuned/one-host --volume "
                         "/opt/libdynamiccl-onehost.so:/opt/libdynamiccl-onehost.so:ro") !=
        std::string::npos);
  CHECK(made.use[2].starts_with(
      "LD_PRELOAD=/opt/libdynamiccl-onehost.so NCCL_CONF_FILE=/tuned/nccl.conf"));
  // What is typed literally does what it says.
  options.shared_folder = "/run/my job:2";
  CHECK(export_table(table, ExportFormat::nccl, options)
            .use[1]
            .find("--mount 'type=bind,source=/run/my job:2,target=/run/my job:2'") !=
        std::string::npos);
  options.shared_folder = "/run/mine";
  const auto variables =
      text_of(export_table(table, ExportFormat::environment, options), "nccl.env");
  CHECK(variables.find("DYNAMICCL_SHARED_FOLDER=/run/mine\n") != std::string::npos);
  CHECK(variables.find("LD_PRELOAD=/opt/libdynamiccl-onehost.so\n") != std::string::npos);
}

TEST_CASE("rows measured by ranks that were made one host are exported with what made them so") {
  auto measured =
      table_of({entry(Backend::nccl, Collective::allreduce, 1 << 26, nccl(16, {}), 0.2)});
  const auto made_by = [&](const nlohmann::json& regime) {
    measured.regimes.front().json = regime;
    return export_table(measured, ExportFormat::nccl, {.folder = "/tuned", .plugin = "/p/p.so"});
  };
  Export made = made_by({{"one_host", "library"}});
  std::string conf = text_of(made, "nccl.conf");
  CHECK(conf.find("DYNAMICCL_SHARED_FOLDER=/run/job\n") != std::string::npos);
  CHECK(conf.find("NCCL_TUNER_PLUGIN=/p/p.so\n") == conf.rfind("NCCL_TUNER_PLUGIN"));
  CHECK(made.use.back().starts_with("LD_PRELOAD=/p/libdynamiccl-onehost.so "));
  CHECK(made.use[1].find("--volume /dev/shm/job:/run/job ") != std::string::npos);
  made = made_by({{"one_host", "settings"}});
  conf = text_of(made, "nccl.conf");
  for (const char* line : {"NCCL_HOSTID=one-host\n", "NCCL_P2P_DISABLE=1\n",
                           "NCCL_CUMEM_HOST_ENABLE=0\n", "NCCL_NVLS_ENABLE=0\n"})
    CHECK(conf.find(line) != std::string::npos);
  CHECK(made.use[1].find("--volume /dev/shm/job:/dev/shm ") != std::string::npos);
  CHECK(std::any_of(made.notes.begin(), made.notes.end(), [](const std::string& note) {
    return note.find("a name of its own") != std::string::npos;
  }));
  for (const nlohmann::json& none : {nlohmann::json{{"one_host", "unknown"}},
                                     nlohmann::json{{"one_host", 7}}, nlohmann::json::object()}) {
    made = made_by(none);
    CHECK(text_of(made, "nccl.conf").find("SHARED_FOLDER") == std::string::npos);
    CHECK(made.use.size() == 1);
  }
}

TEST_CASE("of several launch settings the one that gains most is exported, and it is said",
          "[E-125]") {
  const auto table =
      table_of({entry(Backend::nccl, Collective::allreduce, 1 << 10, nccl(1, {}), 0.9),
                entry(Backend::nccl, Collective::allreduce, 1 << 26, nccl(8), 0.2)});
  const NcclExport settings = nccl_settings(table.entries);
  CHECK(settings.environment.at("NCCL_SOCKET_NTHREADS") == "1");
  REQUIRE(settings.notes.size() >= 1);
  CHECK(settings.notes[0].find("1 rows want other launch settings") != std::string::npos);
}

TEST_CASE("Open MPI's rules name algorithms by number and end behind their ranks", "[E-125]") {
  const auto table = table_of(
      {entry(Backend::openmpi, Collective::allreduce, 1 << 10, {"recursive_doubling", {}, {}}),
       entry(Backend::openmpi, Collective::allreduce, 1 << 20,
             {"segmented_ring", {{"coll_tuned_allreduce_algorithm_segmentsize", "131072"}}, {}}),
       entry(Backend::openmpi, Collective::broadcast, 1 << 20,
             {"chain",
              {{"coll_tuned_bcast_algorithm_segmentsize", "8192"},
               {"coll_tuned_bcast_algorithm_chain_fanout", "2"}},
              {{"mca.btl_tcp_sndbuf", "0"}}}),
       entry(Backend::openmpi, Collective::allgather, 1 << 20, {"own_ring", {}, {}})});
  const Export made = export_table(table, ExportFormat::openmpi, {.folder = "/tuned"});
  CHECK(text_of(made, "openmpi.rules") ==
        "3 # collectives\n"
        "0 # allgather\n3 # communicator sizes\n"
        "1 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "4 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "5 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "2 # allreduce\n3 # communicator sizes\n"
        "1 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "4 # ranks\n5 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "1024 3 0 0 # from bytes, algorithm, fan-out, segment\n"
        "1025 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "1048576 5 0 131072 # from bytes, algorithm, fan-out, segment\n"
        "1048577 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "5 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "7 # broadcast\n3 # communicator sizes\n"
        "1 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "4 # ranks\n3 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "1048576 2 2 8192 # from bytes, algorithm, fan-out, segment\n"
        "1048577 0 0 0 # from bytes, algorithm, fan-out, segment\n"
        "5 # ranks\n1 # message sizes\n0 0 0 0 # from bytes, algorithm, fan-out, segment\n");
  CHECK(text_of(made, "openmpi.env").find("OMPI_MCA_btl_tcp_sndbuf=0\n") != std::string::npos);
  REQUIRE(made.notes.size() == 2);
  CHECK(made.notes[0].find("not checked") != std::string::npos);
  CHECK(made.notes[1].find("own_ring") != std::string::npos);
}

TEST_CASE("Open MPI's rules hold to a check, and lose what was surely slower in it", "[E-125]") {
  auto table =
      table_of({entry(Backend::openmpi, Collective::broadcast, 1 << 16, {"chain", {}, {}}),
                entry(Backend::openmpi, Collective::broadcast, 1 << 20, {"chain", {}, {}})});
  const auto check = [&](std::uint64_t size, double ratio) {
    table.checks.push_back(
        entry(Backend::openmpi, Collective::broadcast, size, {"chain", {}, {}}, ratio));
    table.checks.back().evidence.ratio = ratio;
    table.checks.back().evidence.ratio_low = ratio - 0.01;
    table.checks.back().evidence.ratio_high = ratio + 0.01;
    table.checks.back().evidence.verdict = ratio > 1.1 ? "SLOWER" : "UNCLEAR";
  };
  check(1 << 16, 1.2);
  check(1 << 20, 0.6);
  const auto rules = text_of(export_table(table, ExportFormat::openmpi, {}), "openmpi.rules");
  CHECK(rules.find("1048576 2 0 0 #") != std::string::npos);
  CHECK(rules.find("65536 2 0 0 #") == std::string::npos);
  table.checks.clear();
  check(1 << 16, 1.2);
  table.checks.push_back(entry(Backend::openmpi, Collective::broadcast, 1 << 20, {}, 1.0));
  CHECK_THROWS_AS(export_table(table, ExportFormat::openmpi, {}), Error);
}

TEST_CASE("launch settings alone are exported, and fall with their algorithms where one loses",
          "[E-125]") {
  const std::map<std::string, std::string> eager{{"mca.btl_vader_eager_limit", "32768"}};
  auto table =
      table_of({entry(Backend::openmpi, Collective::broadcast, 1 << 16, {"library", {}, eager})});
  const auto check = [&](std::uint64_t size, const std::string& algorithm, const char* verdict) {
    table.checks.push_back(
        entry(Backend::openmpi, Collective::broadcast, size, {algorithm, {}, eager}, 1.05));
    table.checks.back().evidence.ratio = 1.05;
    table.checks.back().evidence.verdict = verdict;
  };
  check(1 << 12, "library", "UNCLEAR");  // seems slower, which is no loss
  check(1 << 16, "library", "FASTER");
  const Export made = export_table(table, ExportFormat::openmpi, {});
  CHECK(made.files.size() == 1);
  CHECK(text_of(made, "openmpi.env").find("OMPI_MCA_btl_vader_eager_limit=32768\n") !=
        std::string::npos);
  CHECK(text_of(made, "openmpi.env").find("dynamic_rules") == std::string::npos);
  check(1 << 18, "chain", "FASTER");
  CHECK(export_table(table, ExportFormat::openmpi, {}).files.size() == 2);
  // At which neither side worked: nothing is known of the settings.
  check(1 << 22, "library", "");
  table.checks.back().evidence.default_us = table.checks.back().evidence.ratio = 0;
  CHECK(export_table(table, ExportFormat::openmpi, {}).files.size() == 2);
  table.checks.back().evidence.default_us = 100;  // the default worked
  CHECK_THROWS_AS(export_table(table, ExportFormat::openmpi, {}), Error);
  table.checks.pop_back();
  check(1 << 20, "library", "SLOWER");
  // What chain does without the limit nobody measured.
  CHECK_THROWS_AS(export_table(table, ExportFormat::openmpi, {}), Error);
}

TEST_CASE("an MPICH variable is exported when it was checked over all sizes and loses at none",
          "[E-125]") {
  auto table = table_of(
      {entry(Backend::mpich, Collective::allreduce, 1 << 10, {"smp", {}, {}}, 0.9),
       entry(Backend::mpich, Collective::allreduce, 1 << 20, {"recursive_doubling", {}, {}}, 0.5)});
  CHECK_THROWS_AS(export_table(table, ExportFormat::mpich, {}), Error);
  const auto check = [&](std::uint64_t size, double ratio) {
    table.checks.push_back(
        entry(Backend::mpich, Collective::allreduce, size, {"recursive_doubling", {}, {}}, ratio));
    TableEvidence& evidence = table.checks.back().evidence;
    evidence.ratio = ratio;
    evidence.ratio_low = ratio - 0.01;
    evidence.ratio_high = ratio + 0.01;
    evidence.verdict = ratio > 1.1 ? "SLOWER" : "UNCLEAR";
  };
  check(1 << 10, 1.03);
  check(1 << 20, 0.5);
  CHECK(text_of(export_table(table, ExportFormat::mpich, {}), "mpich.env")
            .find("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling\n") != std::string::npos);
  check(1 << 16, 1.3);
  CHECK_THROWS_AS(export_table(table, ExportFormat::mpich, {}), Error);
}

TEST_CASE("the allocator's settings are exported for every CPU backend, one line for all") {
  const std::map<std::string, std::string> keep{{"malloc.keep", "1"}};
  const std::map<std::string, std::string> huge{{"malloc.huge_pages", "1"}, {"env.A", "2"}};
  const std::string both =
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
      "glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864\n";
  for (const Backend backend : {Backend::openmpi, Backend::mpich, Backend::gloo}) {
    const std::string name(name_of(backend));
    INFO(name);
    const auto table =
        table_of({entry(backend, Collective::allreduce, 1 << 10, {"library", {}, {}}, 1.0),
                  entry(backend, Collective::allreduce, 1 << 22, {"library", {}, huge}),
                  entry(backend, Collective::allreduce, 1 << 26, {"library", {}, keep})});
    const Export made = export_table(table, parse_named<ExportFormat>(name), {.folder = "/tuned"});
    const std::string text = text_of(made, name + ".env");
    CHECK(text.find(both) != std::string::npos);
    CHECK(text.find("A=2\n") != std::string::npos);
    REQUIRE(made.use.size() == 2);
    CHECK(made.use[0].find(backend == Backend::openmpi ? "mpirun -x A -x GLIBC_TUNABLES ..."
                                                       : " ...") != std::string::npos);
    CHECK(made.use[1] == "docker run --env-file /tuned/" + name + ".env ...");
    REQUIRE(made.notes.size() >= 2);
    CHECK(made.notes[made.notes.size() - 2].find("join the two") != std::string::npos);
    CHECK(made.notes.back().find("1 of 3 rows were chosen without them") != std::string::npos);
  }
  CHECK_THROWS_AS(export_table(table_of({entry(Backend::gloo, Collective::allreduce, 1 << 10, {})}),
                               ExportFormat::gloo, {}),
                  Error);
}

TEST_CASE("an export without rows or with an unclear regime says what is there", "[E-125]") {
  ConfigurationTable table = table_of({entry(Backend::gloo, Collective::allreduce, 1 << 10, {})});
  CHECK_THROWS_AS(export_table(table, ExportFormat::nccl, {}), Error);
  CHECK_THROWS_AS(export_table(table, ExportFormat::openmpi, {}), Error);
  CHECK_THROWS_AS(export_table(table, ExportFormat::mpich, {}), Error);
  table.put_regime({"r2", "bare-metal", {}});
  CHECK_THROWS_AS(export_table(table, ExportFormat::toml, {}), Error);
  const Export made = export_table(table, ExportFormat::toml, {.regime = "r1"});
  CHECK(text_of(made, "settings.toml").find("[[entry]]\nkey = \"gloo/ring/allreduce/2^10/r4n1\"") !=
        std::string::npos);
}

namespace {

void observe(std::vector<ScopedObservation>& all, std::uint64_t size, double us,
             const std::string& ctas, bool thread, int channels = 2) {
  ScopedObservation seen;
  seen.key = {"r1", {Collective::allreduce, {}, 4, 1, Architecture::ring, Backend::nccl}};
  seen.size = Bytes(size);
  if (!ctas.empty()) seen.setting.call_knobs = {{"max_ctas", ctas}, {"min_ctas", ctas}};
  if (thread) seen.setting.launch_knobs = kThread;
  seen.channels = channels;
  seen.median_us = us;
  all.push_back(seen);
}

}  // namespace

TEST_CASE("a table's settings bring no command and no line of their own into a job", "[safety]") {
  const auto exported = [](Backend backend, ExportFormat format, const std::string& name,
                           const std::string& value, const std::string& folder = "/tuned") {
    const auto table = table_of(
        {entry(backend, Collective::allreduce, 1 << 20, {"library", {}, {{name, value}}}, 0.5)});
    const Export made = export_table(table, format, {.folder = folder, .plugin = "/lib/p.so"});
    return made.files.front().text;
  };
  const std::vector<std::pair<Backend, ExportFormat>> files{
      {Backend::openmpi, ExportFormat::openmpi},
      {Backend::mpich, ExportFormat::mpich},
      {Backend::gloo, ExportFormat::gloo}};
  for (const auto& [backend, format] : files) {
    for (const char* value : {"1; touch x", "$(touch x)", "`touch x`", "a b", "1\nLD_PRELOAD=x.so",
                              "~root", "a#b", "\\", "\"1\"", "&"}) {
      INFO(value);
      CHECK_THROWS_WITH(exported(backend, format, "env.SOME", value),
                        ContainsSubstring("SOME") && ContainsSubstring("cannot stand"));
    }
    for (const char* name : {"env.A;touch x;B", "env.A B", "env.A\nB", "env.1A", "env.A=B"}) {
      INFO(name);
      CHECK_THROWS_WITH(exported(backend, format, name, "1"), ContainsSubstring("cannot stand"));
    }
    for (const char* value :
         {"", "self,tcp", "glibc.x=1:glibc.y=2", "/m\xc3\xbcll/x.so", "^ib", "50%"}) {
      INFO(value);
      CHECK_THAT(exported(backend, format, "env.SOME", value),
                 ContainsSubstring("\nSOME=" + std::string(value) + "\n"));
    }
  }
  CHECK_THROWS_WITH(exported(Backend::openmpi, ExportFormat::openmpi, "mca.btl x", "tcp"),
                    ContainsSubstring("OMPI_MCA_btl x"));
  // NCCL reads lines, a shell may read the other file, whose values are quoted.
  for (const auto format : {ExportFormat::nccl, ExportFormat::environment})
    CHECK_THROWS_WITH(exported(Backend::nccl, format, "env.NCCL_ALGO", "Ring\nNCCL_NET_PLUGIN=x"),
                      ContainsSubstring("control character"));
  CHECK_THAT(exported(Backend::nccl, ExportFormat::environment, "env.NCCL_ALGO", "$(touch x)"),
             ContainsSubstring("NCCL_ALGO='$(touch x)'\n"));
  ConfigurationTable named = table_of({entry(Backend::gloo, Collective::allreduce, 1 << 20,
                                             {"library", {}, {{"env.SOME", "1"}}}, 0.5)});
  named.put_regime({"r1", "pair\ntouch x", {}});
  CHECK_THAT(export_table(named, ExportFormat::gloo, {.folder = "/tuned"}).files.front().text,
             ContainsSubstring("pair touch x (r1)"));
}

TEST_CASE("launch and call settings are chosen together", "[E-125][E-135]") {
  std::vector<ScopedObservation> all;
  // The figures of socket transport: threads pay only with channels, and channels only for large
  // messages.
  for (const bool thread : {false, true}) {
    observe(all, 1 << 10, thread ? 61 : 60, "", thread);
    observe(all, 1 << 18, thread ? 250 : 260, "", thread);
    observe(all, 1 << 18, thread ? 225 : 300, "1", thread, 1);
    observe(all, 1 << 18, thread ? 1792 : 2000, "16", thread, 16);
    observe(all, 1 << 26, thread ? 11400 : 20200, "", thread);
    observe(all, 1 << 26, thread ? 5300 : 20500, "16", thread, 16);
  }
  const auto entries = choose_jointly(all);
  REQUIRE(entries.size() == 3);
  for (const TableEntry& one : entries) CHECK(one.setting.launch_knobs == kThread);
  CHECK(entries[0].setting.call_knobs.at("channels") == "2");
  CHECK(entries[0].flags.empty());
  CHECK(entries[1].setting.call_knobs.at("channels") == "1");
  CHECK(entries[2].setting.call_knobs.at("channels") == "16");
  CHECK(entries[2].evidence.default_us == 20200);
  CHECK(entries[2].evidence.tuned_us == 5300);
}

TEST_CASE("a launch setting that slows a guarded size is not taken", "[E-125]") {
  std::vector<ScopedObservation> all;
  observe(all, 1 << 18, 100, "", false);
  observe(all, 1 << 26, 1000, "", false);
  observe(all, 1 << 18, 150, "", true);
  observe(all, 1 << 26, 100, "", true);
  for (const TableEntry& one : choose_jointly(all)) CHECK(one.setting.launch_knobs.empty());
  // Below the guarded sizes it is taken, and the row says so.
  all[0].size = all[2].size = Bytes(1024);
  const auto entries = choose_jointly(all);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].setting.launch_knobs == kThread);
  CHECK(entries[0].flags == std::vector<std::string>{"launch_trade_off"});
  CHECK(entries[1].flags.empty());
  // A profile of small messages gives none of them away.
  const auto small = choose_jointly(all, {.largest = Bytes(4096)});
  REQUIRE(small.size() == 1);
  CHECK(small[0].setting.launch_knobs.empty());
  CHECK(small[0].flags.empty());
}
