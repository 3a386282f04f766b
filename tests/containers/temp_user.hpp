#pragma once

#include <grp.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <system_error>

#include "containers/command.hpp"

namespace dynamiccl {

/// A user account that exists for one test, under a number that no test beside it has: what a user
/// of the same number left in /tmp would be this one's.
class TempUser {
 public:
  TempUser() {
    std::random_device random;
    uid_t number = 0;
    do number = 20'000 + random() % 30'000;
    while (getpwuid(number) != nullptr || std::filesystem::exists(shared_folder(number)));
    name_ = "dyntest" + std::to_string(number);
    checked_output("cannot make a user",
                   {"useradd", "--create-home", "--uid", std::to_string(number), name_});
    entry_ = *getpwnam(name_.c_str());
    home_ = entry_.pw_dir;
  }
  ~TempUser() {
    run_command({"userdel", "--remove", name_});
    std::error_code ignored;
    std::filesystem::remove_all(shared_folder(entry_.pw_uid), ignored);
  }
  TempUser(const TempUser&) = delete;
  TempUser& operator=(const TempUser&) = delete;

  [[nodiscard]] const std::string& home() const { return home_; }

  /// The run folder in /tmp of a user who has no session. Goes with the user.
  [[nodiscard]] std::string shared_folder() const { return shared_folder(entry_.pw_uid); }

  /// Runs `body` as this user in a child process. @returns what it returned, or its error
  std::string run(const std::function<std::string()>& body) const {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
      std::string answer = "cannot change the user";
      if (initgroups(name_.c_str(), entry_.pw_gid) == 0 && setgid(entry_.pw_gid) == 0 &&
          setuid(entry_.pw_uid) == 0 && chdir(home_.c_str()) == 0) {
        setenv("HOME", home_.c_str(), 1);
        setenv("USER", name_.c_str(), 1);
        // Root's, which this user may not write.
        unsetenv("DYNAMICCL_CACHE");
        unsetenv("DYNAMICCL_RUN_FOLDER");
        try {
          answer = body();
        } catch (const std::exception& error) {
          answer = std::string("error: ") + error.what();
        }
      }
      const ssize_t written = write(ends[1], answer.data(), answer.size());
      _exit(written < 0 ? 1 : 0);
    }
    close(ends[1]);
    std::string answer;
    char buffer[4096];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return answer;
  }

 private:
  static std::string shared_folder(uid_t number) {
    return "/tmp/dynamiccl-" + std::to_string(number);
  }

  std::string name_;
  std::string home_;
  passwd entry_{};
};

}  // namespace dynamiccl
