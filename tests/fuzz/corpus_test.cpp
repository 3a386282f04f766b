// Every reader on the kept corpus and on damaged copies of it: no crash, no exception but an Error
// that is no bug. Long runs that look for new paths: scripts/fuzz.sh.

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/targets.hpp"
#include "tuner/control/region.hpp"
#include "tuner/control/wire.hpp"

using namespace dynamiccl::fuzz;
using dynamiccl::WireHeader;
namespace fs = std::filesystem;

namespace {

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A region is memory of this build: made here, not kept.
std::string made_region() {
  std::string folder = (fs::temp_directory_path() / "corpus-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  dynamiccl::Region::Spec spec;
  spec.communicator = 7;
  spec.ranks = 2;
  std::string problem;
  std::string text;
  if (dynamiccl::Region::open_or_make(folder, spec, problem) != nullptr)
    text = text_of_file(dynamiccl::Region::path_of(folder, spec.communicator));
  fs::remove_all(folder);
  return text;
}

/// Neither are messages.
std::string made_messages() {
  std::string text;
  for (const char* facts : {"", R"({"rank":1,"system":{"boot_id":"b"},"process":{"pid":7}})"}) {
    WireHeader header;
    if (*facts != '\0') header.kind = WireHeader::Kind::facts;
    header.text_bytes = static_cast<std::uint32_t>(std::strlen(facts));
    text.append(reinterpret_cast<const char*>(&header), sizeof(header));
    text += facts;
  }
  return text;
}

std::vector<std::string> corpus_of(const Target& target) {
  if (std::string_view(target.name) == "region") return {made_region()};
  if (std::string_view(target.name) == "relay-messages") return {made_messages()};
  std::vector<std::string> inputs;
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
