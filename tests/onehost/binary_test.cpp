// What the built library needs of a machine, and that it stands before all that NCCL calls.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/onehost/job.hpp"

namespace fs = std::filesystem;
using namespace dynamiccl::onehost;

namespace {

std::set<std::string> found(const std::string& text, const std::string& expression) {
  std::set<std::string> all;
  const std::regex pattern(expression);
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
    all.insert((*at)[1]);
  return all;
}

std::string any_nccl() {
  const char* named = std::getenv("DYNAMICCL_NCCL_LIBRARY");
  for (const std::string& path : std::vector<std::string>{
           named == nullptr ? "" : named, "/usr/local/cuda/lib64/libnccl.so.2",
           "/usr/local/cuda/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"})
    if (!path.empty() && fs::exists(path)) return path;
  return "";
}

}  // namespace

TEST_CASE("the library needs no glibc after 2.17 and nothing else") {
  const std::string symbols = output_of("objdump -T " ONEHOST_LIBRARY);
  if (symbols.find("DYNAMIC SYMBOL TABLE") == std::string::npos) SKIP("there is no objdump");
  for (const std::string& version : found(symbols, R"(GLIBC_2\.(\d+))"))
    CHECK(std::stoi(version) <= 17);
  const auto needed = found(output_of("objdump -p " ONEHOST_LIBRARY), R"(NEEDED +(\S+))");
  CHECK(needed == std::set<std::string>{"libc.so.6", "libdl.so.2"});
}

TEST_CASE("the library has these functions in front of libc's and no others") {
  const std::string symbols = output_of("nm -D --defined-only " ONEHOST_LIBRARY);
  CHECK(found(symbols, R"( [TtWD] (\w+))") ==
        std::set<std::string>{"_Exit", "__xstat", "__xstat64", "_exit", "bind", "getenv", "mkstemp",
                              "mkstemp64", "open", "open64", "sendmsg", "stat", "stat64",
                              "unlink"});
}

TEST_CASE("NCCL calls nothing that reaches its names around the library") {
  const std::string nccl = any_nccl();
  if (nccl.empty()) SKIP("there is no libnccl.so.2");
  const auto imported = found(output_of("nm -D --undefined-only " + nccl), R"( U (\w+))");
  REQUIRE(imported.contains("getenv"));
  const std::set<std::string> before{"__xstat", "__xstat64", "bind",   "getenv",
                                     "mkstemp", "mkstemp64", "open",   "open64",
                                     "sendmsg", "stat",      "stat64", "unlink"};
  // Configuration files and /proc by fopen; connect and its name by TCP; shm_open and remove are
  // the CUDA runtime's, within it.
  const std::set<std::string> other{"connect",  "fopen",      "getsockname", "remove",
                                    "shm_open", "shm_unlink", "__fxstat"};
  for (const char* name :
       {"__fxstat",      "__fxstatat", "__fxstatat64", "__lxstat", "__open64_2", "__open_2",
        "__openat_2",    "__xstat",    "__xstat64",    "accept4",  "bind",       "connect",
        "creat",         "creat64",    "fopen",        "fopen64",  "fstatat",    "getenv",
        "getsockname",   "link",       "lstat",        "mkostemp", "mkstemp",    "mkstemp64",
        "open",          "open64",     "openat",       "openat64", "remove",     "rename",
        "secure_getenv", "sendmmsg",   "sendmsg",      "sendto",   "shm_open",   "shm_unlink",
        "stat",          "stat64",     "statx",        "symlink",  "unlink",     "unlinkat"}) {
    INFO(nccl << " imports " << name);
    if (imported.contains(name)) CHECK((before.contains(name) || other.contains(name)));
  }
}
