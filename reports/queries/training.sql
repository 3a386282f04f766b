-- title: Training
-- row: one training cell, its median launch: step time, what it is made of, and what was expected (A-13)
-- speedup: throughput against one worker alone in the same launch. prediction_error: predicted step
-- against measured step. exposed_us: computation stands still for gradients; communication_us: it is
-- busy, hidden or not. wire_bytes: payload, of a library's all-reduce the formula's; counted_bytes: what the kernel
-- counted in the measured steps, with what protocols add; NULL where it went another way (shared memory, NVLink).
WITH numbered AS (
  SELECT v_training.*,
         row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts
)
SELECT run_id, environment, backend, architecture, model, batch, method, ranks, workers, launches,
       step_us, samples_per_s AS samples_per_second, speedup, single_us, forward_us, backward_us, update_us, exposed_us,
       communication_us, predicted_us, predicted_us / step_us - 1 AS prediction_error, wire_bytes,
       counted_bytes, c2c_predicted, c2c_measured, intensity, first_loss, last_loss, accuracy, max_difference,
       wrong, settings
FROM numbered
WHERE place = (launches + 1) / 2
ORDER BY environment, backend, model, batch, ranks, step_us
