-- title: Messages that reach the library
-- row: one training cell, the first worker in the launch with the median step: how many messages its method makes of
--   the gradients, how large they are, and when in the step they start
-- columns:
--   run_id environment backend
--   carried_by | text | the library that moved the gradients
--   architecture model batch method ranks group_knobs messages
--   total_bytes | bytes, integer | of all messages, as they reach the library
--   nominal_bytes | bytes, integer | of the values in them, as they are computed
--   smallest_bytes | bytes, integer, exact | the smallest message
--   p25_bytes | bytes, real | first quartile
--   median_bytes | bytes, real | the median
--   p75_bytes | bytes, real | third quartile
--   largest_bytes | bytes, integer, exact | the largest
--   traced_us | us, real | the traced step
--   backward_start_us | us, real | since its forward pass began
--   backward_end_us | us, real | since its forward pass began
--   first_start_us | us, real | when the first message starts
--   last_start_us | us, real | when the last one does
--   backward_left | real | share of the backward pass still ahead when a message starts, mean over bytes
--   median_gap_us | us, real | between the starts of two messages
--   largest_gap_us | us, real | the largest such gap
--   settings
-- Times since the forward pass of the traced step began, the cell's last one; NULL where the engine (ddp) or a GPU's
-- queue tells none. traced_us: that step. p25, p75: quartiles. gap: between the starts of two messages. backward_left:
-- share of the backward pass that is still ahead when a message starts, mean over bytes; 0 = all start at its end. A
-- message split in halves (dear) or answered by a server counts once; an encoded one has the bytes of its codec, where
-- they depend on values those of plain ones.
WITH numbered AS (
  SELECT v_training.*, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
         count(*) OVER (PARTITION BY cell_id) AS launches
  FROM v_training
  WHERE run_row = ?1 AND counts
),
worker AS MATERIALIZED (
  SELECT n.*, t.pieces, t.engine_buckets, t.trace, t.carried_by
  FROM numbered n
  JOIN v_training_rank t ON t.measurement_row = n.measurement_row AND t.first_worker
  WHERE n.place = (n.launches + 1) / 2
),
message AS (
  SELECT w.measurement_row, coalesce(json_extract(p.value, '$[3]'), 4 * json_extract(p.value, '$[1]')) AS bytes,
         4 * json_extract(p.value, '$[1]') AS nominal
  FROM worker w, json_each(w.pieces) p
  WHERE w.engine_buckets IS NULL
  UNION ALL
  SELECT w.measurement_row, b.value, b.value FROM worker w, json_each(w.engine_buckets) b
),
sized AS (
  SELECT *, row_number() OVER (PARTITION BY measurement_row ORDER BY bytes) AS place,
         count(*) OVER (PARTITION BY measurement_row) AS n
  FROM message
),
size AS (
  SELECT measurement_row, n AS messages, sum(bytes) AS total_bytes, sum(nominal) AS nominal_bytes,
         min(bytes) AS smallest_bytes,
         max(bytes) FILTER (WHERE place = (n + 3) / 4) AS p25_bytes,
         max(bytes) FILTER (WHERE place = (n + 1) / 2) AS median_bytes,
         max(bytes) FILTER (WHERE place = (3 * n + 3) / 4) AS p75_bytes, max(bytes) AS largest_bytes
  FROM sized
  GROUP BY measurement_row
),
event AS MATERIALIZED (
  SELECT w.measurement_row, json_extract(e.value, '$.name') AS name, json_extract(e.value, '$.cat') AS kind,
         json_extract(e.value, '$.ts') AS start_us, json_extract(e.value, '$.dur') AS took_us,
         json_extract(e.value, '$.args.bytes') AS bytes
  FROM worker w, json_each(w.trace) e
),
step AS (
  SELECT measurement_row, min(start_us) FILTER (WHERE kind = 'computation') AS start_us,
         min(start_us) FILTER (WHERE name LIKE 'backward %') AS backward_us,
         max(start_us + took_us) FILTER (WHERE name LIKE 'backward %') AS backward_end_us,
         max(start_us + took_us) AS end_us
  FROM event
  GROUP BY measurement_row
),
started AS (  -- what started before this step's backward pass belongs to the step before
  SELECT s.*, e.start_us - s.start_us AS at_us, e.bytes,
         e.start_us - lag(e.start_us) OVER (PARTITION BY e.measurement_row ORDER BY e.start_us) AS gap_us
  FROM event e
  JOIN step s ON s.measurement_row = e.measurement_row
  WHERE e.kind = 'communication' AND (e.name LIKE 'reduce %' OR e.name LIKE 'reduce-scatter %')
    AND e.start_us >= s.backward_us
),
apart AS (
  SELECT *, row_number() OVER (PARTITION BY measurement_row ORDER BY gap_us) AS place,
         count(*) OVER (PARTITION BY measurement_row) AS n
  FROM started
  WHERE gap_us IS NOT NULL
),
gap AS (
  SELECT measurement_row, max(gap_us) FILTER (WHERE place = (n + 1) / 2) AS median_gap_us, max(gap_us) AS largest_gap_us
  FROM apart
  GROUP BY measurement_row
),
timing AS (
  SELECT measurement_row, min(at_us) AS first_start_us, max(at_us) AS last_start_us,
         sum(bytes * max(0.0, backward_end_us - start_us - at_us) / (backward_end_us - backward_us)) / sum(bytes)
           AS backward_left
  FROM started
  GROUP BY measurement_row
)
SELECT w.run_id, w.environment, w.backend, w.carried_by, w.architecture, w.model, w.batch, w.method, w.ranks,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = w.launch_id) AS group_knobs, s.messages, s.total_bytes,
       s.nominal_bytes, s.smallest_bytes, s.p25_bytes, s.median_bytes, s.p75_bytes, s.largest_bytes,
       p.end_us - p.start_us AS traced_us,
       p.backward_us - p.start_us AS backward_start_us, p.backward_end_us - p.start_us AS backward_end_us,
       t.first_start_us, t.last_start_us, t.backward_left, g.median_gap_us, g.largest_gap_us, w.settings
FROM worker w
JOIN size s ON s.measurement_row = w.measurement_row
LEFT JOIN step p ON p.measurement_row = w.measurement_row
LEFT JOIN timing t ON t.measurement_row = w.measurement_row
LEFT JOIN gap g ON g.measurement_row = w.measurement_row
ORDER BY w.environment, w.backend, w.model, w.batch, w.ranks, s.messages, w.method
