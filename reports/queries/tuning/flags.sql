-- title: Flags
-- row: one flag of a tuned task or of a measured cell, how often it was raised and by which rule
-- none_means: no flag was raised
-- columns:
--   run_id environment
--   subject | text | a task or a cell
--   flag | text | which
--   times | integer | how often
--   rule | text | what raises it
WITH d AS (
  SELECT d.*, t.agent FROM decision d JOIN tuning t ON t.id = d.tuning_id WHERE t.run_id = ?1
),
cell AS (
  SELECT environment, backend, model, batch, workers, cell_id, settings, step_us, compute_us,
         row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS middle, count(*) OVER (PARTITION BY cell_id) AS n
  FROM v_training WHERE run_row = ?1 AND counts AND trained_as_one
),
trained AS (
  SELECT *, row_number() OVER (PARTITION BY environment, backend, model, batch, workers,
                               json_extract(settings, '$.sequence'), json_extract(settings, '$.precision')
                               ORDER BY step_us) AS place
  FROM cell WHERE middle = (n + 1) / 2
),
flag(environment, subject, flag, times, rule) AS (
  SELECT environment, task_key, f.value, count(*),
         CASE f.value
           WHEN 'non_actionable_regime' THEN 'every setting was measured, and the interval leaves out a gain of 2 % or more'
           WHEN 'undecided' THEN 'no measured setting is surely faster; that none is was not shown'
           WHEN 'unexplored' THEN 'no setting but the default was measured'
           WHEN 'only_default_reaches' THEN 'every other way was measured, and none reached the target'
           WHEN 'nothing_to_set' THEN 'there is no other setting that a job could load'
           WHEN 'slower_than_gloo' THEN 'slower than Gloo on the same task'
           WHEN 'lossless_saturated' THEN 'the best setting takes longer than the workload leaves for it'
           ELSE 'of the final choice' END
  FROM d, json_each(d.candidates_json, '$.flags') f
  WHERE kind = 'final'
  GROUP BY environment, task_key, f.value
  UNION ALL
  -- Searches of earlier programs stored no flags.
  SELECT environment, task_key, 'undecided', count(*),
         'the final choice is the reference; the run does not say whether nothing is faster'
  FROM d
  WHERE kind = 'final' AND guard IN ('pass', 'slower-than-default')
    AND json_type(candidates_json, '$.flags') IS NULL
    AND arm = (SELECT r.arm FROM d r WHERE r.kind = 'reference' AND r.tuning_id = d.tuning_id
                AND r.environment = d.environment AND r.task_key = d.task_key LIMIT 1)
  GROUP BY environment, task_key
  UNION ALL
  SELECT environment, task_key, raised, count(*),
         CASE raised
           WHEN 'passthrough' THEN CASE guard
             WHEN 'ina-passthrough' THEN 'in-network aggregation is active: the library is left alone'
             ELSE 'a library that cannot be set from here' END
           WHEN 'failed' THEN 'the setting failed or gave wrong data'
           WHEN 'above-gloo-floor' THEN 'slower than 2 x Gloo on the same task'
           WHEN 'slower-in-trial' THEN 'one launch or trial took more than the default beyond noise; whether it surely is slower, final rows say'
           WHEN 'slower-than-default' THEN 'slower than the default beyond noise' || left_by
           WHEN 'not-confirmed' THEN 'not surely faster than the default when both were measured anew' || left_by
           ELSE 'guard' END
  FROM (SELECT environment, task_key, guard,
               CASE WHEN guard IN ('ina-passthrough', 'no-actuator') THEN 'passthrough'
                    WHEN kind <> 'final' AND guard = 'slower-than-default' THEN 'slower-in-trial'
                    ELSE guard END AS raised,
               -- tune --apply compares a table with the defaults, and leaves it as it is.
               CASE WHEN agent = 'table' THEN '; the table that was judged keeps it' ELSE '; not kept' END AS left_by
        FROM d WHERE guard <> 'pass')
  GROUP BY environment, task_key, guard, raised, left_by
  UNION ALL
  -- The margin of core/statistics/saturation.hpp; `query c2c` has the whole reckoning.
  SELECT environment, backend || '/' || model || '/batch ' || batch || '/' || workers || ' workers',
         'lossless_saturated', 1,
         'the best lossless method takes more than 1.2 times the step without communication: query c2c'
  FROM trained
  WHERE step_us > 1.2 * compute_us AND compute_us > 0 AND place = 1
  UNION ALL
  SELECT environment, backend || '/' || architecture || '/' || collective || '/' || size_bytes || ' B',
         'library_fallback', count(*), 'asked for ' || algorithm || ', ran ' || ran
  FROM (SELECT *,
               -- "RING/LL, 2 channels, 512 threads": which channels and threads ran is no other algorithm.
               substr(algorithm_ran, 1, instr(algorithm_ran || ',', ',') - 1) AS ran
        FROM v_measurement
        WHERE run_row = ?1 AND counts AND collective <> 'training' AND algorithm <> 'library')
  WHERE lower(ran) <> lower(algorithm) AND lower(ran) NOT LIKE lower(algorithm) || '/%'
  GROUP BY environment, cell_row, ran
)
SELECT (SELECT uuid FROM run WHERE id = ?1) AS run_id, environment, subject, flag, times, rule
FROM flag
ORDER BY flag, environment, subject
