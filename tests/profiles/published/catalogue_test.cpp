#include "profiles/published/catalogue.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <map>
#include <set>

#include "core/training/training.hpp"
#include "profiles/strict_toml.hpp"

using namespace dynamiccl;

namespace {

const std::string kCatalogue = DYNAMICCL_SOURCE_DIR "/profiles/published/catalogue.toml";

}  // namespace

TEST_CASE("the catalogue has what the checklist wants catalogued", "[C-09][C-10][C-16][C-40]") {
  std::map<std::string, std::set<std::string>> names;
  for (const auto& entry : parse_catalogue(read_input_file(kCatalogue), kCatalogue))
    names[entry.requirement].insert(entry.name);
  using Names = std::set<std::string>;
  CHECK(names["C-09"] == Names{"TCP, ZeroMQ style", "RDMA"});
  CHECK(names["C-10"] == Names{"BytePS", "Horovod"});
  CHECK(names["C-16"] == Names{"FSDP"});
  CHECK(names["C-40"] == Names{"MPI", "Gloo", "Horovod", "NCCL"});
  CHECK(names["C-41"] == Names{"MSCCLang"});
  CHECK(names["C-42"] == Names{"BlueConnect", "Blink", "Plink"});
  CHECK(names["C-43"] == Names{"SparcML", "OmniReduce", "Ok-Topk", "CommLib", "DeepReduce"});
  CHECK(names["C-44"] == Names{"SCCL", "TACCL"});
  CHECK(names["C-53"] == Names{"GRID", "GOAT"});
  CHECK(names["C-57"].size() == 2);
}

TEST_CASE(
    "architectures and algorithms of the surveys are catalogued, and what does not run says so",
    "[D-08]") {
  std::map<std::string, std::set<std::string>> names;
  for (const auto& entry : parse_catalogue(read_input_file(kCatalogue), kCatalogue)) {
    names[entry.requirement].insert(entry.name);
    INFO(entry.kind << " " << entry.name);
    const bool absent = entry.kind == "training architecture" || entry.kind == "scheduling" ||
                        entry.kind == "gossip algorithm";
    if (!absent) continue;
    CHECK(entry.here.empty());
    CHECK((entry.note.find("not run here") != std::string::npos ||
           entry.note.find("not simulated here") != std::string::npos));
  }
  using Names = std::set<std::string>;
  CHECK(names["D-08"] ==
        Names{"DistBelief", "GeePS", "AdaPS", "BytePS", "switch-assisted aggregation"});
  CHECK(names["D-09"] == Names{"Gossip-SGD", "Gossip-Push", "SGP", "Gossip-PGD", "CHOCO-SGD",
                               "ECD-PSGD", "DCD-PSGD", "D-PSGD", "D2"});
  for (const char* row : {"D-06", "D-07", "D-51", "D-52"}) CHECK(names[row].size() == 1);
}

TEST_CASE("what the catalogue says is run here bears the names under which it is run") {
  const auto entries = parse_catalogue(read_input_file(kCatalogue), kCatalogue);
  const auto here = [&](const char* name) {
    return std::find_if(entries.begin(), entries.end(),
                        [&](const auto& entry) { return entry.name == name; })
        ->here;
  };
  for (const auto& method : all_names<TrainingMethod>()) {
    if (method == "ddp") continue;  // PyTorch's own engine: neither framework
    const auto architecture = architecture_of(*find_named<TrainingMethod>(method));
    const auto text = here(architecture == Architecture::ps ? "BytePS" : "Horovod");
    CHECK(text.find(method) != std::string::npos);
  }
  const std::string backends = here("MPI") + here("Gloo") + here("NCCL");
  for (const auto& backend : all_names<Backend>())
    CHECK(backends.find(backend) != std::string::npos);
}

TEST_CASE("mistakes of a catalogue are named with their place") {
  using Catch::Matchers::Message;
  const std::string entry =
      "[[entry]]\nname = \"a\"\nkind = \"library\"\nfamily = \"b\"\nrequirement = \"C-40\"\n";
  CHECK_THROWS_MATCHES(parse_catalogue(entry + entry, "c.toml"), Error,
                       Message("c.toml:7:8: library \"a\" is listed twice"));
  CHECK_THROWS_AS(parse_catalogue("[[entry]]\nname = \"a\"\n", "c.toml"), Error);
  CHECK_THROWS_AS(parse_catalogue(entry + "nmae = \"b\"\n", "c.toml"), Error);
  CHECK_THROWS_AS(parse_catalogue("", "c.toml"), Error);
}
