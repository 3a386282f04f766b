-- Another program's table of a fifth form, and how fine its times are printed.
CREATE TABLE later (
  run_id INTEGER PRIMARY KEY REFERENCES run(id),  -- the run
  format TEXT NOT NULL CHECK (format IN ('nccl-tests', 'nccl-tests-json', 'osu', 'imb', 'dynamiccl')),  -- what was read
  source TEXT NOT NULL,           -- path of the file when it was read
  sha256 TEXT,                    -- digest of the file, 64 hexadecimal digits; NULL for a database
  imported_utc TEXT NOT NULL,     -- when it was read
  source_json TEXT NOT NULL       -- what the file says of itself, and what was assumed because it does not say
) STRICT;
INSERT INTO later(run_id, format, source, sha256, imported_utc, source_json)
SELECT run_id, format, source, sha256, imported_utc, source_json FROM imported_run;
DROP TABLE imported_run;
ALTER TABLE later RENAME TO imported_run;
ALTER TABLE imported_measurement ADD COLUMN resolution_us REAL;  -- half a unit of the time's last printed digit, microseconds; NULL = not known
