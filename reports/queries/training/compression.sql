-- title: Encoded gradients
-- row: one training cell with a codec, its median launch: bytes against those of plain values, what encoding and decoding
--   took, and its time for each sample over the fastest plain one's in the same launches; one row for each level of groups that has a codec
-- measured_by: run experiments/training_codecs.toml
-- columns:
--   run_id environment backend
--   carried_by | text | the library that moved the gradients
--   architecture model batch method
--   synchronisation | text | when workers wait for each other
--   level | text | all workers; where workers form groups: within groups (group_compression), groups to server (compression)
--   compression | text | codec of the gradients there
--   error_feedback | integer | 1 = what encoding takes is added to the next gradient
--   workers group_knobs launches
--   nominal_bytes | bytes, integer | all gradients as plain values
--   message_bytes | bytes, real | given to the library by the first worker in a step; not what a colocated server takes from itself
--   formula_bytes | bytes, real | the same by formula; NULL: depends on the values
--   smaller | real | the given messages as plain values over given bytes; NULL: none are given
--   wire_bytes | bytes, real | payload sent by the busiest rank in a step
--   counted_bytes | bytes, real | what the kernel counted; NULL where bytes go another way
--   step_us | us, real | one training step, or one round
--   encode_us | us, real | of that step, mean, the slowest worker
--   decode_us | us, real | of that step, mean, the slowest worker
--   coding_exposed_us | us, real | of encoding and decoding what is not hidden, at most
--   exposed_us
--   over_plain | real | time for each sample over the fastest plain one's, of equal data, precision and pace, median of blocks
--   last_loss | real | mean of the last ten steps
--   accuracy | real | on held-out samples
--   max_difference | real | from one process that encodes every worker's gradients
--   settings
--   note | text | what the surveys have to say against it, or for another library
-- A lossy step is no measure of training: query time_to_target ranks by the time until an accuracy. wire_bytes: of an
-- all-reduce what a ring sends, of gathered frames one to each other worker. encode_us and decode_us run on the thread
-- that sends, next to the backward pass unless the method waits for its end: exposed_us is what is not hidden. More than
-- 32 times smaller needs codecs that leave values out. Of a cell with groups wire_bytes, counted_bytes and step_us are those of
-- both levels together; between groups and server the first worker of each group sends.
-- note: a survey accepts 8 bits for large models (100 million parameters or more) and warns of more aggressive codecs; of
-- sparse payloads it says that libraries which add them as such beat gathering, which grows with the workers.
WITH levels(level, of_groups, path) AS (
  VALUES ('all workers', 0, '$.compression'), ('groups to server', 1, '$.compression'),
         ('within groups', 1, '$.group_compression')
),
noted AS (
  SELECT v.*, t.carried_by,
         l.level, coalesce(json_extract(v.settings, l.path), 'none') AS codec,
         CASE l.path WHEN '$.compression' THEN t.coding ELSE t.group_coding END AS figures,
         (SELECT max(json_extract(CASE l.path WHEN '$.compression' THEN e.coding ELSE e.group_coding END, '$.encode_us')) FROM v_training_rank e
          WHERE e.measurement_row = v.measurement_row) AS encode_us,
         (SELECT max(json_extract(CASE l.path WHEN '$.compression' THEN e.coding ELSE e.group_coding END, '$.decode_us')) FROM v_training_rank e
          WHERE e.measurement_row = v.measurement_row) AS decode_us
  FROM v_training v
  JOIN levels l ON l.of_groups = (json_extract(v.settings, '$.group_size') IS NOT NULL)
  JOIN v_training_rank t ON t.measurement_row = v.measurement_row AND t.first_worker
  WHERE v.run_row = ?1 AND v.counts AND coalesce(json_extract(v.settings, l.path), 'none') <> 'none'
),
coded AS (  -- of older runs everything was counted
  SELECT *, 1.0 * coalesce(json_extract(figures, '$.plain_bytes'), json_extract(figures, '$.nominal_bytes')) AS plain_bytes
  FROM noted
),
plain AS (
  SELECT environment, backend, model, batch, workers, block, max(samples_per_s) AS samples_per_s,
         json_remove(task, '$.oracle', '$.samples', '$.evaluate', '$.steps', '$.epochs', '$.target', '$.looks') AS pace
  FROM v_training
  WHERE run_row = ?1 AND counts AND trained_as_one
  GROUP BY environment, backend, model, batch, workers, block, pace
),
numbered AS (
  SELECT c.*, m.after_backward, p.samples_per_s / c.samples_per_s AS over,
         CASE WHEN json_extract(c.figures, '$.nominal_bytes') >= 4e8
                AND c.plain_bytes > 4.5 * json_extract(c.figures, '$.message_bytes')
           THEN 'fewer than 8 bits a value of a large model: watch its accuracy' ELSE '' END AS aggressive,
         CASE WHEN k.sparse AND k.gathered AND NOT k.marked AND (c.architecture <> 'ps' OR c.level = 'within groups')
                AND NOT coalesce(m.gossip, 0)
           THEN 'a library that adds sparse values (SparcML, OmniReduce, Ok-Topk) would not gather those of all workers'
           ELSE '' END AS sparse,
         row_number() OVER (PARTITION BY c.cell_id, c.level ORDER BY c.step_us) AS place,
         row_number() OVER (PARTITION BY c.cell_id, c.level ORDER BY p.samples_per_s / c.samples_per_s) AS over_place,
         count(*) OVER (PARTITION BY c.cell_id, c.level) AS n
  FROM coded c
  LEFT JOIN v_training_method m ON m.method = c.method
  LEFT JOIN v_codec k ON k.compression = c.codec
  LEFT JOIN plain p ON p.environment = c.environment AND p.backend = c.backend AND p.model = c.model
    AND p.batch = c.batch AND p.workers = c.workers AND p.block = c.block
    AND p.pace = json_remove(c.task, '$.oracle', '$.samples', '$.evaluate', '$.steps', '$.epochs', '$.target', '$.looks')
)
SELECT a.run_id, a.environment, a.backend, a.carried_by, a.architecture, a.model, a.batch, a.method, a.synchronisation, a.level,
       a.codec AS compression,
       json_extract(a.figures, '$.error_feedback') AS error_feedback, a.workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = a.launch_id) AS group_knobs, a.n AS launches,
       json_extract(a.figures, '$.nominal_bytes') AS nominal_bytes,
       json_extract(a.figures, '$.message_bytes') AS message_bytes,
       json_extract(a.figures, '$.formula_bytes') AS formula_bytes,
       a.plain_bytes / nullif(json_extract(a.figures, '$.message_bytes'), 0) AS smaller,
       a.wire_bytes, a.counted_bytes, a.step_us, a.encode_us, a.decode_us,
       CASE WHEN a.after_backward THEN a.encode_us + a.decode_us
         ELSE min(a.encode_us + a.decode_us, a.exposed_us) END AS coding_exposed_us, a.exposed_us, b.over AS over_plain,
       a.last_loss, a.accuracy, a.max_difference, a.settings,
       nullif(a.aggressive || CASE WHEN a.aggressive <> '' AND a.sparse <> '' THEN '; ' ELSE '' END || a.sparse, '') AS note
FROM numbered a
JOIN numbered b ON b.cell_id = a.cell_id AND b.level = a.level AND b.over_place = (b.n + 1) / 2
WHERE a.place = (a.n + 1) / 2
ORDER BY a.environment, a.backend, a.model, a.batch, a.workers, a.step_us, a.cell_id, a.level
