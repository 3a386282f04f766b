-- The database of DynamICCL. One row per fact; views.sql joins them for reading.
--
-- Conventions
--   _us     microseconds, REAL          _s      seconds, REAL
--   _bytes  bytes, INTEGER              _utc    UTC time as text, 2024-05-31T23:59:59.123Z
--   _unix_s seconds since 1970, REAL    _json   a JSON document
--   flag    0 or 1
--   NULL    unknown or does not apply; never an empty guess
-- Raw samples are the truth, the statistics in `measurement` are made from them and can be remade.

CREATE TABLE meta (
  key TEXT NOT NULL PRIMARY KEY,  -- name of the setting
  value TEXT NOT NULL             -- its value; views_sha256: digest of the view definitions in place
) STRICT, WITHOUT ROWID;

-- An experiment file as it was read. Runs of the same text and overrides share the row.
CREATE TABLE experiment (
  id INTEGER PRIMARY KEY,         -- row key
  sha256 TEXT NOT NULL UNIQUE,    -- digest of text and overrides, 64 hexadecimal digits
  spec_text TEXT NOT NULL,        -- the TOML text
  overrides_json TEXT NOT NULL    -- list of "key=value" given on the command line
) STRICT;

-- One `dynamiccl run`.
CREATE TABLE run (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  uuid TEXT NOT NULL UNIQUE,      -- id shown to the user
  experiment_id INTEGER NOT NULL REFERENCES experiment(id),  -- what was asked for
  name TEXT NOT NULL,             -- the experiment's name
  spec_path TEXT NOT NULL,        -- path of the experiment file when it was read
  status TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),  -- complete: every launch was tried
  started_utc TEXT NOT NULL,      -- begin of the run
  ended_utc TEXT,                 -- end of the run; NULL while it runs or when it was killed
  seed TEXT NOT NULL,             -- random seed, unsigned 64 bit as decimal text
  argv_json TEXT NOT NULL,        -- list: the command line
  tool_version TEXT NOT NULL,     -- version, source revision, "dirty" when the tree had changes
  host_json TEXT NOT NULL,        -- kernel, CPU, memory, boot id, distribution; no secrets
  protocol_json TEXT NOT NULL,    -- warm-up, iterations, launches, time caps as resolved
  owner_host TEXT NOT NULL,       -- host name of the writing process
  owner_boot_id TEXT NOT NULL,    -- the kernel's boot id there
  owner_pid INTEGER NOT NULL,     -- process id of the writer
  owner_pid_namespace INTEGER NOT NULL,  -- inode of the PID namespace in which owner_pid counts
  owner_start_ticks INTEGER NOT NULL,    -- start of the writer, clock ticks since boot: tells reused ids apart
  replay_of TEXT                  -- uuid of the launch that this run repeats; NULL for a run of an experiment
) STRICT;
CREATE INDEX run_experiment ON run(experiment_id);

-- An environment profile as resolved for a run; equal ones share the row.
CREATE TABLE profile (
  id INTEGER PRIMARY KEY,         -- row key
  sha256 TEXT NOT NULL UNIQUE,    -- digest of name and profile_json, 64 hexadecimal digits
  environment TEXT NOT NULL,      -- the profile's name, "cross-docker"
  profile_json TEXT NOT NULL      -- the profile with its overrides applied
) STRICT;

-- Ranks that start together and measure all their cells in each launch.
CREATE TABLE plan_group (
  id INTEGER PRIMARY KEY,         -- row key
  run_id INTEGER NOT NULL REFERENCES run(id),          -- the run that planned it
  key TEXT NOT NULL,              -- stable id: equal for equal groups of any run
  profile_id INTEGER NOT NULL REFERENCES profile(id),  -- environment
  backend TEXT NOT NULL,          -- "openmpi", "mpich", "gloo", ...
  architecture TEXT NOT NULL,     -- "ps" or "ring"
  ranks INTEGER NOT NULL CHECK (ranks >= 1),  -- processes, count
  knobs_json TEXT NOT NULL,       -- settings fixed at launch
  stopping_json TEXT,             -- rule, launches, whether the target interval was reached; NULL: a fixed number of launches
  UNIQUE (run_id, key)
) STRICT;
CREATE INDEX plan_group_profile ON plan_group(profile_id);

-- One thing to be measured in a run.
CREATE TABLE run_cell (
  id INTEGER PRIMARY KEY,         -- row key
  group_id INTEGER NOT NULL REFERENCES plan_group(id),  -- whose ranks measure it
  key TEXT NOT NULL,              -- stable id: equal for equal cells of any run
  collective TEXT NOT NULL,       -- operation, "allreduce"
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),  -- message size as nccl-tests counts it, bytes
  datatype TEXT NOT NULL,         -- element type, "float32"
  algorithm TEXT NOT NULL,        -- algorithm asked for; "library" lets the backend choose
  in_place INTEGER NOT NULL CHECK (in_place IN (0, 1)),  -- flag: send and receive buffer are one
  knobs_json TEXT NOT NULL,       -- settings per communicator and per call
  busbw_factor REAL,              -- bus bandwidth = size / time * factor; NULL for an operation without one
  unsupported_reason TEXT,        -- why it cannot be measured here; NULL = is to be measured
  UNIQUE (group_id, key)
) STRICT;

-- What the surroundings of the ranks really were.
CREATE TABLE regime (
  id INTEGER PRIMARY KEY,         -- row key
  key TEXT NOT NULL UNIQUE,       -- stable id of the regime
  name TEXT NOT NULL              -- readable name
) STRICT;

-- One start of all ranks of a group. Every attempt is a row.
CREATE TABLE launch (
  id INTEGER PRIMARY KEY,         -- row key
  uuid TEXT NOT NULL UNIQUE,      -- id given to the ranks
  group_id INTEGER NOT NULL REFERENCES plan_group(id),  -- what was started
  block INTEGER NOT NULL CHECK (block >= 0),      -- repetition: every group is launched once per block
  attempt INTEGER NOT NULL CHECK (attempt >= 0),  -- 0 for the first try of this group in this block
  position INTEGER NOT NULL,      -- place in the block's random order, from 0
  status TEXT NOT NULL CHECK (status IN ('running', 'ok', 'failed', 'timed_out', 'interrupted')),  -- outcome
  reason TEXT,                    -- why not ok
  started_utc TEXT NOT NULL,      -- before the launcher was started
  ended_utc TEXT,                 -- when the outcome was stored
  duration_s REAL,                -- launcher start to launcher end, seconds
  exit_code INTEGER,              -- of the launcher
  signal INTEGER,                 -- number of the signal that ended the launcher or a rank behind it, 0 = none
  argv_json TEXT NOT NULL,        -- list: the exact command
  run_config_json TEXT NOT NULL,  -- run.json as given to the ranks
  environment_json TEXT NOT NULL, -- environment variables on the allow-list
  container_json TEXT NOT NULL,   -- engine, image digest, namespaces, mounts
  noise_before_json TEXT NOT NULL,  -- pressure, load, steal before the launch
  noise_during_json TEXT,         -- the same and throttling during the launch
  stderr_tail TEXT,               -- end of what the launcher wrote to stderr
  regime_id INTEGER REFERENCES regime(id),  -- detected regime; NULL when no rank reported its surroundings
  regime_json TEXT,               -- how the regime was derived
  noise_flags_json TEXT,          -- list of sentences: noise beyond the run's limits; [] = quiet; NULL = not judged
  UNIQUE (group_id, block, attempt)
) STRICT;
CREATE INDEX launch_regime ON launch(regime_id);
CREATE UNIQUE INDEX launch_measured_once ON launch(group_id, block) WHERE status = 'ok';

-- What each rank said of itself.
CREATE TABLE launch_rank (
  launch_id INTEGER NOT NULL REFERENCES launch(id),  -- launch
  rank INTEGER NOT NULL CHECK (rank >= 0),           -- rank in the world
  world_size INTEGER,             -- ranks it saw, count
  library TEXT,                   -- what the loaded communication library calls itself
  library_version TEXT,           -- its version, "4.1.4"
  pid INTEGER,                    -- process id in its own PID namespace
  started_unix_s REAL,            -- start of main, seconds since 1970
  ready_unix_s REAL,              -- connected to all ranks, seconds since 1970
  ended_unix_s REAL,              -- orderly end, seconds since 1970; NULL when it did not come to it
  clock_ns REAL,                  -- CLOCK_MONOTONIC at ready_unix_s, nanoseconds; zero of sample.start_us
  peak_rss_bytes REAL,            -- largest resident memory, bytes
  error TEXT,                     -- last words of a rank that could not go on
  torn INTEGER NOT NULL CHECK (torn IN (0, 1)),  -- flag: its last record was cut off
  facts_json TEXT,                -- what it detected of its surroundings
  clock_shared INTEGER CHECK (clock_shared IN (0, 1)),  -- flag: one clock with rank 0; NULL: not compared
  clock_offset_us REAL,           -- its clock minus rank 0's before the cells, microseconds
  clock_error_us REAL,            -- half the smallest round trip: the offset is within it
  clock_end_offset_us REAL,       -- the same after the cells
  clock_end_error_us REAL,        -- the same after the cells
  PRIMARY KEY (launch_id, rank)
) STRICT, WITHOUT ROWID;

-- The transport really used, per rank, over all cells of a launch.
CREATE TABLE transport (
  launch_id INTEGER NOT NULL,     -- launch
  rank INTEGER NOT NULL,          -- rank in the world
  transport TEXT NOT NULL,        -- "tcp", "cma", "shm", "p2p", "net", "self" or "mixed"
  payload_bytes INTEGER NOT NULL, -- what the cells asked the library to move, bytes
  tcp_bytes INTEGER NOT NULL,     -- sent over the process's TCP sockets, bytes
  cma_bytes INTEGER NOT NULL,     -- moved by process_vm_readv and process_vm_writev, bytes
  cma_errors INTEGER NOT NULL,    -- refused calls of these two, count
  evidence TEXT NOT NULL,         -- one sentence: how this is known
  details_json TEXT NOT NULL,     -- counters behind it
  PRIMARY KEY (launch_id, rank),
  FOREIGN KEY (launch_id, rank) REFERENCES launch_rank(launch_id, rank)
) STRICT, WITHOUT ROWID;

-- One cell in one launch. Times: first the ranks of one iteration become one value by
-- rank_aggregation, then the statistic is taken over the measured iterations.
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,         -- row key
  launch_id INTEGER NOT NULL REFERENCES launch(id),  -- where it was measured
  cell_id INTEGER NOT NULL REFERENCES run_cell(id),  -- what was measured
  status TEXT NOT NULL CHECK (status IN ('ok', 'failed', 'unsupported', 'timed_out', 'interrupted')),  -- outcome on all ranks
  reason TEXT,                    -- why not ok
  position INTEGER,               -- place in the launch's random order, from 0
  cadence TEXT CHECK (cadence IN ('isolated', 'batched')),  -- isolated: a sample is one call; batched: the mean of `batch` calls
  batch INTEGER,                  -- calls per sample, count
  barrier TEXT,                   -- what synchronised the ranks before a sample
  rank_aggregation TEXT NOT NULL CHECK (rank_aggregation IN ('max', 'mean', 'min')),  -- how one iteration's ranks become one value
  algorithm TEXT,                 -- what ran, as far as it can be known
  checked INTEGER NOT NULL,       -- elements compared on all ranks, count
  wrong INTEGER NOT NULL,         -- elements that differed on all ranks, count
  n INTEGER NOT NULL,             -- measured iterations, count
  median_us REAL,                 -- median over iterations
  min_us REAL,                    -- smallest
  mean_us REAL,                   -- mean
  p95_us REAL,                    -- 95th percentile; NULL below 20 iterations
  p99_us REAL,                    -- 99th percentile; NULL below 100 iterations
  max_us REAL,                    -- largest
  mad_us REAL,                    -- median absolute deviation from the median
  lag1 REAL,                      -- autocorrelation of neighbouring iterations, -1 to 1
  outliers INTEGER,               -- iterations outside Tukey's fences, count; kept in every statistic
  not_stationary INTEGER CHECK (not_stationary IN (0, 1)),  -- flag: first and last third differ by more than their noise
  collective_us REAL,             -- median time inside the library's collective
  h2d_us REAL,                    -- median time of copies host to device
  d2h_us REAL,                    -- median time of copies device to host
  send_us REAL,                   -- median time of sends between workers and server
  compute_us REAL,                -- median time of the server's own reduction
  device_us REAL,                 -- median time of the same calls by the GPU's clock; no component of the total
  settled_at INTEGER,             -- measured iterations that still belong to the warm-up; 0 = it was long enough; NULL = too few to tell
  skew_us REAL,                   -- latest minus earliest start of the ranks on one clock: median over iterations
  skew_max_us REAL,               -- largest of them
  skew_error_us REAL,             -- what the clocks' comparison may err by; 0 on one clock
  waited_share REAL,              -- of its time that the rank which waited most had no core, 0 to 1; NULL: not known
  unwaited_us REAL,               -- median over iterations of the time less what all ranks waited for a core in it
  UNIQUE (launch_id, cell_id)
) STRICT;
CREATE INDEX measurement_cell ON measurement(cell_id);

-- Raw samples.
CREATE TABLE sample (
  measurement_id INTEGER NOT NULL REFERENCES measurement(id),  -- cell in a launch
  phase INTEGER NOT NULL CHECK (phase IN (0, 1)),  -- 0 warm-up (in no statistic), 1 measured
  rank INTEGER NOT NULL,          -- rank in the world
  iteration INTEGER NOT NULL,     -- from 0 within its phase
  start_us REAL,                  -- start since launch_rank.clock_ns, microseconds
  total_us REAL NOT NULL,         -- one call: a batch's time divided by its calls
  collective_us REAL,             -- inside the library's collective
  h2d_us REAL,                    -- copy host to device
  d2h_us REAL,                    -- copy device to host
  send_us REAL,                   -- sends between workers and server
  compute_us REAL,                -- the server's own reduction
  device_us REAL,                 -- the same calls by the GPU's clock (CUDA events); no component of the total
  waited_us REAL,                 -- the rank's threads waited for a core, from before the ranks met; no component of the total
  PRIMARY KEY (measurement_id, phase, rank, iteration)
) STRICT, WITHOUT ROWID;

-- What a training cell records besides its step times, per rank: `measurement` holds the steps.
-- Times are medians over the measured steps of this rank.
CREATE TABLE training (
  measurement_id INTEGER NOT NULL REFERENCES measurement(id),  -- cell in a launch
  rank INTEGER NOT NULL,          -- rank in the world
  role TEXT NOT NULL CHECK (role IN ('worker', 'server')),  -- servers sum, workers compute
  single_us REAL NOT NULL,        -- one step of a worker alone, microseconds; 0 on a server
  compute_us REAL NOT NULL,       -- one step without communication, all ranks computing at once
  forward_us REAL NOT NULL,       -- forward pass without waiting
  backward_us REAL NOT NULL,      -- backward pass
  update_us REAL NOT NULL,        -- optimizer
  exposed_us REAL NOT NULL,       -- computation stands still until gradients arrive
  predicted_us REAL,              -- step expected from profile and measured cost table; NULL: no model of it
  wire_bytes REAL NOT NULL,       -- payload that this rank sends in one step, bytes; of a library's all-reduce the formula's
  counted_bytes REAL,             -- moved by this rank in one measured step, by TCP_INFO and process_vm_readv; NULL: goes another way
  c2c_predicted REAL NOT NULL,    -- parameters communicated per FLOP, by formula
  c2c_measured REAL,              -- the same from counted bytes, or from payload that our own messages carry; NULL: nothing was counted
  intensity REAL NOT NULL,        -- I = C / D, FLOP per sample and parameter
  first_loss REAL,                -- of the first step
  last_loss REAL,                 -- mean of the last ten steps
  accuracy REAL,                  -- on held-out samples, 0 to 1
  max_difference REAL,            -- largest difference of a parameter from the sequential oracle's; NULL: not compared
  parameters_sha256 TEXT NOT NULL,  -- digest of all parameters after the last step
  details_json TEXT NOT NULL,     -- plan, cost table, losses, one step's trace
  PRIMARY KEY (measurement_id, rank)
) STRICT, WITHOUT ROWID;

-- What else happened.
CREATE TABLE event (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  run_id INTEGER NOT NULL REFERENCES run(id),  -- run
  launch_id INTEGER REFERENCES launch(id),     -- launch; NULL when it concerns the whole run
  at_utc TEXT NOT NULL,           -- when it was stored
  kind TEXT NOT NULL,             -- "torn_record", "unknown_record", "interrupted", "resumed", ...
  message TEXT NOT NULL           -- one sentence
) STRICT;
CREATE INDEX event_run ON event(run_id);
CREATE INDEX event_launch ON event(launch_id);

-- A run that came from somewhere else. Foreign tables have no launches of ours: one table is one
-- launch, its times are means, and what it does not say is not known.
CREATE TABLE imported_run (
  run_id INTEGER PRIMARY KEY REFERENCES run(id),  -- the run
  format TEXT NOT NULL CHECK (format IN ('nccl-tests', 'nccl-tests-json', 'osu', 'imb', 'dynamiccl')),  -- what was read
  source TEXT NOT NULL,           -- path of the file when it was read
  sha256 TEXT,                    -- digest of the file, 64 hexadecimal digits; NULL for a database
  imported_utc TEXT NOT NULL,     -- when it was read
  source_json TEXT NOT NULL       -- what the file says of itself, and what was assumed because it does not say
) STRICT;

-- The figures of a foreign table as it prints them.
CREATE TABLE imported_measurement (
  measurement_id INTEGER PRIMARY KEY REFERENCES measurement(id),  -- the row made of them
  reported_json TEXT NOT NULL,    -- every number of the source's row by its name there
  resolution_us REAL              -- half a unit of the time's last printed digit, microseconds; NULL = not known
) STRICT;

-- One agent's search over the tasks of a run.
CREATE TABLE tuning (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  run_id INTEGER NOT NULL REFERENCES run(id),  -- run whose launches it asked for or draws from
  mode TEXT NOT NULL CHECK (mode IN ('live', 'replay', 'job')),  -- live: fresh launches; replay: launches stored by a sweep; job: inside a running job
  agent TEXT NOT NULL,            -- "bandit", "ppo", "coordinate-descent", ...
  policy_version TEXT,            -- digest of the policy's weights; NULL for an agent without a policy
  seed TEXT NOT NULL,             -- random seed of the agent, unsigned 64 bit as decimal text
  options_json TEXT NOT NULL,     -- the agent's options and the reward's weights
  started_utc TEXT NOT NULL       -- when it was stored
) STRICT;
CREATE INDEX tuning_run ON tuning(run_id);

-- One choice of a setting for a task, and what came of it.
CREATE TABLE decision (
  id INTEGER PRIMARY KEY,         -- row key; grows with time
  tuning_id INTEGER NOT NULL REFERENCES tuning(id),  -- whose choice
  task_key TEXT NOT NULL,         -- "openmpi/ring/allreduce/2^16/r2n1"
  environment TEXT NOT NULL,      -- profile
  regime TEXT NOT NULL,           -- stable id of the detected regime
  step INTEGER NOT NULL CHECK (step >= 0),  -- place among the task's choices, from 0
  kind TEXT NOT NULL CHECK (kind IN ('reference', 'explore', 'exploit', 'final')),  -- reference: the default, measured to compare with; final: what was left in force
  epoch INTEGER NOT NULL,         -- of the configuration table it belongs to
  arm TEXT NOT NULL,              -- the setting, for people
  propensity REAL NOT NULL CHECK (propensity > 0 AND propensity <= 1),  -- probability of this choice
  state_json TEXT NOT NULL,       -- state vector, known features only
  candidates_json TEXT NOT NULL,  -- action space: knobs with values and masks, number of arms
  guard TEXT NOT NULL,            -- "pass", or what a guard said
  asked_json TEXT NOT NULL,       -- settings asked for
  applied_json TEXT,              -- settings read back; NULL when nothing could be read
  calls INTEGER NOT NULL CHECK (calls >= 0),  -- calls under the choice, count
  time_us REAL,                   -- typical time of one call; NULL when it failed
  reference_us REAL,              -- the same under the library's default
  reward REAL,                    -- sum of the terms; NULL when there is none
  reward_json TEXT,               -- the terms, each after its weight
  launch_id INTEGER REFERENCES launch(id)  -- where it was measured; NULL for a choice that was not
) STRICT;
CREATE INDEX decision_tuning ON decision(tuning_id);
CREATE INDEX decision_launch ON decision(launch_id);
