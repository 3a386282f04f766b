-- title: Time to a target accuracy
-- row: one training cell with epochs, of one task: when it reached the target (without one: when its epochs ended), how
--   accurate it was then, what it sent, and its time over the plain one's in the same block
-- measured_by: run experiments/training_compression.toml
-- columns:
--   run_id environment backend architecture model batch workers group_knobs
--   task | json | data, passes, target and slowed workers, the same for all that are compared
--   method
--   synchronisation | text | when workers wait for each other
--   compression | text | codec of the gradients
--   carried_by | text | the library that moved the gradients
--   launches
--   reached | integer | launches in which every worker reached the target; empty where there was none
--   steps | integer | steps or rounds until then, median
--   samples | integer | of all workers until then, median
--   trained_us | us, real | sum of its steps, without evaluations, of the slowest worker, median; of all epochs where that launch missed the target
--   accuracy | real | on held-out samples then, the lowest of the workers, median
--   sent_bytes | bytes, real | payload sent by the busiest rank until then, median
--   busiest_over_mean | real | bytes sent by the busiest rank, a server or a worker, over a rank's mean: where links congest
--   exchanges | real | in a step of each worker
--   over_plain | real | time over the fastest plain SGD's in the same block, whatever its group_knobs, median; empty where half of the launches missed the target
--   over_plain_low | real | smallest
--   over_plain_high | real | largest; empty where one missed the target
--   samples_over_plain | real | samples until the target over the same plain one's, in the block of over_plain
--   sample_time_over_plain | real | time for each sample over the same plain one's: over_plain is the product of both
--   beyond_plain | real | accuracy less the plain one's in the same block, median: compare where samples are equal
--   beyond_plain_low | real | smallest
--   beyond_plain_high | real | largest
--   beyond_samples_off | real | how far the samples of the two were from equal, as a part of the plain one's, at most
--   most_stale | integer | gradients applied between a worker's weights and its own
--   dropped | integer | gradients that came too late, in the median launch
--   unsent | real | share of its steps in which the first worker sent no gradient (lag)
--   last_round_steps | integer | steps of the last round (adacomm)
--   switched_after | integer | steps of each worker before workers waited otherwise (switch_to)
--   consensus_distance | real | root of the mean squared distance from the mean, at the end
--   spectral_gap | real | of the neighbours' mixing matrix: the larger, the faster weights come together
--   mean_accuracy | real | of the mean of neighbours' weights, with which D-PSGD is published to end, in the median launch
--   mean_beyond_plain | real | the same less the plain one's accuracy in the same block, median
--   mean_beyond_plain_low | real | smallest
--   mean_beyond_plain_high | real | largest
--   settings
-- The fastest median comes first; those that miss the target in half of their launches come last, however fast: of an even number
-- of launches the slower of the middle two is the median, and the less accurate one for beyond_plain. A launch that
-- misses it, where the plain one of its block reaches it, counts as endless in the median of over_plain. over_plain: of plain SGD (the same weights after each step, gradients as they are, no
-- LARS, no warm-up of the rate) in the same environment, backend and task, in launches of the same block; over five blocks the smallest and the largest enclose the median with 94 % confidence. The target
-- is looked at after each pass over the data, or at its `looks`. beyond_plain takes the plain cell of the same architecture
-- where there is one, and launches of it that miss the target or have none, too. accuracy of workers with weights of their own is the least accurate one's.
WITH taken AS (
  SELECT v.*, t.carried_by,
         t.rounds_done AS steps_done,
         t.consensus_distance AS distance, t.spectral_gap, t.mean_accuracy, 1 - t.lag_sent AS unsent,
         t.rounds_done * 1.0 / t.worker_steps AS exchanges,
         (SELECT max(wire_bytes) / nullif(avg(wire_bytes), 0) FROM training WHERE measurement_id = v.measurement_row) AS busiest_over_mean,
         t.last_round_steps, t.switched_after,
         coalesce(t.rounds_done * v.step_samples, t.worker_steps * v.batch * v.workers) AS samples,
         s.stale_most AS most, s.stale_dropped AS late
  FROM v_training v
  JOIN v_training_rank t ON t.measurement_row = v.measurement_row AND t.first_worker
  LEFT JOIN v_training_rank s ON s.measurement_row = v.measurement_row AND s.role = 'server' AND s.rank = 0
  WHERE v.run_row = ?1 AND v.counts AND v.trained_us IS NOT NULL
),
plain AS (
  SELECT environment, backend, model, batch, workers, task, block, min(trained_us) AS plain_us,
         samples AS plain_samples
  FROM taken
  WHERE plain AND coalesce(target_reached, 1)
  GROUP BY environment, backend, model, batch, workers, task, block
),
-- Whose accuracy others' is compared with: launches that missed the target too, as they trained no less. Of several plain cells the
-- one of the same architecture; its group may have had other settings (group_knobs).
ends AS (
  SELECT t.cell_id, t.block, e.accuracy AS plain_accuracy, e.samples AS plain_samples,
         row_number() OVER (PARTITION BY t.cell_id, t.block
           ORDER BY e.cell_id <> t.cell_id, e.architecture <> t.architecture, NOT coalesce(e.target_reached, 1), e.trained_us) AS place
  FROM taken t
  JOIN taken e ON e.plain AND e.environment = t.environment AND e.backend = t.backend AND e.model = t.model
    AND e.batch = t.batch AND e.workers = t.workers AND e.task = t.task AND e.block = t.block
),
numbered AS (
  SELECT t.*, CASE WHEN p.plain_us IS NULL THEN NULL WHEN coalesce(t.target_reached, 1) THEN t.trained_us / p.plain_us
                   ELSE 9e999 END AS over,
         t.accuracy - e.plain_accuracy AS beyond, t.mean_accuracy - e.plain_accuracy AS mean_beyond,
         t.samples * 1.0 / nullif(p.plain_samples, 0) AS samples_over,
         t.samples * 1.0 / nullif(e.plain_samples, 0) AS samples_beyond,
         row_number() OVER (PARTITION BY t.cell_id ORDER BY NOT coalesce(t.target_reached, 1), t.trained_us) AS place,
         count(*) OVER (PARTITION BY t.cell_id) AS n
  FROM taken t
  LEFT JOIN plain p ON p.environment = t.environment AND p.backend = t.backend AND p.model = t.model
    AND p.batch = t.batch AND p.workers = t.workers AND p.task = t.task AND p.block = t.block
  LEFT JOIN ends e ON e.cell_id = t.cell_id AND e.block = t.block AND e.place = 1
),
ratio AS (
  SELECT cell_id, over, samples_over, row_number() OVER (PARTITION BY cell_id ORDER BY over) AS place,
         count(*) OVER (PARTITION BY cell_id) AS n
  FROM numbered
  WHERE over IS NOT NULL
),
typical AS (
  SELECT cell_id, nullif(max(over) FILTER (WHERE place = n / 2 + 1), 9e999) AS median, nullif(min(over), 9e999) AS low,
         nullif(max(over), 9e999) AS high,
         max(samples_over) FILTER (WHERE place = n / 2 + 1 AND over < 9e999) AS samples_over
  FROM ratio
  GROUP BY cell_id
),
differing AS (
  SELECT cell_id, beyond, samples_beyond, row_number() OVER (PARTITION BY cell_id ORDER BY beyond) AS place,
         count(*) OVER (PARTITION BY cell_id) AS n
  FROM numbered
  WHERE beyond IS NOT NULL
),
further AS (
  SELECT cell_id, max(beyond) FILTER (WHERE place = (n + 1) / 2) AS median, min(beyond) AS low, max(beyond) AS high,
         max(abs(samples_beyond - 1)) AS samples_off
  FROM differing
  GROUP BY cell_id
),
averaged AS (
  SELECT cell_id, max(mean_beyond) FILTER (WHERE place = (n + 1) / 2) AS median, min(mean_beyond) AS low,
         max(mean_beyond) AS high
  FROM (SELECT cell_id, mean_beyond, row_number() OVER (PARTITION BY cell_id ORDER BY mean_beyond) AS place,
               count(*) OVER (PARTITION BY cell_id) AS n
        FROM numbered WHERE mean_beyond IS NOT NULL)
  GROUP BY cell_id
),
met AS (
  SELECT cell_id, sum(target_reached) AS reached FROM taken GROUP BY cell_id
)
SELECT n.run_id, n.environment, n.backend, n.architecture, n.model, n.batch, n.workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = n.launch_id) AS group_knobs, n.task, n.method,
       n.synchronisation, n.compression, n.carried_by, n.n AS launches, m.reached, n.steps_done AS steps, 
       n.samples, n.trained_us, n.accuracy, n.wire_bytes * n.steps_done AS sent_bytes, n.busiest_over_mean, n.exchanges, r.median AS over_plain,
       r.low AS over_plain_low, r.high AS over_plain_high, r.samples_over AS samples_over_plain,
       r.median / r.samples_over AS sample_time_over_plain, f.median AS beyond_plain, f.low AS beyond_plain_low,
       f.high AS beyond_plain_high, f.samples_off AS beyond_samples_off, n.most AS most_stale, n.late AS dropped,
       n.unsent, n.last_round_steps, n.switched_after, n.distance AS consensus_distance, n.spectral_gap,
       n.mean_accuracy, a.median AS mean_beyond_plain, a.low AS mean_beyond_plain_low, a.high AS mean_beyond_plain_high, n.settings
FROM numbered n
JOIN met m ON m.cell_id = n.cell_id
LEFT JOIN typical r ON r.cell_id = n.cell_id
LEFT JOIN further f ON f.cell_id = n.cell_id
LEFT JOIN averaged a ON a.cell_id = n.cell_id
WHERE n.place = n.n / 2 + 1
ORDER BY n.environment, n.backend, n.model, n.batch, n.workers, n.task, NOT coalesce(n.target_reached, 1), n.trained_us,
         n.method, n.settings
