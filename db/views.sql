-- Views for reading. They hold no data and are made anew whenever a writer finds other text in place,
-- so that they need no migration. Units and conventions as in schema.sql.

-- Runs with the size of their plan.
CREATE VIEW v_run AS
SELECT
  r.uuid AS run_id,                 -- id shown to the user
  r.id AS run_row,                  -- row key of run; grows with time
  r.name AS run_name,               -- the experiment's name
  r.status AS run_status,           -- running, complete, failed or interrupted
  r.started_utc AS started_utc,     -- begin
  r.ended_utc AS ended_utc,         -- end; NULL while it runs or when it was killed
  r.spec_path AS spec_path,         -- experiment file
  r.tool_version AS tool_version,   -- version and source revision
  r.replay_of AS replay_of,         -- launch that this run repeats; NULL for a run of an experiment
  i.format AS imported_format,      -- what the run was imported from; NULL = measured here
  (SELECT count(*) FROM plan_group g WHERE g.run_id = r.id) AS groups,  -- planned groups, count
  (SELECT count(*) FROM plan_group g JOIN run_cell c ON c.group_id = g.id
    WHERE g.run_id = r.id) AS cells,  -- planned cells with the impossible ones, count
  (SELECT count(*) FROM plan_group g JOIN launch l ON l.group_id = g.id
    WHERE g.run_id = r.id) AS attempts,  -- launches started, count
  (SELECT count(*) FROM plan_group g JOIN launch l ON l.group_id = g.id
    WHERE g.run_id = r.id AND l.status = 'ok') AS launches_ok  -- launches that ended well, count
FROM run r
LEFT JOIN imported_run i ON i.run_id = r.id;

-- Every attempt to start a group.
CREATE VIEW v_launch AS
SELECT
  r.uuid AS run_id,                 -- run
  r.id AS run_row,                  -- row key of run
  l.id AS launch_row,               -- row key of launch
  l.uuid AS launch_id,              -- id given to the ranks
  g.id AS group_row,                -- row key of plan_group
  g.key AS group_id,                -- stable id of the group
  p.environment AS environment,     -- profile
  g.backend AS backend,             -- backend
  g.architecture AS architecture,   -- ps or ring
  g.ranks AS ranks,                 -- processes, count
  g.knobs_json AS group_knobs,      -- settings fixed at launch
  l.block AS block,                 -- repetition
  l.attempt AS attempt,             -- try within the block
  l.attempt = (SELECT max(x.attempt) FROM launch x
                WHERE x.group_id = l.group_id AND x.block = l.block) AS is_last_attempt,  -- flag
  l.position AS position,           -- place in the block's order
  l.status AS launch_status,        -- running, ok, failed, timed_out or interrupted
  l.reason AS reason,               -- why not ok
  l.started_utc AS started_utc,     -- start
  l.duration_s AS duration_s,       -- seconds
  l.exit_code AS exit_code,         -- of the launcher
  l.signal AS signal,               -- signal that ended the launcher or a rank behind it, 0 = none
  l.argv_json AS argv_json,         -- the exact command
  l.noise_flags_json AS noise_flags_json,  -- noise beyond the run's limits; [] = quiet, NULL = not judged
  coalesce(json_array_length(l.noise_flags_json), 0) > 0 AS noisy,  -- flag: the noise gate flagged it
  e.key AS regime_id,               -- stable id of the detected regime
  e.name AS regime_name             -- readable name of the detected regime
FROM launch l
JOIN plan_group g ON g.id = l.group_id
JOIN profile p ON p.id = g.profile_id
JOIN run r ON r.id = g.run_id
LEFT JOIN regime e ON e.id = l.regime_id;

-- One row per cell and launch, with everything that names it.
CREATE VIEW v_measurement AS
SELECT
  v.run_id AS run_id,               -- run
  v.run_row AS run_row,             -- row key of run
  v.launch_id AS launch_id,         -- id given to the ranks
  v.launch_row AS launch_row,       -- row key of launch
  m.id AS measurement_row,          -- row key of measurement
  c.id AS cell_row,                 -- row key of run_cell
  c.key AS cell_id,                 -- stable id of the cell
  v.group_id AS group_id,           -- stable id of the group
  v.environment AS environment,     -- profile
  v.backend AS backend,             -- backend
  v.architecture AS architecture,   -- ps or ring
  c.collective AS collective,       -- operation
  c.size_bytes AS size_bytes,       -- message size as nccl-tests counts it, bytes
  c.datatype AS datatype,           -- element type
  c.algorithm AS algorithm,         -- algorithm asked for
  c.in_place AS in_place,           -- flag: one buffer for both directions
  v.ranks AS ranks,                 -- processes, count
  v.group_knobs AS group_knobs,     -- settings fixed at launch
  c.knobs_json AS cell_knobs,       -- settings per communicator and call
  v.regime_id AS regime_id,         -- stable id of the detected regime
  v.regime_name AS regime_name,     -- readable name of the detected regime
  v.block AS block,                 -- repetition
  v.attempt AS attempt,             -- try within the block
  v.launch_status AS launch_status, -- outcome of the launch
  m.status AS status,               -- outcome of the cell in this launch
  v.launch_status = 'ok' AND m.status = 'ok' AS counts,  -- flag: may enter figures
  m.reason AS reason,               -- why not ok
  m.cadence AS cadence,             -- isolated or batched
  m.batch AS batch,                 -- calls per sample, count
  m.barrier AS barrier,             -- what synchronised the ranks
  m.rank_aggregation AS rank_aggregation,  -- how ranks become one value
  m.algorithm AS algorithm_ran,     -- algorithm that ran, as far as known
  m.checked AS checked,             -- elements compared, count
  m.wrong AS wrong,                 -- elements that differed, count
  m.n AS n,                         -- measured iterations, count
  m.median_us AS median_us,         -- microseconds: the unit of replication
  m.min_us AS min_us,               -- microseconds
  m.mean_us AS mean_us,             -- microseconds
  m.p95_us AS p95_us,               -- microseconds
  m.p99_us AS p99_us,               -- microseconds
  m.max_us AS max_us,               -- microseconds
  m.lag1 AS lag1,                   -- autocorrelation of neighbouring iterations
  m.outliers AS outliers,           -- iterations outside Tukey's fences, count
  m.not_stationary AS not_stationary,  -- flag: drifted during the launch
  m.settled_at AS settled_at,       -- measured iterations that still belong to the warm-up; 0 = it was long enough
  m.skew_us AS skew_us,             -- latest minus earliest start of the ranks: median, microseconds
  m.skew_max_us AS skew_max_us,     -- largest of them
  m.skew_error_us AS skew_error_us, -- what the clocks' comparison may err by; 0 on one clock
  v.noisy AS noisy,                 -- flag: the noise gate flagged the launch
  m.collective_us AS collective_us, -- microseconds
  m.h2d_us AS h2d_us,               -- microseconds
  m.d2h_us AS d2h_us,               -- microseconds
  m.send_us AS send_us,             -- microseconds
  m.compute_us AS compute_us,       -- microseconds
  m.device_us AS device_us,         -- microseconds by the GPU's clock, inside the total
  m.waited_share AS waited_share,   -- of its time that the rank which waited most had no core, 0 to 1
  m.unwaited_us AS unwaited_us,     -- microseconds: median with what all ranks waited for a core taken off
  c.busbw_factor AS busbw_factor,   -- bus bandwidth = size / time * factor
  c.size_bytes / m.median_us * 1e6 AS algbw_bytes_per_s,  -- bytes per second
  c.size_bytes / m.median_us * 1e6 * c.busbw_factor AS busbw_bytes_per_s  -- bytes per second
FROM measurement m
JOIN run_cell c ON c.id = m.cell_id
JOIN v_launch v ON v.launch_row = m.launch_id;

-- One row per planned cell of each run: what became of it. The last attempt of each block speaks for
-- the block, and a cell is as good as its worst block.
CREATE VIEW v_cell AS
WITH cell_block AS (
  -- A LEFT JOIN of plain tables: only so does SQLite look at no more than the runs asked for.
  SELECT
    r.uuid AS run_id, r.id AS run_row, r.name AS run_name, c.id AS cell_row, c.key AS cell_id,
    g.key AS group_id, p.environment, g.backend, g.architecture, c.collective, c.size_bytes,
    c.datatype, c.algorithm, c.in_place, g.ranks, g.knobs_json AS group_knobs,
    c.knobs_json AS cell_knobs, c.unsupported_reason,
    coalesce(json_array_length(l.noise_flags_json), 0) > 0 AS noisy,
    CASE WHEN m.status <> 'ok' THEN m.reason ELSE l.reason END AS block_reason,
    CASE CASE WHEN l.status = 'ok' THEN coalesce(m.status, 'failed')
              WHEN l.status <> 'running' AND m.status <> 'ok' THEN m.status
              ELSE l.status END
      WHEN 'ok' THEN 0 WHEN 'unsupported' THEN 1 WHEN 'interrupted' THEN 2
      WHEN 'timed_out' THEN 3 WHEN 'failed' THEN 4 END AS severity  -- NULL: no outcome yet
  FROM run r
  JOIN plan_group g ON g.run_id = r.id
  JOIN profile p ON p.id = g.profile_id
  JOIN run_cell c ON c.group_id = g.id
  LEFT JOIN launch l ON l.group_id = g.id
   AND l.attempt = (SELECT max(x.attempt) FROM launch x
                     WHERE x.group_id = l.group_id AND x.block = l.block)
  LEFT JOIN measurement m ON m.launch_id = l.id AND m.cell_id = c.id
),
-- max() picks the row whose block_reason stands next to it.
cell AS (
  SELECT cell_block.*, max(severity) AS worst, count(severity) AS blocks,
         coalesce(sum(severity = 0), 0) AS good,
         coalesce(sum(severity = 0 AND noisy), 0) AS good_noisy
  FROM cell_block
  GROUP BY run_id, run_row, cell_row
)
SELECT
  run_id AS run_id,                 -- run
  run_row AS run_row,               -- row key of run
  run_name AS run_name,             -- the experiment's name
  cell_row AS cell_row,             -- row key of run_cell
  cell_id AS cell_id,               -- stable id of the cell
  group_id AS group_id,             -- stable id of the group
  environment AS environment,       -- profile
  backend AS backend,               -- backend
  architecture AS architecture,     -- ps or ring
  collective AS collective,         -- operation
  size_bytes AS size_bytes,         -- message size, bytes
  datatype AS datatype,             -- element type
  algorithm AS algorithm,           -- algorithm asked for
  in_place AS in_place,             -- flag
  ranks AS ranks,                   -- processes, count
  group_knobs AS group_knobs,       -- settings fixed at launch
  cell_knobs AS cell_knobs,         -- settings per communicator and call
  good AS launches,                 -- launches that count for figures, count
  good_noisy AS noisy_launches,     -- of them flagged by the noise gate, count
  blocks AS tried,                  -- blocks with an outcome, count
  CASE WHEN unsupported_reason IS NOT NULL AND good = 0 THEN 'unsupported'
       ELSE CASE worst WHEN 0 THEN 'ok' WHEN 1 THEN 'unsupported' WHEN 2 THEN 'interrupted'
                       WHEN 3 THEN 'timed_out' WHEN 4 THEN 'failed' ELSE 'planned' END
       END AS status,               -- planned, ok, failed, unsupported, timed_out or interrupted
  CASE WHEN unsupported_reason IS NOT NULL AND good = 0 THEN unsupported_reason
       WHEN worst = 0 OR worst IS NULL THEN NULL
       WHEN good = 0 THEN block_reason
       ELSE (blocks - good) || ' of ' || blocks || ' launches not ok, worst: '
            || coalesce(block_reason, 'no reason recorded')
       END AS reason                -- why not ok
FROM cell;

-- Raw samples by name.
CREATE VIEW v_sample AS
SELECT
  v.run_id AS run_id,               -- run
  v.launch_id AS launch_id,         -- id given to the ranks
  c.key AS cell_id,                 -- stable id of the cell
  m.id AS measurement_row,          -- row key of measurement
  v.environment AS environment,     -- profile
  v.backend AS backend,             -- backend
  v.architecture AS architecture,   -- ps or ring
  c.collective AS collective,       -- operation
  c.size_bytes AS size_bytes,       -- message size, bytes
  v.ranks AS ranks,                 -- processes, count
  v.block AS block,                 -- repetition
  CASE s.phase WHEN 0 THEN 'warmup' ELSE 'measured' END AS phase,  -- warm-up enters no statistic
  s.rank AS rank,                   -- rank in the world
  s.iteration AS iteration,         -- from 0 within its phase
  s.start_us AS start_us,           -- microseconds since the rank's clock_ns
  s.total_us AS total_us,           -- microseconds
  s.collective_us AS collective_us, -- microseconds
  s.h2d_us AS h2d_us,               -- microseconds
  s.d2h_us AS d2h_us,               -- microseconds
  s.send_us AS send_us,             -- microseconds
  s.compute_us AS compute_us,       -- microseconds
  s.device_us AS device_us,         -- microseconds by the GPU's clock, inside the total
  s.waited_us AS waited_us          -- microseconds without a core, from before the ranks met
FROM sample s
JOIN measurement m ON m.id = s.measurement_id
JOIN run_cell c ON c.id = m.cell_id
JOIN v_launch v ON v.launch_row = m.launch_id;

-- One row per training cell in a launch: when it was where it should be. Not before its slowest worker.
CREATE VIEW v_time_to_target AS
SELECT
  measurement_id AS measurement_row,  -- row key of measurement
  min(json_extract(details_json, '$.target_reached')) AS target_reached,  -- flag: every worker reached the target; NULL: there was none
  max(json_extract(details_json, '$.trained_us')) AS trained_us  -- sum of the steps without evaluations, of the slowest worker, microseconds; NULL: no epochs
FROM training
WHERE role = 'worker'
GROUP BY measurement_id;

-- One row per rank of a training cell in a launch: what it noted next to its times and losses. Lists and objects are JSON.
CREATE VIEW v_training_rank AS
SELECT
  t.measurement_id AS measurement_row,  -- row key of measurement
  t.rank AS rank,                   -- rank in the world
  t.role AS role,                   -- worker or server
  t.rank = (SELECT min(w.rank) FROM training w WHERE w.measurement_id = t.measurement_id AND w.role = 'worker')
    AS first_worker,                -- flag: the worker that stands for all where one is enough
  t.accuracy AS accuracy,           -- of its own weights, on held-out samples, 0 to 1
  coalesce(json_extract(t.details_json, '$.carried_by'), json_extract(t.details_json, '$.engine'))
    AS carried_by,                  -- the library that moved its gradients
  json_extract(t.details_json, '$.path') AS path,            -- how a GPU's gradients went
  json_extract(t.details_json, '$.data_us') AS data_us,      -- computation stands still for its batch, microseconds
  json_extract(t.details_json, '$.accounted') AS accounted,  -- forward, backward, update, exposed and data over the step
  json_extract(t.details_json, '$.messages') AS messages,    -- pieces of the plan, count
  json_extract(t.details_json, '$.pieces') AS pieces,        -- list of [offset, elements, server, bytes where they differ]
  json_extract(t.details_json, '$.engine_buckets') AS engine_buckets,  -- bytes of each bucket of PyTorch's engine; NULL: another method
  json_extract(t.details_json, '$.predicted') AS predicted,  -- parts of the predicted step, microseconds
  json_extract(t.details_json, '$.cost_us') AS cost_us,      -- cost table: list of [bytes, microseconds]
  json_extract(t.details_json, '$.cost_second_us') AS cost_second_us,  -- the same of a split all-reduce's second half
  json_extract(t.details_json, '$.cost_cpu_us') AS cost_cpu_us,        -- CPU time of the transport
  json_extract(t.details_json, '$.cost_busy_us') AS cost_busy_us,      -- while the ranks compute
  json_extract(t.details_json, '$.cost_busy_second_us') AS cost_busy_second_us,  -- the second half while they compute
  json_extract(t.details_json, '$.cost_lost_us') AS cost_lost_us,      -- computation lost meanwhile
  json_extract(t.details_json, '$.losses') AS losses,        -- of every step
  json_extract(t.details_json, '$.accuracies') AS accuracies,  -- list of [rounds, accuracy]
  json_extract(t.details_json, '$.accuracies[#-1][0]') AS rounds_done,  -- before the last accuracy, count
  json_extract(t.details_json, '$.epochs') AS epochs,        -- passes over the data, count; NULL: steps were asked for
  json_extract(t.details_json, '$.worker_steps') AS worker_steps,      -- steps of each worker, count
  json_extract(t.details_json, '$.round_steps[#-1]') AS last_round_steps,  -- steps of the last round, where rounds differ
  json_extract(t.details_json, '$.switched.worker_steps') AS switched_after,  -- steps before workers waited otherwise
  json_extract(t.details_json, '$.gossip.consensus[#-1][1]') AS consensus_distance,  -- of the workers' weights, at the last look
  json_extract(t.details_json, '$.gossip.spectral_gap') AS spectral_gap,  -- of the neighbours' graph
  json_extract(t.details_json, '$.gossip.mean_accuracies[#-1][1]') AS mean_accuracy,  -- of the workers' mean, at the last look
  json_extract(t.details_json, '$.lag.sent') * 1.0 / json_extract(t.details_json, '$.lag.steps') AS lag_sent,  -- share of steps whose gradient was sent
  json_extract(t.details_json, '$.staleness') AS staleness,  -- of a server that answers each worker by itself; NULL: another
  json_extract(t.details_json, '$.staleness.most') AS stale_most,      -- a server's oldest answered gradient, steps
  json_extract(t.details_json, '$.staleness.dropped') AS stale_dropped,  -- gradients that came too late, count
  json_extract(t.details_json, '$.compression') AS coding,   -- what its codec made of a step
  json_extract(t.details_json, '$.group_compression') AS group_coding,  -- the same within a group of workers
  json_extract(t.details_json, '$.energy') AS energy,        -- joules, seconds and steps of its GPU, or why they are unknown
  json_extract(t.details_json, '$.memory') AS memory,        -- bytes held, their unit and limit
  json_extract(t.details_json, '$.staging_bytes') AS staging_bytes,    -- page-locked host memory
  json_extract(t.details_json, '$.calls') AS calls,          -- each call of its measured steps
  json_extract(t.details_json, '$.network') AS network,      -- what passed interfaces in its measured steps, and how many these were
  json_extract(t.details_json, '$.trace') AS trace           -- one step's timeline
FROM training t;

-- One row per training method of this program: what SQL asks in place of its name.
CREATE VIEW v_training_method AS
SELECT
  column1 AS method,            -- its name
  column2 AS gossip,            -- flag: workers average with their neighbours
  column3 AS after_backward,    -- flag: one message of all gradients, none before the backward pass is over
  column4 AS split,             -- flag: a sum is two messages, a reduce-scatter and an all-gather
  column5 AS crosses_barrier,   -- flag: the next forward pass begins before all gradients are in
  column6 AS engine,            -- flag: a library's own engine does it
  column7 AS served             -- flag: a server makes the sums
FROM (VALUES
    @methods@);

-- One row per way to wait for each other, likewise.
CREATE VIEW v_synchronisation AS
SELECT
  column1 AS synchronisation,   -- its name
  column2 AS usual,             -- flag: what a cell that names none does
  column3 AS later_local,       -- flag: steps that all do together, local ones from some step on
  column4 AS rounds_differ,     -- flag: its rounds get shorter
  column5 AS leaves_out,        -- flag: a step is over without the slowest
  column6 AS surveyed           -- the survey's word in its orders of communication; NULL: it has none
FROM (VALUES
    @synchronisations@);

-- One row per codec of gradients, likewise.
CREATE VIEW v_codec AS
SELECT
  column1 AS compression,       -- its name
  column2 AS bits,              -- of each value; NULL: settings or the values say how many
  column3 AS by_bits,           -- flag: the setting "bits" says how many
  column4 AS sparse,            -- flag: some of the values are sent
  column5 AS by_density,        -- flag: the setting "density" says how many
  column6 AS gathered,          -- flag: each worker gets the messages of all and adds them
  column7 AS merged,            -- flag: pairs of workers make one message of two
  column8 AS marked             -- flag: a bit each of a shared sample says which values are sent
FROM (VALUES
    @codecs@);

-- One row per training cell in a launch. Ranks of one kind become one value: times by the slowest
-- worker, bytes by the busiest rank.
CREATE VIEW v_training AS
SELECT
  v.run_id AS run_id,               -- run
  v.run_row AS run_row,             -- row key of run
  v.launch_id AS launch_id,         -- id given to the ranks
  v.measurement_row AS measurement_row,  -- row key of measurement
  v.cell_id AS cell_id,             -- stable id of the cell
  v.environment AS environment,     -- profile
  v.backend AS backend,             -- backend
  v.architecture AS architecture,   -- ps or ring
  v.algorithm AS method,            -- training method
  json_extract(v.cell_knobs, '$.model') AS model,  -- what was trained
  v.samples AS batch,               -- samples per worker and step
  v.cell_knobs AS settings,         -- all settings of the cell
  CASE WHEN v.gossip THEN 'gossip '
       WHEN json_extract(v.cell_knobs, '$.group_size') IS NOT NULL THEN 'grouped ' ELSE '' END
    || coalesce(json_extract(v.cell_knobs, '$.synchronisation'), (SELECT synchronisation FROM v_synchronisation WHERE usual))
    || coalesce(', then ' || json_extract(v.cell_knobs, '$.switch_to'), '') AS synchronisation,  -- when workers wait for each other
  coalesce(json_extract(v.cell_knobs, '$.compression'), 'none') AS compression,  -- codec of the gradients
  v.as_one AS trained_as_one,       -- flag: trains what one process would, so step times tell
  v.as_one AND json_extract(v.cell_knobs, '$.lars') IS NULL AND json_extract(v.cell_knobs, '$.rate_warmup') IS NULL
    AS plain,                       -- flag: plain SGD, neither LARS nor a warm-up of the rate: what accuracies are compared with
  json_patch('{}', json_object(
    'data', coalesce(json_extract(v.cell_knobs, '$.data'), 'generated'),
    'sequence', json_extract(v.cell_knobs, '$.sequence'), 'precision', json_extract(v.cell_knobs, '$.precision'),
    'oracle', json_extract(v.cell_knobs, '$.oracle'), 'samples', json_extract(v.cell_knobs, '$.samples'),
    'evaluate', json_extract(v.cell_knobs, '$.evaluate'), 'steps', json_extract(v.cell_knobs, '$.steps'),
    'epochs', json_extract(v.cell_knobs, '$.epochs'), 'target', json_extract(v.cell_knobs, '$.target'),
    'looks', json_extract(v.cell_knobs, '$.looks'), 'pace', json_extract(v.cell_knobs, '$.pace'),
    'slow_factor', json_extract(v.cell_knobs, '$.slow_factor'), 'slow_worker', json_extract(v.cell_knobs, '$.slow_worker')))
    AS task,                        -- data, passes, target and slowed workers as JSON: equal where times to an accuracy compare
  v.samples * v.own_steps * (coalesce(v.participants, sum(t.role = 'worker')) - v.left_out)
    AS step_samples,                -- samples of all workers in one step or round, count; NULL: rounds differ
  v.ranks AS ranks,                 -- processes, count
  sum(t.role = 'worker') AS workers,  -- processes that compute, count
  v.block AS block,                 -- repetition
  v.counts AS counts,               -- flag: may enter figures
  v.n AS steps,                     -- measured steps, count
  v.median_us AS step_us,           -- median step over the ranks as rank_aggregation says, microseconds
  v.samples * v.own_steps * (coalesce(v.participants, sum(t.role = 'worker')) - v.left_out)
    / v.median_us * 1e6 AS samples_per_s,               -- throughput of all workers; NULL: rounds differ
  max(t.single_us) AS single_us,    -- step of one worker alone, same launch
  v.own_steps * (coalesce(v.participants, sum(t.role = 'worker')) - v.left_out)
    * max(t.single_us) / v.median_us AS speedup,  -- throughput against one worker alone; NULL: rounds differ
  max(t.compute_us) AS compute_us,  -- step without communication, all ranks at once
  max(t.forward_us) AS forward_us,  -- microseconds
  max(t.backward_us) AS backward_us,  -- microseconds
  max(t.update_us) AS update_us,    -- microseconds
  max(t.exposed_us) AS exposed_us,  -- computation waits for gradients, microseconds
  v.collective_us AS communication_us,  -- workers' communication busy, hidden or not, microseconds
  max(t.predicted_us) AS predicted_us,  -- step expected from the measured cost table
  max(t.wire_bytes) AS wire_bytes,  -- payload sent by the busiest rank in a step, bytes; of a library's all-reduce the formula's
  CASE WHEN count(t.counted_bytes) = count(*) THEN max(t.counted_bytes) END AS counted_bytes,  -- moved by the busiest rank in a step, counted by the kernel; NULL: went another way
  max(t.c2c_predicted) AS c2c_predicted,  -- parameters per FLOP by formula
  max(t.c2c_measured) AS c2c_measured,  -- the same from bytes that were counted; NULL: none were
  max(t.intensity) AS intensity,    -- FLOP per sample and parameter
  max(t.first_loss) AS first_loss,  -- of the first step
  max(t.last_loss) AS last_loss,    -- mean of the last ten steps
  min(t.accuracy) AS accuracy,      -- on held-out samples, 0 to 1
  max(t.max_difference) AS max_difference,  -- from the sequential oracle
  -- These two as v_time_to_target has them, which would be made of the workers of all runs for each run that is asked for.
  min(iif(t.role = 'worker', json_extract(t.details_json, '$.target_reached'), NULL))
    AS target_reached,  -- flag: every worker reached the target; NULL: there was none
  max(iif(t.role = 'worker', json_extract(t.details_json, '$.trained_us'), NULL))
    AS trained_us,  -- sum of the steps without evaluations, of the slowest worker, microseconds; NULL: no epochs
  v.checked AS checked,             -- parameters compared, count
  v.wrong AS wrong                  -- parameters that differed, count
FROM (
  -- What the settings make of a cell: samples of a worker's step, steps of its round (NULL: rounds differ), who takes part.
  SELECT c.*, coalesce(m.gossip, 0) AS gossip,
    CAST(json_extract(c.cell_knobs, '$.batch') AS INTEGER) AS samples,
    CAST(json_extract(c.cell_knobs, '$.participants') AS INTEGER) AS participants,
    CASE WHEN s.leaves_out THEN coalesce(CAST(json_extract(c.cell_knobs, '$.backups') AS INTEGER), 1) ELSE 0 END AS left_out,
    CASE WHEN s.rounds_differ OR (json_extract(c.cell_knobs, '$.switch_to') IS NOT NULL
              AND (json_extract(c.cell_knobs, '$.local_steps') IS NOT NULL OR n.leaves_out OR s.leaves_out))
         THEN NULL ELSE coalesce(CAST(json_extract(c.cell_knobs, '$.local_steps') AS INTEGER), 1) END AS own_steps,
    NOT coalesce(m.gossip, 0) AND json_extract(c.cell_knobs, '$.synchronisation') IS NULL
      AND json_extract(c.cell_knobs, '$.switch_to') IS NULL AND json_extract(c.cell_knobs, '$.compression') IS NULL AS as_one
  FROM v_measurement c
  LEFT JOIN v_training_method m ON m.method = c.algorithm
  LEFT JOIN v_synchronisation s ON s.synchronisation = json_extract(c.cell_knobs, '$.synchronisation')
  LEFT JOIN v_synchronisation n ON n.synchronisation = json_extract(c.cell_knobs, '$.switch_to')
) v
JOIN training t ON t.measurement_id = v.measurement_row
-- By the run, too: only so does SQLite make the rows of no other run than the one asked for.
GROUP BY v.run_row, v.measurement_row;
