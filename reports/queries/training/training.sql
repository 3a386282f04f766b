-- title: Training
-- row: one training cell, the median of its launches (of an even number the mean of the two in the middle): step time,
--   what it is made of, and what was expected
-- columns:
--   run_id environment backend
--   carried_by | text, if_room | the library that moved the gradients
--   architecture model batch method
--   synchronisation | text | when workers wait for each other
--   ranks workers group_knobs launches
--   step_us | us, real | one training step, or one round
--   samples_per_second
--   speedup | real | throughput over one worker's in the same launch
--   single_us | us, real, if_room | a step of one worker alone
--   forward_us | us, real, if_room | forward pass
--   backward_us | us, real, if_room | backward pass
--   update_us | us, real, if_room | update of the weights
--   exposed_us
--   data_us | us, real, if_room | computation stands still for its batch
--   accounted | real, if_room | forward, backward, update, exposed and data over the step, median of the measured steps
--   communication_us
--   predicted_us | us, real, if_room | the step as profile and cost table have it
--   prediction_error | real, if_room | predicted over measured step, less 1
--   wire_bytes | bytes, real | payload sent by the busiest rank in a step
--   counted_bytes | bytes, real, if_room | what the kernel counted; NULL where bytes go another way
--   c2c_predicted c2c_measured intensity
--   first_loss | real, if_room | loss of the first step
--   last_loss | real | loss of the last
--   accuracy | real | on held-out samples
--   max_difference | real, if_room | from one process that computes every worker's part
--   wrong | integer, if_room | results that were not as expected
--   settings
-- A round: local steps and their average; where a server answers each worker by itself, as many gradients as a
-- synchronous step has (with backup workers one update). Nothing is predicted of those.
-- speedup: throughput against one worker alone in the same launch. prediction_error: predicted step
-- against measured step. exposed_us: computation stands still for gradients; communication_us: it is
-- busy, hidden or not. wire_bytes: payload, of a library's all-reduce the formula's; counted_bytes: what the kernel
-- counted in the measured steps, with what protocols add; NULL where it went another way (shared memory, NVLink).
-- data_us: computation stands still for its batch. carried_by: the library that moved the gradients, another one than
-- the backend where they go through host memory (servers under NCCL).
WITH numbered AS (
  SELECT v_training.*, t.carried_by, t.data_us, t.accounted,
         row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  JOIN v_training_rank t ON t.measurement_row = v_training.measurement_row AND t.first_worker
  WHERE run_row = ?1 AND counts
)
SELECT run_id, environment, backend, carried_by, architecture, model, batch, method, synchronisation, ranks, workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = numbered.launch_id) AS group_knobs, launches,
       avg(step_us) AS step_us, avg(samples_per_s) AS samples_per_second, avg(speedup) AS speedup,
       avg(single_us) AS single_us, avg(forward_us) AS forward_us, avg(backward_us) AS backward_us,
       avg(update_us) AS update_us, avg(exposed_us) AS exposed_us, avg(data_us) AS data_us, avg(accounted) AS accounted,
       avg(communication_us) AS communication_us, nullif(avg(predicted_us), 0) AS predicted_us,
       nullif(avg(predicted_us), 0) / avg(step_us) - 1 AS prediction_error, avg(wire_bytes) AS wire_bytes,
       avg(counted_bytes) AS counted_bytes, avg(c2c_predicted) AS c2c_predicted, avg(c2c_measured) AS c2c_measured,
       avg(intensity) AS intensity, avg(first_loss) AS first_loss, avg(last_loss) AS last_loss, avg(accuracy) AS accuracy,
       max(max_difference) AS max_difference, max(wrong) AS wrong, settings
FROM numbered
WHERE place IN ((launches + 1) / 2, (launches + 2) / 2)
GROUP BY cell_id
ORDER BY environment, backend, model, batch, ranks, step_us
