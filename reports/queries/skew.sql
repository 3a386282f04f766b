-- title: Arrival skew
-- row: one cell: how far apart its ranks left the barrier, by clocks compared before and after the cells
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, algorithm,
       count(skew_us) AS launches, avg(skew_us) AS skew_us, max(skew_max_us) AS skew_max_us,
       max(skew_error_us) AS skew_error_us, avg(skew_us) / avg(median_us) AS share_of_time
FROM v_measurement
WHERE run_row = ?1 AND counts
GROUP BY run_id, cell_row
HAVING count(skew_us) > 0
ORDER BY environment, backend, architecture, collective, size_bytes, ranks
