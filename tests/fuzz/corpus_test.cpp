// Every reader on the kept corpus and on damaged copies of it: no crash, no exception but an Error
// that is no bug. Long runs that look for new paths: scripts/fuzz.sh.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/database_target.hpp"
#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

using namespace dynamiccl::fuzz;
namespace fs = std::filesystem;

namespace {

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> corpus_of(const Target& target) {
  auto inputs = made_seeds(target.name);
  if (!inputs.empty()) return inputs;
  const fs::path folder = fs::path(DYNAMICCL_SOURCE_DIR "/tests/fuzz/corpus") / target.name;
  for (const auto& entry : fs::directory_iterator(folder)) {
    inputs.push_back(text_of_file(entry.path()));
  }
  return inputs;
}

/// One of the usual damages: bytes changed, cut, doubled, or joined with another input.
void damage(std::string& text, const std::vector<std::string>& others, std::mt19937& random) {
  const auto place = [&] { return text.empty() ? 0 : random() % text.size(); };
  switch (random() % 6) {
    case 0:
      if (!text.empty()) text[place()] = static_cast<char>(random());
      break;
    case 1:
      text.erase(place(), random() % 32);
      break;
    case 2:
      text.insert(place(), text.substr(place(), random() % 64));
      break;
    case 3:
      text.resize(place());
      break;
    case 4:
      text += others[random() % others.size()];
      break;
    default:
      text.insert(place(), std::string(random() % 3000, static_cast<char>(random())));
  }
}

}  // namespace

TEST_CASE("readers refuse damaged inputs with a sentence", "[safety]") {
  constexpr int kDamagedCopies = 300;
  for (const auto& target : targets()) {
    const auto inputs = corpus_of(target);
    REQUIRE_FALSE(inputs.empty());
    std::mt19937 random(11);
    for (const auto& input : inputs) try_input(target, input);
    for (int i = 0; i < kDamagedCopies; ++i) {
      auto input = inputs[random() % inputs.size()];
      for (auto damages = random() % 4 + 1; damages > 0; --damages) damage(input, inputs, random);
      INFO(target.name << ":\n" << input);
      CHECK_NOTHROW(try_input(target, input));
    }
  }
}

TEST_CASE("kept databases of somebody else are refused or read in every way", "[safety]") {
  for (const auto& target : targets()) {
    if (target.name != "database") continue;
    for (const auto& input : corpus_of(target))
      for (std::size_t way = 0; way < kDatabaseWays; ++way) {
        INFO(way << ":\n" << input);
        CHECK_NOTHROW(read_database(input, way));
      }
  }
}
