-- title: Energy of training steps
-- row: one training cell on GPUs, the launch with the median step: what its workers' GPUs took in the measured steps, by NVML's
--   counter of each whole GPU
-- measured_by: run experiments/gpu_training.toml
-- columns:
--   run_id environment backend architecture model batch method ranks group_knobs
--   gpus | integer | GPUs whose energy is known
--   joules_per_step | real | of all these GPUs together
--   joules_per_sample | real | the same, by the samples of a step; not of rounds of several steps
--   watts | real | of all these GPUs together, mean over the measured steps
--   seconds | s, real | that the longest worker measured; the counter moves every tenth of a second or so
--   note settings
-- Whatever else a GPU does counts, too; of ranks that share a GPU each counts it whole. Libraries that take their data from the host
-- (Gloo, MPI without CUDA) tell none.
WITH numbered AS (
  SELECT v_training.*, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts
),
gpu AS (
  SELECT n.measurement_row, json_extract(t.energy, '$.joules') AS joules, json_extract(t.energy, '$.seconds') AS seconds,
         json_extract(t.energy, '$.steps') AS steps, json_extract(t.energy, '$.unknown') AS unknown
  FROM numbered n
  JOIN v_training_rank t ON t.measurement_row = n.measurement_row AND t.role = 'worker'
  WHERE n.place = (n.launches + 1) / 2 AND json_type(t.energy) = 'object'
),
total AS (
  SELECT measurement_row, count(joules) AS gpus, sum(joules / steps) AS joules_per_step, sum(joules / seconds) AS watts,
         max(seconds) AS seconds, max(unknown) AS note, count(*) AS workers
  FROM gpu
  GROUP BY measurement_row
)
SELECT n.run_id, n.environment, n.backend, n.architecture, n.model, n.batch, n.method, n.ranks,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = n.launch_id) AS group_knobs, g.gpus, g.joules_per_step,
       CASE WHEN json_extract(n.settings, '$.local_steps') IS NULL THEN g.joules_per_step / (n.batch * g.workers) END AS joules_per_sample, g.watts, g.seconds, g.note, n.settings
FROM total g
JOIN numbered n ON n.measurement_row = g.measurement_row
ORDER BY n.environment, n.backend, n.model, n.batch, n.ranks, n.method, n.settings
