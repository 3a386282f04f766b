-- title: Launch medians
-- row: one cell in one launch that counts: the unit behind every interval
-- columns:
--   @cell block launch_id
--   n | integer | timed iterations
--   median_us | us, real | median of this launch's iterations
--   collective_us h2d_us d2h_us send_us compute_us
--   device_us | us, real | by the GPU's clock
--   cadence
--   batch | integer | calls to a sample
--   barrier | text | how ranks met before a sample
--   rank_aggregation | text | which of the ranks' times counts
--   algorithm_ran | text | what the library says it ran
--   not_stationary | integer | 1 = first and last third differ
--   lag1 | real | correlation of an iteration with the next
--   outliers | integer | iterations far off
--   busbw_factor | real | bus bandwidth over size per time
--   waited_share | real | of its time that the rank which waited most had no core; empty = not known
--   share_at_work | real | of the median what is left at least without such waits, where the noise gate flagged the launch
--   resolution_us | us, real | half a unit of the last digit that an imported table prints; empty = not known
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype,
       algorithm, in_place, group_knobs, cell_knobs, regime_name AS regime, block, launch_id, n,
       median_us, collective_us, h2d_us, d2h_us, send_us, compute_us, device_us, cadence, batch, barrier,
       rank_aggregation, algorithm_ran, not_stationary, lag1, outliers, busbw_factor, waited_share,
       CASE WHEN noisy AND median_us > 0 THEN min(1.0, unwaited_us / median_us) END AS share_at_work,
       (SELECT i.resolution_us FROM imported_measurement i
        WHERE i.measurement_id = measurement_row) AS resolution_us
FROM v_measurement
WHERE run_row = ?1 AND counts
ORDER BY architecture, collective, ranks, datatype, algorithm, in_place, group_knobs,
         cell_knobs, size_bytes, environment, backend, block
