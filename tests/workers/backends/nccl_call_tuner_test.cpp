// The trainer's side of the tuner plugin: the real plugin, asked as NCCL asks it.
#include <dlfcn.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "plugin/tuner/nccl_tuner_abi.hpp"
#include "workers/backends/nccl_call_tuner.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

CallShape shape_of(const char* algorithm, const char* protocol, const char* channels) {
  CallShape shape;
  shape.in_place = true;
  shape.algorithm = algorithm;
  if (*protocol != '\0') shape.knobs["protocol"] = protocol;
  if (*channels != '\0') shape.knobs["channels"] = channels;
  return shape;
}

/// A communicator's all-reduces as NCCL asks the plugin about them: ring and tree alone exist.
class AskedPlugin {
 public:
  AskedPlugin() {
    void* library = dlopen(DYNAMICCL_PLUGIN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    plugin_ = static_cast<const nccl_tuner::PluginV4*>(dlsym(library, "ncclTunerPlugin_v4"));
    REQUIRE(plugin_ != nullptr);
    plugin_->init(2, 1, nullptr, &context_);
  }
  ~AskedPlugin() { plugin_->destroy(context_); }
  AskedPlugin(const AskedPlugin&) = delete;
  AskedPlugin& operator=(const AskedPlugin&) = delete;

  /// @returns channels
  int call() {
    costs.fill(nccl_tuner::kIgnored);
    std::fill_n(costs.begin(), 6, 5.0F);
    int channels = 0;
    plugin_->get_coll_info(context_, 4, 1 << 20, 1, reinterpret_cast<float**>(costs.data()), 7, 3,
                           0, &channels);
    return channels;
  }
  std::array<float, 21> costs{};

 private:
  const nccl_tuner::PluginV4* plugin_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace

TEST_CASE("a trainer sets NCCL's all-reduces from call to call by the plugin", "[e-83]") {
  unsetenv("NCCL_TUNER_PLUGIN");
  NcclCallTuner tuner;
  CHECK(!tuner.loaded());
  CHECK(!tuner.clear());
  tuner.load(DYNAMICCL_PLUGIN_LIBRARY);
  REQUIRE(tuner.loaded());
  CHECK(std::string(std::getenv("NCCL_TUNER_PLUGIN")) == DYNAMICCL_PLUGIN_LIBRARY);
  AskedPlugin nccl;
  CHECK_THROWS_WITH(tuner.require_asked(), ContainsSubstring("has not asked our tuner plugin"));
  CHECK(nccl.call() == 0);
  tuner.require_asked();
  // What NCCL has ruled out is known after the first call.
  CHECK(!tuner.unsupported(shape_of("ring", "LL", "4")));
  CHECK(!tuner.unsupported(shape_of("library", "", "4")));
  CHECK_THAT(tuner.unsupported(shape_of("nvls", "Simple", "")).value_or(""),
             ContainsSubstring("ruled out nvls with Simple"));
  CHECK(tuner.unsupported(shape_of("ring", "", "4")));
  CHECK(tuner.unsupported(shape_of("rings", "LL", "")));
  tuner.choose(shape_of("tree", "Simple", "8"));
  CHECK(nccl.call() == 8);
  CHECK(nccl.costs[2] == 0.0F);
  tuner.choose(shape_of("library", "", "2"));
  CHECK(nccl.call() == 2);
  CHECK(nccl.costs[2] == 5.0F);
  CHECK(tuner.clear());
  CHECK(nccl.call() == 0);
  CHECK(!tuner.clear());
  unsetenv("NCCL_TUNER_PLUGIN");
}

TEST_CASE("knobs of a communicator are none of a call", "[e-83]") {
  CHECK(NcclCallTuner::is_per_call(shape_of("ring", "LL", "4")));
  CHECK(NcclCallTuner::is_per_call(shape_of("library", "", "4")));
  CHECK_FALSE(NcclCallTuner::is_per_call(shape_of("library", "", "")));
  CallShape shape = shape_of("ring", "LL", "");
  shape.knobs["max_ctas"] = "4";
  CHECK_FALSE(NcclCallTuner::is_per_call(shape));
}

TEST_CASE("a tuner that cannot be had says why and what to do", "[e-83]") {
  NcclCallTuner tuner;
  CHECK_THROWS_WITH(tuner.load("/nowhere/plugin.so"), ContainsSubstring("cannot be loaded"));
  setenv("NCCL_TUNER_PLUGIN", "libother.so", 1);
  CHECK_THROWS_WITH(tuner.load(DYNAMICCL_PLUGIN_LIBRARY),
                    ContainsSubstring("libother.so") && ContainsSubstring("unset it"));
  unsetenv("NCCL_TUNER_PLUGIN");
  CHECK(!tuner.loaded());
}
