-- title: Launch medians
-- row: one cell in one launch that counts: the unit behind every interval
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype,
       algorithm, in_place, group_knobs, cell_knobs, regime_name AS regime, block, launch_id, n,
       median_us, collective_us, h2d_us, d2h_us, send_us, compute_us, device_us, cadence, batch, barrier,
       rank_aggregation, algorithm_ran, not_stationary, lag1, outliers, busbw_factor
FROM v_measurement
WHERE run_row = ?1 AND counts
ORDER BY architecture, collective, ranks, datatype, algorithm, in_place, group_knobs,
         cell_knobs, size_bytes, environment, backend, block
