-- title: Published next to measured
-- row: one figure of a study, and what the run measured of the same: first where the two are furthest apart, then figures
--   of which the run has nothing, then all else that the studies publish, as JSON
-- columns:
--   run_id
--   study | text | whose figure it is
--   quantity | text | what it is of; ratios are those of times
--   published | text | the figure
--   here | text | which cell was measured: of several sizes the largest, of several settings the best
--   measured | real | the same quantity in this run
--   deviation | real | measured over published
-- The studies had other machines, other versions and messages of 1 GiB: compare directions and factors, not times. ?2 is
-- profiles/published/figures.toml as JSON: its [compared] says what a figure there is of in the words of the tables here.
WITH cell AS (
  SELECT *, iif(size_bytes % 1048576, (size_bytes / 1024) || ' KiB', (size_bytes / 1048576) || ' MiB') || ', ' || ranks || ' ranks' AS extent
  FROM (SELECT environment, backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place, group_knobs,
               cell_knobs, median_us, h2d_us, d2h_us,  -- not all: they are sorted twice
               row_number() OVER (PARTITION BY cell_row ORDER BY median_us) AS place,
               count(*) OVER (PARTITION BY cell_row) AS launches
        FROM v_measurement WHERE run_row = ?1 AND counts AND ranks > 1)
  WHERE place = (launches + 1) / 2
),
-- Each library with its fastest setting.
fastest AS (
  SELECT *, min(median_us) AS us FROM cell WHERE environment = 'bare-metal' AND collective <> 'training'
  GROUP BY backend, architecture, collective, size_bytes, ranks, datatype, in_place
),
-- Made once: it is looked at three times.
training_cell AS MATERIALIZED (SELECT * FROM v_training WHERE run_row = ?1 AND counts),
trained AS (
  SELECT *, method || ', ' || model || ', batch ' || batch || ', ' || workers || ' workers' AS extent
  FROM (SELECT *, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS place,
               count(*) OVER (PARTITION BY cell_id) AS launches
        FROM training_cell WHERE trained_as_one)
  WHERE place = (launches + 1) / 2
),
-- What so many ranks train at most: the time of equal samples is its reciprocal.
job AS (
  -- How many steps were measured says nothing of a step's rate: servers take more for as many samples.
  SELECT *, json_remove(task, '$.steps') AS same, max(samples_per_s) AS rate FROM trained
  GROUP BY environment, backend, architecture, model, batch, ranks, same
),
measured(kind, library, architecture, operation, subject, value, here, rank) AS (
  SELECT 'environment', backend, architecture, collective, environment, median_us / bare_us,
         backend || ', ' || algorithm || ', ' || extent, size_bytes
  FROM (SELECT *, max(iif(environment = 'bare-metal', median_us, NULL))
               OVER (PARTITION BY backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place,
                                  group_knobs, cell_knobs) AS bare_us FROM cell)
  WHERE bare_us IS NOT NULL
  UNION ALL
  SELECT 'library', a.backend, architecture, collective, b.backend, a.us / b.us, a.backend || ' over ' || b.backend || ', ' || a.extent, size_bytes
  FROM fastest a JOIN fastest b USING (architecture, collective, size_bytes, ranks, datatype, in_place)
  UNION ALL
  SELECT 'library', a.backend, architecture, 'training', b.backend, b.rate / a.rate,
         a.backend || ', ' || a.extent || ' over ' || b.backend || ', ' || b.extent, a.rate
  FROM job a JOIN job b USING (environment, architecture, model, batch, ranks, same) WHERE environment = 'bare-metal'
  UNION ALL
  SELECT 'architecture', backend, a.architecture, 'training', environment, b.rate / a.rate,
         backend || ', ' || a.extent || ' over ' || b.extent, a.rate
  FROM job a JOIN job b USING (environment, backend, model, batch, ranks, same) WHERE b.architecture = 'ring'
  UNION ALL
  SELECT 'copies', backend, architecture, collective, environment,
         100 * (coalesce(h2d_us, 0) + coalesce(d2h_us, 0)) / median_us, backend || ', ' || extent, size_bytes
  FROM cell WHERE coalesce(h2d_us, d2h_us) IS NOT NULL
  UNION ALL
  SELECT 'speed-up', method, workers, model, batch, speedup, environment || ', ' || backend, speedup FROM trained
  UNION ALL
  SELECT 'accuracy', t.synchronisation, '', 'training', '', 100 * (t.accuracy - p.accuracy),
         environment || ', ' || backend || ', ' || t.method || ', ' || model || ', ' || workers || ' workers', t.trained_us
  FROM training_cell t JOIN training_cell p USING (environment, backend, model, batch, workers, task, block)
  WHERE p.plain AND t.compression = 'none' AND t.trained_us > 0
),
entry AS (  -- rows of all tables
  SELECT replace(substr(t.path, 3), '"', '') AS name, r.value AS row
  FROM json_tree(?2) t, json_each(t.value) r WHERE t.key = 'rows' AND t.type = 'array'
),
figure(study, kind, library, architecture, operation, subject, value, quantity) AS (
  SELECT s.key, f.value ->> 'kind', f.value ->> 'library', f.value ->> 'architecture', f.value ->> 'operation',
         f.value ->> 'subject', f.value ->> 'value', f.value ->> 'of'
  FROM json_each(?2, '$.compared') s, json_each(s.value) f
  UNION ALL
  SELECT 'ddl_benchmarks', 'speed-up', lower(row ->> 'method'), substr(g.key, 5) + 0, replace(lower(row ->> 'model'), 'resnet-', 'resnet'),
         ?2 ->> ('$.ddl_benchmarks.speedup.local_batch.' || (row -> 'model')),
         iif(g.type = 'array', (g.value ->> 0) / 2 + (g.value ->> 1) / 2, g.value),
         (row ->> 'model') || ', ' || (row ->> 'method') || ', ' || substr(g.key, 5) || ' workers over ' || (row ->> 'link') || ': speed-up over one'
           || iif(g.type = 'array', ', middle of one range for all methods', '')
           || iif(row ->> 'doubtful', ', probably measured over the slower link', '')
  FROM entry, json_each(row) g WHERE name = 'ddl_benchmarks.speedup' AND g.key LIKE 'gpus%'
),
-- A study's name of several libraries stands for the one that is best here.
pairs AS (
  SELECT f.study, f.quantity, f.value AS published, m.here, m.value AS measured,
         row_number() OVER (PARTITION BY f.study, f.quantity ORDER BY m.rank DESC, m.value) AS place
  FROM figure f LEFT JOIN measured m ON m.kind = f.kind AND m.architecture = f.architecture AND m.operation = f.operation
    AND m.subject = f.subject
    AND (m.library = f.library OR m.library IN (SELECT value FROM json_each(?2, '$.libraries.' || f.library)))
)
SELECT (SELECT uuid FROM run WHERE id = ?1) AS run_id, coalesce(?2 ->> ('$.studies.' || study), study) AS study, quantity, published, here,
       measured, measured / nullif(published, 0) AS deviation
FROM (
  SELECT study, quantity, published, here, measured FROM pairs WHERE place = 1
  UNION ALL
  SELECT substr(name, 1, instr(name, '.') - 1), substr(name, instr(name, '.') + 1), row, NULL, NULL
  FROM entry WHERE name <> 'ddl_benchmarks.speedup'
  UNION ALL
  SELECT replace(substr(t.path, 3), '"', ''), t.key, json_remove(t.value, '$.source', '$.units', '$.note', '$.rows'), NULL, NULL
  FROM json_tree(?2) t WHERE t.type = 'object' AND t.value ->> 'source' IS NOT NULL AND t.path <> '$'
    AND json_remove(t.value, '$.source', '$.units', '$.note', '$.rows') <> '{}'
)
ORDER BY measured IS NULL, typeof(published) = 'text', abs(ln(abs(deviation))) DESC, study, quantity
