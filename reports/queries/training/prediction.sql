-- title: Predicted training steps
-- row: one training cell: the step expected from the profile and the cost table of the same launch and the
--   measured one, by the launch with the median error
-- columns:
--   run_id environment backend
--   carried_by | text | the library that moved the gradients
--   architecture model batch method ranks group_knobs launches
--   step_us | us, real | one training step
--   predicted_us | us, real | as profile and cost table have it
--   error | real | predicted over measured step, less 1
--   worst_error | real | over all launches
--   within_bar | integer | 1 = the error is at most 15 %
--   computing_us | us, real | computing, with what the transport slows it down
--   predicted_computing_us | us, real | the same, predicted
--   exposed_us
--   predicted_exposed_us | us, real | the same, predicted
--   communication_us
--   predicted_sending_us | us, real | the same, predicted
--   undisturbed_us | us, real | computing without the transport
--   settings
-- worst_error: over all launches. Parts in microseconds: computing (with what the transport slows it down), exposed
-- (waiting for gradients), sending (communication busy, hidden or not). within_bar: the error is at most 15 %.
WITH launch_error AS (
  SELECT v.*, v.predicted_us / v.step_us - 1 AS error,
         t.predicted AS parts, t.carried_by
  FROM v_training v
  JOIN v_training_rank t ON t.measurement_row = v.measurement_row AND t.first_worker
  WHERE v.run_row = ?1 AND v.counts AND v.predicted_us > 0 AND v.step_us > 0
),
numbered AS (
  SELECT *, row_number() OVER (PARTITION BY cell_id ORDER BY error) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches,
         max(abs(error)) OVER (PARTITION BY cell_id) AS worst_error
  FROM launch_error
)
SELECT run_id, environment, backend, carried_by, architecture, model, batch, method, ranks,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = numbered.launch_id) AS group_knobs, launches, step_us, predicted_us,
       error, worst_error, abs(error) <= 0.15 AS within_bar,
       forward_us + backward_us + update_us AS computing_us,
       json_extract(parts, '$.computing_us') AS predicted_computing_us, exposed_us,
       json_extract(parts, '$.exposed_us') AS predicted_exposed_us, communication_us,
       json_extract(parts, '$.sending_us') AS predicted_sending_us, compute_us AS undisturbed_us, settings
FROM numbered
WHERE place = (launches + 1) / 2
ORDER BY environment, backend, model, batch, ranks, abs(error) DESC
