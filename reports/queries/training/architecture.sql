-- title: Architecture by model
-- row: one model, batch, environment, backend and number of ranks: the method whose throughput is expected to be the
--   highest from what links and model were measured to cost, what it gave, and the best that was measured
-- columns:
--   run_id environment backend model batch ranks
--   chosen_architecture | text | the architecture with the highest expected throughput
--   chosen_method | text | its method
--   chosen_settings | json | its settings
--   carried_by | text | the library that moved its gradients
--   expected_samples_per_second | real | its expected throughput
--   other_expected | real | the best expected of the other architecture, over the chosen one's
--   samples_per_second | real | what the choice gave
--   best_architecture | text | the architecture of the best that was measured
--   best_method | text | its method
--   best_carried_by | text | the library that moved its gradients
--   best_samples_per_second | real | its throughput
--   other_measured | real | the best throughput of the other architecture that was measured, over the best one's
--   lost | real | what choosing by expectation costs against the best
-- Ranks are what a job is given: a server among them computes nothing. other_expected: the best that is expected of the
-- other architecture, over the chosen one's. lost: what choosing by expectation costs against the best (0 = nothing).
-- PyTorch's engine is a baseline, no choice. Only what trains as plain SGD does: the rest is in time_to_target.
WITH numbered AS (
  SELECT v_training.*, workers * batch / predicted_us * 1e6 AS expected_per_s,
         (SELECT t.carried_by FROM v_training_rank t
          WHERE t.measurement_row = v_training.measurement_row AND t.first_worker) AS carried_by,
         row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts AND predicted_us > 0 AND trained_as_one
    AND method NOT IN (SELECT method FROM v_training_method WHERE engine)
),
ranked AS (
  SELECT *,
         row_number() OVER (PARTITION BY environment, backend, model, batch, ranks
                            ORDER BY expected_per_s DESC, method) AS by_expectation,
         row_number() OVER (PARTITION BY environment, backend, model, batch, ranks
                            ORDER BY samples_per_s DESC, method) AS by_measurement
  FROM numbered
  WHERE place = (launches + 1) / 2
)
SELECT c.run_id, c.environment, c.backend, c.model, c.batch, c.ranks, c.architecture AS chosen_architecture,
       c.method AS chosen_method, c.settings AS chosen_settings, c.carried_by, c.expected_per_s AS expected_samples_per_second,
       (SELECT max(o.expected_per_s) / c.expected_per_s FROM ranked o
        WHERE o.environment = c.environment AND o.backend = c.backend AND o.model = c.model AND o.batch = c.batch
          AND o.ranks = c.ranks AND o.architecture <> c.architecture) AS other_expected,
       c.samples_per_s AS samples_per_second, b.architecture AS best_architecture, b.method AS best_method, b.carried_by AS best_carried_by,
       b.samples_per_s AS best_samples_per_second,
       (SELECT max(o.samples_per_s) / b.samples_per_s FROM ranked o
        WHERE o.environment = c.environment AND o.backend = c.backend AND o.model = c.model AND o.batch = c.batch
          AND o.ranks = c.ranks AND o.architecture <> b.architecture) AS other_measured, b.samples_per_s / c.samples_per_s - 1 AS lost
FROM ranked c
JOIN ranked b ON b.environment = c.environment AND b.backend = c.backend AND b.model = c.model
  AND b.batch = c.batch AND b.ranks = c.ranks AND b.by_measurement = 1
WHERE c.by_expectation = 1
ORDER BY c.environment, c.backend, c.model, c.batch, c.ranks
