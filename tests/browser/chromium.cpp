#include "tests/browser/chromium.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace dynamiccl::testing {

using nlohmann::json;

namespace {

constexpr int kAnswerTimeoutMs = 60000;

std::string decoded(const std::string& base64) {
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char c : base64) {
    const std::string_view alphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto value = alphabet.find(c);
    if (value == std::string_view::npos) continue;
    bits = (bits << 6U) | static_cast<unsigned>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>((bits >> static_cast<unsigned>(count)) & 0xFFU);
  }
  return bytes;
}

/// The protocol's pipes are descriptors 3 and 4 of the browser.
[[noreturn]] void become_chromium(const std::string& folder, int in, int out) {
  setpgid(0, 0);
  // Out of the way of 3 and 4 first: the pipes may lie there.
  const int safe_in = fcntl(in, F_DUPFD, 10);
  const int safe_out = fcntl(out, F_DUPFD, 10);
  dup2(safe_in, 3);
  dup2(safe_out, 4);
  const int log = ::open((folder + "/chromium.log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  // Killed at its end, it clears nothing: what it writes goes with the folder.
  setenv("TMPDIR", folder.c_str(), 1);
  std::vector<std::string> words{Chromium::program(),
                                 "--headless=new",
                                 "--no-sandbox",
                                 "--disable-gpu",
                                 "--disable-dev-shm-usage",
                                 "--disable-quic",
                                 "--no-first-run",
                                 "--disable-background-networking",
                                 "--disable-component-update",
                                 "--disable-sync",
                                 "--disable-default-apps",
                                 "--hide-scrollbars",
                                 "--force-color-profile=srgb",
                                 "--user-data-dir=" + folder + "/profile",
                                 "--remote-debugging-pipe",
                                 "about:blank"};
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(pointers.front(), pointers.data());
  _exit(127);
}

}  // namespace

std::string Chromium::program() {
  if (const char* named = std::getenv("CHROMIUM"); named != nullptr && *named != '\0') return named;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

Chromium::Chromium(const std::string& folder) {
  start(folder);
  const auto target = call("Target.createTarget", {{"url", "about:blank"}});
  const auto attached =
      call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}});
  session_ = attached.at("sessionId").get<std::string>();
  for (const char* domain : {"Page", "Runtime", "Log", "Network"})
    call(std::string(domain) + ".enable");
}

Chromium::~Chromium() {
  close(to_);
  close(from_);
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Chromium::start(const std::string& folder) {
  signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> commands{};
  std::array<int, 2> answers{};
  if (pipe(commands.data()) != 0 || pipe(answers.data()) != 0)
    throw std::runtime_error("no pipes for Chromium");
  pid_ = fork();
  if (pid_ == 0) {
    close(commands[1]);
    close(answers[0]);
    become_chromium(folder, commands[0], answers[1]);
  }
  setpgid(pid_, pid_);
  close(commands[0]);
  close(answers[1]);
  to_ = commands[1];
  from_ = answers[0];
}

json Chromium::next_message() {
  for (;;) {
    const auto end = buffer_.find('\0');
    if (end != std::string::npos) {
      json message = json::parse(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
      return message;
    }
    pollfd ready{from_, POLLIN, 0};
    if (poll(&ready, 1, kAnswerTimeoutMs) <= 0)
      throw std::runtime_error("Chromium did not answer within a minute");
    std::array<char, 65536> chunk{};
    const auto count = read(from_, chunk.data(), chunk.size());
    if (count <= 0) throw std::runtime_error("Chromium has ended; see chromium.log");
    buffer_.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

void Chromium::note_event(const json& event) {
  const std::string method = event.value("method", "");
  const json& what = event.contains("params") ? event["params"] : event;
  if (method == "Page.loadEventFired") loaded_ = true;
  if (method == "Runtime.consoleAPICalled" || method == "Runtime.exceptionThrown" ||
      method == "Log.entryAdded")
    complaints_.push_back(method + ": " + what.dump());
  if (method == "Network.requestWillBeSent")
    requests_.push_back(what.at("request").at("url").get<std::string>());
}

json Chromium::call(const std::string& method, const json& parameters) {
  const int id = ++last_id_;
  json command{{"id", id}, {"method", method}};
  if (parameters.is_object()) command["params"] = parameters;
  if (!session_.empty()) command["sessionId"] = session_;
  const std::string text = command.dump() + '\0';
  for (std::size_t sent = 0; sent < text.size();) {
    const auto count = write(to_, text.data() + sent, text.size() - sent);
    if (count <= 0) throw std::runtime_error("Chromium does not listen; see chromium.log");
    sent += static_cast<std::size_t>(count);
  }
  for (;;) {
    const json message = next_message();
    if (message.value("id", 0) != id) {
      note_event(message);
      continue;
    }
    if (message.contains("error"))
      throw std::runtime_error(method + ": " + message["error"].dump());
    return message.value("result", json::object());
  }
}

void Chromium::show(const Screen& screen) {
  call("Emulation.setDeviceMetricsOverride", {{"width", screen.width},
                                              {"height", screen.height},
                                              {"deviceScaleFactor", 1},
                                              {"mobile", screen.width < 600}});
  call("Emulation.setEmulatedMedia",
       {{"media", screen.print ? "print" : ""},
        {"features", json::array({{{"name", "prefers-color-scheme"},
                                   {"value", screen.dark ? "dark" : "light"}}})}});
}

void Chromium::open(const std::string& path) {
  complaints_.clear();
  requests_.clear();
  loaded_ = false;
  if (!listening_) {
    // Errors that are no exceptions (of a ResizeObserver, say) reach the page's own listeners
    // alone.
    call("Page.addScriptToEvaluateOnNewDocument",
         {{"source", "window.addEventListener('error', e => console.error(e.message))"}});
    listening_ = true;
  }
  call("Page.navigate", {{"url", "file://" + std::filesystem::absolute(path).string()}});
  while (!loaded_) note_event(next_message());
}

json Chromium::evaluate(const std::string& expression) {
  const json result =
      call("Runtime.evaluate",
           {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  if (result.contains("exceptionDetails"))
    throw std::runtime_error(expression + ": " + result["exceptionDetails"].dump());
  return result.at("result").value("value", json());
}

bool Chromium::open_report(const std::string& path, const Screen& screen) {
  show(screen);
  open(path);
  return becomes_true("document.documentElement.dataset.firstChartMs");
}

bool Chromium::becomes_true(const std::string& expression) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    if (evaluate("!!(" + expression + ")") == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  return false;
}

void Chromium::press(const std::string& key) {
  const std::string code = key == " " ? "Space" : key;
  const int number = key == " "            ? 32
                     : key == "Tab"        ? 9
                     : key == "Enter"      ? 13
                     : key == "Escape"     ? 27
                     : key == "ArrowLeft"  ? 37
                     : key == "ArrowUp"    ? 38
                     : key == "ArrowRight" ? 39
                     : key == "ArrowDown"  ? 40
                                           : 0;
  json event{{"key", key}, {"code", code}, {"windowsVirtualKeyCode", number}};
  if (key == " " || key == "Enter") event["text"] = key == " " ? " " : "\r";
  event["type"] = "keyDown";
  call("Input.dispatchKeyEvent", event);
  event["type"] = "keyUp";
  event.erase("text");
  call("Input.dispatchKeyEvent", event);
}

std::string Chromium::screenshot(bool whole_page) {
  json request{{"format", "png"}, {"captureBeyondViewport", whole_page}};
  if (whole_page) {
    const json size = call("Page.getLayoutMetrics").at("cssContentSize");
    request["clip"] = {{"x", 0},
                       {"y", 0},
                       {"width", size.at("width")},
                       {"height", size.at("height")},
                       {"scale", 1}};
  }
  return decoded(call("Page.captureScreenshot", request).at("data").get<std::string>());
}

std::string Chromium::pdf() {
  return decoded(call("Page.printToPDF", {{"printBackground", false}, {"preferCSSPageSize", true}})
                     .at("data")
                     .get<std::string>());
}

}  // namespace dynamiccl::testing
