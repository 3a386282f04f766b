-- title: Published cost orders
-- row: one training cell, over its launches: the survey's order of communication of its architecture, synchronisation and
--   compression, evaluated for one round of the busiest rank, with the bytes that were sent and counted
-- columns:
--   run_id environment backend
--   carried_by | text | the library that moved the gradients
--   architecture model batch method
--   synchronisation | text | when workers wait for each other
--   compression | text | codec of what travels
--   workers group_knobs launches
--   published_order | text | bits a round; NULL: the survey has no such cell
--   order_bytes | bytes, real | the order evaluated: N parameters, n workers, b bits, k kept, tau local steps, p neighbours
--   wire_bytes | bytes, real | payload sent by the busiest rank in a round
--   over_order | real | wire over order bytes
--   counted_bytes | bytes, real | what the kernel counted; NULL where bytes go another way
--   settings
-- An order says how bytes grow, not how many: a ring all-reduce sends 2 (n - 1) / n of its 32 N bits. Servers are taken to be the
-- busiest, as their order is the larger one. Its logarithm counts the bits of a place; here a place takes 32. Codecs whose
-- values say how many are kept, low rank, merges of values (gtopk), marks in a sample (cocktail) and sketches have no order.
WITH cells AS (
  SELECT v.*, (SELECT w.carried_by FROM v_training_rank w WHERE w.measurement_row = v.measurement_row AND w.first_worker) AS carried_by,
         (SELECT sum(json_extract(p.value, '$[1]')) FROM json_each(t.pieces) p) AS parameters,
         coalesce(CAST(json_extract(v.settings, '$.density') AS REAL), 0.01) AS density,
         coalesce(CAST(json_extract(v.settings, '$.local_steps') AS REAL), 1) AS tau,
         CASE WHEN k.by_bits THEN coalesce(CAST(json_extract(v.settings, '$.bits') AS REAL), 4) ELSE k.bits END AS bits,
         k.sparse AND k.by_density AND NOT k.merged AND NOT k.marked AS sparse,
         CASE WHEN m.gossip THEN 'gossip' WHEN v.architecture = 'ps' THEN 'PS' ELSE 'AR' END AS place, s.surveyed AS sync,
         min(v.workers - 1, CASE coalesce(json_extract(v.settings, '$.topology'), 'ring') WHEN 'ring' THEN 2 WHEN 'torus' THEN 4
           WHEN 'random-pairs' THEN 1 ELSE ceil(log2(v.workers)) END) AS peers
  FROM v_training v
  LEFT JOIN v_training_method m ON m.method = v.method
  LEFT JOIN v_synchronisation s ON s.synchronisation = replace(v.synchronisation, 'gossip ', '')
  LEFT JOIN v_codec k ON k.compression = v.compression
  JOIN v_training_rank t ON t.measurement_row = v.measurement_row AND t.rank = (
    SELECT min(rank) FROM training WHERE measurement_id = v.measurement_row)
  WHERE v.run_row = ?1 AND v.counts
),
ordered AS (
  SELECT *,
    CASE WHEN place = 'PS' AND sync = 'BSP' AND (compression = 'none' OR bits IS NOT NULL OR sparse) THEN '32 n N'
         WHEN place = 'PS' AND sync = 'SSP' AND compression = 'none' THEN '32 n N'
         WHEN place = 'PS' AND sync = 'LSGD' AND compression = 'none' THEN '32 n N'
         WHEN place = 'AR' AND sync IN ('BSP', 'LSGD') AND compression = 'none' THEN '32 N'
         WHEN place = 'AR' AND sync = 'BSP' AND bits IS NOT NULL THEN 'b N'
         WHEN place = 'AR' AND sync = 'BSP' AND sparse THEN 'k n (log N + 32)'
         WHEN place = 'gossip' AND sync IN ('BSP', 'LSGD') AND compression = 'none' THEN '32 N p'
    END AS published_order
  FROM cells
),
evaluated AS (
  SELECT *, CASE published_order WHEN '32 n N' THEN 32.0 * workers * parameters WHEN '32 N' THEN 32.0 * parameters
      WHEN 'b N' THEN bits * parameters WHEN '32 N p' THEN 32.0 * parameters * peers
      WHEN 'k n (log N + 32)' THEN density * parameters * workers * (log2(parameters) + 32) END / 8 AS order_bytes
  FROM ordered
)
SELECT run_id, environment, backend, carried_by, architecture, model, batch, method, synchronisation, compression, workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = evaluated.launch_id) AS group_knobs,
       count(*) AS launches, published_order, order_bytes, avg(wire_bytes) AS wire_bytes, avg(wire_bytes) / order_bytes AS over_order,
       avg(counted_bytes) AS counted_bytes, settings
FROM evaluated
GROUP BY cell_id, environment, backend, workers
ORDER BY environment, backend, model, batch, workers, place, sync, compression, method
