-- title: Learning curves
-- row: one step of one training cell, by the launch with the median step: its loss and, where it was taken, the
--   accuracy on held-out samples (the lowest of the workers), over steps, samples, time and
--   bytes sent
-- columns:
--   run_id
--   cell_id | text | id of the cell
--   environment backend architecture model batch method ranks workers group_knobs block
--   step | integer | the training step
--   samples | integer | of all workers so far
--   loss | real | of the first worker
--   accuracy | real | on held-out samples, the lowest of the workers
--   trained_us | us, real | sum of its steps, without evaluations
--   sent_bytes | bytes, real | payload sent by the busiest rank so far, by the mean of its steps or rounds, of post-local of its exchanges
--   settings
-- Of the first worker. samples: of all workers so far. trained_us: sum of its steps, without evaluations. Steps of the
-- warm-up train too and count, except before epochs, which start anew.
WITH numbered AS (
  SELECT v_training.*, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts
),
worker AS MATERIALIZED (
  SELECT n.*, t.rank AS rank, t.accuracy AS last_accuracy, t.losses, t.accuracies, t.epochs IS NOT NULL AS by_epochs
  FROM numbered n
  JOIN v_training_rank t ON t.measurement_row = n.measurement_row AND t.first_worker
  WHERE n.place = (n.launches + 1) / 2
),
done AS (
  SELECT w.measurement_row, s.phase, s.total_us,
         row_number() OVER (PARTITION BY w.measurement_row ORDER BY s.phase, s.iteration) - 1 AS recorded
  FROM worker w
  JOIN sample s ON s.measurement_id = w.measurement_row AND s.rank = w.rank
),
trained AS (
  SELECT d.measurement_row, row_number() OVER so_far AS step, sum(d.total_us) OVER so_far AS trained_us,
         count(*) OVER (PARTITION BY d.measurement_row) AS last_step,
         sum(d.phase = 1) OVER (PARTITION BY d.measurement_row) AS measured_steps
  FROM done d
  JOIN worker w ON w.measurement_row = d.measurement_row
  WHERE d.phase = 1 OR NOT w.by_epochs
  WINDOW so_far AS (PARTITION BY d.measurement_row ORDER BY d.recorded)
),
-- Until post-local begins with local steps, a round has an exchange in each of its steps, then one.
rounds AS (
  SELECT w.measurement_row, CAST(json_extract(w.settings, '$.local_steps') AS INTEGER) AS local_steps,
         (CAST(json_extract(w.settings, '$.local_after') AS INTEGER) +
          CAST(json_extract(w.settings, '$.local_steps') AS INTEGER) - 1) /
           CAST(json_extract(w.settings, '$.local_steps') AS INTEGER) AS summed
  FROM worker w
  JOIN v_synchronisation s ON s.later_local AND s.synchronisation = json_extract(w.settings, '$.synchronisation')
  WHERE json_extract(w.settings, '$.local_after') IS NOT NULL
),
exchanged AS (
  SELECT t.measurement_row, t.step, t.last_step, t.measured_steps,
         t.step + (r.local_steps - 1) * min(t.step, r.summed) AS exchanges
  FROM trained t
  JOIN rounds r ON r.measurement_row = t.measurement_row
),
-- Those of the measured steps are what the mean of the bytes is of.
sent AS (
  SELECT e.measurement_row, e.step,
         1.0 * e.measured_steps * e.exchanges /
           (max(e.exchanges) OVER of_cell -
            coalesce(max(e.exchanges) FILTER (WHERE e.step <= e.last_step - e.measured_steps) OVER of_cell, 0)) AS steps
  FROM exchanged e
  WINDOW of_cell AS (PARTITION BY e.measurement_row)
),
losses AS MATERIALIZED (
  -- Counted from the last: of cells with epochs the first programs recorded those of the warm-up too, others do not.
  SELECT w.measurement_row, json_array_length(w.losses) - l.key AS from_last, l.value AS loss
  FROM worker w, json_each(w.losses) l
),
accuracies AS MATERIALIZED (
  SELECT w.measurement_row, json_extract(a.value, '$[0]') AS step, json_extract(a.value, '$[1]') AS accuracy
  FROM worker w, json_each(w.accuracies) a
)
SELECT w.run_id, w.cell_id, w.environment, w.backend, w.architecture, w.model, w.batch, w.method, w.ranks, w.workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = w.launch_id) AS group_knobs,
       w.block, t.step, t.step * w.step_samples AS samples, l.loss,
       coalesce(a.accuracy, CASE WHEN t.step = t.last_step AND NOT w.by_epochs THEN w.last_accuracy END) AS accuracy,
       t.trained_us, coalesce(e.steps, t.step) * w.wire_bytes AS sent_bytes, w.settings
FROM trained t
JOIN worker w ON w.measurement_row = t.measurement_row
LEFT JOIN sent e ON e.measurement_row = t.measurement_row AND e.step = t.step
LEFT JOIN losses l ON l.measurement_row = t.measurement_row AND l.from_last = t.last_step - t.step + 1
LEFT JOIN accuracies a ON a.measurement_row = t.measurement_row AND a.step = t.step
ORDER BY w.environment, w.backend, w.model, w.batch, w.ranks, w.method, w.cell_id, t.step
