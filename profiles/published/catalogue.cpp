#include "profiles/published/catalogue.hpp"

#include <fmt/format.h>

#include <set>

#include "profiles/strict_toml.hpp"

namespace dynamiccl {

std::vector<CatalogueEntry> parse_catalogue(const std::string& toml_text,
                                            const std::string& source) {
  const toml::table root = parse_toml(toml_text, source);
  StrictTable file(root, source, "the catalogue");
  auto tables = file.tables("entry");
  if (!tables) file.fail("the catalogue needs tables [[entry]]");
  file.finish();
  std::vector<CatalogueEntry> entries;
  std::set<std::string> names;
  for (auto& table : *tables) {
    CatalogueEntry entry;
    entry.name = table.required_text("name");
    entry.kind = table.required_text("kind");
    entry.family = table.required_text("family");
    entry.here = table.text("here").value_or("");
    entry.note = table.text("note").value_or("");
    entry.requirement = table.required_text("requirement");
    table.finish();
    if (!names.insert(entry.kind + " " + entry.name).second)
      table.fail("name", fmt::format("{} \"{}\" is listed twice", entry.kind, entry.name));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace dynamiccl
