-- A run that came from somewhere else. Foreign tables have no launches of ours: one table is one
-- launch, its times are means, and what it does not say is not known.
CREATE TABLE imported_run (
  run_id INTEGER PRIMARY KEY REFERENCES run(id),  -- the run
  format TEXT NOT NULL CHECK (format IN ('nccl-tests', 'nccl-tests-json', 'osu', 'dynamiccl')),  -- what was read
  source TEXT NOT NULL,           -- path of the file when it was read
  sha256 TEXT,                    -- digest of the file, 64 hexadecimal digits; NULL for a database
  imported_utc TEXT NOT NULL,     -- when it was read
  source_json TEXT NOT NULL       -- what the file says of itself, and what was assumed because it does not say
) STRICT;

-- The figures of a foreign table as it prints them.
CREATE TABLE imported_measurement (
  measurement_id INTEGER PRIMARY KEY REFERENCES measurement(id),  -- the row made of them
  reported_json TEXT NOT NULL     -- every number of the source's row by its name there
) STRICT;
