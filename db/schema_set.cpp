#include "db/schema_set.hpp"

#include "db/training_rows.hpp"
#include "embedded/db_migration_0001_sql.hpp"
#include "embedded/db_migration_0002_sql.hpp"
#include "embedded/db_migration_0003_sql.hpp"
#include "embedded/db_migration_0004_sql.hpp"
#include "embedded/db_migration_0005_sql.hpp"
#include "embedded/db_migration_0006_sql.hpp"
#include "embedded/db_migration_0007_sql.hpp"
#include "embedded/db_migration_0008_sql.hpp"
#include "embedded/db_migration_0009_sql.hpp"
#include "embedded/db_migration_0010_sql.hpp"
#include "embedded/db_schema_sql.hpp"
#include "embedded/db_views_sql.hpp"

namespace dynamiccl {

const SchemaSet& current_schema() {
  // The next change of a table: add migrations/0011_<what>.sql, embed it, and append {11, text}.
  static const std::string views = with_training_rows(embedded::db_views_sql);
  static const SchemaSet set{embedded::db_migration_0001_sql,
                             embedded::db_schema_sql,
                             views,
                             {{2, embedded::db_migration_0002_sql},
                              {3, embedded::db_migration_0003_sql},
                              {4, embedded::db_migration_0004_sql},
                              {5, embedded::db_migration_0005_sql},
                              {6, embedded::db_migration_0006_sql},
                              {7, embedded::db_migration_0007_sql},
                              {8, embedded::db_migration_0008_sql},
                              {9, embedded::db_migration_0009_sql},
                              {10, embedded::db_migration_0010_sql}}};
  return set;
}

}  // namespace dynamiccl
