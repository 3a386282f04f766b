#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl::testing {

/// A headless Chromium with an empty profile, spoken to by its DevTools protocol over two pipes.
/// Everything it logs, throws or asks the network for is kept.
class Chromium {
 public:
  /// @param folder for its profile; must exist
  /// @throws std::runtime_error when it does not start or does not answer within a minute
  explicit Chromium(const std::string& folder);
  ~Chromium();
  Chromium(const Chromium&) = delete;
  Chromium& operator=(const Chromium&) = delete;

  /// Path of the program, "" when there is none ($CHROMIUM names another one).
  static std::string program();

  struct Screen {
    int width = 1400;
    int height = 900;
    bool dark = false;
    bool print = false;
  };
  void show(const Screen& screen);
  /// Opens a local file and waits until it is loaded and drawn.
  void open(const std::string& path);
  /// Shows a report page on this screen. @returns false when it draws no chart within ten seconds
  bool open_report(const std::string& path, const Screen& screen);
  /// Value of an expression in the page. @throws std::runtime_error with the page's exception
  nlohmann::json evaluate(const std::string& expression);
  /// Waits until an expression is true. @returns false after ten seconds
  bool becomes_true(const std::string& expression);
  /// A key as the keyboard sends it: "Tab", "ArrowRight", "Escape", " ".
  void press(const std::string& key);
  /// PNG of the window or of the whole page.
  std::string screenshot(bool whole_page);
  std::string pdf();

  /// Console messages, exceptions and log entries since the last open().
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
  /// Addresses asked for since the last open(), the page's own among them.
  [[nodiscard]] const std::vector<std::string>& requests() const { return requests_; }

  /// One command of the protocol. @throws std::runtime_error with its error
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters = {});

 private:
  void start(const std::string& folder);
  nlohmann::json next_message();
  void note_event(const nlohmann::json& event);

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  std::string buffer_;
  std::string session_;
  bool loaded_ = false;
  bool listening_ = false;
  std::vector<std::string> complaints_;
  std::vector<std::string> requests_;
};

}  // namespace dynamiccl::testing
