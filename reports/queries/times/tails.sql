-- title: Slow calls
-- row: one cell: its median next to its 95th and 99th percentile and its slowest iteration, each the
--   median over launches of that of one launch's iterations (batched ones are means of several
--   calls, which hide a slow one); a launch has a 95th percentile from 20 iterations on, a 99th
--   from 100
-- columns:
--   run_id environment backend architecture collective size_bytes ranks datatype algorithm in_place group_knobs cell_knobs launches
--   iterations | integer | fewest timed iterations of a launch
--   median_us | us, real | median of a launch's iterations
--   p95_us | us, real | 95th percentile of a launch's iterations
--   p95_launches | integer | launches that have one
--   p99_us | us, real | 99th percentile of a launch's iterations
--   p99_launches | integer | launches that have one
--   max_us | us, real | slowest iteration of a launch
--   worst_us | us, real | slowest of all launches
--   p95_over_median | real | median over launches of the 95th percentile over the launch's median
--   cadence | text | how calls were timed: isolated, or batched (several back to back to a sample)
WITH mine AS (
  SELECT * FROM v_measurement WHERE run_row = ?1 AND counts AND median_us > 0
), parts AS (
  SELECT cell_row, 'median' AS part, median_us AS value FROM mine
  UNION ALL SELECT cell_row, 'p95', p95_us FROM mine
  UNION ALL SELECT cell_row, 'p99', p99_us FROM mine
  UNION ALL SELECT cell_row, 'max', max_us FROM mine
  UNION ALL SELECT cell_row, 'share', p95_us / median_us FROM mine
), placed AS (
  SELECT cell_row, part, value,
         row_number() OVER (PARTITION BY cell_row, part ORDER BY value) AS place,
         count(*) OVER (PARTITION BY cell_row, part) AS known
  FROM parts WHERE value IS NOT NULL
), middles AS (
  SELECT cell_row, part, avg(value) AS value, max(known) AS known
  FROM placed WHERE place IN ((known + 1) / 2, (known + 2) / 2) GROUP BY cell_row, part
), wide AS (
  SELECT cell_row, max(iif(part = 'median', value, NULL)) AS median, max(iif(part = 'p95', value, NULL)) AS p95,
         max(iif(part = 'p99', value, NULL)) AS p99, max(iif(part = 'max', value, NULL)) AS slowest,
         max(iif(part = 'share', value, NULL)) AS share
  FROM middles GROUP BY cell_row
)
SELECT m.run_id, m.environment, m.backend, m.architecture, m.collective, m.size_bytes, m.ranks, m.datatype,
       m.algorithm, m.in_place, m.group_knobs, m.cell_knobs, count(*) AS launches, min(m.n) AS iterations,
       w.median AS median_us,
       w.p95 AS p95_us,
       count(m.p95_us) AS p95_launches,
       w.p99 AS p99_us,
       count(m.p99_us) AS p99_launches,
       w.slowest AS max_us,
       max(m.max_us) AS worst_us,
       w.share AS p95_over_median,
       group_concat(DISTINCT m.cadence) AS cadence
FROM mine m LEFT JOIN wide w USING (cell_row)
GROUP BY m.run_id, m.cell_row
ORDER BY m.environment, m.backend, m.architecture, m.collective, m.size_bytes, m.ranks
