#include "core/vocabulary/setting.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("a setting's name is its scope and its name there") {
  for (const auto& [scope, name] : NameTable<SettingScope>::entries) {
    const std::string text = setting_text(scope, "some_name");
    CHECK(text == std::string(name) + ".some_name");
    const auto read = find_setting(text);
    REQUIRE(read);
    CHECK(read->scope == scope);
    CHECK(read->name == "some_name");
    CHECK(read->note.empty());
  }
  CHECK(find_setting("call.a.b")->name == "a.b");
  for (const char* none : {"", ".", "mca", "mca.", "mca:", "PATH", "run.backend", "run:x", ".x"})
    CHECK_FALSE(find_setting(none));
}

TEST_CASE("the first spelling of a setting reads, and a note says how it is written now") {
  const auto read = find_setting("mca:btl_tcp_if_include");
  REQUIRE(read);
  CHECK(read->scope == SettingScope::mca);
  CHECK(read->name == "btl_tcp_if_include");
  CHECK(read->note ==
        "\"mca:btl_tcp_if_include\" is an old spelling that still reads: write "
        "\"mca.btl_tcp_if_include\"");
  // It never had these two.
  CHECK_FALSE(find_setting("env:PATH"));
  CHECK_FALSE(find_setting("call:segment"));
}

TEST_CASE("a profile's environment variables are written plain") {
  CHECK(profile_setting("UCX_TLS").scope == SettingScope::env);
  CHECK(profile_setting("UCX_TLS").name == "UCX_TLS");
  CHECK(profile_setting("env.UCX_TLS").name == "UCX_TLS");
  CHECK(profile_text(SettingScope::env, "UCX_TLS") == "UCX_TLS");
  CHECK(profile_text(SettingScope::malloc, "keep") == "malloc.keep");
  CHECK(stored_setting_text(SettingScope::env, "UCX_TLS") == "UCX_TLS");
  CHECK(find_setting(stored_setting_text(SettingScope::mca, "btl"))->name == "btl");
}

TEST_CASE("a name of another scope is refused with those that may stand there") {
  const std::vector scopes{SettingScope::env, SettingScope::mca, SettingScope::malloc};
  CHECK(setting_mistake("mca.btl", scopes).empty());
  CHECK(setting_mistake("malloc:keep", scopes).empty());
  CHECK(setting_mistake("call.segment", scopes) ==
        "\"call.segment\": expected \"env.NAME\", \"mca.NAME\" or \"malloc.NAME\" in quotes");
  CHECK(setting_mistake("x", {SettingScope::env}) == "\"x\": expected \"env.NAME\" in quotes");
}

TEST_CASE("settings of one scope lose it") {
  const std::map<std::string, std::string> knobs{
      {"env.A", "1"}, {"mca.b", "2"}, {"malloc.keep", "true"}, {"run.backend", "gloo"}};
  using Texts = std::map<std::string, std::string>;
  CHECK(settings_of(knobs, SettingScope::env) == Texts{{"A", "1"}});
  CHECK(settings_of(knobs, SettingScope::mca) == Texts{{"b", "2"}});
  CHECK(settings_of(knobs, SettingScope::call) == Texts{});
}
