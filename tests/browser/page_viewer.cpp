// page_viewer PAGE.html [--width N] [--height N] [--dark] [--print] [--png FILE] [--whole] [--pdf
// FILE]
//             [--script JAVASCRIPT]
// Prints "first_chart_ms N" and what the page complained of; exit code 1 when it complained or
// asked the network for anything.
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is POSIX

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/browser/chromium.hpp"

using dynamiccl::testing::Chromium;

namespace {

struct Request {
  std::string page;
  Chromium::Screen screen;
  std::string png;
  std::string pdf;
  std::string script;
  bool whole = false;
};

Request parsed(const std::vector<std::string>& words) {
  Request request;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const auto value = [&] { return ++i < words.size() ? words[i] : std::string(); };
    if (word == "--width")
      request.screen.width = std::stoi(value());
    else if (word == "--height")
      request.screen.height = std::stoi(value());
    else if (word == "--dark")
      request.screen.dark = true;
    else if (word == "--print")
      request.screen.print = true;
    else if (word == "--png")
      request.png = value();
    else if (word == "--pdf")
      request.pdf = value();
    else if (word == "--script")
      request.script = value();
    else if (word == "--whole")
      request.whole = true;
    else
      request.page = word;
  }
  return request;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

int view(const Request& request, const std::string& folder) {
  Chromium browser(folder);
  browser.show(request.screen);
  browser.open(request.page);
  const bool drawn = browser.becomes_true("document.documentElement.dataset.firstChartMs");
  fmt::print(
      "first_chart_ms {}\n",
      drawn ? browser.evaluate("document.documentElement.dataset.firstChartMs").get<std::string>()
            : "never");
  if (!request.script.empty()) browser.evaluate(request.script);
  if (request.whole) browser.evaluate("Report.drawAll()");
  if (!request.png.empty()) {
    // Charts get their width after layout; two frames are enough.
    browser.evaluate("new Promise(r => setTimeout(r, 400))");
    write(request.png, browser.screenshot(request.whole));
  }
  if (!request.pdf.empty()) write(request.pdf, browser.pdf());
  for (const auto& complaint : browser.complaints()) fmt::print("complaint {}\n", complaint);
  for (std::size_t i = 1; i < browser.requests().size(); ++i)
    fmt::print("request {}\n", browser.requests()[i]);
  return drawn && browser.complaints().empty() && browser.requests().size() <= 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Request request = parsed({argv + 1, argv + argc});
  if (request.page.empty() || Chromium::program().empty()) {
    fmt::print(stderr, "page_viewer PAGE.html [options]; needs Chromium\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "dynamiccl-page-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 2;
  int code = 2;
  try {
    code = view(request, folder);
  } catch (const std::exception& error) {
    fmt::print(stderr, "page_viewer: {}\n", error.what());
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}
