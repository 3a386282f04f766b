-- title: Warm-up
-- row: one cell: launches whose measured iterations began before its times had settled. What warm-up iterations
--   prime, which no statistic has: channels and buffers of the libraries, queue pairs and connections between ranks,
--   compiled kernels and CUDA graphs, pages and caches
-- columns:
--   @axes launches
--   unsettled_launches | integer | launches measured before their times had settled
--   settled_at_most | integer | iterations after which they had
--   drifting_launches | integer | launches whose first and last third differ
--   warmup | text | long enough, now and then too short, warm-up too short, or too few iterations to tell
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place,
       group_knobs, cell_knobs,
       count(*) AS launches, sum(settled_at > 0) AS unsettled_launches,
       max(settled_at) AS settled_at_most, sum(not_stationary) AS drifting_launches,
       CASE WHEN count(settled_at) = 0 THEN 'too few iterations to tell'
            WHEN sum(settled_at > 0) * 2 > count(*) THEN 'warm-up too short'
            WHEN sum(settled_at > 0) > 0 THEN 'now and then too short'
            ELSE 'long enough' END AS warmup
FROM v_measurement
WHERE run_row = ?1 AND counts
GROUP BY run_id, cell_row
ORDER BY environment, backend, architecture, collective, size_bytes, ranks, cell_row
