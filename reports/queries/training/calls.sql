-- title: Calls of measured steps
-- row: one training cell and one kind of call with messages of one size, the first worker in the launch with the median
--   step: what single calls of all measured steps took, whether that changed from the first steps to the last, and how
--   evenly the cell's calls come
-- columns:
--   run_id environment backend architecture model batch method ranks group_knobs
--   kind | text | what the call does: reduce, reduce-scatter, all-gather, push, pull, broadcast
--   message_bytes | bytes, integer, exact | of each of these calls
--   steps | integer | measured steps whose calls were seen: on a GPU's queue each eighth
--   calls | integer | such calls in them
--   left_out | integer, optional | calls of the cell that were too many to be kept one by one
--   call_us | us, real | the median call
--   p99_us | us, real | the 99th percentile
--   first_us | us, real | the median call of the first tenth of the steps
--   last_us | us, real | the median call of the last tenth
--   gap_us | us, real | between the starts of two calls of the cell: the median step's median
--   largest_gap_us | us, real | the same: the median step's largest
--   burstiness | real | of all these gaps: -1 as a clock ticks, 0 by chance, towards 1 in bursts
--   step_bandwidth | bytes_per_s, real | bytes of all calls of the cell in a step over the time in them: the median step
--   lowest_bandwidth | bytes_per_s, real | the same: the slowest step
--   settings
-- burstiness = (s - m) / (s + m) of the gaps' deviation s and mean m (Goh, Barabasi 2008). Gaps reach back into the
-- step before, so that a method that meets every tau steps has the long one, too. A call that crosses the barrier is
-- with the step in which it ended. On a GPU's queue a gap is within a step, and times are the GPU's; methods whose sums
-- cross the step's end have none there. Methods of servers that answer each worker by itself (asp, ssp, staggered,
-- backup) call from the host on GPUs, too: every step up to the 10,000th, by the host's clock. The library's own engine (ddp) tells of no
-- single call. Where a server answers each worker by itself a pull begins when the push has left, and waits for the
-- answer; a message without a piece of the plan has all of them.
WITH numbered AS (
  SELECT v_training.*, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts
),
worker AS MATERIALIZED (
  SELECT n.*, t.calls AS seen, t.pieces
  FROM numbered n
  JOIN v_training_rank t ON t.measurement_row = n.measurement_row AND t.first_worker
  WHERE n.place = (n.launches + 1) / 2 AND json_type(t.calls) = 'object'
),
piece AS MATERIALIZED (
  SELECT w.measurement_row, p.key AS piece, coalesce(json_extract(p.value, '$[3]'), 4 * json_extract(p.value, '$[1]')) AS bytes
  FROM worker w, json_each(w.pieces) p
),
call AS MATERIALIZED (
  SELECT w.measurement_row, json_extract(c.value, '$[0]') AS step,
         json_extract(w.seen, '$.kinds[' || json_extract(c.value, '$[1]') || ']') AS kind,
         coalesce(json_extract(c.value, '$[5]'), p.bytes) AS bytes,
         json_extract(c.value, '$[4]') AS us
  FROM worker w, json_each(w.seen, '$.each') c
  LEFT JOIN piece p ON p.measurement_row = w.measurement_row AND p.piece = json_extract(c.value, '$[2]')
),
extent AS (SELECT measurement_row, max(step) + 1 AS steps FROM call GROUP BY measurement_row),
ranked AS (
  SELECT c.*, 10 * c.step < e.steps AS early, 10 * (e.steps - 1 - c.step) < e.steps AS late,
         row_number() OVER (PARTITION BY c.measurement_row, kind, bytes ORDER BY us) AS place,
         count(*) OVER (PARTITION BY c.measurement_row, kind, bytes) AS n,
         row_number() OVER (PARTITION BY c.measurement_row, kind, bytes, 10 * c.step < e.steps ORDER BY us) AS early_place,
         count(*) OVER (PARTITION BY c.measurement_row, kind, bytes, 10 * c.step < e.steps) AS early_n,
         row_number() OVER (PARTITION BY c.measurement_row, kind, bytes, 10 * (e.steps - 1 - c.step) < e.steps ORDER BY us) AS late_place,
         count(*) OVER (PARTITION BY c.measurement_row, kind, bytes, 10 * (e.steps - 1 - c.step) < e.steps) AS late_n
  FROM call c JOIN extent e USING (measurement_row)
),
kind_of_call AS (
  SELECT measurement_row, kind, bytes, n AS calls,
         avg(us) FILTER (WHERE place IN ((n + 1) / 2, (n + 2) / 2)) AS call_us,
         max(us) FILTER (WHERE place = (99 * n + 99) / 100) AS p99_us,
         avg(us) FILTER (WHERE early AND early_place IN ((early_n + 1) / 2, (early_n + 2) / 2)) AS first_us,
         avg(us) FILTER (WHERE late AND late_place IN ((late_n + 1) / 2, (late_n + 2) / 2)) AS last_us
  FROM ranked
  GROUP BY measurement_row, kind, bytes
),
rate AS MATERIALIZED (
  SELECT measurement_row, 1e6 * sum(bytes) / sum(us) AS rate,
         row_number() OVER (PARTITION BY measurement_row ORDER BY 1e6 * sum(bytes) / sum(us)) AS place,
         count(*) OVER (PARTITION BY measurement_row) AS n
  FROM call
  GROUP BY measurement_row, step
  HAVING sum(us) > 0 AND count(bytes) = count(*)
),
bandwidth AS (
  SELECT measurement_row, avg(rate) FILTER (WHERE place IN ((n + 1) / 2, (n + 2) / 2)) AS median, min(rate) AS lowest
  FROM rate
  GROUP BY measurement_row
),
step AS MATERIALIZED (
  SELECT w.measurement_row, json_extract(s.value, '$[2]') AS gap_us, json_extract(s.value, '$[3]') AS largest_us
  FROM worker w, json_each(w.seen, '$.steps') s
),
spread AS (
  SELECT measurement_row, gap_us, largest_us,
         row_number() OVER (PARTITION BY measurement_row ORDER BY gap_us) AS gap_place, count(gap_us) OVER (PARTITION BY measurement_row) AS gap_n,
         row_number() OVER (PARTITION BY measurement_row ORDER BY largest_us) AS largest_place
  FROM step
  WHERE gap_us IS NOT NULL
),
evenness AS (
  SELECT measurement_row, avg(gap_us) FILTER (WHERE gap_place IN ((gap_n + 1) / 2, (gap_n + 2) / 2)) AS gap_us,
         avg(largest_us) FILTER (WHERE largest_place IN ((gap_n + 1) / 2, (gap_n + 2) / 2)) AS largest_gap_us
  FROM spread
  GROUP BY measurement_row
)
SELECT w.run_id, w.environment, w.backend, w.architecture, w.model, w.batch, w.method, w.ranks,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = w.launch_id) AS group_knobs, k.kind, k.bytes AS message_bytes,
       json_array_length(w.seen, '$.steps') AS steps, k.calls, json_extract(w.seen, '$.left_out') AS left_out,
       k.call_us, k.p99_us, k.first_us, k.last_us, e.gap_us, e.largest_gap_us,
       json_extract(w.seen, '$.burstiness') AS burstiness, b.median AS step_bandwidth, b.lowest AS lowest_bandwidth, w.settings
FROM worker w
JOIN kind_of_call k ON k.measurement_row = w.measurement_row
LEFT JOIN evenness e ON e.measurement_row = w.measurement_row
LEFT JOIN bandwidth b ON b.measurement_row = w.measurement_row
ORDER BY w.environment, w.backend, w.model, w.batch, w.ranks, w.method, w.settings, k.kind, k.bytes
