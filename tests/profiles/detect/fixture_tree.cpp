#include "tests/profiles/detect/fixture_tree.hpp"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dynamiccl::test {
namespace {

std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char next = text[++i];
    if (next == 'x') {
      result += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      result += next == 'n' ? '\n' : next == 't' ? '\t' : next;
    }
  }
  return result;
}

class RecordedLive final : public LiveSystem {
 public:
  explicit RecordedLive(nlohmann::json recorded) : recorded_(std::move(recorded)) {}

  [[nodiscard]] Known<CmaTest> cma() const override {
    if (!recorded_.contains("cma")) return LiveSystem::cma();
    const auto& cma = recorded_["cma"];
    return {CmaTest{cma.at("allowed"), cma.at("outcome")}, ""};
  }
  [[nodiscard]] Known<FilesystemFacts> filesystem(const std::string& path) const override {
    if (!recorded_.contains("shm")) return LiveSystem::filesystem(path);
    const auto& shm = recorded_["shm"];
    return {FilesystemFacts{shm.at("device"), Bytes(shm.at("size_bytes").get<std::uint64_t>()),
                            Bytes(shm.at("free_bytes").get<std::uint64_t>()), shm.at("writable")},
            ""};
  }
  [[nodiscard]] Known<std::vector<std::pair<std::string, std::string>>> environment()
      const override {
    if (!recorded_.contains("environment")) return LiveSystem::environment();
    std::vector<std::pair<std::string, std::string>> variables;
    for (const auto& [name, value] : recorded_["environment"].items())
      variables.emplace_back(name, value);
    return {variables, ""};
  }
  [[nodiscard]] Known<nlohmann::json> gpus() const override {
    if (!recorded_.contains("gpus")) return LiveSystem::gpus();
    return {recorded_["gpus"], ""};
  }

 private:
  nlohmann::json recorded_;
};

}  // namespace

FixtureTree::FixtureTree(const std::string& name) {
  static std::atomic<int> counter{0};
  path_ = std::filesystem::temp_directory_path() /
          ("dynamiccl-tree-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
  std::ifstream file(DYNAMICCL_SOURCE_DIR "/tests/profiles/fixtures/" + name + ".tree");
  if (!file) throw std::runtime_error("no fixture tree " + name);
  std::filesystem::create_directories(path_);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string kind;
    std::string where;
    words >> kind >> where;
    std::string rest;
    std::getline(words >> std::ws, rest);
    const std::filesystem::path target = path_ / where.substr(1);
    std::filesystem::create_directories(target.parent_path());
    if (kind == "link")
      std::filesystem::create_symlink(rest, target);
    else
      std::ofstream(target, std::ios::binary) << unescaped(rest);
  }
}

FixtureTree::~FixtureTree() { std::filesystem::remove_all(path_); }

nlohmann::json FixtureTree::facts(const Declarations& declared) const {
  const auto live = recorded_live_system(path_);
  const ProbeRoot root(path_.string());
  return run_probes({root, *live, declared});
}

nlohmann::json FixtureTree::host_facts() const {
  const auto live = recorded_live_system(path_);
  const ProbeRoot root(path_.string());
  const Declarations nothing_declared;
  return run_probes({root, *live, nothing_declared}, true);
}

std::unique_ptr<LiveSystem> recorded_live_system(const std::filesystem::path& tree) {
  std::ifstream file(tree / "live.json");
  if (!file) return std::make_unique<LiveSystem>();
  auto recorded = nlohmann::json::parse(file, nullptr, false);
  if (!recorded.is_object()) return std::make_unique<LiveSystem>();
  return std::make_unique<RecordedLive>(std::move(recorded));
}

}  // namespace dynamiccl::test
