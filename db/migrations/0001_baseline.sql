-- Tables of version 1. Frozen: later versions are reached by the files that follow this one.
CREATE TABLE meta (
  key TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE experiment (
  id INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  spec_text TEXT NOT NULL,
  overrides_json TEXT NOT NULL
) STRICT;
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  uuid TEXT NOT NULL UNIQUE,
  experiment_id INTEGER NOT NULL REFERENCES experiment(id),
  name TEXT NOT NULL,
  spec_path TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),
  started_utc TEXT NOT NULL,
  ended_utc TEXT,
  seed TEXT NOT NULL,
  argv_json TEXT NOT NULL,
  tool_version TEXT NOT NULL,
  host_json TEXT NOT NULL,
  protocol_json TEXT NOT NULL,
  owner_host TEXT NOT NULL,
  owner_boot_id TEXT NOT NULL,
  owner_pid INTEGER NOT NULL,
  owner_pid_namespace INTEGER NOT NULL,
  owner_start_ticks INTEGER NOT NULL
) STRICT;
CREATE INDEX run_experiment ON run(experiment_id);
CREATE TABLE profile (
  id INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  environment TEXT NOT NULL,
  profile_json TEXT NOT NULL
) STRICT;
CREATE TABLE plan_group (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  key TEXT NOT NULL,
  profile_id INTEGER NOT NULL REFERENCES profile(id),
  backend TEXT NOT NULL,
  architecture TEXT NOT NULL,
  ranks INTEGER NOT NULL CHECK (ranks >= 1),
  knobs_json TEXT NOT NULL,
  UNIQUE (run_id, key)
) STRICT;
CREATE INDEX plan_group_profile ON plan_group(profile_id);
CREATE TABLE run_cell (
  id INTEGER PRIMARY KEY,
  group_id INTEGER NOT NULL REFERENCES plan_group(id),
  key TEXT NOT NULL,
  collective TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  datatype TEXT NOT NULL,
  algorithm TEXT NOT NULL,
  in_place INTEGER NOT NULL CHECK (in_place IN (0, 1)),
  knobs_json TEXT NOT NULL,
  busbw_factor REAL,
  unsupported_reason TEXT,
  UNIQUE (group_id, key)
) STRICT;
CREATE TABLE regime (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL
) STRICT;
CREATE TABLE launch (
  id INTEGER PRIMARY KEY,
  uuid TEXT NOT NULL UNIQUE,
  group_id INTEGER NOT NULL REFERENCES plan_group(id),
  block INTEGER NOT NULL CHECK (block >= 0),
  attempt INTEGER NOT NULL CHECK (attempt >= 0),
  position INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'ok', 'failed', 'timed_out', 'interrupted')),
  reason TEXT,
  started_utc TEXT NOT NULL,
  ended_utc TEXT,
  duration_s REAL,
  exit_code INTEGER,
  signal INTEGER,
  argv_json TEXT NOT NULL,
  run_config_json TEXT NOT NULL,
  environment_json TEXT NOT NULL,
  container_json TEXT NOT NULL,
  noise_before_json TEXT NOT NULL,
  noise_during_json TEXT,
  stderr_tail TEXT,
  regime_id INTEGER REFERENCES regime(id),
  regime_json TEXT,
  UNIQUE (group_id, block, attempt)
) STRICT;
CREATE INDEX launch_regime ON launch(regime_id);
CREATE UNIQUE INDEX launch_measured_once ON launch(group_id, block) WHERE status = 'ok';
CREATE TABLE launch_rank (
  launch_id INTEGER NOT NULL REFERENCES launch(id),
  rank INTEGER NOT NULL CHECK (rank >= 0),
  world_size INTEGER,
  library TEXT,
  library_version TEXT,
  pid INTEGER,
  started_unix_s REAL,
  ready_unix_s REAL,
  ended_unix_s REAL,
  clock_ns REAL,
  peak_rss_bytes REAL,
  error TEXT,
  torn INTEGER NOT NULL CHECK (torn IN (0, 1)),
  facts_json TEXT,
  PRIMARY KEY (launch_id, rank)
) STRICT, WITHOUT ROWID;
CREATE TABLE transport (
  launch_id INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  transport TEXT NOT NULL,
  payload_bytes INTEGER NOT NULL,
  tcp_bytes INTEGER NOT NULL,
  cma_bytes INTEGER NOT NULL,
  cma_errors INTEGER NOT NULL,
  evidence TEXT NOT NULL,
  details_json TEXT NOT NULL,
  PRIMARY KEY (launch_id, rank),
  FOREIGN KEY (launch_id, rank) REFERENCES launch_rank(launch_id, rank)
) STRICT, WITHOUT ROWID;
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,
  launch_id INTEGER NOT NULL REFERENCES launch(id),
  cell_id INTEGER NOT NULL REFERENCES run_cell(id),
  status TEXT NOT NULL CHECK (status IN ('ok', 'failed', 'unsupported', 'timed_out', 'interrupted')),
  reason TEXT,
  position INTEGER,
  cadence TEXT CHECK (cadence IN ('isolated', 'batched')),
  batch INTEGER,
  barrier TEXT,
  rank_aggregation TEXT NOT NULL CHECK (rank_aggregation IN ('max', 'mean', 'min')),
  algorithm TEXT,
  checked INTEGER NOT NULL,
  wrong INTEGER NOT NULL,
  n INTEGER NOT NULL,
  median_us REAL,
  min_us REAL,
  mean_us REAL,
  p95_us REAL,
  p99_us REAL,
  max_us REAL,
  mad_us REAL,
  lag1 REAL,
  outliers INTEGER,
  not_stationary INTEGER CHECK (not_stationary IN (0, 1)),
  collective_us REAL,
  h2d_us REAL,
  d2h_us REAL,
  send_us REAL,
  compute_us REAL,
  UNIQUE (launch_id, cell_id)
) STRICT;
CREATE INDEX measurement_cell ON measurement(cell_id);
CREATE TABLE sample (
  measurement_id INTEGER NOT NULL REFERENCES measurement(id),
  phase INTEGER NOT NULL CHECK (phase IN (0, 1)),
  rank INTEGER NOT NULL,
  iteration INTEGER NOT NULL,
  start_us REAL,
  total_us REAL NOT NULL,
  collective_us REAL,
  h2d_us REAL,
  d2h_us REAL,
  send_us REAL,
  compute_us REAL,
  PRIMARY KEY (measurement_id, phase, rank, iteration)
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  launch_id INTEGER REFERENCES launch(id),
  at_utc TEXT NOT NULL,
  kind TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX event_run ON event(run_id);
CREATE INDEX event_launch ON event(launch_id);
